// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_rma: reads and writes. What a call asks for, and the operation that it becomes (RmaCall, RmaOp); the operations of
// a context, of which a single communication goes at once (Rma). The application enters by rma_ops, rounds of progress
// and the pending queue resume. Under the context's lock.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fi_rma.h>
#include <sys/uio.h>

#include "core/pool.h"
#include "mem/bounce_pool.h"
#include "mem/local_buffer.h"
#include "tx/operation.h"
#include "tx/pending_queue.h"
#include "tx/remote_memory.h"
#include "tx/tx_context.h"

namespace tofu {

// --- RmaCall, RmaOp: the calls and deferred work (api/triggered.cc) fill in the first, the engine the second

class TxContext;

inline constexpr std::size_t rma_iov_limit = 4;                         ///< local segments of an operation
inline constexpr std::size_t rma_remote_limit = 4;                      ///< segments at the peer
inline constexpr std::size_t rma_inject_limit = BouncePool::large_size; ///< bound of inject_size

/// What a call asks for, before any resource is allocated.
struct RmaCall {
    fi_msg_rma msg;      ///< its desc may be null
    std::uint64_t flags; ///< operation flags, FI_INJECT, FI_FENCE, FI_REMOTE_CQ_DATA, ...
    bool read;
    bool is_inject; ///< fi_inject_*: no entry on success
};

/// Operation flags that a call may have.
[[nodiscard]] constexpr std::uint64_t known_rma_flags(bool read) noexcept
{
#ifdef FI_PRIORITY
    constexpr std::uint64_t priority = FI_PRIORITY; // a hint without effect here
#else
    constexpr std::uint64_t priority = 0; // libfabric 2 has no such flag
#endif
    constexpr std::uint64_t both = FI_COMPLETION | FI_MORE | FI_FENCE | FI_DELIVERY_COMPLETE | FI_TRANSMIT_COMPLETE |
                                   FI_INJECT_COMPLETE | priority;
    return read ? both : both | FI_REMOTE_CQ_DATA | FI_INJECT;
}

/// Checks what can be checked without knowing the peer. 0 and the number of bytes in `total`, or the refusal.
[[nodiscard]] int check(const RmaCall& call, const TxContext& tx, std::size_t& total) noexcept;

/// One fi_read or fi_write in any of its forms, from the call to its completion.
struct RmaOp : Request, PendingOp, RemoteSide {
    /// Waits for the last communication, the one that the target counts. It is separate from the operation's own
    /// completion handler because its failure leaves no event at the target.
    struct Last : vcq::CompletionHandler {
        RmaOp* op;
    };
    enum class Step : std::uint8_t {
        posting,           ///< -> telling: every byte is posted and every notice came
        notifying_regions, ///< -> notifying: the further regions have been notified of the operation
        sending_data,      ///< -> ended: the sender took the CQ data
        ended
    };
    class Rma* engine = nullptr;
    Last last{};
    fi_addr_t to = FI_ADDR_NOTAVAIL;
    std::uint64_t data = 0; ///< for the target's CQ
    Step step = Step::posting;
    bool read = false;
    bool strong_order = false;
    bool remote_notice = false;   ///< the target counts RMA events
    bool empty_event = false;     ///< there are no bytes, and the event has not been posted
    bool names_no_region = false; ///< so the event of an operation without bytes goes to the peer's own word
    bool remote_data = false;     ///< `data` goes to the target's CQ
    bool data_at_once = false;    ///< the data follows the bytes at once, it does not wait for their delivery
    bool sent_suffices = false;   ///< FI_INJECT_COMPLETE
    bool fenced = false;          ///< FI_FENCE
    bool queued = false;          ///< the operation is in the pending queue, which alone may finish it
    std::uint8_t local_count = 0;
    std::uint8_t acquired = 0; ///< of refs
    Rails::Index rail = 0;
    Bounce bounce{}; ///< if there is one, it holds all local bytes
    std::size_t total = 0;
    std::size_t posted = 0;
    iovec local[rma_iov_limit];
    LocalRef refs[rma_iov_limit];
};
static_assert(rma_remote_limit <= RemoteSide::most);

// --- Rma: the calls. The fast path does one segment by one communication, without a retry. Every other operation is
// accepted (rma/rma.cc), then posted piece by piece, paid for where the target counts events, and completed
// (rma/progress.cc). The TNI finds the local bytes in the descriptor, in a bounce block, or in the user's buffers,
// which are then registered with the VCQ that posts (the context's own or a rail).

/// The table of endpoints that may use RMA.
extern fi_ops_rma rma_ops;

inline constexpr std::size_t max_fast_read = 64; ///< bytes that are copied; longer reads go to where they belong

/// The operations of one context; all under its lock.
class Rma final : public Engine {
  public:
    static Rma& of(TxContext& tx) noexcept { return static_cast<Rma&>(*tx.engines()[rma]); }

