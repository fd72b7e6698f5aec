// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_rma: reads and writes of peers' memory, each a row of Puts or Gets. Entered by the application through
// rma_ops and by the context's pending queue; calls vcq, remote/access, local_memory, the sender (CQ data).
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fi_rma.h>
#include <sys/uio.h>

#include "address/peers.h"
#include "context/tx_context.h"
#include "local/bounce.h"
#include "local/local_memory.h"
#include "local/pages.h"
#include "remote/access.h"
#include "transfer/pending.h"
#include "transfer/request.h"

namespace tofu {

/// The table of endpoints that may use RMA.
extern fi_ops_rma rma_ops;

inline constexpr std::size_t rma_iov_limit = 4;       ///< local segments of an operation
inline constexpr std::size_t rma_remote_limit = 4;    ///< segments at the peer
inline constexpr std::size_t max_quick_read = 64;           ///< bytes; longer ones go through submit()
inline constexpr std::size_t rma_inject_limit = BouncePool::large_size; ///< bound of inject_size

class RmaEngine;

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
    RmaEngine* engine = nullptr;
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
    Bounce bounce{};           ///< if it has one, all local bytes are there
    std::size_t total = 0;
    std::size_t posted = 0;
    iovec local[rma_iov_limit];
    LocalRef refs[rma_iov_limit];
};
static_assert(rma_remote_limit <= RemoteSide::most);

/// What a call asked for, before anything has been taken for it.
struct RmaCall {
    fi_msg_rma msg;      ///< its desc may be null
    std::uint64_t flags; ///< operation flags, FI_INJECT, FI_FENCE, FI_REMOTE_CQ_DATA, ...
    bool read;
    bool silent; ///< fi_inject_*: no entry on success
};

/// The operations under way of one context; all under its lock.
class RmaEngine final : public Engine {
  public:
    static RmaEngine& of(TxContext& tx) noexcept { return static_cast<RmaEngine&>(*tx.engines()[rma]); }
    using Call = RmaCall;

    /// Flags of operations that calls may name.
    [[nodiscard]] static constexpr std::uint64_t known_flags(bool read) noexcept
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

    explicit RmaEngine(TxContext& tx) noexcept;
    ~RmaEngine();
    int open() noexcept;
    /// 0 or a refusal without any effect; what goes wrong later is an error entry.
    [[nodiscard]] ssize_t submit(const Call& call) noexcept;
    /// What can be said of a call without its peer: 0 and its bytes in all, or the refusal.
    [[nodiscard]] int check(const Call& call, std::size_t& total) const noexcept;
    /// fi_inject_write where it is one communication that nobody waits for, or not_quick.
    [[nodiscard]] ssize_t inject_quickly(const void* data, std::size_t length, fi_addr_t to, std::uint64_t address,
                                         std::uint64_t key) noexcept;
    /// fi_write and fi_read of one segment, keys that are biases and default completion level: one
    /// communication, at most max_inline_ or max_quick_read bytes. `not_quick` where nothing was done: submit() will.
    static constexpr ssize_t not_quick = 1;
    template <bool read>
    [[nodiscard]] ssize_t go_quickly(void* buffer, std::size_t length, fi_addr_t to, std::uint64_t address,
                                     std::uint64_t key, void* context, std::uint64_t flags) noexcept;
    /// Behind the end of its endpoint: who is told of something from now on does nothing.
    void mute() noexcept
    {
        ops_.each([](RmaOp& op) { op.notify = [](vcq::Waiter*, const vcq::Notice&) noexcept {}; });
    }
    [[nodiscard]] bool all_has_left() const noexcept override { return ops_.in_use() == 0; }
    /// What is under way to others counts, too: it ends soon.
    [[nodiscard]] bool idle_towards(const Peer&) const noexcept override
    {
        return ops_.in_use() == waiting_.size();
    }
    void close() noexcept override { waiting_.cancel(); }
    void lost(int utofu_code, vcq::Unsignaled kind, utofu_vcq_id_t) noexcept override
    {
        if (kind == vcq::Unsignaled::write && posted_unsignaled_)
            report_failure(tx_.reports(), FI_RMA | FI_WRITE, nullptr, utofu_code);
    }

