// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A run in figures: the time of each rank by activity, the hottest links, message sizes.
#pragma once

#include "traces/link_loads.h"
#include "traces/run.h"

#include <cstdio>
#include <vector>

namespace tofu::sim::tools {

/// What the links carried that a trace knows of.
[[nodiscard]] LinkLoads loads_of(const trace::Run& run);

/// And how long their ports were without credit: what was recorded, carried once more in the order of its virtual time.
/// Nothing where there was none. `buffer`: bytes of a virtual channel.
void add_credit(const trace::Run& run, LinkLoads& loads, uint32_t buffer);

struct HotLink {
    LinkLoads::Place place;
    LinkLoad load;
};
/// Those with the most bytes, and then operations, first; of those that carried anything.
[[nodiscard]] std::vector<HotLink> hottest_links(const LinkLoads& loads, size_t most);

/// Port by port what users can read on the machine: packets and bytes / 16, sent and received, cycles without credit.
/// `exact`: each operation is known, and not only their sum.
void print_counters(const Topology& topology, const LinkLoads& loads, bool exact, std::FILE* to);

/// "(0,0,0,0,1,0) B+".
[[nodiscard]] std::string link_name(const Topology& topology, const LinkLoads::Place& place);

/// What a process did with its time, in nanoseconds, of the thread that had most to do: the rest is computation.
struct Times {
    uint64_t total = 0;
    uint64_t posting = 0;
    uint64_t waiting = 0;
};
[[nodiscard]] std::vector<Times> times_of(const trace::Run& run);

/// "1.5 KiB", "12.3 us".
[[nodiscard]] std::string bytes_text(uint64_t bytes);
[[nodiscard]] std::string time_text(uint64_t ns);
[[nodiscard]] std::string count_text(uint64_t count); ///< "12,345"

void print_summary(const trace::Run& run, std::FILE* to);

} // namespace tofu::sim::tools