    explicit Rma(TxContext& tx) noexcept;
    ~Rma();
    /// Accepts and begins an operation. 0, or a refusal without any effect; a later failure becomes an error entry.
    [[nodiscard]] ssize_t submit(const RmaCall& call) noexcept;
    /// fi_inject_write as one unsignaled Put. 0, or not_fast.
    [[nodiscard]] ssize_t inject_fast(const void* data, std::size_t length, fi_addr_t to, std::uint64_t address,
                                      std::uint64_t key) noexcept;
    /// fi_write and fi_read of one segment as one communication, with a key that is a STADD offset and the default
    /// completion level: of at most max_inline_ or max_fast_read bytes, or, `in_place`, of up to longest_ in a region
    /// whose registration is kept. 0, -FI_EAGAIN, or `not_fast`: nothing has happened, and submit() has to do it.
    static constexpr ssize_t not_fast = 1;
    template <bool read, bool in_place>
    [[nodiscard]] ssize_t go_fast(void* buffer, std::size_t length, void* desc, fi_addr_t to, std::uint64_t address,
                                  std::uint64_t key, void* context, std::uint64_t flags) noexcept;
    /// Makes the completion handlers of all operations do nothing. Called when the endpoint has ended and its VCQ has
    /// not.
    void detach_handlers() noexcept
    {
        ops_.each([](RmaOp& op) { op.notify = op.last.notify = [](vcq::CompletionHandler*, vcq::Notice) noexcept {}; });
    }
    [[nodiscard]] bool all_has_left() const noexcept override { return ops_.in_use() == 0; }
    /// Operations under way to other peers count, too: they end soon.
    [[nodiscard]] bool idle_towards(const Peer&) const noexcept override { return ops_.in_use() == waiting_.size(); }
    /// From now on no event is repeated.
    void close() noexcept override
    {
        closed_ = true;
        waiting_.cancel();
    }
    /// With a shared VCQ the failed write may be another context's.
    void on_unsignaled_error(int utofu_code, vcq::Unsignaled kind, utofu_vcq_id_t vcq) noexcept override
    {
        access_.ended(vcq, utofu_code);
        if (kind == vcq::Unsignaled::write && (!tx_.config().shares_vcq || posted_unsignaled_))
            report_failure(tx_.reports(), FI_RMA | FI_WRITE, nullptr, utofu_code);
    }

