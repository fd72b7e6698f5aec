// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Lock, which costs one predictable branch where the threading model of the domain needs none.
#pragma once

#include <atomic>

#include <sched.h>

namespace tofu {

/// A spin lock that yields. Sections are short and never sleep; the only reason to wait long is a holder that has lost
/// its time slice, hence the yield. Lock order: progress set -> target lock -> work queue -> endpoint -> completion
/// queue.
class Lock {
  public:
    /// Switched off if the application serialises its calls and the provider has no thread (AutoProgress::adopt).
    void set_enabled(bool on) noexcept { enabled_ = on; }

    [[nodiscard]] bool enabled() const noexcept { return enabled_; }

    void lock() noexcept
    {
        // acquire: pairs with the release in unlock()
        if (enabled_ && word_.exchange(true, std::memory_order_acquire)) [[unlikely]]
            wait();
    }
    [[nodiscard]] bool try_lock() noexcept { return !enabled_ || !word_.exchange(true, std::memory_order_acquire); }
    void unlock() noexcept
    {
        if (enabled_)
            word_.store(false, std::memory_order_release);
    }

    Lock* next = nullptr;  ///< in the list of a domain's locks (AutoProgress::adopt)
    Lock** back = nullptr; ///< the list's

  private:
    /// Looks at the lock less and less often: between two looks of a waiter the lock and what it protects stay in the
    /// cache of the holder's processor, which does many operations in the time that it takes to move them.
    [[gnu::noinline]] void wait() noexcept
    {
        constexpr unsigned longest = 128;
        unsigned pause = 4;
        do {
            for (unsigned i = 0; i < pause; i++)
                relax_cpu();
            if (pause < longest)
                pause *= 2;
            else
                sched_yield();
        } while (word_.load(std::memory_order_relaxed) || word_.exchange(true, std::memory_order_acquire));
    }
    static void relax_cpu() noexcept
    {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        asm volatile("isb"); // some tens of cycles; the hint "yield" takes one, as a no-operation
#endif
    }

    std::atomic<bool> word_{false};
    bool enabled_{true};
};

} // namespace tofu
