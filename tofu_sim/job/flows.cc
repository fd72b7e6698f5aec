// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: counts of what was posted, by destination, TNI and path; `tofu-sim show` makes loads of links of them.
// Called by: tni/, barrier/, api/wait, tools/show. Calls: job/layout.
#include "job/flows.h"

namespace tofu::sim {

NodeFlows& flows_to(FlowTable& table, uint32_t node) noexcept
{
    for (unsigned i = 0; i < max_flow_nodes - 1; i++) {
        const unsigned place = (node + i) % (max_flow_nodes - 1);
        const uint32_t there = table.nodes[place].load_relaxed();
        if (there == node + 1) {
            return table.flows[place];
        }
        if (there == 0) {
            table.nodes[place].store_release(node + 1); // partner: tofu-sim show
            return table.flows[place];
        }
    }
    return table.flows[max_flow_nodes - 1]; // stays without a node
}

FlowCounters sum_of_tni(std::byte* base, unsigned tni) noexcept
{
    FlowCounters sum = segment_header(base).nowhere[tni];
    const FlowTable& table = segment_flows(base);
    for (unsigned place = 0; place < max_flow_nodes; place++) {
        if (place < max_flow_nodes - 1 && table.nodes[place].load_acquire() == 0) {
            continue;
        }
        for (const FlowCounters& flow : table.flows[place].of[tni]) {
            sum.operations += flow.operations;
            sum.bytes_out += flow.bytes_out;
            sum.bytes_back += flow.bytes_back;
        }
    }
    return sum;
}

} // namespace tofu::sim
