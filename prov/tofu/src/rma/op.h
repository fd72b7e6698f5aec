// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A read or write: what a call asks for (RmaCall), and the state of the operation that it becomes (RmaOp). The calls
// and deferred work fill in the first, the runner the second.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fi_rma.h>
#include <sys/uio.h>

#include "mem/bounce_pool.h"
#include "mem/local_buffer.h"
#include "tx/operation.h"
#include "tx/pending_queue.h"
#include "tx/rails.h"
#include "tx/remote_memory.h"

namespace tofu {

class TxContext;

inline constexpr std::size_t rma_iov_limit = 4;       ///< local segments of an operation
inline constexpr std::size_t rma_remote_limit = 4;    ///< segments at the peer
inline constexpr std::size_t rma_inject_limit = BouncePool::large_size; ///< bound of inject_size

/// What a call asks for, before any resource is allocated.
struct RmaCall {
    fi_msg_rma msg;      ///< its desc may be null
    std::uint64_t flags; ///< operation flags, FI_INJECT, FI_FENCE, FI_REMOTE_CQ_DATA, ...
    bool read;
    bool silent; ///< fi_inject_*: no entry on success
};

/// Operation flags that a call may have.
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

/// Does the context's msg_order ask for an order of writes, of reads?
[[nodiscard]] bool orders_writes(const TxContext& tx) noexcept;
[[nodiscard]] bool orders_reads(const TxContext& tx) noexcept;
/// Checks what can be checked without knowing the peer. 0 and the number of bytes in `total`, or the refusal.
[[nodiscard]] int check(const RmaCall& call, const TxContext& tx, std::size_t& total) noexcept;

/// One fi_read or fi_write in any of its forms, from the call to its completion.
struct RmaOp : Request, PendingOp, RemoteSide {
    /// Waits for the last communication, the one that the target counts. It is separate from the operation's own waiter
    /// because its failure leaves no event at the target.
    struct Last : vcq::Waiter {
        RmaOp* op;
    };
    enum class Step : std::uint8_t {
        resolving, ///< -> posting: all keys known; -> ended: a key was refused
        posting,   ///< -> telling: every byte is posted and every notice came; -> resolving: some segments were refused
        telling,   ///< -> notifying: the further regions have been told of the operation
        notifying, ///< -> ended: the sender took the CQ data
        ended
    };
    /// Waits for communications to one segment, where they may be refused because the key is stale.
    struct Segment : vcq::Waiter {
        RmaOp* op;
    };
    class RmaRunner* runner = nullptr;
    Last last{};
    Segment segment[rma_remote_limit];
    fi_addr_t to = FI_ADDR_NOTAVAIL;
    std::uint64_t data = 0; ///< for the target's CQ
    Step step = Step::posting;
    bool read = false;
    bool strong_order = false;
    bool remote_notice = false; ///< the target counts RMA events
    bool empty_event = false;   ///< there are no bytes, and the event has not been posted
    bool names_no_region = false; ///< so the event of an operation without bytes goes to the peer's own word
    bool remote_data = false;   ///< `data` goes to the target's CQ
    bool data_at_once = false;  ///< the data follows the bytes at once, it does not wait for their delivery
    bool sent_suffices = false; ///< FI_INJECT_COMPLETE
    bool fenced = false;        ///< FI_FENCE
    bool queued = false; ///< the operation is in the pending queue, which alone may finish it
    std::uint8_t local_count = 0;
    std::uint8_t acquired = 0; ///< of refs
    std::uint8_t complete = 0; ///< segments of which everything is posted, a bit each
    Rails::Index rail = 0;
    Bounce bounce{};           ///< if there is one, it holds all local bytes
    std::size_t total = 0;
    std::size_t posted = 0;
    iovec local[rma_iov_limit];
    LocalRef refs[rma_iov_limit];
};
static_assert(rma_remote_limit <= RemoteSide::most);

} // namespace tofu
