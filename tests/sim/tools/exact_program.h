// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the random programs for exact mode share: numbers that follow from the seed, and the disturbance that may change
// nothing.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <sys/syscall.h>
#include <unistd.h>

/// Random numbers that are the same on every machine.
class Dice {
  public:
    explicit Dice(uint64_t seed) noexcept : state_(seed * 0x9e3779b97f4a7c15u + 1) { (void)below(2); }
    uint64_t below(uint64_t limit) noexcept
    {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return (state_ >> 33) % limit;
    }
    bool one_in(uint64_t n) noexcept { return below(n) == 0; }

  private:
    uint64_t state_;
};

/// The number in an environment variable; `otherwise` where there is none.
inline uint64_t number_of(const char* name, uint64_t otherwise) noexcept
{
    const char* const text = std::getenv(name);
    return text != nullptr && *text != '\0' ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// EXACT_DISTURB=SEED: processor time between calls, and yields in it. System calls by number are those of the machine,
/// not those of exact mode.
class Disturbance {
  public:
    explicit Disturbance(uint64_t rank) noexcept
        : dice_(number_of("EXACT_DISTURB", 0) * 64 + rank), on_(number_of("EXACT_DISTURB", 0) != 0)
    {
    }
    /// `most`: milliseconds of processor time.
    void burn(unsigned most) noexcept
    {
        if (!on_)
            return;
        timespec begin{};
        timespec now{};
        (void)::syscall(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, &begin);
        const long us = static_cast<long>(dice_.below(most * 1000));
        do {
            (void)::syscall(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, &now);
            if (dice_.one_in(16))
                (void)::syscall(SYS_sched_yield);
        } while ((now.tv_sec - begin.tv_sec) * 1'000'000 + (now.tv_nsec - begin.tv_nsec) / 1000 < us);
    }
    /// Burns once in `calls`.
    void burn_in_one_of(unsigned calls, unsigned most) noexcept
    {
        if (on_ && dice_.one_in(calls))
            burn(most);
    }

  private:
    Dice dice_;
    bool on_;
};
