// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Waiting, for calls that block and for applications that sleep by their own means: a flag that saves system calls
// (wake_flag), the bound of a wait (Deadline), a sleep until something comes (BlockingWait), the descriptor or
// condition of an application (WakeSignal), and the wait object of a queue, a counter or a set (WaitObject).
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>

#include <pthread.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

#include "core/system.h"

// --- wake_flag: a descriptor with a flag in front of it. Any thread may raise it or clear it, and no wake-up is lost.
// tests/prov/cq/wake_flag_test.cc runs this code in every order of its steps.
//
// A thread that finds the flag set does not write to the descriptor. So while the flag is set, the descriptor is
// readable, or a thread is about to write to it, or a thread is about to look for events. Hence
//   1. an event is visible before raise() is called for it;
//   2. clear() reads the descriptor first and clears the flag then. A raise() in between that does not write is covered
//      by the look for events that follows; one that writes comes after the clearing. In the other order the read would
//      consume the write of a raise() that has set the flag, and no other write would follow;
//   3. of several objects that share a descriptor, clear() is called once, before the first is looked at, and all are
//      looked at: a second clear() would take the wake-up of one that was looked at already;
//   4. where something was found, raise() is called again: another thread may sleep on the same descriptor for it.

namespace tofu::wake_flag {

template <class Flag, class EventFd>
void raise(Flag& raised, EventFd& event_fd)
{
    // acq_rel: earlier writes are seen by a thread that clears the flag and then polls (partner: clear())
    if (!raised.exchange(true, std::memory_order_acq_rel))
        event_fd.write();
}

template <class Flag, class EventFd>
void clear(Flag& raised, EventFd& event_fd)
{
    // Whatever the flag says: the thread that has set it may not have written yet.
    event_fd.read();
    (void)raised.exchange(false, std::memory_order_acq_rel); // partner: raise()
}

} // namespace tofu::wake_flag

namespace tofu {

// --- Deadline, BlockingWait, WakeSignal, WaitObject: a reader that blocks in a call sleeps until something may have
// arrived for one of its VCQs. The backend wakes it where it can (tofu_sim_wait), else it polls with growing pauses. An
// application that waits by its own means (a descriptor, a mutex with a condition) is woken by a WakeSignal, which the
// thread that makes progress raises; as long as there is one, a thread of the domain makes progress (cq/domain_base.h).

class DomainBase;
class ProgressSource;
class WaitSet;
namespace vcq {
struct Functions;
}

/// The deadline of a wait: `timeout_ms` from now; negative: none (fi_cq(3), fi_cntr(3)).
class Deadline {
  public:
    explicit Deadline(int timeout_ms) noexcept;
    [[nodiscard]] bool passed() const noexcept { return !never_ && Clock::now() >= end_; }
    /// Milliseconds left, at least 0 and at most `most`.
    [[nodiscard]] int left_ms(int most) const noexcept;
    /// Waits for the condition until `done` holds or the deadline has passed, or for a while.
    template <class Done>
    void await(std::condition_variable& condition, std::unique_lock<std::mutex>& guard, Done&& done) const
    {
        const auto a_while = Clock::now() + std::chrono::milliseconds(100);
        condition.wait_until(guard, never_ ? a_while : std::min(end_, a_while), done);
    }

  private:
    std::chrono::steady_clock::time_point end_;
    bool never_;
};

/// The sleep of one reader between two polls; a new one for every wait. The polls must be patient
/// (ProgressSource::run(true)): then notices that another thread has polled meanwhile are in their queue, and later
/// ones end the sleep.
class BlockingWait {
  public:
    /// `functions` null: only pauses. `yields`: FI_WAIT_YIELD, which gives up the time slice and never sleeps.
    BlockingWait(const vcq::Functions* functions, const Deadline& deadline, bool yields = false) noexcept;
    /// Sleeps a while; the first calls return at once. False: the deadline has passed. Never sleeps longer than the
    /// bound within which a signal of another thread of this process has to be seen.
    [[nodiscard]] bool sleep(ProgressSource* const* sources, std::size_t count) noexcept;
    /// Calls `poll` until it returns true, and sleeps in between. False: the deadline has passed. `sleepers`, which may
    /// be null, counts the thread meanwhile. The thread may be cancelled (pthreads(7)) between two polls, and nowhere
    /// else. Then the C library unwinds the stack by the libgcc of the machine, and the portable provider has another
    /// inside, which must not be asked: no function from the application down to here has anything to clean up.
    template <class Poll>
    [[nodiscard]] bool await(ProgressSource* source, std::atomic<unsigned>* sleepers, Poll&& poll)
    {
        static_assert(noexcept(poll()));
        for (;;) {
            int before = PTHREAD_CANCEL_ENABLE;
            pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
            if (sleepers != nullptr)
                sleepers->fetch_add(1);
            const bool found = poll();
            const bool again = !found && sleep(&source, 1);
            if (sleepers != nullptr)
                sleepers->fetch_sub(1);
            pthread_setcancelstate(before, nullptr);
            if (!again)
                return found;
            pthread_testcancel();
        }
    }
    /// Something has come: the pauses begin small again.
    void restart() noexcept { rounds_ = 0; }

  private:
    const vcq::Functions* functions_;
    const Deadline& deadline_;
    const bool yields_;
    unsigned rounds_ = 0;
};

/// A wait object that the application sleeps on by its own means, poll(2) or a condition variable: FI_WAIT_FD or
/// FI_WAIT_MUTEX_COND. A child of fork has an eventfd of its own: a poll in the child would clear the parent's.
class WakeSignal final : ForkAware {
  public:
    ~WakeSignal();

