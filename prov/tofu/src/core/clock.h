// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The provider's time: a steady clock, and a cheap one for work that is due every few milliseconds. A test may have a
// time of its own. Calls nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>

namespace tofu {

/// The steady clock of all waits with a bound.
struct Clock {
    using duration = std::chrono::steady_clock::duration;
    using time_point = std::chrono::steady_clock::time_point;

    /// The time of a test, in nanoseconds; null: that of the system. Set before the first domain is opened.
    static inline std::uint64_t (*of_test)() noexcept = nullptr;

    /// The sleep of a test, in nanoseconds, where it has a time of its own.
    static inline void (*sleep_of_test)(std::uint64_t) noexcept = nullptr;

    static time_point now() noexcept
    {
        if (of_test != nullptr) [[unlikely]]
            return time_point(std::chrono::nanoseconds(of_test()));
        return std::chrono::steady_clock::now();
    }
    static void sleep(std::chrono::nanoseconds time) noexcept
    {
        if (sleep_of_test != nullptr) [[unlikely]]
            return sleep_of_test(static_cast<std::uint64_t>(time.count()));
        const timespec wanted{static_cast<time_t>(time.count() / 1000000000), static_cast<long>(time.count() % 1000000000)};
        (void)nanosleep(&wanted, nullptr);
    }
};

/// Milliseconds since some time in the past, as of the last tick of the kernel.
inline std::uint64_t milliseconds() noexcept
{
    if (Clock::of_test != nullptr) [[unlikely]]
        return Clock::of_test() / 1000000;
    timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000 + static_cast<std::uint64_t>(now.tv_nsec) / 1000000;
}

} // namespace tofu
