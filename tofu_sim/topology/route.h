// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The links a packet passes (guide 1.1.2, 2.4).
#pragma once

#include "topology/topology.h"

#include <cstdint>
#include <vector>

namespace tofu::sim {

/// A node has ten ports: two along each of X, Y, Z and B, where there are two neighbours, one along A and C,
/// where there is one.
enum class Port : uint8_t { x_plus, x_minus, y_plus, y_minus, z_plus, z_minus, a, b_plus, b_minus, c };
inline constexpr unsigned ports_per_node = 10;

[[nodiscard]] const char* port_name(Port port) noexcept; ///< as in "X+"

/// The direction of a cable in which packets leave `node`.
struct Link {
    uint32_t node;
    Port port;

    friend bool operator==(const Link&, const Link&) = default;
};

/// From `from` to the corner (A, B, C of the path), along X, Y, Z, and along A, B, C to `to`: an axis after the other,
/// the shorter way round, and upwards where both are as long. All coordinates are of the topology.
[[nodiscard]] std::vector<Link> route(const Topology& topology, const Coords& from, const PathCoords& path,
                                      const Coords& to);

/// The other direction of the same cable: answers come back that way (2.4).
[[nodiscard]] Link opposite(const Topology& topology, Link link) noexcept;

} // namespace tofu::sim