    /// 0, -FI_ENOSYS (another kind of wait object) or -FI_E*.
    [[nodiscard]] int open(fi_wait_obj kind) noexcept;
    /// Wakes the application. Any thread; no system call if it is raised already. Never blocks while a helper
    /// thread exists: if the application holds the mutex, that thread repeats the wake-up (repeat()).
    void raise() noexcept;
    /// Called by the domain's thread: repeats a wake-up for which the application's mutex was not free. False: it still
    /// is not free.
    [[nodiscard]] bool repeat() noexcept;
    /// Says that the domain's thread calls repeat() from now on, or no longer. Counted, since a wait set has many
    /// members.
    void set_helper_thread(bool yes) noexcept { helper_threads_.fetch_add(yes ? 1 : -1, std::memory_order_relaxed); }
    /// Clears the signal; called before looking for events, once for all objects that raise it. Whatever arrives from
    /// now on raises it again.
    void clear() noexcept;
    /// Raises the signal again, which was cleared for all: a poll has found something that another thread may sleep
    /// for.
    void rearm() noexcept
    {
        if (kind_ == FI_WAIT_FD)
            raise();
    }
    /// FI_GETWAITOBJ, for an object of this kind, and FI_GETWAIT. 0, -FI_EINVAL, -FI_ENODATA (nothing to hand out),
    /// -FI_ENOSYS (another command).
    [[nodiscard]] int control(fi_wait_obj kind, int command, void* argument) noexcept;
    [[nodiscard]] static bool offers(fi_wait_obj kind) noexcept
    {
        return kind == FI_WAIT_FD || kind == FI_WAIT_MUTEX_COND;
    }

  private:
    void in_child() noexcept override;

    fi_wait_obj kind_ = FI_WAIT_NONE;
    int descriptor_ = -1;
    std::atomic<bool> raised_{false}; ///< FI_WAIT_MUTEX_COND: a wake-up is due
    std::atomic<int> helper_threads_{0};
    pthread_mutex_t mutex_{};
    pthread_cond_t condition_{};
};

/// The waiting side of a queue or counter: its kind of wait object, and the way to look whether it has something. Slow
/// path, except for signal().
class WaitObject {
  public:
    /// How wait sets, poll sets and fi_trywait look at the queue or counter.
    struct Owner {
        void* object = nullptr;
        bool (*ready)(void* object) noexcept = nullptr;
        ProgressSource* progress = nullptr; ///< null: it needs none
        DomainBase* domain = nullptr;       ///< null: an event queue, which asks for threads itself
    };
    ~WaitObject();

    /// FI_WAIT_NONE, UNSPEC, YIELD, FD, MUTEX_COND, or SET with its wait set. 0 or -FI_E* (-FI_ENOSYS: a kind
    /// that is not offered). Starts the domain's thread where the kind needs it.
    [[nodiscard]] int open(const Owner& owner, fi_wait_obj kind, fid_wait* set) noexcept;

    [[nodiscard]] fi_wait_obj kind() const noexcept { return kind_; }
    /// May a call such as fi_cq_sread block on it (fi_cq(3))?
    [[nodiscard]] bool blocks() const noexcept { return kind_ != FI_WAIT_NONE && kind_ != FI_WAIT_SET; }
    /// True if a thread may wait outside of the blocking calls of this object: on a descriptor, a condition, a wait
    /// set.
    [[nodiscard]] bool watched() const noexcept { return signal_ != nullptr || set_ != nullptr; }
    /// Its own signal or that of its wait set, which the application sleeps on by its own means; null: there is none.
    [[nodiscard]] WakeSignal* wake_signal() const noexcept { return signal_; }
    /// Wakes all waiters after an event. Costs two loads without a waiter.
    void signal() noexcept
    {
        // relaxed is enough: a waiter counts itself before it announces its sleep, and polls once more after
        // that (tofu_sim_wait, whose announcement is a barrier for this thread)
        if (signal_ != nullptr || sleepers_.load(std::memory_order_relaxed) != 0) [[unlikely]]
            wake();
    }
    /// BlockingWait::await(), for a thread that blocks on the queue or counter (fi_cq_sread, fi_cntr_wait). The polls
    /// are patient.
    template <class Poll>
    bool block(const Deadline& deadline, Poll&& poll)
    {
        BlockingWait sleeper(functions_, deadline, kind_ == FI_WAIT_YIELD);
        return sleeper.await(owner_.progress, &sleepers_, poll);
    }
    // --- fi_trywait: first clear() of all objects, then poll() all of them (point 3 of wake_flag)
    void clear() noexcept
    {
        if (signal_ != nullptr)
            signal_->clear();
    }
    /// Makes progress. True if there is something to read; then the signal is raised again, and it is not safe to
    /// sleep.
    [[nodiscard]] bool poll() noexcept;
    /// The wait set whose signal this object raises, or null. One clear() there serves all its members.
    [[nodiscard]] WaitSet* set_of_signal() const noexcept { return signal_ != nullptr ? set_ : nullptr; }
    [[nodiscard]] int control(int command, void* argument) noexcept { return own_.control(kind_, command, argument); }
    [[nodiscard]] const Owner& owner() const noexcept { return owner_; }

  private:
    [[gnu::cold]] void wake() noexcept;

    Owner owner_{};
    const vcq::Functions* functions_ = nullptr; ///< null: the backend is not there
    std::atomic<unsigned> sleepers_{0};
    fi_wait_obj kind_ = FI_WAIT_NONE;
    WakeSignal own_;
    WakeSignal* signal_ = nullptr; ///< own_, or the wait set's
    WaitSet* set_ = nullptr;
    bool has_thread_ = false; ///< it has asked for the domain's thread
};

} // namespace tofu