  private:
    static const Pending::Stream::Steps steps;
    static void on_notice(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;
    static void on_last(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;
    template <bool read, bool entry>
    static void quick_done(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;
    [[nodiscard]] ssize_t quick_refused(vcq::Post posted) noexcept;
    [[nodiscard, gnu::noinline]] bool make_landing() noexcept;
    void describe(RmaOp& op, const Call& call, const Peer& peer, std::size_t total) noexcept;
    [[nodiscard]] bool in_turn(const RmaOp& op, unsigned segment) noexcept;
    [[nodiscard]] bool goes_at_once(const void* buffer, std::size_t length, std::size_t limit, fi_addr_t to,
                                    std::uint64_t address, std::uint64_t key, Target& target) const noexcept;
    [[nodiscard]] int attach(RmaOp& op, const Call& call) noexcept;
    [[nodiscard]] ssize_t launch(RmaOp& op) noexcept;
    void send_data_at_once(RmaOp& op) noexcept;
    [[nodiscard]] Lack post_some(RmaOp& op) noexcept;
    [[nodiscard]] vcq::Post post_piece(RmaOp& op, unsigned segment, std::size_t at, std::size_t& length) noexcept;
    [[nodiscard]] Lack go_on(RmaOp& op) noexcept;
    void through(RmaOp& op) noexcept;
    void cancel(RmaOp& op) noexcept;
    [[nodiscard]] ssize_t send_data(const RmaOp& op) noexcept;
    [[nodiscard]] Lack notify_peer(RmaOp& op) noexcept;
    void finish(RmaOp& op) noexcept;
    void end(RmaOp& op) noexcept;
    void give_back(RmaOp& op) noexcept;
    void drop(RmaOp& op) noexcept;
    void enqueue(RmaOp& op, Lack lack) noexcept;

    // What fi_inject_write looks at, together.
    TxContext& tx_;
    vcq::Vcq& vcq_;
    RemoteAccess access_;
    bool plain_inject_ = false; ///< fi_inject_write may go out unsignaled
    std::size_t max_inline_ = 0;
    unsigned long inject_flags_ = 0;
    unsigned long write_flags_ = 0;
    unsigned long read_flags_ = 0;
    Pending::Stream waiting_; ///< those that can't go on

    // Where quick reads land, by places of the window; made and registered at first use.
    OwnMemory landing_;
    utofu_stadd_t landing_stadd_ = 0;

    Pool<RmaOp> ops_;
    BouncePool bounces_;
    std::size_t max_piece_ = 0;
    std::size_t inject_size_ = 0;
    bool strong_writes_ = false; ///< order asked for by tx_attr.msg_order
    bool strong_reads_ = false;
    bool posted_unsignaled_ = false;    ///< a write has been sent of whose end nobody is told unless it fails
};

/// What all short ways ask: one segment of at most `limit` bytes, and none of 0, to where it may go now.
[[gnu::always_inline]] inline bool RmaEngine::goes_at_once(const void* buffer, std::size_t length, std::size_t limit,
                                                           fi_addr_t to, std::uint64_t address, std::uint64_t key,
                                                           Target& target) const noexcept
{
    return length - 1 < limit && buffer != nullptr && access_.resolve_at_once(to, key, address, target) != nullptr &&
           !waiting_.may_hold(target.vcq);
}

[[gnu::always_inline]] inline ssize_t RmaEngine::inject_quickly(const void* data, std::size_t length, fi_addr_t to, std::uint64_t address,
                                                                std::uint64_t key) noexcept
{
    Target target;
    if (plain_inject_ && goes_at_once(data, length, max_inline_, to, address, key, target)) [[likely]] {
        posted_unsignaled_ = true;
        if (vcq_.put_inline(target.vcq, data, target.stadd, length, vcq::Silent{vcq::Unsignaled::write, inject_flags_}) ==
            vcq::Post::done) [[likely]]
            return 0;
    }
    return not_quick;
}

} // namespace tofu
