// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Placements: neighbours in rank are neighbours in the network, and the grid of a box has rings for axes.
#include "replay/place.h"

#include "topology/ids.h"
#include "topology/route.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace tofu::sim::replay {
namespace {

// The fewest hops between two nodes, over all paths.
size_t hops(const Topology& topology, uint32_t from, uint32_t to)
{
    const Coords here = topology.coords_of(from), there = topology.coords_of(to);
    size_t fewest = ~size_t{0};
    for (uint8_t a = 0; a < 2; a++)
        for (uint8_t b = 0; b < 3; b++)
            for (uint8_t c = 0; c < 2; c++)
                fewest = std::min(fewest, route(topology, here, {a, b, c}, there).size());
    return fewest;
}

constexpr std::array<uint8_t, 3> shapes[] = {{1, 1, 1}, {2, 1, 1}, {1, 2, 3}, {3, 3, 3}, {4, 5, 2}, {1, 1, 5}};

TEST(Placement, ASnakeIsACycleOfNeighboursThroughAllNodes)
{
    for (const auto& shape : shapes) {
        const Topology topology(shape, 0);
        const Placement placement(topology, 1, Paths::spread, {.kind = Order::Kind::snake});
        const uint32_t nodes = topology.num_nodes();
        ASSERT_EQ(placement.nodes(), nodes);
        std::set<uint32_t> seen;
        for (uint32_t i = 0; i < nodes; i++) {
            seen.insert(placement.at(i));
            ASSERT_EQ(hops(topology, placement.at(i), placement.at((i + 1) % nodes)), 1u) << i << " of " << nodes;
        }
        EXPECT_EQ(seen.size(), nodes);
    }
}

TEST(Placement, AxesOfABoxAreRingsOfNeighbours)
{
    constexpr Grid grids[] = {{2, 3, 2}, {4, 6, 16}, {6, 9, 4}, {1, 3, 8}, {8, 1, 1}, {2, 15, 2}, {1, 1, 1}};
    for (const Grid& grid : grids) {
        ASSERT_EQ(check_grid(grid), "");
        const auto units = units_of(grid);
        const Topology topology(
            {static_cast<uint8_t>(units[0]), static_cast<uint8_t>(units[1]), static_cast<uint8_t>(units[2])}, 0);
        const Placement placement(topology, 2, Paths::spread, {.kind = Order::Kind::box, .grid = grid});
        ASSERT_EQ(placement.nodes(), grid[0] * grid[1] * grid[2]);
        std::set<uint32_t> seen;
        for (uint32_t i = 0; i < placement.nodes(); i++) {
            seen.insert(placement.at(i));
            EXPECT_EQ(placement.node_of(2 * i + 1), placement.at(i));
            Grid at{i % grid[0], i / grid[0] % grid[1], i / grid[0] / grid[1]};
            for (unsigned axis = 0; axis < 3; axis++) {
                Grid next = at;
                next[axis] = (at[axis] + 1) % grid[axis];
                const uint32_t other = placement.at((next[2] * grid[1] + next[1]) * grid[0] + next[0]);
                ASSERT_EQ(hops(topology, placement.at(i), other), grid[axis] == 1 ? 0u : 1u) << i << ", axis " << axis;
            }
        }
        EXPECT_EQ(seen.size(), placement.nodes());
    }
}

TEST(Placement, AGridThatNoRingFitsIsExplained)
{
    EXPECT_NE(check_grid({5, 6, 16}).find("x is 5, but a ring over X and A has a multiple of 2"), std::string::npos);
    EXPECT_NE(check_grid({4, 7, 16}).find("y is 7, but a ring over Y and B has a multiple of 3 nodes, or 1: use 9"),
              std::string::npos);
    EXPECT_NE(check_grid({4, 6, 3}).find("z is 3"), std::string::npos);
}

TEST(Placement, OrdersAreReadAsWritten)
{
    EXPECT_EQ(parse_order("order")->kind, Order::Kind::number);
    EXPECT_EQ(parse_order("snake")->kind, Order::Kind::snake);
    EXPECT_EQ(parse_order("random:18446744073709551615")->seed, ~uint64_t{0});
    EXPECT_EQ(parse_order("box:4x6x16")->grid, (Grid{4, 6, 16}));
    for (const char* text :
         {"", "snakes", "random", "random:", "random:-1", "random:18446744073709551616", "box", "box:", "box:4x6",
          "box:4x6x", "box:4x6x16x2", "box:0x6x16", "box:4x6x999999999", "box:4x-6x2"})
        EXPECT_FALSE(parse_order(text)) << text;
}

} // namespace
} // namespace tofu::sim::replay
