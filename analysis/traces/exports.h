// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Converters of a traced run to the formats of other tools.
#pragma once

#include "traces/run.h"

#include <cstdio>
#include <string>

namespace tofu::sim::tools {

/// "3", or "3.17" where two processes of the run had that rank, one after the other: with the process id.
[[nodiscard]] std::string process_label(const trace::Run& run, uint32_t process);
/// "(0,1,0,1,2,1)".
[[nodiscard]] std::string node_label(const Topology& topology, uint32_t node);

/// Chrome's trace events (JSON), which Perfetto reads: a track for each thread, and one for what arrives at a process;
/// arrows from post to arrival. Errors are left in the stream.
void write_chrome(const trace::Run& run, std::FILE* to);

/// GOAL, the text format of LogGOPSim and its relatives: what each rank computes (ns), sends and receives.
void write_goal(const trace::Run& run, std::FILE* to);

/// OTF2, a directory with a set of files. Empty, or what went wrong and what to do; also where tofu-sim was built
/// without OTF2.
[[nodiscard]] std::string write_otf2(const trace::Run& run, const std::string& directory);

} // namespace tofu::sim::tools
