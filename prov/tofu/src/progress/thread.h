// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The thread that makes progress for a domain while somebody needs it without calling us: FI_PROGRESS_AUTO, and
// wait objects that the application sleeps on by itself. Started and stopped by the domain; runs its ProgressSet.
#pragma once

#include <atomic>
#include <mutex>

#include <pthread.h>

#include "provider/array.h"

namespace tofu {

class WakeSignal;
class ProgressSet;
namespace vcq {
struct Functions;
}

class ProgressThread {
  public:
    ProgressThread() = default;
    ProgressThread(const ProgressThread&) = delete;
    ProgressThread& operator=(const ProgressThread&) = delete;
    ~ProgressThread() { stop(); }

    /// 0 or -FI_E*. `set` and `functions` outlive the thread.
    [[nodiscard]] int start(ProgressSet& set, const vcq::Functions& functions) noexcept;
    /// Waits for its end, some ten milliseconds.
    void stop() noexcept;
    /// Rings that could not be heard at once are repeated by the thread. Any thread.
    /// 0 or -FI_ENOMEM.
    [[nodiscard]] int attend(WakeSignal& signal) noexcept;
    void leave(WakeSignal& signal) noexcept;

  private:
    static void* body(void* self);
    void run() noexcept;
    [[nodiscard]] bool repeat_signals() noexcept;

    ProgressSet* set_ = nullptr;
    const vcq::Functions* functions_ = nullptr;
    std::atomic<bool> stop_{false};
    bool running_ = false;
    pthread_t thread_{};
    std::mutex signals_mutex_;
    Array<WakeSignal*> signals_; ///< one entry for each object that uses it
};

} // namespace tofu
