// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A virtual control queue: posts one-sided communications, and turns the entries of its TCQ and MRQ into calls of their
// waiters. Only this directory calls utofu_*: handle.h creates and registers, post.h posts, this file polls.
// Called by the engines, contexts and the domain; calls the backend's function table.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include <utofu.h>

#include "utofu/library.h"
#include "utofu/post.h"

namespace tofu::vcq {

/// A notice that a peer's communication has written, for the owner of the VCQ. Nothing in it is trusted.
struct RemoteNotice {
    std::uint8_t type;    ///< UTOFU_MRQ_TYPE_RMT_*
    utofu_vcq_id_t peer;  ///< the peer's VCQ that posted
    utofu_stadd_t stadd;  ///< RMT_PUT, RMT_GET: end of the bytes; RMT_ARMW: their start
    bool unsignaled;      ///< the peer posted it unsignaled (EDATA 0)
    bool further;         ///< it is the event for one more region of an operation (Unsignaled::event)
};

/// Where a poll reports what has no waiter.
struct Sink {
    void* owner = nullptr;
    /// Takes the notices of peers. Null: they are dropped.
    void (*remote)(void* owner, const RemoteNotice& notice) noexcept = nullptr;
    /// An unsignaled communication to the VCQ `peer` (0: not known) has failed.
    void (*unsignaled_error)(void* owner, int code, Unsignaled kind, utofu_vcq_id_t peer) noexcept =
        [](void*, int, Unsignaled, utofu_vcq_id_t) noexcept {};
    StatisticsBook* book = nullptr; ///< adds up the VCQ's statistics; null: nobody reads them
};

/// Owns one VCQ handle. Not thread-safe: its owner's lock serialises all calls.
class Vcq final : public Posts {
  public:
    /// Polls between two looks into a queue in which no notice is awaited.
    static constexpr unsigned tcq_interval = 16;
    static constexpr unsigned poll_budget = 32;
    /// How long drain() and quiesce() wait after the last notice that came. Tests set it lower.
    static inline std::chrono::milliseconds patience{2000};
    /// A communication that has been under way for so long counts as failed. Not every library reports a communication
    /// to a STag that does not exist (any more). A TNI answers within milliseconds, also for a stopped process.
    static inline std::chrono::milliseconds lost_after{5000};

    Vcq() = default;
    ~Vcq() { close(); }

    /// Creates the VCQ on TNI number `spread` modulo those available, or the next one with room. VCQs of one
    /// process may share a CQ, and then guide 2.5 forbids concurrent calls: `thread_safe` asks for a CQ of its own,
    /// else for UTOFU_VCQ_FLAG_THREAD_SAFE. Returns 0 or -FI_E* (-FI_ENOSPC: no VCQ left on this node).
    [[nodiscard]] int open(const Backend& backend, unsigned spread, bool thread_safe, const Sink& sink) noexcept;
    /// Ends all posting: from now on posts answer Post::error. Polls until everything posted has taken effect;
    /// unsignaled posts are fenced for that, since nothing says that utofu_free_vcq waits for them (guide 3.3.1.3).
    /// True: all has ended. False: no notice has come for `patience`, or it took five times that in all. Waiters whose
    /// notices are missing have then been told UTOFU_ERR_MRQ_OTHER (except those of When::sent, whose only trace lies
    /// in the TCQ), and memory that posts may still read or write has to stay until close(). Until then deregistrations
    /// have no effect.
    bool drain() noexcept;
    /// Polls as drain() does, without fences, while posts answer Post::busy; afterwards posting goes on. For a VCQ that
    /// one of several users leaves.
    bool quiesce() noexcept;
    /// Drains and frees the VCQ. The owner has ended all registrations before, unless drain() has failed.
    void close() noexcept;

    // --- VCQs beside: further VCQs of the same owner, which posts from them signaled only. They are drained and closed
    // with this one, and polled while one of them is wanted.
    void put_beside(Vcq& another) noexcept
    {
        another.beside_.store(beside(), std::memory_order_relaxed);
        beside_.store(&another, std::memory_order_release); // partner: beside(), of threads that gather handles
    }
    /// Any thread.
    [[nodiscard]] Vcq* beside() const noexcept { return beside_.load(std::memory_order_acquire); }
    void want_beside() noexcept { wanted_ += beside_step; }
    void leave_beside() noexcept { wanted_ -= beside_step; }

    /// Has a poll or a round of progress more to do than to look for the notices of signaled posts?
    [[nodiscard, gnu::always_inline]] bool has_work() const noexcept { return (sent_pending_ | wanted_ | busy_) != 0; }
    /// Takes the notices that are awaited, where has_work() is false. Returns how many entries it took.
    [[gnu::always_inline]] unsigned poll_notices(unsigned budget = poll_budget) noexcept;
    /// A poll of a full round: it looks into the TCQ, too.
    unsigned poll_all() noexcept
    {
        polls_ |= tcq_interval - 1;
        return poll();
    }
    /// Takes at most `budget` entries off each queue and calls their waiters. Returns how many entries it took.
    unsigned poll(unsigned budget = poll_budget) noexcept;
    /// poll(), inlined: for fi_cq_read, where the cost of the call itself would be felt.
    [[gnu::always_inline]] unsigned poll_inline(unsigned budget = poll_budget) noexcept;

