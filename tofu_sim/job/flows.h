// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Counts of what was posted, by destination, TNI and path; `tofu-sim show` makes loads of links of them.
#pragma once

#include "job/layout.h"

namespace tofu::sim {

/// The place of a node in every row, claimed on its first use. One thread at a time (Process::slow_path).
[[nodiscard]] unsigned flow_place(FlowTable& table, uint32_t node) noexcept;

/// The counters that one VCQ, or barrier_flows, alone will write; of our own segment. Null: no memory.
[[nodiscard]] FlowCounters* flow_row(FlowTable& table, unsigned row) noexcept;

/// In a forked child, before it has a segment: no row of the next table is accessible.
void reset_flows_in_child() noexcept;

/// Calls `visit` with the number and the counters of each row in use. A snapshot of unchecked values.
template <typename Visit>
void visit_flow_rows(const FlowTable& table, Visit&& visit)
{
    for (unsigned row = 0; row < flow_rows; row++)
        if (table.used[row].load_relaxed() != 0)
            visit(row, table.flows[row]);
}

/// All that the owner of the segment has posted through one TNI. Of our own segment, the rows that flow_row has given.
[[nodiscard]] FlowCounters sum_of_tni(std::byte* base, unsigned tni) noexcept;

} // namespace tofu::sim
