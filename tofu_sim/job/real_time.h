// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// This machine's time, for the simulator's own waits, independent of the program's clock_gettime.
#pragma once

#include "job/instruments.h"

#include <cstdint>
#include <ctime>
#include <sys/syscall.h>
#include <unistd.h>

namespace tofu::sim {

/// CLOCK_MONOTONIC. With the virtual clock, clock_gettime may be the preloaded library's (clock/preload.cc).
inline void read_real_time(timespec& now) noexcept
{
    if ((instruments & instrument_clock) != 0) [[unlikely]]
        (void)::syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    else
        (void)::clock_gettime(CLOCK_MONOTONIC, &now);
}
[[nodiscard]] inline uint64_t real_time_ns() noexcept
{
    timespec now{};
    read_real_time(now);
    return uint64_t(now.tv_sec) * 1'000'000'000 + uint64_t(now.tv_nsec);
}

} // namespace tofu::sim
