// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Progress of a domain without calls of the application (FI_PROGRESS_AUTO, wait objects that it sleeps on by itself): a
// thread, and the locks, which are off until there is one where the threading model allows. Owned by the domain.
#pragma once

#include <atomic>
#include <mutex>

#include <pthread.h>

#include "progress/progress.h"
#include "provider/array.h"
#include "provider/lock.h"

namespace tofu {

class WakeSignal;
class DomainBase;

class AutoProgress {
  public:
    explicit AutoProgress(DomainBase& domain) noexcept : domain_(domain), everything_(domain) {}
    ~AutoProgress() { close(); }
    /// `serialised`: locks are off until the first thread. `wanted`: FI_PROGRESS_AUTO.
    void choose(bool serialised, bool wanted) noexcept;
    /// Stops the thread, whoever needs it.
    void close() noexcept;

    /// Every enabled endpoint of the domain.
    [[nodiscard]] ProgressSet& everything() noexcept { return everything_; }
    /// Starts the thread with its first user, at any time. 0 or -FI_E*. `signal`: the thread repeats its rings that could
    /// not be heard at once; may be null.
    [[nodiscard]] int need_thread(WakeSignal* signal) noexcept;
    /// Stops it with its last. Waits for its end, some ten milliseconds.
    void dismiss_thread(WakeSignal* signal) noexcept;
    /// With FI_PROGRESS_AUTO: nobody has called go_on_alone() yet.
    [[nodiscard]] bool thread_is_due() const noexcept { return thread_is_due_.load(std::memory_order_relaxed); }
    /// With FI_PROGRESS_AUTO: from now on there is something that goes on only while somebody polls. What is one
    /// communication does so without. No lock may be held. 0 or -FI_E*.
    [[nodiscard]] int go_on_alone() noexcept;
    /// For the locks of queues and the like: adopt() switches a lock off where the threading model needs none, and
    /// need_thread() switches all of them on. Nobody holds one then, as the application serialises its calls.
    void adopt(Lock& lock) noexcept;
    void drop(Lock& lock) noexcept;

  private:
    [[nodiscard]] int start() noexcept;
    void settle() noexcept;
    void leave() noexcept;
    void run() noexcept;
    [[nodiscard]] bool repeat_signals() noexcept;

    DomainBase& domain_;
    std::mutex mutex_; ///< of the four below; before signals_mutex_
    bool locks_are_on_ = true;
    LockList locks_;
    unsigned users_ = 0; ///< 0: there is no thread
    pthread_t thread_{};
    std::mutex signals_mutex_;
    Array<WakeSignal*> signals_; ///< one entry for each object that uses it
    std::atomic<bool> stop_{false};
    std::atomic<bool> thread_is_due_{false}; ///< FI_PROGRESS_AUTO, before go_on_alone()
    ProgressSet everything_;
};

} // namespace tofu
