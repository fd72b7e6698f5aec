// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How much processor time the cgroup of this process grants (cpu.max), which no affinity mask shows.
#pragma once

#include <cstdint>

namespace tofu::sim {

/// Whole processors' time of the cgroup and those above it, 1 at least; 0: there is no limit, or it cannot be read.
/// `root` stands in front of /proc and /sys, for tests.
[[nodiscard]] uint32_t quota_processors(const char* root = "") noexcept;

} // namespace tofu::sim
