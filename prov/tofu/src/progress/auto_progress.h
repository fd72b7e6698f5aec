// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Progress of a domain without calls of the application (FI_PROGRESS_AUTO, wait objects that it sleeps on by itself),
// and the locks, which are off until there is such a thread where the threading model allows. Owned by the domain.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "progress/thread.h"
#include "provider/lock.h"

namespace tofu {

class WakeSignal;
class DomainBase;
class ProgressSet;

class AutoProgress {
  public:
    AutoProgress() noexcept;
    ~AutoProgress();
    /// `serialised`: locks are off until the first thread. `wanted`: FI_PROGRESS_AUTO. Before any lock is adopted.
    void choose(bool serialised, bool wanted) noexcept;
    /// 0 or -FI_ENOMEM.
    [[nodiscard]] int open(DomainBase& domain) noexcept;
    void close() noexcept { thread_.stop(); }

    /// Every enabled endpoint of the domain.
    [[nodiscard]] ProgressSet& everything() noexcept { return *everything_; }
    /// Starts the thread with its first user, at any time. 0 or -FI_E*. `signal`: what the thread repeats for it, may be
    /// null.
    [[nodiscard]] int need_thread(WakeSignal* signal) noexcept;
    /// Stops it with its last.
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
    DomainBase* domain_ = nullptr;
    std::mutex mutex_; ///< of the five below, which go in reverse order
    bool locks_are_on_ = true;
    LockList locks_;
    std::unique_ptr<ProgressSet> everything_;
    ProgressThread thread_;
    unsigned thread_users_ = 0;
    std::atomic<bool> thread_is_due_{false}; ///< FI_PROGRESS_AUTO, before go_on_alone()
};

} // namespace tofu
