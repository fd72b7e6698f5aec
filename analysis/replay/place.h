// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The node of a process, and the paths of its messages.
#pragma once

#include "topology/topology.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tofu::sim::replay {

enum class Paths : uint8_t {
    recorded, ///< as in the trace; the same as `spread` where there is none, or it was another network
    spread,   ///< as the simulator chooses for a VCQ ID: pairs of nodes by different corners
    target,   ///< the target's A, B and C first
    source,   ///< last
};
[[nodiscard]] std::optional<Paths> parse_paths(std::string_view text) noexcept;

/// The application's grid of nodes.
using Grid = std::array<uint32_t, 3>;

/// In which order processes come to nodes.
struct Order {
    enum class Kind : uint8_t {
        number, ///< as nodes are numbered, unit by unit
        random, ///< by `seed`
        snake,  ///< a cycle in which each node is a neighbour of the one before
        box,    ///< `grid`, x fastest: each of its axes is a ring over X and A, Y and B, or Z and C
    };
    Kind kind = Kind::number;
    uint64_t seed = 0;
    Grid grid{};
};
/// order, random:SEED, snake, box:XxYxZ. Nothing for any other text.
[[nodiscard]] std::optional<Order> parse_order(std::string_view text) noexcept;
/// Why axes of two, three and two cannot be rings of the grid; empty: they can.
[[nodiscard]] std::string check_grid(const Grid& grid);
/// The units that hold the grid.
[[nodiscard]] std::array<uint32_t, 3> units_of(const Grid& grid) noexcept;

class Placement {
  public:
    /// `ppn` processes of each node. The topology holds a grid of the order.
    Placement(const Topology& topology, uint32_t ppn, Paths paths, const Order& order);

    [[nodiscard]] const Topology& topology() const noexcept { return topology_; }
    [[nodiscard]] uint32_t ppn() const noexcept { return ppn_; }
    /// The number of nodes with processes.
    [[nodiscard]] uint32_t nodes() const noexcept
    {
        return order_.empty() ? topology_.num_nodes() : static_cast<uint32_t>(order_.size());
    }
    [[nodiscard]] uint32_t node_of(uint32_t process) const noexcept { return at(process / ppn_); }
    [[nodiscard]] uint32_t at(uint32_t node) const noexcept { return order_.empty() ? node : order_[node]; }
    [[nodiscard]] uint8_t path(uint32_t from, uint32_t to) const noexcept; ///< its ID, between nodes
    [[nodiscard]] const std::optional<Grid>& grid() const noexcept { return grid_; }

  private:
    void shuffle(uint64_t seed);
    void wind();
    void fold(const Grid& grid);

    Topology topology_;
    uint32_t ppn_;
    Paths paths_;
    std::vector<uint32_t> order_;
    std::optional<Grid> grid_; ///< of a box
};

} // namespace tofu::sim::replay
