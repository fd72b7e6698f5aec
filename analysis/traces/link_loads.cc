// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Computes the traffic of each link of the network from the posts of processes, by target and path.
#include "traces/link_loads.h"

#include "job/flows.h"
#include "topology/ids.h"

#include <algorithm>

namespace tofu::sim::tools {
namespace {

/// Sums know how many packets there were at least: an operation has one, and answers are those of gets.
Flow sum_of_path(const FlowTable& table, unsigned place, unsigned path) noexcept
{
    Flow sum;
    visit_flow_rows(table, [&](unsigned, const FlowCounters* flows) {
        const FlowCounters& flow = flows[place * path_ids + path];
        sum.operations += flow.operations;
        sum.bytes_out += flow.bytes_out;
        sum.bytes_back += flow.bytes_back;
        sum.barrier_packets += flow.packets;
    });
    sum.packets_out = std::max(sum.operations, packets_of(sum.bytes_out));
    sum.packets_back = packets_of(sum.bytes_back);
    return sum;
}

} // namespace

void LinkLoads::add(uint32_t from, uint32_t to, unsigned path, const Flow& sum)
{
    if (from >= topology_.num_nodes() || to >= topology_.num_nodes() || path >= path_ids ||
        !Topology::contains_path(decode_path(path)) || (sum.operations == 0 && sum.barrier_packets == 0))
        return;
    for (const Link& link : route(topology_, topology_.coords_of(from), decode_path(path), topology_.coords_of(to))) {
        LinkLoad& out = loads_[{link.node, link.port}];
        out.operations += sum.operations;
        out.bytes += sum.bytes_out;
        out.packets += sum.barrier_packets;
        out.data_packets += sum.packets_out;
        if (sum.packets_back != 0) {
            const Link back = opposite(topology_, link);
            LinkLoad& answers = loads_[{back.node, back.port}];
            answers.bytes += sum.bytes_back;
            answers.data_packets += sum.packets_back;
        }
    }
}

void LinkLoads::add(const FlowTable& table, uint32_t node)
{
    for (unsigned place = 0; place < max_flow_nodes; place++) {
        // Acquire: no more than a moment's look; partner is flow_place.
        const uint32_t there = table.nodes[place].load_acquire();
        for (unsigned id = 0; there != 0 && id < path_ids; id++)
            add(node, there - 1, id, sum_of_path(table, place, id));
    }
}

void LinkLoads::add(const TniGates& gates, uint32_t tni)
{
    const uint32_t node = tni / tnis_per_node;
    for (const GateState& gate : gates.gates) {
        const uint64_t version = gate.version.load_acquire();
        const GateRef target = gate.dst[static_cast<unsigned>(Input::packet)].load_relaxed();
        const uint32_t path = gate.path.load_relaxed();
        if ((version & 1) != 0 || gate.configured.load_relaxed() == 0 || node >= topology_.num_nodes() ||
            target >= topology_.num_nodes() * gates_per_node)
            continue;
        add(node, node_of_gate(target), path, {.barrier_packets = last_round(gate.out, epoch_of_version(version))});
    }
}

void LinkLoads::add(const NodeCalendars& calendars, uint32_t node)
{
    for (unsigned port = 0; node < topology_.num_nodes() && port < ports_per_node; port++) {
        for (unsigned channel = 0; channel < virtual_channels; channel++)
            if (const Picoseconds without = calendars.credit[port][channel].without; without != 0)
                loads_[{node, static_cast<Port>(port)}].without_credit[channel] += without;
    }
}

} // namespace tofu::sim::tools
