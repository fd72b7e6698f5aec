// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Counts of what was posted, by destination, TNI and path; `tofu-sim show` makes loads of links of them.
#include "job/flows.h"

#include "job/segment.h"

namespace tofu::sim {

unsigned flow_place(FlowTable& table, uint32_t node) noexcept
{
    for (unsigned i = 0; i < max_flow_nodes - 1; i++) {
        const unsigned place = 1 + (node + i) % (max_flow_nodes - 1);
        const uint32_t there = table.nodes[place].load_relaxed();
        if (there == node + 1)
            return place;
        if (there == 0) {
            table.nodes[place].store_release(node + 1); // partner: tofu-sim show
            return place;
        }
    }
    return 0;
}

namespace {

/// Which rows of our own table are accessible; peers write what they like into the table itself.
SharedWord<uintptr_t> own_table{0};
SharedWord<uint32_t> open_rows[flow_rows];

} // namespace

void reset_flows_in_child() noexcept
{
    // The table of the child may get the address that the parent's has, so an address says nothing.
    own_table.store_relaxed(0);
    for (SharedWord<uint32_t>& open : open_rows)
        open.store_relaxed(0);
}

FlowCounters* flow_row(FlowTable& table, unsigned row) noexcept
{
    own_table.store_release(reinterpret_cast<uintptr_t>(&table)); // partner: sum_of_tni
    if (open_rows[row].load_relaxed() == 0) {
        if (!open_sparse(reinterpret_cast<std::byte*>(table.flows[row]), sizeof table.flows[row]))
            return nullptr;
        open_rows[row].store_release(1); // partner: sum_of_tni
    }
    table.used[row].store_relaxed(1);
    return table.flows[row];
}

FlowCounters sum_of_tni(std::byte* base, unsigned tni) noexcept
{
    FlowCounters sum{};
    const FlowTable& table = segment_flows(base);
    visit_flow_rows(table, [&](unsigned row, const FlowCounters* flows) {
        if (own_table.load_acquire() == reinterpret_cast<uintptr_t>(&table) && open_rows[row].load_acquire() == 0)
            return;
        if (row == barrier_flows || row / (cqs_per_tni * vcqs_per_cq) != tni)
            return;
        for (unsigned place = 0; place < max_flow_nodes; place++) {
            if (place != 0 && table.nodes[place].load_acquire() == 0)
                continue;
            for (unsigned path = 0; path < path_ids; path++) {
                const FlowCounters& flow = flows[place * path_ids + path];
                // partner: count(), perhaps of another thread
                sum.operations += __atomic_load_n(&flow.operations, __ATOMIC_RELAXED);
                sum.bytes_out += __atomic_load_n(&flow.bytes_out, __ATOMIC_RELAXED);
                sum.bytes_back += __atomic_load_n(&flow.bytes_back, __ATOMIC_RELAXED);
            }
        }
    });
    return sum;
}

} // namespace tofu::sim