  private:
    template <class Done>
    [[nodiscard]] bool await(Done&& done) noexcept;
    bool give_up(int code, bool for_good, std::uint16_t least_age = 0) noexcept;
    [[gnu::cold]] void watch() noexcept;
    /// True if a waiter expects an entry of the MRQ, or peers may write some.
    [[nodiscard]] bool mrq_is_due() const noexcept { return !window_.all_free() || sink_.remote != nullptr; }
    [[gnu::noinline]] unsigned poll_others(unsigned budget) noexcept;
    unsigned poll_tcq(unsigned budget) noexcept;
    [[nodiscard]] bool all_idle() const noexcept;
    [[gnu::noinline, gnu::cold]] unsigned poll_failures() noexcept;
    [[nodiscard, gnu::always_inline]] bool next_notice(utofu_mrq_notice& notice, int& code) noexcept;
    void on_tcq(int code, void* cbdata) noexcept;
    [[gnu::always_inline]] void on_mrq(int code, const utofu_mrq_notice& notice) noexcept;
    void on_remote_mrq(int code, const utofu_mrq_notice& notice) noexcept;

    std::uint8_t polls_ = 0;
    std::atomic<Vcq*> beside_{nullptr}; ///< head of the list of VCQs beside
    Sink sink_{};
    std::chrono::steady_clock::time_point watch_at_; ///< not before
};

// --- inline part

inline void Vcq::on_mrq(int code, const utofu_mrq_notice& notice) noexcept
{
    // acquire: reads the notice before the data that it tells of (guide 2.2.10). No document says that utofu_poll_mrq()
    // does so. On x86-64 this is no instruction.
    std::atomic_thread_fence(std::memory_order_acquire);
    const std::uint8_t type = notice.notice_type;
    if (type != UTOFU_MRQ_TYPE_LCL_ARMW && type != UTOFU_MRQ_TYPE_LCL_PUT &&
        type != UTOFU_MRQ_TYPE_LCL_GET) {
        on_remote_mrq(code, notice);
        return;
    }
    if (notice.edata == 0 || notice.edata >= Window::size) [[unlikely]] {
        if (code != UTOFU_SUCCESS)
            sink_.unsignaled_error(sink_.owner, code,
                                   Mark::kind_of(type, notice.edata),
                                   notice.vcq_id);
        return;
    }
    if (Waiter* const waiter = window_.arrived(static_cast<std::uint8_t>(notice.edata)); waiter != nullptr) [[likely]]
        waiter->notify(waiter, Notice{code, type == UTOFU_MRQ_TYPE_LCL_ARMW ? notice.rmt_value : 0});
}

/// Takes the next entry of the MRQ. False: there is none, or the poll itself failed.
inline bool Vcq::next_notice(utofu_mrq_notice& notice, int& code) noexcept
{
    code = functions_->poll_mrq(handle_, 0, &notice);
    if (code == UTOFU_SUCCESS) [[likely]]
        return true;
    if (code <= UTOFU_ERR_MRQ_OTHER && code >= UTOFU_ERR_MRQ_RMT_LENGTH)
        return true;
    if (code != UTOFU_ERR_NOT_FOUND) [[unlikely]]
        last_error_ = code;
    return false;
}

inline unsigned Vcq::poll_inline(unsigned budget) noexcept
{
    if (!is_open()) [[unlikely]]
        return 0;
    unsigned taken = 0;
    // A queue in which no notice is awaited can only hold errors, and room to give back: a look now and then will do.
    const bool look = ++polls_ % tcq_interval == 0;
    const bool makes_room = sent_pending_ != 0 || wanted_ != 0 || look;
    if (makes_room) [[unlikely]]
        taken = poll_others(budget);
    // When the TOQ has room again, the posts before must not have filled the MRQ with failures.
    if (!mrq_is_due() && !makes_room) [[likely]]
        return taken;
    return taken + poll_notices(budget);
}

inline unsigned Vcq::poll_notices(unsigned budget) noexcept
{
    utofu_mrq_notice notice;
    int code = UTOFU_SUCCESS;
    unsigned taken = 0;
    while (taken < budget && next_notice(notice, code)) {
        taken++;
        on_mrq(code, notice);
        if (code != UTOFU_SUCCESS) [[unlikely]]
            return taken + poll_failures();
        if (!mrq_is_due()) // no waiter expects another one
            break;
    }
    return taken;
}

} // namespace tofu::vcq
