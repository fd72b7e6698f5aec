// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: counts of what was posted, by destination, TNI and path; `tofu-sim show` makes loads of links of them.
// Called by: tni/, barrier/, api/wait, tools/show. Calls: job/layout.
#pragma once

#include "job/layout.h"

namespace tofu::sim {

// The counters of a node, claimed on its first use. One thread at a time (Process::slow_path).
[[nodiscard]] NodeFlows& flows_to(FlowTable& table, uint32_t node) noexcept;

// All that the owner of the segment has posted through one TNI.
[[nodiscard]] FlowCounters sum_of_tni(std::byte* base, unsigned tni) noexcept;

} // namespace tofu::sim
