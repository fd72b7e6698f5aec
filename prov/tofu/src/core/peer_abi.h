// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The interface of libfabric 2 for providers that use a queue, a counter or receives of another provider (fi_peer(3)).
// It is declared here since one binary serves versions of libfabric that have it, have another form of it, or lack it.
// Queues (cq/cq.cc), receives (msg/match_queue.h) and their opening (api) follow it.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "core/log.h"

namespace tofu::peer {

/// Does the library that has loaded us have this form of the interface? "Providers being used as peers must target the
/// same libfabric version": versions that we have not seen may have another form.
[[nodiscard]] inline bool is_known() noexcept
{
    return FI_MAJOR(provider.fi_version) == 2 && FI_MINOR(provider.fi_version) <= 6;
}

// --- completion queues and counters

struct Cq;
struct CqOwnerOps {
    std::size_t size;
    ssize_t (*write)(Cq* cq, void* context, std::uint64_t flags, std::size_t length, void* buffer, std::uint64_t data,
                     std::uint64_t tag, fi_addr_t source);
    ssize_t (*write_error)(Cq* cq, const fi_cq_err_entry* entry);
};
struct Cq {
    struct fid fid;
    CqOwnerOps* owner;
};

struct Cntr;
struct CntrOwnerOps {
    std::size_t size;
    void (*inc)(Cntr* cntr);
    void (*inc_error)(Cntr* cntr);
};
struct Cntr {
    struct fid fid;
    CntrOwnerOps* owner;
};

// --- receives

struct Srx;
/// A receive of the owner, or a message that waits for one; both sides name it by this.
struct Entry;
/// Its fields. Until 2.2 two links of the owner come before them.
struct EntryFields {
    Srx* srx;
    fi_addr_t source;
    std::size_t size;
    std::uint64_t tag;
    std::uint64_t data;
    std::uint64_t flags;
    void* context;
    std::size_t count;
    void** desc;
    void* of_peer;
    void* of_owner;
    iovec* iov;
};
[[nodiscard]] inline EntryFields& fields_of(Entry* entry) noexcept
{
    const std::size_t links = FI_MINOR(provider.fi_version) < 3 ? 2 * sizeof(void*) : 0;
    return *reinterpret_cast<EntryFields*>(reinterpret_cast<char*>(entry) + links);
}

/// Describes a message that has come.
struct Match {
    fi_addr_t source;
    std::size_t size;
    std::uint64_t tag;
};
struct SrxOwnerOps {
    std::size_t size;
    int (*get_msg)(Srx* srx, Match* match, Entry** entry);
    int (*get_tag)(Srx* srx, Match* match, Entry** entry);
    int (*queue_msg)(Entry* entry);
    int (*queue_tag)(Entry* entry);
    void (*for_each_unknown)(Srx* srx, fi_addr_t (*source_of)(Entry* entry));
    void (*free_entry)(Entry* entry);
};
struct SrxPeerOps {
    std::size_t size;
    int (*start_msg)(Entry* entry);
    int (*start_tag)(Entry* entry);
    int (*discard_msg)(Entry* entry);
    int (*discard_tag)(Entry* entry);
};
struct Srx {
    fid_ep ep;
    SrxOwnerOps* owner;
    SrxPeerOps* peer;
};

/// The context argument of a call that opens a T for its owner; valid during the call.
template <class T>
struct Import {
    std::size_t size;
    T* object;
};
/// The T in `context`. Null, and a line in the log: there is none, or its owner lacks calls.
template <class T>
[[nodiscard]] T* imported(void* context) noexcept
{
    const auto* const import = static_cast<const Import<T>*>(context);
    T* const object = is_known() && import != nullptr && import->size >= sizeof(*import) ? import->object : nullptr;
    if (object != nullptr && object->owner != nullptr && object->owner->size >= sizeof(*object->owner))
        return object;
    TOFU_WARN(FI_LOG_CORE,
              "FI_PEER: the context has no object of an owner, or fi_peer(3) of libfabric %u.%u is unknown: use 2.0 to "
              "2.6\n",
              FI_MAJOR(provider.fi_version), FI_MINOR(provider.fi_version));
    return nullptr;
}

} // namespace tofu::peer
