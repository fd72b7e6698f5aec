// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Calendars, arrivals and the network of the virtual clock, without processes. The figures themselves are compared by
// bench/time.
#include "clock/arrivals.h"
#include "clock/factor.h"
#include "clock/network.h"
#include "job/layout.h"
#include "topology/ids.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace tofu::sim {
namespace {

using Kind = Transit::Kind;

TEST(ClockCalendar, GivesOneAfterTheOther)
{
    Calendar calendar{};
    const Interval first = enter(calendar, 100, 50);
    const Interval second = enter(calendar, 120, 10);
    EXPECT_EQ(first.begin, 100u);
    EXPECT_EQ(first.end, 150u);
    EXPECT_EQ(second.begin, 150u);
    EXPECT_EQ(second.end, 160u);
    EXPECT_EQ(calendar.count, 1u); // neighbours are one
    EXPECT_EQ(calendar.used, 60u);
}

// A process whose thread comes late by real time is not behind those that are ahead of it by the clock.
TEST(ClockCalendar, FillsGapsThatLieEarlier)
{
    Calendar calendar{};
    (void)enter(calendar, 1000, 100);
    const Interval before = enter(calendar, 10, 20);
    EXPECT_EQ(before.begin, 10u);
    EXPECT_EQ(before.end, 30u);
    const Interval around = enter(calendar, 990, 50); // ten in front of the busy time, forty behind it
    EXPECT_EQ(around.begin, 990u);
    EXPECT_EQ(around.end, 1140u);
    EXPECT_EQ(calendar.count, 2u);
}

TEST(ClockCalendar, ForgetsTheEarliestWhenItIsFull)
{
    Calendar calendar{};
    for (Picoseconds i = 1; i <= Calendar::most + 3; i++)
        (void)enter(calendar, i * 1000, 10);
    EXPECT_EQ(calendar.count, Calendar::most);
    EXPECT_EQ(calendar.busy[0].begin, 4000u);
}

TEST(ClockCalendar, GoesOnAfterNonsenseAndAfterAKilledHolder)
{
    Calendar calendar{};
    calendar.count = 77;
    calendar.lock.store_relaxed(1); // it is never released
    const Interval taken = enter(calendar, 5, 5);
    EXPECT_EQ(taken.begin, 5u);
    EXPECT_EQ(taken.end, 10u);
    EXPECT_EQ(calendar.count, 1u);
    calendar.count = 2;
    calendar.busy[1] = {3, 1};
    EXPECT_EQ(enter(calendar, 20, 5).end, 25u);
}

TEST(ClockCalendar, LosesNothingToThreadsAtOnce)
{
    auto calendar = std::make_unique<Calendar>();
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; i++) {
        threads.emplace_back([&] {
            for (unsigned k = 0; k < 500; k++)
                (void)enter(*calendar, 0, 3);
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    EXPECT_EQ(calendar->used, 6000u);
    ASSERT_EQ(calendar->count, 1u);
    EXPECT_EQ(calendar->busy[0].end, 6000u);
}

TEST(ClockArrivals, FindsTheLastByteOfATransfer)
{
    auto arrivals = std::make_unique<Arrivals>();
    arrivals->note(0x10000, 256, 1'000'000, false);
    EXPECT_EQ(arrivals->when(0x100ff, 1), 1'000'192u); // to 256 ps, upwards
    EXPECT_EQ(arrivals->when(0x10000, 8), 0u);
    EXPECT_EQ(arrivals->when(0x10000, 256), 1'000'192u);
    EXPECT_EQ(arrivals->last(), 1'000'000u);
    arrivals->note(0x20000, 8, 5'000'000, true); // a notice tells of it
    EXPECT_EQ(arrivals->last(), 1'000'000u);
    EXPECT_EQ(arrivals->when(0x20000, 8), 5'000'192u);
}

TEST(ClockFactor, TakesThousandthsAndNothingElse)
{
    EXPECT_EQ(parse_factor("0"), 0u);
    EXPECT_EQ(parse_factor("2.5"), 2500u);
    EXPECT_EQ(parse_factor("0.125"), 125u);
    EXPECT_EQ(parse_factor("1000"), 1'000'000u);
    for (const char* text : {"", ".", "1.", ".5", "-1", "1e3", "1000.001", "2.5x", "1.2345", "99999"})
        EXPECT_FALSE(parse_factor(text)) << text;
}

struct Machine {
    explicit Machine(std::array<uint8_t, 3> units)
        : topology(units, 0), calendars(topology.num_nodes() * (clock_node_bytes / sizeof(Calendar))),
          network(
              topology, reinterpret_cast<std::byte*>(calendars.data()), [](void*, uint32_t) noexcept { return true; },
              nullptr)
    {
    }
    [[nodiscard]] Times carry(const Coords& from, const Coords& to, Transit transit, Picoseconds start = 0)
    {
        const Way way = network.way(topology.node_of(from), encode_path({to[3], to[4], to[5]}), topology.node_of(to));
        return network.carry(way, transit, start);
    }

    Topology topology;
    std::vector<Calendar> calendars;
    Network network;
};

constexpr Coords here{0, 0, 0, 0, 0, 0};
constexpr Coords next{0, 0, 0, 1, 0, 0};

Transit put_of(uint32_t length)
{
    return {.kind = Kind::put, .length = length};
}

TEST(ClockNetwork, AnOperationInsideTheNodeUsesNoLink)
{
    Machine m({1, 1, 1});
    const Times times = m.carry(here, here, put_of(8));
    EXPECT_LT(times.arrived, m.carry(here, next, put_of(8), 10'000'000).arrived - 10'000'000);
    EXPECT_EQ(m.network.calendars(0)->out[0].count, 2u);
    for (unsigned port = 0; port < ports_per_node; port++)
        EXPECT_EQ(m.network.calendars(0)->ports[port].used != 0, port == static_cast<unsigned>(Port::a)) << port;
}

TEST(ClockNetwork, AGapOfEightHalvesTheRate)
{
    Machine m({1, 1, 1});
    constexpr uint32_t length = 1 << 20;
    const Times alone = m.carry(here, next, put_of(length));
    Transit slow = put_of(length);
    slow.gap = 8;
    const Times gaps = m.carry(here, next, slow, 1'000'000'000);
    EXPECT_NEAR(static_cast<double>(gaps.arrived - 1'000'000'000), 2.0 * static_cast<double>(alone.arrived), 2e6);
}

TEST(ClockNetwork, SmallPacketsTakeMoreOfTheLink)
{
    Machine m({1, 1, 1});
    Transit small = put_of(64 * 1024);
    small.mtu = 256;
    const Picoseconds large_took = m.carry(here, next, put_of(64 * 1024)).arrived;
    const Picoseconds small_took = m.carry(here, next, small, 1'000'000'000).arrived - 1'000'000'000;
    EXPECT_GT(small_took, large_took * 5 / 4);
}

// Paths around a corner lead over other cables, so that they do not wait for each other.
TEST(ClockNetwork, APathIsItsOwnLinks)
{
    Machine m({1, 1, 1});
    constexpr Coords there{0, 0, 0, 1, 0, 1};
    const uint32_t to = m.topology.node_of(there);
    const Way over_a = m.network.way(0, encode_path({1, 0, 0}), to);
    const Way over_c = m.network.way(0, encode_path({0, 0, 1}), to);
    Transit second = put_of(1 << 20);
    second.from_tni = second.to_tni = 1;
    const Picoseconds alone = m.network.carry(over_a, put_of(1 << 20), 0).arrived;
    EXPECT_EQ(m.network.carry(over_c, second, 0).arrived, alone);
    second.from_tni = second.to_tni = 2;
    EXPECT_GT(m.network.carry(over_a, second, 0).arrived, alone * 19 / 10);
}

TEST(ClockNetwork, AGetComesBackOverTheSameCables)
{
    Machine m({1, 1, 1});
    (void)m.carry(here, next, {.kind = Kind::get, .length = 1 << 20});
    const uint32_t peer = m.topology.node_of(next);
    const auto port = static_cast<unsigned>(Port::a);
    EXPECT_LT(m.network.calendars(0)->ports[port].used, 100'000u); // the request
    EXPECT_GT(m.network.calendars(peer)->ports[port].used, 150'000'000u);
}

// ---- Credit ----

constexpr Picoseconds room = figures::link_time(figures::channel_buffer);

Picoseconds without_credit(Machine& m, const Coords& node, Port port, unsigned channel)
{
    return m.network.calendars(m.topology.node_of(node))->credit[static_cast<unsigned>(port)][channel].without;
}
Picoseconds without_credit(Machine& m)
{
    Picoseconds sum = 0;
    for (uint32_t node = 0; node < m.topology.num_nodes(); node++) {
        for (const auto& port : m.network.calendars(node)->credit)
            for (const Credit& channel : port)
                sum += channel.without;
    }
    return sum;
}

constexpr Coords b0{0, 0, 0, 0, 0, 0}, x1{1, 0, 0, 0, 0, 0}, x3{3, 0, 0, 0, 0, 0};

TEST(ClockCredit, ThereIsNoWaitWhereNothingMeets)
{
    Machine m({4, 1, 1});
    Picoseconds at = 0;
    for (const uint32_t length : {8u, 1920u, 65536u, 1u << 20}) {
        at = m.carry(b0, x3, put_of(length), at).told;
        Transit slow = put_of(length);
        slow.gap = 8;
        slow.mtu = 256;
        at = m.carry(b0, x3, slow, at).told;
        at = m.carry(x3, b0, {.kind = Kind::get, .length = length}, at).told;
        at = m.carry(b0, b0, put_of(length), at).told;
    }
    // Two TNIs of one node wait for its port, behind which everything goes on.
    (void)m.carry(b0, x3, put_of(1 << 20), at);
    (void)m.carry(b0, x3, {.length = 1 << 20, .from_tni = 1, .to_tni = 1}, at);
    EXPECT_EQ(without_credit(m), 0u);
}

// One of two streams that want the link from x1 to x2 comes from afar: while the other has the link, it stands still,
// but for what the buffer takes.
TEST(ClockCredit, AStreamThatMeetsAnotherStandsStillMeanwhile)
{
    Machine m({4, 1, 1});
    const Picoseconds work = figures::stream_time(1 << 20, figures::largest_packet);
    (void)m.carry(x1, x3, {.length = 1 << 20, .from_tni = 1, .to_tni = 1});
    (void)m.carry(b0, x3, put_of(1 << 20));
    const auto counted = static_cast<double>(without_credit(m, b0, Port::x_plus, 0));
    EXPECT_NEAR(counted, static_cast<double>(work - room), 0.01 * static_cast<double>(work));
    EXPECT_EQ(without_credit(m), without_credit(m, b0, Port::x_plus, 0)); // no other port
    EXPECT_EQ(credit_cycles(1'000'000'000), 425'000u);
}

// Two flows of many messages share a link evenly: the one from afar stands still half of the time.
TEST(ClockCredit, TwoFlowsOverOneLinkCostTheFarOneHalfOfItsTime)
{
    Machine m({4, 1, 1});
    constexpr unsigned rounds = 40;
    constexpr uint32_t length = 32768;
    Picoseconds over = 0;
    for (unsigned i = 0; i < rounds; i++) {
        over = std::max(over, m.carry(b0, x3, put_of(length)).arrived);
        over = std::max(over, m.carry(x1, x3, {.length = length, .from_tni = 1, .to_tni = 1}).arrived);
    }
    const auto counted = static_cast<double>(without_credit(m, b0, Port::x_plus, 0));
    EXPECT_NEAR(counted, 0.5 * static_cast<double>(over), 0.05 * static_cast<double>(over));
    EXPECT_EQ(without_credit(m, x1, Port::x_plus, 0), 0u); // what is passed on meets nothing
}

TEST(ClockCredit, AnIncastStopsLaterStreams)
{
    Machine m({4, 1, 1});
    constexpr uint32_t length = 1 << 20;
    const Picoseconds work = figures::stream_time(length, figures::largest_packet);
    const Coords from[] = {{3, 0, 0, 1, 0, 0}, {3, 0, 0, 0, 1, 0}, {3, 0, 0, 0, 0, 1}};
    for (const Coords& node : from)
        (void)m.carry(node, x3, put_of(length));
    // By A, B and C: the second waits for the first, the third for both.
    const auto expect = [&](const Coords& node, Port port, Picoseconds waits) {
        EXPECT_NEAR(static_cast<double>(without_credit(m, node, port, 0)), static_cast<double>(waits),
                    0.01 * static_cast<double>(work));
    };
    expect(from[0], Port::a, 0);
    expect(from[1], Port::b_minus, work - room);
    expect(from[2], Port::c, 2 * work - room);
}

TEST(ClockCredit, WhatFitsIntoTheBufferStopsNoStream)
{
    Machine m({4, 1, 1});
    (void)m.carry(x1, x3, {.length = 1 << 20, .from_tni = 1, .to_tni = 1});
    (void)m.carry(b0, x3, put_of(1920));
    EXPECT_EQ(without_credit(m), 0u);
    (void)m.carry(b0, x3, put_of(1920)); // 4,104 bytes of 4,096
    EXPECT_GT(without_credit(m), 0u);
    // The rest are as many as there is time for.
    for (unsigned i = 0; i < 100; i++)
        (void)m.carry(b0, x3, put_of(8));
    EXPECT_LT(without_credit(m), figures::stream_time(1 << 20, figures::largest_packet) + 101 * room);
}

TEST(ClockCredit, NeverCountsMoreThanTimeHasPassed)
{
    Machine m({4, 2, 1});
    uint32_t state = 7;
    const auto below = [&](uint32_t limit) { return (state = state * 1664525 + 1013904223) / 65536 % limit; };
    Picoseconds last = 0;
    for (unsigned i = 0; i < 3000; i++) {
        const uint32_t to = below(3);
        const Way way = m.network.way(below(m.topology.num_nodes()), below(12), to);
        const auto kind = static_cast<Kind>(below(4));
        const uint32_t length = kind == Kind::armw ? 8 : 1 + below(1 << below(17));
        const Transit transit{.kind = kind, .length = length, .from_tni = static_cast<uint8_t>(below(6))};
        last = std::max(last, m.network.carry(way, transit, Picoseconds{i} * 100'000).told);
    }
    EXPECT_GT(without_credit(m), 0u);
    for (uint32_t node = 0; node < m.topology.num_nodes(); node++) {
        for (const auto& port : m.network.calendars(node)->credit)
            for (const Credit& channel : port)
                EXPECT_LE(channel.without, last);
    }
}

TEST(ClockCredit, GoesOnAfterNonsense)
{
    Machine m({4, 1, 1});
    Credit& credit = const_cast<NodeCalendars*>(m.network.calendars(m.topology.node_of(b0)))->credit[0][0];
    credit.count = 99;
    credit.lock.store_relaxed(1); // it is never released
    (void)m.carry(x1, x3, {.length = 1 << 20, .from_tni = 1, .to_tni = 1});
    (void)m.carry(b0, x3, put_of(1 << 20));
    EXPECT_LE(credit.count, Credit::most);
    EXPECT_GT(credit.without, 0u);
}

TEST(ClockCredit, ChannelsAreOfTheWayOutAndBackAndOfItsLastPart)
{
    const Topology torus({4, 4, 4}, 7);
    const auto channels = [&](const Coords& from, const PathCoords& path, const Coords& to, bool answer) {
        std::vector<Link> links = route(torus, from, path, to);
        std::string text;
        for (size_t i = 0; i < links.size(); i++)
            text += static_cast<char>('0' + channel_of(torus, links, i, answer));
        return text;
    };
    EXPECT_EQ(channels({0, 0, 0, 0, 0, 0}, {1, 0, 0}, {2, 1, 0, 1, 1, 1}, false), "000011"); // A X X Y | B C
    EXPECT_EQ(channels({3, 3, 0, 0, 0, 0}, {0, 0, 0}, {1, 3, 1, 0, 0, 0}, false), "110");    // around the end of X, Z
    EXPECT_EQ(channels({2, 0, 0, 0, 0, 0}, {0, 0, 0}, {0, 0, 0, 0, 0, 0}, true), "23");
    EXPECT_EQ(channels({0, 0, 0, 0, 0, 0}, {1, 0, 1}, {0, 0, 0, 0, 0, 1}, false), "001"); // A C | A
}

} // namespace
} // namespace tofu::sim
