// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The time of a barrier or a reduction by barrier gates over a whole shape. See gates.h.
#include "replay/gates.h"

#include "replay/place.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace tofu::sim::replay {

/// In each stage a gate for the packet of the partner and of its own. Nodes are those of a box as large as the network:
/// its axes are rings whether the network is a torus or not, so no stage goes back along a whole axis. On a ring whose
/// length is no power of two each sends upwards, to the next, the one after it and so on: all have heard of all when
/// the distances reach around.
Picoseconds time_of_gates(const Topology& topology, bool sums)
{
    const Network network(topology, nullptr, nullptr, nullptr);
    const auto units = topology.units();
    const Grid grid{uint32_t{units[0]} * unit_shape[0], uint32_t{units[1]} * unit_shape[1],
                    uint32_t{units[2]} * unit_shape[2]};
    const Placement box(topology, 1, Paths::target, {.kind = Order::Kind::box, .grid = grid});
    const uint32_t nodes = topology.num_nodes();
    std::vector<Picoseconds> sent(nodes, Network::gate_start(figures::post_call, sums));
    std::vector<Picoseconds> next(nodes);
    uint32_t stride = 1;
    for (const uint32_t length : grid) {
        for (uint32_t distance = 1; distance < length; distance *= 2) {
            for (uint32_t node = 0; node < nodes; node++) {
                const uint32_t at = node / stride % length;
                const uint32_t from = std::has_single_bit(length) ? at ^ distance : (at + distance) % length;
                const uint32_t partner = node - at * stride + from * stride;
                const uint32_t here = box.at(node), there = box.at(partner);
                const size_t hops = network.hops(there, box.path(there, here), here);
                next[node] = Network::gate_output(std::max(sent[node], Network::gate_input(sent[partner], hops)));
            }
            sent.swap(next);
        }
        stride *= length;
    }
    return *std::max_element(sent.begin(), sent.end()) + figures::found;
}

} // namespace tofu::sim::replay
