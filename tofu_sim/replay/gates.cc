// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: how long a barrier or a reduction by barrier gates takes over a whole shape. See gates.h.
// Called by: tools/replay, bench/time. Calls: clock/network.
#include "replay/gates.h"

#include "topology/ids.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

namespace tofu::sim::replay {

// In each stage a gate for the packet of the partner and of its own. Along an axis whose length is no power of two each
// sends upwards, to the next, the one after it and so on: all have heard of all when the distances reach around.
Picoseconds time_of_gates(const Topology& topology, bool sums)
{
    const Network network(topology, nullptr, nullptr, nullptr);
    const uint32_t nodes = topology.num_nodes();
    const auto units = topology.units();
    const std::pair<unsigned, unsigned> axes[] = {{3, unit_shape[0]}, {0, units[0]}, {4, unit_shape[1]},
                                                  {1, units[1]},      {5, unit_shape[2]}, {2, units[2]}};
    std::vector<Picoseconds> sent(nodes, Network::gate_start(figures::post_call, sums));
    std::vector<Picoseconds> next(nodes);
    for (const auto& [axis, length] : axes) {
        for (unsigned distance = 1; distance < length; distance *= 2) {
            for (uint32_t node = 0; node < nodes; node++) {
                const Coords here = topology.coords_of(node);
                Coords there = here;
                there[axis] = static_cast<uint8_t>(std::has_single_bit(length) ? here[axis] ^ distance
                                                                               : (here[axis] + distance) % length);
                const uint32_t partner = topology.node_of(there);
                const size_t hops = network.hops(partner, encode_path({here[3], here[4], here[5]}), node);
                next[node] = Network::gate_output(std::max(sent[node], Network::gate_input(sent[partner], hops)));
            }
            sent.swap(next);
        }
    }
    return *std::max_element(sent.begin(), sent.end()) + figures::found;
}

} // namespace tofu::sim::replay
