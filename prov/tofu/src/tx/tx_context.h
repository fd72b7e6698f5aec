// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A transmit context: the VCQ that operations are posted from, its lock, the peers they may name, where they report,
// and what the engines that post from it share: local memory, peers' keys, credits for events. Part of an endpoint,
// whole or of one direction, with a VCQ of its own or a shared one; the endpoint opens and closes it
// (own_tx_context.h). Used by rma, atomic, message and collective; calls vcq, remote, memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <rdma/fi_endpoint.h>

#include "core/lock.h"
#include "tx/engine.h"
#include "tx/fence.h"
#include "tx/operation.h"
#include "tx/pending_queue.h"
#include "tx/quick.h"
#include "tx/rails.h"
#include "utofu/vcq.h"

namespace tofu {

class DomainBase;
struct PeerMemory;
class Peers;

/// Everything is used under lock().
class TxContext {
  public:
    /// One bounded round of polling the VCQ and of the engines, under the lock. True if the poll found a notice.
    using Round = bool (*)(void* owner) noexcept;
    /// The part that does not change once there are engines.
    struct Plan {
        DomainBase* domain = nullptr;
        fi_tx_attr attr{}; ///< as granted
        std::uint64_t caps = 0;
        Lock* lock = nullptr; ///< shared with others; null: one of its own
        Round round = nullptr;
        void* owner = nullptr; ///< of `round`
        bool is_open = true;   ///< false: a receive context of a scalable endpoint; the application posts nothing
        /// Other contexts post from the VCQ, too: when an unsignaled post fails, nobody knows which context posted it.
        bool shares_vcq = false;
        unsigned number = 0;   ///< in the domain
        EndpointAddress known{}; ///< the address that peers know: its own, or its scalable endpoint's
    };

    TxContext(const TxContext&) = delete;
    TxContext& operator=(const TxContext&) = delete;

    [[nodiscard]] const Plan& plan() const noexcept { return plan_; }
    [[nodiscard]] Lock& lock() noexcept { return *lock_; }
    [[nodiscard]] vcq::Vcq& vcq() const noexcept { return *vcq_; }
    [[nodiscard]] DomainBase& domain() const noexcept { return *plan_.domain; }
    [[nodiscard]] Peers& peers() const noexcept { return *peers_; }
    /// Where operations report. While post_elsewhere() is at work it names another queue.
    [[nodiscard]] const Reports& reports() const noexcept { return reports_; }
    /// The rails of long transfers, and the local memory of each, the context's own VCQ included.
    [[nodiscard]] Rails& rails() noexcept { return rails_; }
    /// Peers' keys and the credits for events at peers, for the RemoteAccess of each engine.
    [[nodiscard]] PeerMemory& peer_memory() noexcept { return *peer_memory_; }
    /// The operations that were accepted and can't go on yet.
    [[nodiscard]] Pending& pending() noexcept { return pending_; }
    [[nodiscard]] const Pending& pending() const noexcept { return pending_; }
    /// The single communications of rma and atomic, by places of vcq()'s window.
    [[nodiscard]] QuickOps& quick() noexcept { return quick_; }
    [[nodiscard]] const Engines& engines() const noexcept { return engines_; }
    [[nodiscard]] Fence& fence() noexcept { return fence_; }
    /// Makes a Round for a caller that holds lock(). An entry calls it before it refuses with -FI_EAGAIN, so that a
    /// program that does nothing but retry makes progress, and before it has changed anything, since waiters run
    /// inside.
    bool progress() noexcept { return progresses_ && plan_.round(plan_.owner); }
    /// The same for a caller that repeats it. False: no progress can be made now.
    bool try_progress() noexcept
    {
        if (progresses_)
            (void)plan_.round(plan_.owner);
        return progresses_;
    }
    /// Counts the cause of a refusal. Returns -FI_EAGAIN.
    [[nodiscard]] int again(Stat cause) noexcept
    {
        vcq_->statistics().count(cause);
        return -FI_EAGAIN;
    }
    /// Calls `post`, whose operation then reports to `queue`, successes too, instead of to what the context is bound
    /// to. No progress is made inside, or other operations would report to `queue` as well.
    template <class Post>
    ssize_t post_elsewhere(CompletionQueue& queue, Post&& post) noexcept
    {
        Reports elsewhere;
        elsewhere.binding.cq = &queue;
        Reports own = std::exchange(reports_, std::move(elsewhere));
        progresses_ = false;
        const ssize_t ret = post();
        reports_ = std::move(own);
        progresses_ = true;
        return ret;
    }
    /// Makes a call under the lock. Afterwards it starts the thread of automatic progress if what the call accepted
    /// needs polls and the domain has no thread yet.
    template <class Call>
    ssize_t take(Call&& call) noexcept
    {
        lock_->lock();
        const ssize_t ret = call();
        const bool needs_polls = wants_polls();
        lock_->unlock();
        if (needs_polls) [[unlikely]]
            call_for_polls();
        return ret;
    }

  protected:
    /// `own`: the lock, unless the plan names another one.
    explicit TxContext(Lock& own) noexcept;
    ~TxContext();

    Lock* lock_;
    vcq::Vcq* vcq_ = nullptr; ///< its own, or that of a shared transmit context
    Held<Peers> peers_;
    Reports reports_;
    bool progresses_ = true; ///< false inside post_elsewhere()
    Pending pending_;
    Engines engines_;
    QuickOps quick_;
    Rails rails_;
    std::unique_ptr<PeerMemory> peer_memory_;
    Fence fence_{*this};
    Plan plan_;

  private:
    /// True if something was accepted that only polls can continue, and the domain (FI_PROGRESS_AUTO) has no thread yet
    /// that polls: call_for_polls() once the lock is released.
    [[nodiscard]] bool wants_polls() const noexcept;
    void call_for_polls() noexcept;
};

} // namespace tofu
