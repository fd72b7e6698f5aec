// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What libfabric 2 has for providers that share a queue, a counter or receives with another one, which owns them
// (fi_peer(3)). Declared here, since one binary serves libraries whose headers have it, have it otherwise, or lack it.
// Read by queue, match and endpoint; no code.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "provider/log.h"

namespace tofu::peer {

/// Of the library that has loaded us. "Providers being used as peers must target the same libfabric version": others than
/// those that we have seen may have it otherwise.
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
/// A receive of the owner's, or a message that waits for one, as both sides name it.
struct Entry;
/// What there is in it. Until 2.2 two links of the owner's come first.
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

/// Of a message that has come.
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

/// The context argument of the call that opens a T for its owner: it lasts as long as the call.
template <class T>
struct Import {
    std::size_t size;
    T* object;
};
/// That of `context`, or null: no T is there whose owner has all calls.
template <class T>
[[nodiscard]] T* imported(void* context) noexcept
{
    const auto* const import = static_cast<const Import<T>*>(context);
    T* const object = is_known() && import != nullptr && import->size >= sizeof(*import) ? import->object : nullptr;
    return object != nullptr && object->owner != nullptr && object->owner->size >= sizeof(*object->owner) ? object : nullptr;
}

} // namespace tofu::peer
