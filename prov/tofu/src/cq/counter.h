// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_cntr(3), a counter of operations and errors (Counter); and what an endpoint is bound to and reports to
// (fi_endpoint(3), fi_ep_bind): queues (Binding), counters of its operations (TxCounters), of receives and of what
// peers do (RxCounters). Requests, the message protocol and remote events count; the application reads and waits.
#pragma once

#include <atomic>
#include <cstdint>

#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include "core/object.h"
#include "cq/cq.h"
#include "cq/progress.h"
#include "cq/wait.h"

namespace tofu {

class DomainBase;
class Endpoint;
struct TriggeredOp;

class Counter final : public Object<Counter, fid_cntr, DomainBase> {
  public:
    explicit Counter(DomainBase& domain) noexcept;
    /// fi_cntr_open(3). 0, -FI_EINVAL, -FI_ENOSYS (events or a wait object that are not offered), or an error of the
    /// wait object.
    [[nodiscard]] int set_up(const fi_cntr_attr* attr) noexcept;

    /// Any thread. Release: a thread that reads the count sees what the operation wrote (partner: read()).
    void count(std::uint64_t n = 1) noexcept
    {
        value_.fetch_add(n, std::memory_order_release);
        wait_.signal();
    }
    void count_error(std::uint64_t n = 1) noexcept
    {
        errors_.fetch_add(n, std::memory_order_release);
        wait_.signal();
    }

    void assign(std::uint64_t value) noexcept
    {
        value_.store(value, std::memory_order_release);
        wait_.signal();
    }

    [[nodiscard]] ProgressSet& progress() noexcept { return progress_; }
    /// The counter counts what peers do to regions: the target VCQ, which has the notices, is polled by each read.
    void count_remote_events() noexcept { counts_remote_events_.store(true, std::memory_order_relaxed); }

    // --- operations that wait for the counter (api/triggered.h), by threshold; under DeferredWork::lock
    TriggeredOp* triggered_ops = nullptr;
    Counter* next_trigger = nullptr; ///< next counter that operations wait for
    /// Do successes and errors together reach the threshold (fi_trigger(3))?
    [[nodiscard]] bool has_reached(std::uint64_t threshold) const noexcept
    {
        const std::uint64_t value = value_.load(std::memory_order_acquire);
        return value >= threshold || errors_.load(std::memory_order_acquire) >= threshold - value;
    }

    // --- the calls of fi_cntr's operation table (fi_cntr(3)). Any thread, which holds no lock: the calls that read run
    // a round of progress, those that change a value only where deferred work waits for a counter. Changes never fail.
    std::uint64_t read() noexcept;
    std::uint64_t read_errors() noexcept;
    void add(std::uint64_t value) noexcept;
    void set(std::uint64_t value) noexcept;
    void add_errors(std::uint64_t value) noexcept;
    void set_errors(std::uint64_t value) noexcept;
    /// fi_control(3): FI_GETOPSFLAG gives 0, the only flags that FI_SETOPSFLAG takes (else -FI_EINVAL). All other
    /// commands are those of WaitObject::control().
    int control(int command, void* argument) noexcept;
    /// 0, -FI_ETIMEDOUT, or -FI_EAVAIL: an error was counted during the wait.
    int wait(std::uint64_t threshold, int timeout_ms);
    [[nodiscard]] WaitObject& wait_object() noexcept { return wait_; }
    /// For poll sets: makes progress. True if one of the values has changed since the last call, fi_cntr_set or
    /// fi_cntr_add (fi_poll(3)).
    [[nodiscard]] bool has_events() noexcept;
    int close() noexcept;

  private:
    void will_change() noexcept;
    void changed() noexcept;
    [[nodiscard]] Endpoint* first_due() noexcept;
    [[gnu::noinline]] void make_round() noexcept;
    [[gnu::noinline]] void poll(Endpoint& endpoint, const PollHint& hint) noexcept;
    static bool ready(void* self) noexcept;

    ProgressSet progress_;
    std::atomic<bool> counts_remote_events_{false};
    std::atomic<std::uint64_t> value_{0};
    std::atomic<std::uint64_t> errors_{0};
    std::atomic<std::uint64_t> seen_value_{0}; ///< as last read; kept only if the counter has a WakeSignal
    std::atomic<std::uint64_t> seen_errors_{0};
    std::atomic<std::uint64_t> polled_value_{0};
    std::atomic<std::uint64_t> polled_errors_{0};
    WaitObject wait_; ///< last member: leaves its wait set and the thread before the others are destroyed
};

// --- Binding, TxCounters, RxCounters: what an endpoint is bound to and reports to (fi_endpoint(3), fi_ep_bind)

/// Which completions one side of an endpoint reports, as fi_ep_bind and the attributes of its contexts say.
struct Binding {
    Ref<CompletionQueue> cq;
    bool selective = false; ///< FI_SELECTIVE_COMPLETION: reports only operations with FI_COMPLETION

    /// Does a success with these operation flags reach the queue (fi_cq(3))?
    [[nodiscard]] bool reports(std::uint64_t flags) const noexcept { return cq != nullptr && selects(flags); }
    /// The same where the caller knows whether there is a queue.
    [[nodiscard]] bool selects(std::uint64_t flags) const noexcept
    {
        return !selective || (flags & FI_COMPLETION) != 0;
    }
};

/// The counters of operations that a transmit context begins (fi_endpoint(3), fi_ep_bind).
struct TxCounters {
    Ref<Counter> send, read, write;
};

/// The counters of receives and of what peers do.
struct RxCounters {
    Ref<Counter> recv, remote_read, remote_write;

    [[nodiscard]] Counter* remote(bool read) const noexcept { return read ? remote_read : remote_write; }
    /// Count peers' reads of, and writes to, memory of the domain (FI_RMA_EVENT).
    void count_remote(bool read) const noexcept
    {
        if (Counter* const counter = remote(read); counter != nullptr)
            counter->count();
    }
};

} // namespace tofu
