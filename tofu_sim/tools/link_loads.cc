// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: from what processes have posted to whom, by which path, to what each link of the network has carried.
// Called by: tools/show.cc. Calls: topology/route, job/layout.
#include "tools/link_loads.h"

#include "topology/ids.h"

namespace tofu::sim::tools {
namespace {

FlowCounters sum_of_path(const NodeFlows& flows, unsigned path) noexcept
{
    FlowCounters sum{};
    for (unsigned tni = 0; tni < tnis_per_node; tni++) {
        const FlowCounters& flow = flows.of[tni][path];
        sum.operations += flow.operations;
        sum.bytes_out += flow.bytes_out;
        sum.bytes_back += flow.bytes_back;
    }
    return sum;
}

} // namespace

void LinkLoads::add(const FlowTable& table, uint32_t node)
{
    if (node >= topology_.num_nodes()) {
        return;
    }
    const Coords from = topology_.coords_of(node);
    for (unsigned place = 0; place < max_flow_nodes; place++) {
        // Acquire: no more than a moment's look; partner is flows_to.
        const uint32_t there = table.nodes[place].load_acquire();
        if (there == 0 || there > topology_.num_nodes()) {
            continue;
        }
        for (unsigned id = 0; id < path_ids; id++) {
            const PathCoords path = decode_path(id);
            const FlowCounters sum = sum_of_path(table.flows[place], id);
            if (sum.operations == 0 || !Topology::contains_path(path)) {
                continue;
            }
            for (const Link& link : route(topology_, from, path, topology_.coords_of(there - 1))) {
                LinkLoad& out = loads_[{link.node, link.port}];
                out.operations += sum.operations;
                out.bytes += sum.bytes_out;
                if (sum.bytes_back != 0) {
                    const Link back = opposite(topology_, link);
                    loads_[{back.node, back.port}].bytes += sum.bytes_back;
                }
            }
        }
    }
}

} // namespace tofu::sim::tools
