// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The only poll loop: a read of a completion queue or a counter drives it (ProgressSet). It polls the domain's home VCQ
// and the endpoints bound to the object (Pollable).
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

/// What a reader of a queue sees at an endpoint before it calls anything: packets in rings, notices that may have come,
/// or something that takes a round of progress.
struct Sight {
    enum What : std::uint8_t { nothing, packets, notices, work } what;
    std::size_t ring = 0; ///< packets: the place of the first ring that has one
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
    ProgressSet(const ProgressSet&) = delete;
    ProgressSet& operator=(const ProgressSet&) = delete;
    ~ProgressSet();
    /// 0 or -FI_ENOMEM.
    [[nodiscard]] int add(Pollable& endpoint) noexcept;
    void remove(Pollable& endpoint) noexcept;

    /// One bounded round: the home VCQ, then each endpoint once. Any thread. Skips what another thread is polling, or,
    /// with `patient`, waits for its turn (before a sleep: wait.h). True if a poll found a notice.
    bool run(bool patient) noexcept override;
    bool run() noexcept { return run(false); }
    // --- the looks of readers. Each counts, by one of these two calls.
    /// The endpoint to look at first, if nothing else is due: neither a full round nor a question whether to yield.
    /// Else null: call look(). Where locks are off.
    [[nodiscard, gnu::always_inline]] Pollable* first_due() noexcept
    {
        return (count_look() & between_.load(std::memory_order_relaxed)) != 0 ? first_ : nullptr;
    }
    /// Are locks on? Then a look needs lock().
    [[nodiscard]] bool locked() const noexcept { return lock_.enabled(); }
    /// Whether there is another endpoint than that one.
    [[nodiscard]] bool has_others() const noexcept { return endpoints_.size() != 1; }
    unsigned count_look() noexcept
    {
        // relaxed, and no addition in one step: threads that look at the same time may count one look
        const unsigned looks = looks_.load(std::memory_order_relaxed) + 1;
        looks_.store(looks, std::memory_order_relaxed);
        return looks;
    }
    /// A shorter round for the reader of one queue. It ends with the first endpoint that fills the queue, and leaves
    /// out the home VCQ, whose notices make no entries. Every full_round-th look is a run(), so that no endpoint
    /// starves.
    void look(const CompletionQueue& queue) noexcept;
    /// Those of the home VCQ and of the endpoints; while work is deferred, of all endpoints of the domain, any of which
    /// may begin or end it.
    [[nodiscard]] std::size_t vcqs(utofu_vcq_hdl_t* handles, std::size_t most) noexcept override;

    // --- A reader that polls occupies its core. Where more processes run than there are cores, the peer that it waits
    // for may need that core, so after some idle polls the reader yields. Any thread; the count is a hint.
    void found() noexcept { found_at_.store(looks_.load(std::memory_order_relaxed), std::memory_order_relaxed); }
    void found_nothing() noexcept
    {
        const unsigned looks = looks_.load(std::memory_order_relaxed);
        if ((looks & between_.load(std::memory_order_relaxed)) == 0) [[unlikely]]
            yield(looks - found_at_.load(std::memory_order_relaxed));
    }

  private:
    // Called under lock_.
    bool look_everywhere(bool patient = false) noexcept;
    void look_in_turn(const CompletionQueue& queue) noexcept;
    [[nodiscard]] bool full_round_due() noexcept
    {
        const unsigned looks = lock_.enabled() ? ++locked_looks_ : looks_.load(std::memory_order_relaxed);
        return looks % full_round == 0;
    }
    void yield(unsigned looks) noexcept;

    static constexpr unsigned patience = 4096; ///< idle polls, some 20 us: answers that are under way arrive sooner
    static constexpr unsigned yield_every = 256;
    static constexpr unsigned full_round = 32; ///< looks
    // Idle polls between two checks whether to yield, less one: some 0.2 us if the last yield was useful.
    static constexpr unsigned between = 15;
    static constexpr unsigned between_if_oversubscribed = 3;

    DomainBase& domain_;
    Lock lock_;
    std::atomic<unsigned> looks_{0};
    std::atomic<unsigned> between_{between};
    Pollable* first_ = nullptr;         ///< that filled the queue last, or any; null: there is none
    std::atomic<unsigned> found_at_{0}; ///< looks_ when something was found
    unsigned locked_looks_ = 0;         ///< under lock_, where locks are on
    std::size_t next_ = 0;              ///< the endpoint that a look begins with
    Array<Pollable*> endpoints_;
    static_assert(full_round % (between + 1) == 0 && full_round % (between_if_oversubscribed + 1) == 0);
};

} // namespace tofu
