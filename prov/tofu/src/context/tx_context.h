// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A transmit context: the VCQ that operations are posted from, its lock, the peers they may name, where they report, and
// what the engines that post from it share: local memory, peers' keys, credits of events. Part of an endpoint, whole or
// of one direction, or of one with a shared VCQ, which has it as own_tx_context.h says. Used by rma, atomic, message and
// collective; calls vcq, remote, memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <rdma/fi_endpoint.h>

#include "context/branches.h"
#include "context/engine.h"
#include "context/fence.h"
#include "provider/lock.h"
#include "transfer/pending.h"
#include "transfer/quick.h"
#include "transfer/request.h"
#include "vcq/vcq.h"

namespace tofu {

class DomainBase;
struct PeerMemory;
class Peers;

/// All of it under lock().
class TxContext {
  public:
    /// One bounded round of polling the VCQ and of the engines, under the lock. True where the VCQ had something.
    using Round = bool (*)(void* owner) noexcept;
    /// What does not change once there are engines.
    struct Plan {
        DomainBase* domain = nullptr;
        fi_tx_attr attr{}; ///< as granted
        std::uint64_t caps = 0;
        Lock* lock = nullptr; ///< shared with others; null: one of its own
        Round round = nullptr;
        void* owner = nullptr; ///< of `round`
        bool is_open = true;   ///< false: the application posts nothing, a receive context of a scalable endpoint
        /// Other contexts post from the VCQ, too: of a failed post without a waiter nobody knows whose it was.
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
    /// Says something else while post_elsewhere() is at work.
    [[nodiscard]] const Reports& reports() const noexcept { return reports_; }
    /// By which long transfers go, and the local memory of each way.
    [[nodiscard]] Branches& branches() noexcept { return branches_; }
    /// Peers' keys, and what events at peers are paid from. For one RemoteAccess per engine.
    [[nodiscard]] PeerMemory& peer_memory() noexcept { return *peer_memory_; }
    /// What was accepted and can't go on yet.
    [[nodiscard]] Pending& pending() noexcept { return pending_; }
    /// What rma and atomic keep by places of vcq()'s window.
    [[nodiscard]] QuickOps& quick() noexcept { return quick_; }
    [[nodiscard]] const Engines& engines() const noexcept { return engines_; }
    [[nodiscard]] Fence& fence() noexcept { return fence_; }
    /// A Round for a caller that holds lock() already. To be called before a refusal (-FI_EAGAIN), so that a program
    /// that does nothing but retry makes progress, and before the entry has changed anything, since waiters run inside.
    bool progress() noexcept { return progresses_ && plan_.round(plan_.owner); }
    /// -FI_EAGAIN, and its cause counted.
    [[nodiscard]] int again(Stat cause) noexcept
    {
        vcq_->statistics().count(cause);
        return -FI_EAGAIN;
    }
    /// Has `post` post an operation that reports to `queue`, successes too, instead of where the context is bound to.
    /// No progress is made inside: others would report there as well.
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
    /// Takes a call in, and the lock for it: what was accepted may need somebody who polls.
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
    /// The lock of its own, unless the plan says another one.
    explicit TxContext(Lock& own) noexcept;
    ~TxContext();

    Lock* lock_;
    vcq::Vcq* vcq_ = nullptr; ///< its own, or that of a shared transmit context
    Held<Peers> peers_;
    Reports reports_;
    bool progresses_ = true; ///< false while reports_ are others' (post_elsewhere)
    Pending pending_;
    Engines engines_;
    QuickOps quick_;
    Branches branches_;
    std::unique_ptr<PeerMemory> peer_memory_;
    Fence fence_{*this};
    Plan plan_;

  private:
    /// Something was accepted that goes on by polls only, and the domain has nobody yet who polls by himself
    /// (FI_PROGRESS_AUTO): call_for_polls() once the lock is released.
    [[nodiscard]] bool wants_polls() const noexcept;
    void call_for_polls() noexcept;
};

} // namespace tofu
