// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Progress of a domain without calls of the application (FI_PROGRESS_AUTO, and wait objects that the application sleeps
// on by its own means): a thread; and the locks, which stay off until there is a thread where the threading model
// allows it. Owned by the domain.
#pragma once

#include <atomic>
#include <mutex>

#include <pthread.h>

#include "core/containers.h"
#include "core/lock.h"
#include "cq/progress.h"

namespace tofu {

class WakeSignal;
class DomainBase;

class AutoProgress {
  public:
    explicit AutoProgress(DomainBase& domain) noexcept : domain_(domain), everything_(domain) {}
    ~AutoProgress() { close(); }
    /// `serialised`: locks are off until the thread starts. `wanted`: FI_PROGRESS_AUTO.
    void choose(bool serialised, bool wanted) noexcept;
    /// Stops the thread, even if it has users.
    void close() noexcept;

    /// Every enabled endpoint of the domain.
    [[nodiscard]] ProgressSet& everything() noexcept { return everything_; }
    /// Adds a user of the thread; the first starts it. 0 or -FI_E*. `signal`, which may be null: the thread repeats the
    /// wake-ups of it that could not be delivered at once.
    [[nodiscard]] int need_thread(WakeSignal* signal) noexcept;
    /// Removes a user; the last stops the thread and waits for its end, some ten milliseconds.
    void dismiss_thread(WakeSignal* signal) noexcept;
    /// With FI_PROGRESS_AUTO: true until the first go_on_alone().
    [[nodiscard]] bool thread_is_due() const noexcept { return thread_is_due_.load(std::memory_order_relaxed); }
    /// With FI_PROGRESS_AUTO: starts the thread, because from now on something needs polls to go on (an operation that
    /// is a single communication does not). The caller holds no lock. 0 or -FI_E*.
    [[nodiscard]] int go_on_alone() noexcept;
    /// Where the thread was put; empty: nowhere of its own.
    [[nodiscard]] const char* processors() const noexcept { return processors_; }
    /// Takes in the lock of a queue or the like. adopt() switches it off where the threading model needs none;
    /// need_thread() switches all of them on, which no thread holds then, as the application serialises its calls.
    void adopt(Lock& lock) noexcept;
    void drop(Lock& lock) noexcept;

  private:
    [[nodiscard]] int start() noexcept;
    void settle() noexcept;
    void set_processors(const cpu_set_t& cpus, const char* why) noexcept;
    void leave() noexcept;
    void run() noexcept;
    [[nodiscard]] bool repeat_signals() noexcept;

    DomainBase& domain_;
    std::mutex mutex_; ///< guards the next four; taken before signals_mutex_
    bool locks_are_on_ = true;
    LockList locks_;
    unsigned users_ = 0; ///< 0: there is no thread
    pthread_t thread_{};
    char processors_[128] = {}; ///< under mutex_
    std::mutex signals_mutex_;
    Array<WakeSignal*> signals_; ///< one entry for each user with a signal
    std::atomic<bool> stop_{false};
    std::atomic<bool> thread_is_due_{false}; ///< FI_PROGRESS_AUTO, before go_on_alone()
    ProgressSet everything_;
};

} // namespace tofu
