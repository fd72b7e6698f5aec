// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A read or write: what a call asked for, and the state of the operation that it becomes. Filled in by calls.cc and by
// deferred work, worked off by the runner.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fi_rma.h>
#include <sys/uio.h>

#include "context/branches.h"
#include "local/bounce.h"
#include "local/local_memory.h"
#include "remote/access.h"
#include "transfer/pending.h"
#include "transfer/request.h"

namespace tofu {

class TxContext;

inline constexpr std::size_t rma_iov_limit = 4;       ///< local segments of an operation
inline constexpr std::size_t rma_remote_limit = 4;    ///< segments at the peer
inline constexpr std::size_t rma_inject_limit = BouncePool::large_size; ///< bound of inject_size

/// What a call asked for, before anything has been taken for it.
struct RmaCall {
    fi_msg_rma msg;      ///< its desc may be null
    std::uint64_t flags; ///< operation flags, FI_INJECT, FI_FENCE, FI_REMOTE_CQ_DATA, ...
    bool read;
    bool silent; ///< fi_inject_*: no entry on success
};

/// Flags of operations that calls may name.
[[nodiscard]] constexpr std::uint64_t known_rma_flags(bool read) noexcept
{
#ifdef FI_PRIORITY
    constexpr std::uint64_t priority = FI_PRIORITY; // a hint without effect here
#else
    constexpr std::uint64_t priority = 0; // libfabric 2 has no such flag
#endif
    constexpr std::uint64_t both = FI_COMPLETION | FI_MORE | FI_FENCE | FI_DELIVERY_COMPLETE |
                                   FI_TRANSMIT_COMPLETE | FI_INJECT_COMPLETE | priority;
    return read ? both : both | FI_REMOTE_CQ_DATA | FI_INJECT;
}

/// What the context's msg_order asks for.
[[nodiscard]] bool orders_writes(const TxContext& tx) noexcept;
[[nodiscard]] bool orders_reads(const TxContext& tx) noexcept;
/// What can be said of a call without its peer: 0 and its bytes in all, or the refusal.
[[nodiscard]] int check(const RmaCall& call, const TxContext& tx, std::size_t& total) noexcept;

/// One fi_read or fi_write in any of its forms, from the call to its completion.
struct RmaOp : Request, PendingOp, RemoteSide {
    /// The waiter of the last communication, which is the one that the target counts. It has a waiter of its own, since
    /// it leaves no event when it fails.
    struct Last : vcq::Waiter {
        RmaOp* op;
    };
    enum class Step : std::uint8_t {
        resolving, ///< -> posting: all keys known; -> ended: a key was refused
        posting,   ///< -> ended: every byte is posted and every notice came; -> resolving: a key was stale
        notifying, ///< -> ended: the sender took the CQ data
        ended
    };
    class RmaRunner* runner = nullptr;
    Last last{};
    fi_addr_t to = FI_ADDR_NOTAVAIL;
    std::uint64_t data = 0; ///< for the target's CQ
    Step step = Step::posting;
    bool read = false;
    bool strong_order = false;
    bool remote_notice = false; ///< the target counts RMA events
    bool remote_data = false;   ///< `data` goes to the target's CQ
    bool data_at_once = false;  ///< behind the bytes, not after their delivery
    bool sent_suffices = false; ///< FI_INJECT_COMPLETE
    bool fenced = false;        ///< FI_FENCE
    bool queued = false; ///< it is pending, and its line alone may finish it
    std::uint8_t local_count = 0;
    std::uint8_t acquired = 0; ///< of refs
    Branches::Way way = 0;
    Bounce bounce{};           ///< if it has one, all local bytes are there
    std::size_t total = 0;
    std::size_t posted = 0;
    iovec local[rma_iov_limit];
    LocalRef refs[rma_iov_limit];
};
static_assert(rma_remote_limit <= RemoteSide::most);

} // namespace tofu
