// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The only poll loop: a read of a completion queue or a counter drives it. Called by cq, cntr and wait; calls the
// domain's home VCQ and the endpoints bound to the object.
#pragma once

#include <atomic>
#include <cstddef>

#include <utofu.h>

#include "provider/array.h"
#include "provider/lock.h"
#include "vcq/vcq.h"

namespace tofu {

class CompletionQueue;
class DomainBase;

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
    /// One bounded round. If another thread is polling and `patient` is false, leaves out what that thread polls. True if
    /// a poll found a notice.
    virtual bool run(bool patient) noexcept = 0;
    /// Writes the handles of the VCQs whose arrivals matter, at most `most`, and returns how many.
    [[nodiscard]] virtual std::size_t vcqs(utofu_vcq_hdl_t* handles, std::size_t most) noexcept = 0;

  protected:
    ~ProgressSource() = default;
};

/// Writes the handles of an endpoint's VCQs, at most `most`, and returns how many. The caller keeps the endpoint from being
/// closed.
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
    /// A shorter round for the reader of one queue. It ends with the first endpoint that fills the queue, and leaves
    /// out the home VCQ, whose notices make no entries. Every full_round-th call is a run(), so that no endpoint
    /// starves.
    void look(const CompletionQueue& queue) noexcept;
    /// Those of the home VCQ and of the endpoints; while work is deferred, of all endpoints of the domain, any of which may
    /// begin or end it.
    [[nodiscard]] std::size_t vcqs(utofu_vcq_hdl_t* handles, std::size_t most) noexcept override;

    // --- A reader that polls occupies its core. Where more processes run than there are cores, the peer that it waits
    // for may need that core, so after some polls in vain the reader yields. Any thread; the count is a hint.
    void found() noexcept { in_vain_.store(0, std::memory_order_relaxed); }
    void found_nothing() noexcept
    {
        const unsigned looks = in_vain_.load(std::memory_order_relaxed) + 1;
        in_vain_.store(looks, std::memory_order_relaxed);
        if ((looks & between_.load(std::memory_order_relaxed)) == 0) [[unlikely]]
            give_way(looks);
    }

  private:
    // Called under lock_.
    bool look_everywhere(bool patient = false) noexcept;
    void look_in_turn(const CompletionQueue& queue) noexcept;
    void give_way(unsigned looks) noexcept;

    static constexpr unsigned patience = 4096; ///< polls in vain, some 20 us: answers that are under way come sooner
    static constexpr unsigned yield_every = 256;
    static constexpr unsigned full_round = 16;
    // Polls in vain between two questions whether to yield, less one: some 0.2 us where the last yield was right.
    static constexpr unsigned between = 15;
    static constexpr unsigned between_in_crowd = 3;

    DomainBase& domain_;
    Lock lock_;
    std::atomic<unsigned> in_vain_{0};
    std::atomic<unsigned> between_{between};
    unsigned looks_ = 0;   ///< under lock_
    std::size_t next_ = 0; ///< the endpoint that a look begins with
    Array<Pollable*> endpoints_;
};

} // namespace tofu
