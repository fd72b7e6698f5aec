// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Messages that take turns, and collectives as the replay plays them: to their end, with as many messages as said.
#include "replay/played.h"

#include "clock/figures.h"
#include "schedule/schedule.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

namespace tofu::sim::replay {
namespace {

struct Result {
    Picoseconds length;
    uint64_t messages;
    uint64_t expected;
    uint32_t stuck;
    std::string algorithm;
};

Result play(const char* name, const PatternOptions& options, std::array<uint8_t, 3> shape = {2, 2, 2}, uint32_t ppn = 1)
{
    const Topology topology(shape, 0);
    const Placement placement(topology, ppn, Paths::spread, {});
    const auto pattern = make_pattern(name, placement, options);
    Traffic traffic(topology, 1, nullptr, 0);
    Player player(*pattern, traffic);
    const uint32_t stuck = player.play();
    return {player.length(), traffic.messages(), pattern->messages(), stuck, pattern->algorithm()};
}

TEST(Played, EveryCollectiveEndsAndSendsAsManyMessagesAsSaid)
{
    for (const uint32_t processes : {2u, 3u, 7u, 12u, 33u, 64u})
        for (const uint32_t bytes : {0u, 8u, 17u, 4064u, 40000u})
            for (const auto& [name, algorithm] :
                 std::multimap<std::string, std::string>{{"barrier", ""},
                                                         {"reduce", ""},
                                                         {"broadcast", ""},
                                                         {"broadcast", "chain"},
                                                         {"broadcast", "double-tree"},
                                                         {"broadcast", "scatter-allgather"},
                                                         {"allreduce", ""},
                                                         {"allreduce", "doubling"},
                                                         {"allreduce", "ring"},
                                                         {"allgather", ""},
                                                         {"allgather", "ring"},
                                                         {"alltoall", ""},
                                                         {"alltoall", "pairwise"},
                                                         {"alltoall", "linear"}}) {
                const Result result = play(name.c_str(), {processes, bytes, 3, algorithm, 3000});
                const std::string what =
                    name + " " + algorithm + " of " + std::to_string(processes) + ", " + std::to_string(bytes) + " B";
                ASSERT_EQ(result.stuck, 0u) << what;
                // Credits follow each second message of a lane, rounds ahead included: some more or fewer.
                const bool slots = result.algorithm != "chain" && result.algorithm != "double-tree" &&
                                   result.algorithm != "scatter-allgather" && result.algorithm != "pairwise" &&
                                   result.algorithm != "linear" && !(name == "allgather" && algorithm == "ring");
                if (slots)
                    ASSERT_NEAR(static_cast<double>(result.messages), static_cast<double>(result.expected),
                                0.35 * static_cast<double>(result.expected))
                        << what;
                else
                    ASSERT_EQ(result.messages, result.expected) << what;
            }
}

TEST(Played, TheProviderChoosesBySize)
{
    EXPECT_EQ(play("allreduce", {12, 8, 1, "", 0}).algorithm, "doubling");
    EXPECT_EQ(play("allreduce", {12, 65536, 1, "", 0}).algorithm, "ring");
    EXPECT_EQ(play("allreduce", {12, 65536, 1, "doubling", 0}).algorithm, "doubling");
    EXPECT_EQ(play("alltoall", {12, 8, 1, "", 0}).algorithm, "bruck");
}

// A message of up to 16 bytes is the end of a slot alone: one piggyback Put, which two nodes exchange here.
TEST(Played, ABarrierOfTwoIsAPutEach)
{
    using namespace figures;
    const Result result = play("barrier", {2, 0, 1, "", 0}, {1, 1, 1});
    EXPECT_EQ(result.messages, 2u);
    EXPECT_EQ(result.length,
              post_call + fetch + stream_time(schedule::tail_bytes, largest_packet) + wire + hop + write + found);
}

// Four slots: the fifth message of a transfer waits for the credit that follows the second.
TEST(Played, ALongTransferWaitsForCredits)
{
    const uint32_t four = 4 * schedule::chunk;
    const Result few = play("allreduce", {2, four, 1, "doubling", 0}, {1, 1, 1});
    EXPECT_EQ(few.messages, 2 * (2 * 4 + 2u));
    const Result more = play("allreduce", {2, 100 * schedule::chunk, 1, "doubling", 0}, {1, 1, 1});
    EXPECT_EQ(more.messages, 2 * (2 * 100 + 50u));
    EXPECT_EQ(more.stuck, 0u);
    // A link alone would take 66 us: windows of four messages lose some of that.
    EXPECT_GT(more.length, 25 * few.length / 4);
}

TEST(Played, CollectivesInARowTakeAsLongEach)
{
    const Result once = play("allreduce", {12, 64, 1, "", 0}), often = play("allreduce", {12, 64, 5, "", 0});
    EXPECT_NEAR(static_cast<double>(often.length), 5.0 * static_cast<double>(once.length),
                0.15 * static_cast<double>(often.length)); // and credits
}

class Turns : public testing::Test {
  protected:
    Picoseconds arrival(Key key) { return seen.at(key); }
    void run() { traffic.run(); }
    Message put(uint32_t from, uint32_t to, uint32_t length, uint8_t tni, Key key)
    {
        Message m;
        m.from = from;
        m.to = to;
        m.length = length;
        m.kind = Transit::Kind::piggyback;
        m.from_tni = m.to_tni = tni;
        m.arrived = key;
        return m;
    }
    Topology topology{{1, 1, 1}, 0};
    std::map<Key, Picoseconds> seen;
    Traffic traffic{topology, 1, nullptr, 0};
    Turns()
    {
        traffic.happened = [this](Key key, Picoseconds when) { seen[key] = when; };
    }
};

TEST_F(Turns, TheSecondOfTwoOnALinkComesByItsLengthLater)
{
    constexpr uint32_t length = 1 << 20;
    traffic.carry(put(0, 1, length, 0, 1), 0);
    traffic.carry(put(0, 1, length, 1, 2), 0);
    run();
    EXPECT_EQ(arrival(2) - arrival(1), figures::stream_time(length, figures::largest_packet));
}

TEST_F(Turns, WhatComesEarlierToALinkThatIsBookedForLaterGoesAhead)
{
    // The first is on its way to a link some hops off; the other one starts there.
    const uint32_t far = topology.node_of({0, 0, 0, 0, 0, 0}), near = topology.node_of({0, 0, 0, 1, 0, 0});
    const uint32_t end = topology.node_of({0, 0, 0, 1, 0, 1});
    Message first = put(far, end, 8, 0, 1);
    first.path = 1; // A first, then C
    traffic.carry(first, 0);
    Message second = put(near, end, 8, 1, 2);
    second.path = 1;
    traffic.carry(second, 0);
    run();
    EXPECT_EQ(arrival(2), figures::fetch + figures::stream_time(8, figures::largest_packet) + figures::wire +
                              figures::hop + figures::write);
    EXPECT_EQ(arrival(1), arrival(2) + figures::hop);
}

TEST_F(Turns, AStrongOrderIsKept)
{
    Message data = put(0, 1, 4000, 0, 1), flag = put(0, 1, 32, 0, 2);
    data.kind = Transit::Kind::put; // which is read first
    flag.in_order = true;
    traffic.carry(data, 0);
    traffic.carry(flag, 1);
    run();
    EXPECT_GT(arrival(2), arrival(1));
}

} // namespace
} // namespace tofu::sim::replay
