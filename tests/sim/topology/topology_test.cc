// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Coordinates, distances, paths and the bits of IDs.
#include "topology/ids.h"
#include "topology/route.h"
#include "topology/topology.h"

#include <gtest/gtest.h>

#include <set>

namespace tofu::sim {
namespace {

unsigned axis_distance(unsigned from, unsigned to, unsigned length, bool wraps)
{
    const unsigned direct = from < to ? to - from : from - to;
    return wraps && length - direct < direct ? length - direct : direct;
}

unsigned abc_distance(const PathCoords& from, const PathCoords& to)
{
    return axis_distance(from[0], to[0], unit_shape[0], false) + axis_distance(from[1], to[1], unit_shape[1], true) +
           axis_distance(from[2], to[2], unit_shape[2], false);
}

// Hops between two nodes by way of the path coordinates: A, B, C to the path, X, Y, Z, A, B, C to the end (guide 2.4).
unsigned hops(const Topology& topology, const Coords& from, const PathCoords& path, const Coords& to)
{
    unsigned sum = abc_distance({from[3], from[4], from[5]}, path);
    for (unsigned axis = 0; axis < 3; axis++)
        sum += axis_distance(from[axis], to[axis], topology.units()[axis], (topology.wraps() >> axis & 1) != 0);
    return sum + abc_distance(path, {to[3], to[4], to[5]});
}

TEST(Topology, NumbersEveryNodeOnce)
{
    const Topology topology({2, 3, 4}, 0);
    std::set<Coords> seen;
    for (uint32_t node = 0; node < topology.num_nodes(); node++) {
        const Coords c = topology.coords_of(node);
        EXPECT_TRUE(topology.contains(c));
        EXPECT_EQ(topology.node_of(c), node);
        seen.insert(c);
    }
    EXPECT_EQ(seen.size(), 2u * 3 * 4 * 12);
}

TEST(Topology, FillsAUnitBeforeTheNext)
{
    const Topology topology({2, 1, 1}, 0);
    EXPECT_EQ(topology.coords_of(11), (Coords{0, 0, 0, 1, 2, 1}));
    EXPECT_EQ(topology.coords_of(12), (Coords{1, 0, 0, 0, 0, 0}));
}

TEST(Topology, WrapsOnlyWhereToldAndAlongB)
{
    const Topology mesh({8, 1, 1}, 0);
    const Topology torus({8, 1, 1}, 1);
    const Coords from{0, 0, 0, 0, 0, 0};
    const Coords to{7, 0, 0, 0, 0, 0};
    EXPECT_EQ(hops(mesh, from, {0, 0, 0}, to), 7u);
    EXPECT_EQ(hops(torus, from, {0, 0, 0}, to), 1u);
    EXPECT_EQ(hops(mesh, from, {0, 2, 0}, {0, 0, 0, 0, 2, 0}), 1u); // b 0 and 2 are neighbours
}

TEST(Topology, CountsTheDetourOfAPath)
{
    // The guide's example of 2.4 on the X and B axes: from (1,0) to (4,2) by each of three paths.
    const Topology topology({6, 1, 1}, 0);
    const Coords from{1, 0, 0, 0, 0, 0};
    const Coords to{4, 0, 0, 0, 2, 0};
    EXPECT_EQ(hops(topology, from, {0, 0, 0}, to), 4u);
    EXPECT_EQ(hops(topology, from, {0, 1, 0}, to), 5u);
    EXPECT_EQ(hops(topology, from, {0, 2, 0}, to), 4u);
}

TEST(Topology, ChoosesOneOfTheShortestPaths)
{
    const Topology topology({2, 2, 2}, 7);
    for (uint32_t a = 0; a < topology.num_nodes(); a += 5) {
        for (uint32_t b = 0; b < topology.num_nodes(); b += 3) {
            const Coords from = topology.coords_of(a);
            const Coords to = topology.coords_of(b);
            unsigned best = ~0u;
            for (unsigned id = 0; id < 16; id++)
                if (Topology::contains_path(decode_path(id)))
                    best = std::min(best, hops(topology, from, decode_path(id), to));
            EXPECT_EQ(hops(topology, from, topology.choose_path(from, to), to), best);
        }
    }
}

TEST(Route, PassesAsManyLinksAsThereAreHopsAndArrives)
{
    for (const uint8_t wraps : {0, 7}) {
        const Topology topology({3, 2, 4}, wraps);
        for (uint32_t a = 0; a < topology.num_nodes(); a += 7) {
            for (uint32_t b = 0; b < topology.num_nodes(); b += 11) {
                const PathCoords path = decode_path((a + b) % 2 == 0 ? 13 : 2);
                const Coords to = topology.coords_of(b);
                const auto links = route(topology, topology.coords_of(a), path, to);
                ASSERT_EQ(links.size(), hops(topology, topology.coords_of(a), path, to));
                uint32_t at = a;
                for (const Link& link : links) {
                    ASSERT_EQ(link.node, at);
                    const Link back = opposite(topology, link);
                    ASSERT_EQ(opposite(topology, back), link);
                    at = back.node;
                }
                EXPECT_EQ(at, b);
            }
        }
    }
}

TEST(Route, TurnsAtThePathAndTakesTheShorterWayRound)
{
    const Topology torus({8, 1, 1}, 1);
    const auto node = [&](const Coords& c) { return torus.node_of(c); };
    const auto links = route(torus, {7, 0, 0, 0, 0, 0}, {1, 2, 0}, {1, 0, 0, 0, 2, 1});
    const std::vector<Link> expected = {
        {node({7, 0, 0, 0, 0, 0}), Port::a},      {node({7, 0, 0, 1, 0, 0}), Port::b_minus},
        {node({7, 0, 0, 1, 2, 0}), Port::x_plus}, {node({0, 0, 0, 1, 2, 0}), Port::x_plus},
        {node({1, 0, 0, 1, 2, 0}), Port::a},      {node({1, 0, 0, 0, 2, 0}), Port::c}};
    EXPECT_EQ(links, expected);
    EXPECT_EQ(opposite(torus, links[2]), (Link{node({0, 0, 0, 1, 2, 0}), Port::x_minus}));
    EXPECT_TRUE(route(torus, {7, 0, 0, 0, 0, 0}, {0, 0, 0}, {7, 0, 0, 0, 0, 0}).empty());
    EXPECT_STREQ(port_name(Port::b_minus), "B-");
}

TEST(Topology, RefusesWhatIsNoShape)
{
    EXPECT_EQ(*parse_shape("1x1x2"), (std::array<uint8_t, 3>{1, 1, 2}));
    EXPECT_EQ(*parse_shape("24X23X24"), (std::array<uint8_t, 3>{24, 23, 24}));
    for (const char* text : {"", "1", "1x1", "0x1x1", "1x1x1x1", "1x1x", "-1x1x1", " 1x1x1", "1x1x256", "255x255x255",
                             "1x1x1 ", "axbxc", "1,1,1"})
        EXPECT_FALSE(parse_shape(text)) << text;
}

TEST(Topology, ReadsAxesOfTheTorus)
{
    EXPECT_EQ(parse_torus(""), 0);
    EXPECT_EQ(parse_torus("xZ"), 5);
    EXPECT_EQ(parse_torus("x,y,z"), 7);
    EXPECT_FALSE(parse_torus("xb"));
}

TEST(VcqId, HasTheBitsSeenOnRealSystems)
{
    const uint64_t id = encode_vcq_id({{0, 0x16, 0x0b, 0, 0, 0}, {0, 0, 0}, 1, 0, 7});
    EXPECT_EQ(id, 0x200b16000f000000u);
    EXPECT_EQ(encode_vcq_id({{0, 0, 0, 1, 2, 1}, {1, 2, 1}, 5, 8, 3}), 0xad000000db000008u);
}

TEST(VcqId, RoundTrips)
{
    for (unsigned i = 0; i < 5000; i++) {
        const VcqAddress address{
            {uint8_t(i), uint8_t(i * 7), uint8_t(i * 13), uint8_t(i & 1), uint8_t(i % 3), uint8_t(i >> 1 & 1)},
            {uint8_t(i >> 2 & 1), uint8_t(i / 3 % 3), uint8_t(i >> 3 & 1)},
            uint8_t(i % 6),
            uint8_t(i % 9),
            uint8_t(i % 8)};
        EXPECT_EQ(decode_vcq_id(encode_vcq_id(address)), address);
    }
}

TEST(VcqId, KeyForgetsThePathOnly)
{
    const uint64_t a = encode_vcq_id({{1, 2, 3, 1, 2, 0}, {0, 1, 1}, 4, 5, 6});
    const uint64_t b = encode_vcq_id({{1, 2, 3, 1, 2, 0}, {1, 2, 0}, 4, 5, 6});
    EXPECT_NE(a, b);
    EXPECT_EQ(vcq_key(a), vcq_key(b));
    EXPECT_EQ(with_default_path(a), b);
}

TEST(PathId, IsAPlusTwoBPlusEightC)
{
    EXPECT_EQ(encode_path({1, 2, 1}), 13);
    EXPECT_EQ(decode_path(13), (PathCoords{1, 2, 1}));
}

} // namespace
} // namespace tofu::sim
