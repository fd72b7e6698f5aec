// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The load of the links of a replayed network. See report.h.
#include "replay/report.h"

#include "traces/summary.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

namespace tofu::sim::tools {
namespace {

/// The cables that are cut when the network is halved across one axis.
struct Cut {
    unsigned axis = 0;
    uint64_t links = 0; ///< both directions
    Picoseconds busy = 0;
    uint64_t bytes = 0;
};

Cut cut_across(const Topology& topology, const replay::Traffic& traffic, unsigned axis)
{
    constexpr Port up[] = {Port::x_plus, Port::y_plus, Port::z_plus, Port::a, Port::b_plus, Port::c};
    constexpr Port down[] = {Port::x_minus, Port::y_minus, Port::z_minus, Port::a, Port::b_minus, Port::c};
    const unsigned length = axis < 3 ? topology.units()[axis] : unit_shape[axis - 3];
    const bool wraps = axis == 4 || (axis < 3 && (topology.wraps() >> axis & 1) != 0);
    Cut cut{axis, 0, 0, 0};
    const auto add = [&](uint32_t node, Port port) {
        const replay::Carried& carried = traffic.carried(node, port);
        cut.links++;
        cut.busy += carried.busy;
        cut.bytes += carried.bytes;
    };
    for (uint32_t node = 0; node < topology.num_nodes(); node++) {
        const unsigned at = topology.coords_of(node)[axis];
        if (at == length / 2 - 1 || (wraps && at == length - 1))
            add(node, up[axis]);
        if (at == length / 2 || (wraps && at == 0))
            add(node, down[axis]);
    }
    return cut;
}

/// The one with the fewest cables.
Cut bisection(const Topology& topology, const replay::Traffic& traffic)
{
    Cut best;
    for (unsigned axis = 0; axis < 6; axis++) {
        if ((axis < 3 ? topology.units()[axis] : unit_shape[axis - 3]) < 2)
            continue;
        const Cut cut = cut_across(topology, traffic, axis);
        if (best.links == 0 || cut.links < best.links)
            best = cut;
    }
    return best;
}

} // namespace

void print_network(const Topology& topology, const replay::Traffic& traffic, Picoseconds length, std::FILE* to)
{
    const double all = static_cast<double>(std::max<Picoseconds>(length, 1));
    const Cut cut = bisection(topology, traffic);
    std::fprintf(to, "bisection: %s crossed %s links across %c, which were busy for %.2g %% of the time\n",
                 bytes_text(cut.bytes).c_str(), count_text(cut.links).c_str(), "XYZABC"[cut.axis],
                 100 * static_cast<double>(cut.busy) / all / static_cast<double>(cut.links));
    std::vector<std::pair<replay::Carried, Link>> links;
    for (uint32_t node = 0; node < topology.num_nodes(); node++) {
        for (unsigned port = 0; port < ports_per_node; port++) {
            const Link link{node, static_cast<Port>(port)};
            if (const replay::Carried& carried = traffic.carried(node, link.port); carried.busy != 0)
                links.push_back({carried, link});
        }
    }
    const size_t most = std::min<size_t>(links.size(), 10);
    const auto rank = [](const auto& one) {
        return std::tuple(~one.first.busy, ~one.first.bytes, one.second.node, one.second.port);
    };
    std::partial_sort(links.begin(), links.begin() + static_cast<ptrdiff_t>(most), links.end(),
                      [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
    for (size_t i = 0; i < most; i++) {
        const auto& [carried, link] = links[i];
        std::fprintf(to, "  link %s: %llu bytes, busy for %.3g %%\n",
                     link_name(topology, {link.node, link.port}).c_str(),
                     static_cast<unsigned long long>(carried.bytes), 100 * static_cast<double>(carried.busy) / all);
    }
}

} // namespace tofu::sim::tools
