// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Coordinates of nodes on the six-dimensional mesh/torus, and paths (guide 1.1.2, 2.4).
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace tofu::sim {

/// X, Y, Z, A, B, C in the order of the guide.
using Coords = std::array<uint8_t, 6>;
/// A, B, C of the corner a packet turns at.
using PathCoords = std::array<uint8_t, 3>;

inline constexpr std::array<uint8_t, 3> unit_shape = {2, 3, 2}; ///< A, B, C
inline constexpr unsigned nodes_per_unit = 12;

class Topology {
  public:
    constexpr Topology() noexcept = default;
    constexpr Topology(std::array<uint8_t, 3> units, uint8_t wraps) noexcept : units_(units), wraps_(wraps) {}

    [[nodiscard]] constexpr std::array<uint8_t, 3> units() const noexcept { return units_; }
    [[nodiscard]] constexpr uint8_t wraps() const noexcept { return wraps_; }
    [[nodiscard]] constexpr uint32_t num_nodes() const noexcept
    {
        return uint32_t{units_[0]} * units_[1] * units_[2] * nodes_per_unit;
    }
    [[nodiscard]] constexpr bool contains(const Coords& c) const noexcept
    {
        return c[0] < units_[0] && c[1] < units_[1] && c[2] < units_[2] && contains_path({c[3], c[4], c[5]});
    }
    [[nodiscard]] static constexpr bool contains_path(const PathCoords& p) noexcept
    {
        return p[0] < unit_shape[0] && p[1] < unit_shape[1] && p[2] < unit_shape[2];
    }

    /// Nodes are numbered unit by unit, so that the first twelve processes share a unit.
    [[nodiscard]] constexpr uint32_t node_of(const Coords& c) const noexcept
    {
        const uint32_t unit = (uint32_t{c[0]} * units_[1] + c[1]) * units_[2] + c[2];
        return unit * nodes_per_unit + (uint32_t{c[3]} * 3 + c[4]) * 2 + c[5];
    }
    [[nodiscard]] Coords coords_of(uint32_t node) const noexcept;

    /// One of the shortest paths, chosen so that different pairs of nodes spread over them.
    [[nodiscard]] PathCoords choose_path(const Coords& from, const Coords& to) const noexcept;

  private:
    std::array<uint8_t, 3> units_ = {1, 1, 1};
    uint8_t wraps_ = 0;
};

/// "XxYxZ" in units of 2x3x2 nodes, e.g. "1x1x2". Nothing for any other text, a zero, more than 255 along
/// an axis, or more nodes than the simulator has.
[[nodiscard]] std::optional<std::array<uint8_t, 3>> parse_shape(const char* text) noexcept;

/// Letters of the axes that wrap around, e.g. "xz"; an empty text: none. B always wraps.
[[nodiscard]] std::optional<uint8_t> parse_torus(const char* text) noexcept;

} // namespace tofu::sim
