// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Waiting. A blocked reader of ours sleeps until something may have come for one of its VCQs: the backend wakes
// it where it can (tofu_sim_wait), else it polls with growing pauses. An application that waits by its own means
// (a descriptor, a mutex with a condition) is woken by a WakeSignal, which whoever makes progress raises; while there is
// one, a thread of the domain makes progress (auto_progress.h). Called by cq, cntr, eq, wait_set.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>

#include <pthread.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

namespace tofu {

class DomainBase;
class ProgressSet;
class WaitSet;
namespace vcq {
struct Functions;
}

/// The end of a wait: `timeout_ms` from now, never for a negative one (fi_cq(3), fi_cntr(3)).
class Deadline {
  public:
    explicit Deadline(int timeout_ms) noexcept;
    [[nodiscard]] bool passed() const noexcept;
    /// Milliseconds left, at least 0 and at most `most`.
    [[nodiscard]] int left_ms(int most) const noexcept;

  private:
    std::chrono::steady_clock::time_point end_;
    bool never_;
};

/// One reader's sleep between two looks; starts anew with every wait. A look must be a patient one
/// (ProgressSet::run(true)): what another thread has polled meanwhile is then in its queue, and what comes
/// later ends the sleep.
class Sleeper {
  public:
    /// `functions` null: nothing but pauses. `yields`: FI_WAIT_YIELD, gives up the time slice and never sleeps.
    Sleeper(const vcq::Functions* functions, const Deadline& deadline, bool yields = false) noexcept;
    /// Sleeps a while, or not at all at first; false when the deadline has passed. Never longer than the bound
    /// within which a signal from another thread of this process is to be seen.
    [[nodiscard]] bool sleep(ProgressSet* const* sets, std::size_t count) noexcept;
    /// Something came: pauses begin small again.
    void restart() noexcept { rounds_ = 0; }

  private:
    const vcq::Functions* functions_;
    const Deadline& deadline_;
    const bool yields_;
    unsigned rounds_ = 0;
};

/// The wait object that an application sleeps on by itself, by poll(2) or a condition variable: FI_WAIT_FD or
/// FI_WAIT_MUTEX_COND.
class WakeSignal {
  public:
    WakeSignal() = default;
    WakeSignal(const WakeSignal&) = delete;
    WakeSignal& operator=(const WakeSignal&) = delete;
    ~WakeSignal();

    /// 0, -FI_ENOSYS (another kind of wait object) or -FI_E*.
    [[nodiscard]] int open(fi_wait_obj kind) noexcept;
    /// Wakes the application. Any thread; no system call while it is raised already. Never blocks where the domain's
    /// thread attends: if the application holds the mutex, the wake-up is left to that thread (repeat()).
    void raise() noexcept;
    /// By the domain's thread: makes up for a wake-up for which the application's mutex was not free. False: it still
    /// is not.
    [[nodiscard]] bool repeat() noexcept;
    /// The domain's thread calls repeat() from now on, or no longer. Counted: a wait set has many members.
    void attend(bool yes) noexcept { attendants_.fetch_add(yes ? 1 : -1, std::memory_order_relaxed); }
    /// To be called before looking for events, once for all that raise it: whatever arrives from now on raises it again.
    void clear() noexcept;
    /// Whoever looked has found something that another thread may sleep for: the wake-up was cleared for all.
    void raise_again() noexcept
    {
        if (kind_ == FI_WAIT_FD)
            raise();
    }
    /// FI_GETWAITOBJ, of an object that says `kind`, and FI_GETWAIT. 0, -FI_EINVAL, -FI_ENODATA where there is nothing to
    /// hand out, -FI_ENOSYS for other commands.
    [[nodiscard]] int control(fi_wait_obj kind, int command, void* argument) noexcept;
    [[nodiscard]] static bool offers(fi_wait_obj kind) noexcept
    {
        return kind == FI_WAIT_FD || kind == FI_WAIT_MUTEX_COND;
    }

