// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A cheap clock for work that is due every few milliseconds. Calls nothing.
#pragma once

#include <cstdint>
#include <ctime>

namespace tofu {

/// Milliseconds since some time in the past, as of the last tick of the kernel.
inline std::uint64_t milliseconds() noexcept
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000 + static_cast<std::uint64_t>(now.tv_nsec) / 1000000;
}

} // namespace tofu
