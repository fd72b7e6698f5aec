// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Barrier circuits: whatever nodes the members are on, each member's part reaches each member exactly once.
#include "coll/barrier_circuit.h"

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace tofu::test {
namespace {

using coll::Circuit;
using coll::GateAt;
using coll::GatePlan;

struct Node {
    vcq::Coords coords;
};

/// Sizes of X, Y, Z; all nodes of these units.
std::vector<Node> box(unsigned x, unsigned y, unsigned z)
{
    std::vector<Node> nodes;
    for (unsigned i = 0; i < x * y * z * 12; i++) {
        Node node{};
        unsigned rest = i;
        const unsigned sizes[] = {x, y, z, 2, 3, 2};
        for (unsigned axis = 0; axis < 6; axis++) {
            node.coords[axis] = static_cast<std::uint8_t>(rest % sizes[axis]);
            rest /= sizes[axis];
        }
        nodes.push_back(node);
    }
    return nodes;
}

using Key = std::pair<unsigned, unsigned>; // member, gate

/// Runs the gates of all members: adds what comes to what is there, as a sum would.
using Gates = std::map<Key, GatePlan>;

/// Each packet and each signal that a gate sends is what another gate waits for, and each gate waits for something.
void expect_wires_match(const Gates& gates)
{
    for (const auto& [key, gate] : gates) {
        const auto& [m, g] = key;
        if (gate.packet_to.member != GateAt::none) {
            const GatePlan& there = gates.at({gate.packet_to.member, gate.packet_to.gate});
            ASSERT_EQ(there.packet_from.member, m);
            ASSERT_EQ(there.packet_from.gate, g);
        }
        if (gate.packet_from.member != GateAt::none) {
            const GatePlan& there = gates.at({gate.packet_from.member, gate.packet_from.gate});
            ASSERT_EQ(there.packet_to.member, m);
            ASSERT_EQ(there.packet_to.gate, g);
        }
        ASSERT_NE(gate.signal_to, g) << "a signal to the gate itself";
        if (gate.signal_to != GateAt::none)
            ASSERT_EQ(gates.at({m, gate.signal_to}).signal_from, g);
        if (gate.signal_from != GateAt::none)
            ASSERT_EQ(gates.at({m, gate.signal_from}).signal_to, g);
        ASSERT_TRUE(gate.packet_from.member != GateAt::none || gate.signal_from != GateAt::none) << "waits for nothing";
    }
}

/// A round, in which each member contributes once, ends at each member with all contributions, each once.
void expect_round_ends(const Gates& gates, unsigned n)
{
    // A gate fires when all that it waits for has come; the start half of gate 0 at once.
    std::map<Key, std::vector<unsigned>> output, end;
    for (unsigned m = 0; m < n; m++) {
        output[{m, 0}].resize(n);
        output[{m, 0}][m] = 1;
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (const auto& [key, gate] : gates) {
            auto& result = key.second == 0 ? end : output;
            if (result.contains(key))
                continue;
            std::vector<unsigned> sum(n);
            bool ready = true;
            const auto join = [&](const Key& from) {
                const auto found = output.find(from);
                ready = ready && found != output.end();
                for (unsigned i = 0; ready && i < n; i++)
                    sum[i] += found->second[i];
            };
            if (gate.packet_from.member != GateAt::none)
                join({gate.packet_from.member, gate.packet_from.gate});
            if (gate.signal_from != GateAt::none)
                join({key.first, gate.signal_from});
            if (ready) {
                result[key] = sum;
                moved = true;
            }
        }
    }
    ASSERT_EQ(end.size(), n) << "members wait for ever";
    for (const auto& [key, sum] : end)
        ASSERT_EQ(sum, std::vector<unsigned>(n, 1)) << "member " << key.first;
}

void expect_circuit(const std::vector<Node>& members)
{
    const auto n = static_cast<unsigned>(members.size());
    SCOPED_TRACE(testing::Message() << n << " members");
    Circuit circuit;
    ASSERT_TRUE(circuit.reserve(n));
    for (const Node& node : members)
        circuit.add(node.coords);
    ASSERT_TRUE(circuit.lay_out());
    Gates gates;
    unsigned most = 0;
    for (unsigned m = 0; m < n; m++) {
        Circuit::Wires wires;
        circuit.wires_of(m, wires);
        most = std::max(most, wires.count);
        for (unsigned g = 0; g < wires.count; g++)
            gates[{m, g}] = wires.gate[g];
    }
    EXPECT_EQ(circuit.most_gates(), most);
    expect_wires_match(gates);
    expect_round_ends(gates, n);
}

TEST(Circuit, EachPartReachesEachMemberOnceWhereverTheyAre)
{
    std::mt19937_64 random(7);
    const std::vector<Node> nodes = box(2, 3, 2);
    for (unsigned members = 2; members <= 40 && !testing::Test::HasFailure(); members++)
        for (const unsigned spread : {1u, 3u, 144u}) { // on so many nodes at most
            std::vector<Node> chosen;
            for (unsigned i = 0; i < members; i++)
                chosen.push_back(nodes[random() % spread * (nodes.size() / spread)]);
            expect_circuit(chosen);
        }
}

TEST(Circuit, AFullNodeOfAProcessForEachCoreHasEnoughGates)
{
    std::vector<Node> members;
    for (const Node& node : box(1, 1, 1))
        if (node.coords[4] == 0)
            members.insert(members.end(), 48, node);
    expect_circuit(members);
    Circuit circuit;
    ASSERT_TRUE(circuit.reserve(members.size()));
    for (const Node& node : members)
        circuit.add(node.coords);
    ASSERT_TRUE(circuit.lay_out());
    EXPECT_LE(circuit.most_gates(), vcq::Gates::most);
}

TEST(Circuit, BoxesOfAllSizesAndBoxesWithoutSomePlanes)
{
    for (const auto& [x, y, z] : {std::array{1u, 1u, 1u}, {3u, 1u, 1u}, {5u, 3u, 1u}, {7u, 1u, 2u}})
        expect_circuit(box(x, y, z));
    std::vector<Node> some = box(5, 3, 1);
    std::erase_if(some, [](const Node& node) { return node.coords[0] == 2 || node.coords[4] == 1; });
    expect_circuit(some);
    some.pop_back(); // no box any more
    expect_circuit(some);
}

TEST(Circuit, StepsOfAFullBoxStayInOneDimension)
{
    std::vector<Node> members = box(3, 2, 6);
    std::shuffle(members.begin(), members.end(), std::mt19937_64(3));
    Circuit circuit;
    ASSERT_TRUE(circuit.reserve(members.size()));
    for (const Node& node : members)
        circuit.add(node.coords);
    ASSERT_TRUE(circuit.lay_out());
    for (unsigned m = 0; m < members.size(); m++) {
        Circuit::Wires wires;
        circuit.wires_of(m, wires);
        for (unsigned g = 0; g < wires.count; g++) {
            if (wires.gate[g].packet_to.member == GateAt::none)
                continue;
            const Node& there = members[wires.gate[g].packet_to.member];
            unsigned axes = 0;
            for (unsigned axis = 0; axis < 6; axis++)
                axes += members[m].coords[axis] != there.coords[axis];
            ASSERT_EQ(axes, 1u);
        }
    }
}

} // namespace
} // namespace tofu::test