  private:
    fi_wait_obj kind_ = FI_WAIT_NONE;
    int descriptor_ = -1;
    std::atomic<bool> raised_{false}; ///< FI_WAIT_MUTEX_COND: a wake-up is owed
    std::atomic<int> attendants_{0};
    pthread_mutex_t mutex_{};
    pthread_cond_t condition_{};
};

/// The waiting side of a queue or counter: its kind of wait object, and how to look whether it has something.
/// Slow path, but for signal().
class WaitObject {
  public:
    /// How wait sets, poll sets and fi_trywait look at the object it belongs to.
    struct Owner {
        void* object = nullptr;
        bool (*ready)(void* object) noexcept = nullptr;
        ProgressSet* progress = nullptr; ///< null: an event queue, which needs none
        DomainBase* domain = nullptr;        ///< null likewise
    };
    WaitObject() = default;
    WaitObject(const WaitObject&) = delete;
    WaitObject& operator=(const WaitObject&) = delete;
    ~WaitObject();

    /// FI_WAIT_NONE, UNSPEC, YIELD, FD, MUTEX_COND, or SET with its wait set. 0 or -FI_E* (-FI_ENOSYS: a kind
    /// that is not offered). Starts the domain's thread where the kind needs it.
    [[nodiscard]] int open(const Owner& owner, fi_wait_obj kind, fid_wait* set) noexcept;

    [[nodiscard]] fi_wait_obj kind() const noexcept { return kind_; }
    /// May fi_cq_sread and its like block on it (fi_cq(3))?
    [[nodiscard]] bool blocks() const noexcept { return kind_ != FI_WAIT_NONE && kind_ != FI_WAIT_SET; }
    /// Somebody may wait who is not in a blocking call of this object: on a descriptor, a condition, or a wait set.
    [[nodiscard]] bool watched() const noexcept { return signal_ != nullptr || set_ != nullptr; }
    /// There is something new: wakes whoever waits. Two loads where nobody does.
    void signal() noexcept
    {
        // relaxed: whoever sleeps has counted itself before it announced its sleep, and looks once more after that
        // (tofu_sim_wait, whose announcement is a barrier for this thread)
        if (signal_ != nullptr || sleepers_.load(std::memory_order_relaxed) != 0) [[unlikely]]
            wake();
    }
    /// A thread that blocks on a queue or counter (fi_cq_sread, fi_cntr_wait), for as long as it does.
    class Blocked {
      public:
        Blocked(WaitObject& wait, int timeout_ms) noexcept;
        ~Blocked() { wait_.sleepers_.fetch_sub(1); }
        Blocked(const Blocked&) = delete;
        Blocked& operator=(const Blocked&) = delete;
        /// Between two patient looks: Sleeper::sleep().
        [[nodiscard]] bool sleep() noexcept { return sleeper_.sleep(&wait_.owner_.progress, 1); }

      private:
        WaitObject& wait_;
        const Deadline deadline_;
        Sleeper sleeper_;
    };
    // --- fi_trywait: first clear() of all objects, then look() at all of them (wake_flag.h)
    void clear() noexcept
    {
        if (signal_ != nullptr)
            signal_->clear();
    }
    /// Makes progress; true where there is something, and the signal is raised again: it is not safe to sleep.
    [[nodiscard]] bool look() noexcept;
    /// The wait set whose signal is this object's, or null: clear() there is one for all its members.
    [[nodiscard]] WaitSet* set_of_signal() const noexcept { return signal_ != nullptr ? set_ : nullptr; }
    [[nodiscard]] int control(int command, void* argument) noexcept { return own_.control(kind_, command, argument); }
    [[nodiscard]] const Owner& owner() const noexcept { return owner_; }

  private:
    [[gnu::cold]] void wake() noexcept;

    Owner owner_{};
    std::atomic<unsigned> sleepers_{0};
    fi_wait_obj kind_ = FI_WAIT_NONE;
    WakeSignal own_;
    WakeSignal* signal_ = nullptr; ///< own_ or the wait set's
    WaitSet* set_ = nullptr;
    bool attended_ = false; ///< holds the domain's thread
};

} // namespace tofu
