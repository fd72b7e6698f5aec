// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Coordinates of nodes on the six-dimensional mesh/torus, and paths (guide 1.1.2, 2.4).
#include "topology/topology.h"

#include "job/layout.h"

#include <cstdlib>

namespace tofu::sim {
Coords Topology::coords_of(uint32_t node) const noexcept
{
    const uint32_t unit = node / nodes_per_unit;
    const uint32_t in_unit = node % nodes_per_unit;
    return {static_cast<uint8_t>(unit / units_[2] / units_[1]),
            static_cast<uint8_t>(unit / units_[2] % units_[1]),
            static_cast<uint8_t>(unit % units_[2]),
            static_cast<uint8_t>(in_unit / 6),
            static_cast<uint8_t>(in_unit / 2 % 3),
            static_cast<uint8_t>(in_unit % 2)};
}

PathCoords Topology::choose_path(const Coords& from, const Coords& to) const noexcept
{
    // Turning, on each axis, where the source or where the destination is costs no extra hop.
    const uint32_t mix = (node_of(from) * 0x9e3779b1u) ^ (node_of(to) * 0x85ebca6bu);
    PathCoords path;
    for (unsigned axis = 0; axis < 3; axis++)
        path[axis] = (mix >> (29 + axis) & 1) != 0 ? from[3 + axis] : to[3 + axis];
    return path;
}

std::optional<std::array<uint8_t, 3>> parse_shape(const char* text) noexcept
{
    std::array<uint8_t, 3> units{};
    uint64_t nodes = nodes_per_unit;
    for (unsigned axis = 0; axis < 3; axis++) {
        if (*text < '0' || *text > '9')
            return std::nullopt;
        char* end = nullptr;
        const unsigned long value = std::strtoul(text, &end, 10);
        const bool separated = axis < 2 ? *end == 'x' || *end == 'X' : *end == '\0';
        if (value == 0 || value > 255 || !separated)
            return std::nullopt;
        units[axis] = static_cast<uint8_t>(value);
        nodes *= value;
        text = end + 1;
    }
    if (nodes > max_nodes)
        return std::nullopt;
    return units;
}

std::optional<uint8_t> parse_torus(const char* text) noexcept
{
    uint8_t wraps = 0;
    for (; *text != '\0'; text++) {
        switch (*text | 0x20) {
        case 'x': wraps |= 1; break;
        case 'y': wraps |= 2; break;
        case 'z': wraps |= 4; break;
        case ',' | 0x20: break;
        default: return std::nullopt;
        }
    }
    return wraps;
}

} // namespace tofu::sim
