// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which processors the sides of a measurement get, on nodes of several kinds.
#include "frame/cores.h"
#include "lib/node.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace tofu::bench {
namespace {

using test::Node;

std::string all_of(const Cores& cores, int sides)
{
    std::string text;
    for (const Placement& placement : cores.placements(sides))
        text += (text.empty() ? "" : "; ") + placement.text();
    return text;
}

TEST(BenchCores, OfOneGroupShareItsCache)
{
    Node node(test::a64fx);
    Cores cores;
    EXPECT_FALSE(cores.can_pin()) << "they are another machine's";
    EXPECT_EQ(cores.usual(2).text(), "L2 (processors 0, 1)");
    EXPECT_EQ(cores.usual(12).sharing, Sharing::l2);
    EXPECT_EQ(all_of(cores, 2), "L2 (processors 0, 1); the machine (processors 0, 12)");
}

TEST(BenchCores, AreDistinctWhereACoreHasTwoProcessors)
{
    Node node(test::two_sockets);
    Cores cores;
    EXPECT_EQ(cores.usual(2).text(), "L3 (processors 0, 2)");
    EXPECT_EQ(cores.usual(4).text(), "L3 (processors 0, 2, 4, 6)");
    EXPECT_EQ(all_of(cores, 2), "a core (processors 0, 1); L3 (processors 0, 2); the machine (processors 0, 16)");
}

TEST(BenchCores, AreThoseThatTheContainerHas)
{
    Node node(test::sixty_four, "5,40");
    Cores cores;
    EXPECT_EQ(all_of(cores, 2), "the machine (processors 5, 40)");
    EXPECT_EQ(cores.usual(4).text(), "a processor (processors 5, 40)") << "sides take turns on what there is";
}

TEST(BenchCores, AreTwoProcessorsOfTheOneCoreThatThereIs)
{
    Node node("Package:1 L2:1 Core:1 PU:2");
    EXPECT_EQ(Cores().usual(2).text(), "a core (processors 0, 1)");
}

TEST(BenchCores, AreNotChosenWhereTheTopologyCannotBeRead)
{
    Node node = Node::of_text("<topology version='2.0'></topology>");
    Cores cores;
    EXPECT_FALSE(cores.can_pin());
    EXPECT_EQ(cores.usual(2).text(), "a processor (processors not known)");
    EXPECT_FALSE(cores.pin(cores.usual(2), 0));
}

TEST(BenchCores, AreNotPinnedToWhereNoProcessorIsAllowed)
{
    Node node("NUMANode:2 Core:1 PU:1(indexes=1000,1001)");
    setenv("HWLOC_THISSYSTEM", "1", 1);
    Cores cores;
    EXPECT_FALSE(cores.can_pin());
    EXPECT_FALSE(cores.pin(cores.usual(2), 0));
    unsetenv("HWLOC_THISSYSTEM");
}

TEST(BenchCores, OfThisMachineCanBeHad)
{
    Cores cores;
    const Placement usual = cores.usual(2);
    ASSERT_FALSE(usual.processors.empty());
    EXPECT_EXIT(
        std::exit(cores.pin(usual, 1) && sched_getcpu() == usual.processors[1 % usual.processors.size()] ? 0 : 1),
        testing::ExitedWithCode(0), "");
}

} // namespace
} // namespace tofu::bench
