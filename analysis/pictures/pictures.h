// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Pictures of a job: its network, its time, its messages; and a page with all of them.
#pragma once

#include "traces/run.h"
#include "traces/summary.h"

#include <cstdio>
#include <string>
#include <vector>

namespace tofu::sim::tools {

/// The traffic of the links of a job, and the placement of its processes.
struct NetworkView {
    std::string job;
    Topology topology;
    LinkLoads loads;
    std::vector<std::vector<std::string>> ranks; ///< by node
    uint64_t length = 0;                         ///< of the run in ns, 0: unknown
    trace::ClockKind clock = trace::ClockKind::real;
};
[[nodiscard]] NetworkView network_of(const trace::Run& run);

/// The torus with its links coloured by bytes, and the ten hottest links named.
[[nodiscard]] std::string draw_network(const NetworkView& view);

/// The activity of each process over time, and the longest waits with the awaited processes.
[[nodiscard]] std::string draw_timeline(const trace::Run& run);

/// The waits between processes.
[[nodiscard]] std::string draw_waits(const trace::Run& run);

/// How many operations, and how many bytes, by size.
[[nodiscard]] std::string draw_sizes(const trace::Run& run);

/// All of them in one HTML file that needs nothing else.
void write_page(const trace::Run& run, const std::vector<std::string>& warnings, std::FILE* to);

} // namespace tofu::sim::tools
