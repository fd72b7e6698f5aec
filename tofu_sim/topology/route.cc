// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The links a packet passes (guide 1.1.2, 2.4).
#include "topology/route.h"

namespace tofu::sim {
namespace {

constexpr unsigned axes = 6;

struct Axis {
    unsigned length;
    bool wraps;
    Port up;
    Port down; ///< the same where an axis is two nodes long and has one cable between them
};

Axis axis_of(const Topology& topology, unsigned number) noexcept
{
    constexpr Port up[axes] = {Port::x_plus, Port::y_plus, Port::z_plus, Port::a, Port::b_plus, Port::c};
    constexpr Port down[axes] = {Port::x_minus, Port::y_minus, Port::z_minus, Port::a, Port::b_minus, Port::c};
    if (number >= 3)
        return {unit_shape[number - 3], number == 4, up[number], down[number]};
    return {topology.units()[number], (topology.wraps() >> number & 1) != 0, up[number], down[number]};
}

unsigned next_up(unsigned at, unsigned length) noexcept
{
    return at + 1 == length ? 0 : at + 1;
}

unsigned next_down(unsigned at, unsigned length) noexcept
{
    return at == 0 ? length - 1 : at - 1;
}

/// Moves `at` along one axis and notes the links it leaves by.
void walk(const Topology& topology, Coords& at, unsigned number, unsigned target, std::vector<Link>& links)
{
    const Axis axis = axis_of(topology, number);
    const bool above = target > at[number];
    const unsigned direct = above ? target - at[number] : at[number] - target;
    const bool around = axis.wraps && axis.length - direct < direct;
    const bool tie = axis.wraps && axis.length - direct == direct;
    const bool upwards = tie || above != around;
    while (at[number] != target) {
        links.push_back({topology.node_of(at), upwards ? axis.up : axis.down});
        const unsigned next = upwards ? next_up(at[number], axis.length) : next_down(at[number], axis.length);
        at[number] = static_cast<uint8_t>(next);
    }
}

} // namespace

const char* port_name(Port port) noexcept
{
    switch (port) {
    case Port::x_plus: return "X+";
    case Port::x_minus: return "X-";
    case Port::y_plus: return "Y+";
    case Port::y_minus: return "Y-";
    case Port::z_plus: return "Z+";
    case Port::z_minus: return "Z-";
    case Port::a: return "A";
    case Port::b_plus: return "B+";
    case Port::b_minus: return "B-";
    case Port::c: return "C";
    }
    return "?";
}

std::vector<Link> route(const Topology& topology, const Coords& from, const PathCoords& path, const Coords& to)
{
    std::vector<Link> links;
    Coords at = from;
    for (unsigned number = 3; number < axes; number++)
        walk(topology, at, number, path[number - 3], links);
    for (unsigned number = 0; number < axes; number++)
        walk(topology, at, number, to[number], links);
    return links;
}

Link opposite(const Topology& topology, Link link) noexcept
{
    constexpr unsigned axis_of_port[ports_per_node] = {0, 0, 1, 1, 2, 2, 3, 4, 4, 5};
    const unsigned number = axis_of_port[static_cast<unsigned>(link.port)];
    const Axis axis = axis_of(topology, number);
    const bool upwards = link.port == axis.up;
    Coords there = topology.coords_of(link.node);
    const unsigned next = upwards ? next_up(there[number], axis.length) : next_down(there[number], axis.length);
    there[number] = static_cast<uint8_t>(next);
    return {topology.node_of(there), upwards ? axis.down : axis.up};
}

} // namespace tofu::sim