  private:
    friend class PendingQueue::SubQueue;
    // --- the fast path
    template <bool read, bool entry, bool counted>
    static void fast_done(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept;
    [[nodiscard]] ssize_t fast_refused(vcq::Post posted) noexcept;
    [[nodiscard, gnu::noinline]] bool make_read_buffer() noexcept;
    [[nodiscard]] bool goes_at_once(const void* buffer, std::size_t length, std::size_t limit, fi_addr_t to,
                                    std::uint64_t address, std::uint64_t key, Target& target) const noexcept;
    // --- operations that are tracked
    void describe(RmaOp& op, const RmaCall& call, const Peer& peer, std::size_t total) noexcept;
    /// Makes the local bytes of the operation ready for the TNI. 0, or -FI_E*; after an error the caller calls
    /// give_back().
    [[nodiscard]] int attach(RmaOp& op, const RmaCall& call) noexcept;
    /// Releases the bounce block, the registrations and the rail.
    void give_back(RmaOp& op) noexcept;
    [[nodiscard]] ssize_t launch(RmaOp& op) noexcept;
    void send_data_at_once(RmaOp& op) noexcept;
    [[nodiscard]] BlockReason post_some(RmaOp& op) noexcept;
    [[nodiscard]] static bool waits_for_others(const RmaOp& op, unsigned segment) noexcept;
    [[nodiscard]] int begin_empty(RmaOp& op, const fi_msg_rma& msg) noexcept;
    [[nodiscard]] BlockReason post_empty(RmaOp& op) noexcept;
    static void on_notice(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept;
    static void on_last(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept;
    static void on_empty(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept;
    [[nodiscard]] bool in_turn(const RmaOp& op, unsigned segment) noexcept;
    [[nodiscard]] vcq::Post post_piece(RmaOp& op, unsigned segment, std::size_t at, std::size_t& length) noexcept;
    [[nodiscard]] BlockReason resume(RmaOp& op) noexcept
    {
        return op.step == RmaOp::Step::posting ? post_some(op) : conclude(op);
    }
    void unblocked(RmaOp& op) noexcept;
    void cancel(RmaOp& op) noexcept;
    [[nodiscard]] BlockReason conclude(RmaOp& op) noexcept;
    [[nodiscard]] BlockReason notify_peer(RmaOp& op) noexcept;
    void finish(RmaOp& op) noexcept;
    void end(RmaOp& op) noexcept;
    void drop(RmaOp& op) noexcept;
    void enqueue(RmaOp& op, BlockReason reason) noexcept;

    // The members that fi_inject_write reads stand together.
    TxContext& tx_;
    vcq::Vcq& vcq_;
    RemoteMemory access_;
    bool plain_inject_; ///< fi_inject_write may go out unsignaled
    std::size_t max_inline_;
    unsigned long inject_flags_;
    unsigned long write_flags_;
    unsigned long read_flags_;
    /// The ends of writes and reads on the fast path: [an entry is wanted].
    vcq::CompletionHandler::Function write_done_[2], read_done_[2];
    PendingQueue::SubQueue waiting_; ///< operations that cannot continue now
    LocalMemory& memory_;
    std::size_t longest_; ///< longer transfers may take another rail (Rails), or several communications

    // Reads on the fast path land here, each at its completion tag; allocated and registered at first use.
    OwnMemory read_buffer_;
    utofu_stadd_t read_stadd_ = 0;

    Pool<RmaOp> ops_;
    BouncePool bounces_;
    const utofu_onesided_caps& caps_;
    const bool strong_[2]; ///< tx_attr.msg_order asks for an order of [0] writes, [1] reads
    const bool may_leave_; ///< no order was asked for, so long operations may go by a rail
    /// A write has been posted unsignaled: only its failure is reported, and that to no completion handler.
    bool posted_unsignaled_ = false;
    bool closed_ = false;
};

/// The condition of all fast paths: one segment of 1 to `limit` bytes, and the target can be resolved at once.
[[gnu::always_inline]] inline bool Rma::goes_at_once(const void* buffer, std::size_t length, std::size_t limit,
                                                     fi_addr_t to, std::uint64_t address, std::uint64_t key,
                                                     Target& target) const noexcept
{
    return length - 1 < limit && buffer != nullptr && access_.resolve_at_once(to, key, address, target) != nullptr &&
           !waiting_.may_block(target.vcq);
}

[[gnu::always_inline]] inline ssize_t Rma::inject_fast(const void* data, std::size_t length, fi_addr_t to,
                                                       std::uint64_t address, std::uint64_t key) noexcept
{
    Target target;
    if (plain_inject_ && goes_at_once(data, length, max_inline_, to, address, key, target)) [[likely]]
        if (vcq_.put_inline(target.vcq, data, target.stadd, length,
                            vcq::UnsignaledArgs{vcq::Unsignaled::write, inject_flags_}) == vcq::Post::done) [[likely]]
            return 0;
    return not_fast;
}

} // namespace tofu
