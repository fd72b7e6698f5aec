// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Operations that wait until a counter has reached a threshold (fi_trigger(3)): the forms in which the engines accept
// them (namespace trigger), one that waits (TriggeredOp), and all of a domain (TriggeredQueue).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <variant>

#include <rdma/fi_trigger.h>
#include <sys/uio.h>

#include "atomic/atomic.h"
#include "core/limits.h"
#include "core/object.h"
#include "cq/counter.h"
#include "cq/cq.h"
#include "msg/match_queue.h"
#include "msg/sender.h"
#include "rma/rma.h"
#include "tx/ep_handle.h"
#include "tx/operation.h"

// --- trigger: the operations as calls, made of the structures that fi_sendmsg and the other msg calls are given

namespace tofu::trigger {

/// fi_op_cntr, of TriggeredOp::counter.
struct CounterCall {
    std::uint64_t value;
    bool add; ///< else the counter is set
};

using Call = std::variant<CounterCall, proto::SendCall, proto::RecvCall, RmaCall, AtomicCall>;

} // namespace tofu::trigger

namespace tofu {

// --- TriggeredOp, TriggeredQueue: deferred work of a domain (FI_QUEUE_WORK), and what endpoints post with FI_TRIGGER.
// Deferred work reports to its own counter instead of to the objects that its endpoint is bound to. It is posted so
// that its end becomes an entry of the internal CQ, from which a round of progress takes it. A domain without such
// operations pays one load in each round.

class DomainBase;

/// An operation that waits for its counter or, if it is deferred work, for its end: a request that reports as the
/// requests of its endpoint do. It holds copies of all lists of its call, since the application may reuse its own.
struct TriggeredOp : Request {
    TriggeredOp* next = nullptr;
    TriggeredOp** link = nullptr;              ///< the pointer that points to it
    const fi_deferred_work* request = nullptr; ///< the application's name for it; null: posted with FI_TRIGGER
    Ref<Counter> trigger;                      ///< the counter that it waits for; null once it is posted
    std::uint64_t threshold = 0;               ///< 0, too, once it was reached by a value that has been replaced
    Ref<Counter> completion_counter;           ///< counts its end; with FI_TRIGGER only its failure to begin
    TxContext* tx = nullptr;                   ///< of its endpoint; null: a CounterCall, or the endpoint was closed
    proto::ReceiveQueue* receives = nullptr;   ///< of a receive
    trigger::Call call;

    iovec local[limits::iov_limit] = {};
    void* desc[limits::iov_limit] = {};
    fi_rma_iov remote[rma_remote_limit] = {};
    fi_ioc operand[max_atomic_iov] = {};
    fi_ioc compare[max_atomic_iov] = {};
    fi_ioc result[max_atomic_iov] = {};
    fi_rma_ioc remote_words[max_atomic_iov] = {};
    std::unique_ptr<std::byte[]> payload; ///< the bytes of FI_INJECT with FI_TRIGGER
};

/// Checks a call and copies its lists (triggered.cc). 0, or the refusal that its engine would give.
[[nodiscard]] int copy_call(TriggeredOp& work, const EpHandle& handle) noexcept;

/// The operations of a domain that wait. Any thread may call it; everything but the constructor takes
/// DeferredWork::lock, which is taken before endpoints' locks.
class TriggeredQueue final : public DeferredCalls {
  public:
    explicit TriggeredQueue(DomainBase& domain) noexcept : domain_(domain) {}
    ~TriggeredQueue();
    /// FI_QUEUE_WORK, FI_CANCEL_WORK, FI_FLUSH_WORK of fi_control. 0, -FI_EINVAL, -FI_EDOMAIN, -FI_EBADFLAGS,
    /// -FI_EMSGSIZE, -FI_EOPBADSTATE (the endpoint is not enabled), -FI_EOPNOTSUPP, -FI_ENOSYS (a receive that would
    /// end several times), -FI_ENOENT (nothing to cancel), -FI_ENOMEM.
    int control(int command, const fi_deferred_work* request) noexcept;
    /// The counter is about to be set: the operations whose threshold it has reached wait for no value any more.
    void note_reached(const Counter& counter) noexcept;
    // --- of DeferredCalls
    [[nodiscard]] int open() noexcept override;
    [[nodiscard]] CompletionQueue* internal_cq() const noexcept override { return internal_cq_.get(); }
    ssize_t cancel(const TxContext& tx, const void* context) noexcept override;
    void cancel_waiting(const TxContext& tx) noexcept override;
    void forget(const TxContext& tx, bool quiet) noexcept override;
    ssize_t defer(EpHandle& handle, const proto::SendCall& call) noexcept override { return accept(handle, call); }
    ssize_t defer(EpHandle& handle, const proto::RecvCall& call) noexcept override { return accept(handle, call); }
    ssize_t defer(EpHandle& handle, const RmaCall& call) noexcept override { return accept(handle, call); }
    ssize_t defer(EpHandle& handle, const AtomicCall& call) noexcept override { return accept(handle, call); }
    /// Polls all endpoints of the domain, starts what is due, reports what has ended. Called in each round of a domain
    /// that has work.
    void progress() noexcept;

  private:
    template <class Call>
    ssize_t accept(EpHandle& handle, Call call) noexcept
    {
        call.flags &= ~FI_TRIGGER;
        if constexpr (requires { call.msg; })
            return enqueue(handle, call, call.msg.context);
        else
            return enqueue(handle, call, call.context);
    }
    ssize_t enqueue(EpHandle& handle, const trigger::Call& call, const void* context) noexcept;
    template <class Fill>
    [[nodiscard]] int add(fid_cntr* trigger, std::uint64_t threshold, Fill&& fill) noexcept;
    int cancel(const fi_deferred_work& request) noexcept;
    int flush(const fi_deferred_work* which) noexcept;
    void start_due() noexcept;
    [[nodiscard]] bool start_due(TriggeredOp* first, const Counter& counter) noexcept;
    [[nodiscard]] bool start(TriggeredOp& work) noexcept;
    [[nodiscard]] ssize_t post(TriggeredOp& work) noexcept;
    void collect_ends() noexcept;
    void end(TriggeredOp& work, CqEntry entry) noexcept;
    void unlink(TriggeredOp& work) noexcept;
    void drop(TriggeredOp& work) noexcept;
    void abandon(TriggeredOp& work) noexcept;
    template <class Wanted>
    TriggeredOp* find_waiting(Wanted&& wanted) noexcept;

    DomainBase& domain_;
    std::unique_ptr<CompletionQueue> internal_cq_;
    List<Counter, &Counter::next_trigger> triggers_; ///< counters that works wait for
    TriggeredOp* under_way_ = nullptr;               ///< deferred work that has been posted
    TriggeredOp* abandoned_ = nullptr;               ///< work whose endpoint was closed, and whose entry may still come
    std::atomic<bool> in_progress_{false};
};

} // namespace tofu
