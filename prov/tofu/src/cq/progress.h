// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The only poll loop: a read of a completion queue or a counter drives it (ProgressSet). It polls the domain's target
// VCQ and the endpoints bound to the object (Pollable).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <utofu.h>

#include "core/containers.h"
#include "core/lock.h"
#include "utofu/vcq.h"

namespace tofu {

class CompletionQueue;
class DomainBase;
namespace proto {
struct RingPoll;
}

/// What a reader of a queue sees at an endpoint before it calls anything: packets in rings, notices that may have come,
/// or something that takes a round of progress.
struct PollHint {
    enum What : std::uint8_t { nothing, packets, notices, work } what;
    proto::RingPoll* ring = nullptr; ///< packets: of the first ring that has one
};

/// An endpoint, as the sets see it whose progress polls its VCQ.
class Pollable {
  public:
    /// One bounded round of the VCQ and of the engines. If another thread is polling it and `patient` is false, returns
    /// at once. True if the poll found a notice.
    virtual bool progress(bool patient) noexcept = 0;
    [[nodiscard]] virtual const vcq::Vcq& polled() const noexcept = 0;

  protected:
    ~Pollable() = default;
};

/// What a waiter polls between two sleeps, and sleeps on.
class ProgressSource {
  public:
    /// One bounded round. If another thread is polling and `patient` is false, leaves out what that thread polls. True
    /// if a poll found a notice.
    virtual bool run(bool patient) noexcept = 0;
    /// Writes the handles of the VCQs whose arrivals matter, at most `most`, and returns how many.
    [[nodiscard]] virtual std::size_t vcqs(utofu_vcq_hdl_t* handles, std::size_t most) noexcept = 0;

  protected:
    ~ProgressSource() = default;
};

/// Writes the handles of an endpoint's VCQs, at most `most`, and returns how many. The caller keeps the endpoint from
/// being closed.
[[nodiscard]] std::size_t vcqs_of(const Pollable& endpoint, utofu_vcq_hdl_t* handles, std::size_t most) noexcept;

/// The endpoints that report to one queue or counter. An endpoint adds itself when it is enabled and removes itself
/// when it is closed.
class ProgressSet final : public ProgressSource {
  public:
    explicit ProgressSet(DomainBase& domain) noexcept;
    ~ProgressSet();
    /// 0 or -FI_ENOMEM.
    [[nodiscard]] int add(Pollable& endpoint) noexcept;
    void remove(Pollable& endpoint) noexcept;

    /// One bounded round: the target VCQ, then each endpoint once. Any thread. Skips what another thread is polling,
    /// or, with `patient`, waits for its turn (before a sleep: wait.h). True if a poll found a notice.
    bool run(bool patient) noexcept override;
    bool run() noexcept { return run(false); }
    // --- the polls of readers. Each counts, by one of these two calls.
    /// The endpoint to poll first, if nothing else is due: neither a full round nor a question whether to yield.
    /// Else null: call begin_poll(), then poll() or run(). Where locks are off.
    [[nodiscard, gnu::always_inline]] Pollable* first_due() noexcept { return --left_ != 0 ? first_ : nullptr; }
    void begin_poll() noexcept
    {
        if (left_ == 0)
            begin_interval();
    }
    /// Are locks on? Then run() and poll() take lock_.
    [[nodiscard]] bool locked() const noexcept { return lock_.enabled(); }
    /// That endpoint again.
    [[nodiscard]] Pollable* first() const noexcept { return first_; }
    /// Whether there is another endpoint than that one.
    [[nodiscard]] bool has_others() const noexcept { return has_others_; }
    void count_poll() noexcept
    {
        // relaxed, and no subtraction in one step: threads that poll at the same time may count one poll
        const std::atomic_ref left(left_);
        if (const unsigned now = left.load(std::memory_order_relaxed) - 1; now != 0) [[likely]]
            left.store(now, std::memory_order_relaxed);
        else
            begin_interval();
    }
    /// A shorter round for the reader of one queue. It ends with the first endpoint that fills the queue, and leaves
    /// out the target VCQ, whose notices make no entries. Every full_round-th poll is a run(), so that no endpoint
    /// starves.
    void poll(const CompletionQueue& queue) noexcept;
    /// Those of the target VCQ and of the endpoints; while work is deferred, of all endpoints of the domain, any of
    /// which may begin or end it.
    [[nodiscard]] std::size_t vcqs(utofu_vcq_hdl_t* handles, std::size_t most) noexcept override;

    // --- A reader that polls occupies its core. Where more processes run than there are cores, the peer that it waits
    // for may need that core, so after some idle intervals the reader yields. Any thread; the count is a hint.
    void found() noexcept { found_.store(true, std::memory_order_relaxed); }
    void found_nothing() noexcept
    {
        if (interval_begins()) [[unlikely]]
            yield();
    }

  private:
    // Called under lock_.
    void endpoints_changed() noexcept;
    bool poll_all(bool patient = false) noexcept;
    void poll_round_robin(const CompletionQueue& queue) noexcept;
    [[nodiscard]] bool full_round_due() noexcept
    {
        if (lock_.enabled())
            return ++locked_polls_ % full_round == 0;
        return interval_begins() && polls_.load(std::memory_order_relaxed) % full_round == 0;
    }
    [[nodiscard]] bool interval_begins() noexcept
    {
        return std::atomic_ref(left_).load(std::memory_order_relaxed) == interval_.load(std::memory_order_relaxed);
    }
    void begin_interval() noexcept;
    void yield() noexcept;

    static constexpr unsigned spin_limit = 4096; ///< idle polls, some 20 us: answers that are under way arrive sooner
    static constexpr unsigned yield_every = 256;
    static constexpr unsigned full_round = 32; ///< polls
    // Polls in an interval, with whose last comes a check whether to yield: some 0.2 us if the last yield was useful.
    static constexpr unsigned interval = 16;
    static constexpr unsigned interval_if_oversubscribed = 4;

    DomainBase& domain_;
    Lock lock_;
    unsigned left_ = interval;       ///< polls of the interval; where locks are on, atomic
    std::atomic<bool> found_{false}; ///< something, in this interval or since the last check
    Pollable* first_ = nullptr;      ///< that filled the queue last, or any; null: there is none
    bool has_others_ = false;        ///< than first_
    std::atomic<unsigned> polls_{0}; ///< before this interval: a multiple of its length
    std::atomic<unsigned> idle_{0};  ///< polls in the last intervals, in which nothing was found
    std::atomic<unsigned> interval_{interval};
    unsigned locked_polls_ = 0; ///< under lock_, where locks are on
    std::size_t next_ = 0;      ///< the endpoint that a poll begins with
    Array<Pollable*> endpoints_;
    static_assert(full_round % interval == 0 && interval % interval_if_oversubscribed == 0);
};

} // namespace tofu
