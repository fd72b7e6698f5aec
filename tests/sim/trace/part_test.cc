// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Parts of a run: where it begins by default, and what of it is left.
#include "traces/part.h"

#include <gtest/gtest.h>

namespace tofu::sim::trace {
namespace {

Transfer transfer(uint32_t from, uint32_t to, uint64_t posted, uint64_t arrived)
{
    Transfer t{};
    t.from = t.from_node = from;
    t.to = t.to_node = to;
    t.posted = posted;
    t.returned = posted + 10;
    t.arrived = arrived;
    return t;
}

Run made_up()
{
    Run run;
    run.length = 10'000;
    run.processes = {{}, {}};
    run.processes[0].ended = 9'000;
    run.processes[1].began = 500;
    run.processes[1].ended = 10'000;
    run.transfers = {transfer(0, 0, 100, 200), transfer(0, 1, 3'000, 4'000), transfer(1, 0, 5'000, 7'000)};
    run.arrivals = {{0, 2}, {1}};
    run.waits = {{2'000, 6'000, 0, 0, 1, 2, End::notice}, {3'500, 4'000, 1, 0, 0, 1, End::notice}};
    run.notices = {{4'000, 1, 0, 0, 0, 0}, {7'000, 0, 0, 1, 0, 0}};
    run.entries = {{3'010, 0, 0, 0}};
    run.gates = {{6'000, 8'000, 0, 0, {}}};
    run.computations = {{0, 3'000, 0, 0}, {4'000, 8'500, 1, 0}};
    return run;
}

TEST(Part, BeginsWithTheFirstMessageBetweenProcesses)
{
    trace::Run run = made_up();
    EXPECT_EQ(first_message(run), 3'000u);
    run.gates[0].began = 2'500;
    EXPECT_EQ(first_message(run), 2'500u);
    run.gates.clear();
    run.transfers.resize(1);
    EXPECT_EQ(first_message(run), 0u) << "a process alone";
}

TEST(Part, HasWhatBeganInItAndTheEndsOfWhatGoesOn)
{
    trace::Run run = made_up();
    cut(run, 3'000, 6'500);
    EXPECT_EQ(run.length, 3'500u);
    EXPECT_EQ(run.processes[0].began, 0u);
    EXPECT_EQ(run.processes[0].ended, 3'500u);
    ASSERT_EQ(run.transfers.size(), 2u);
    EXPECT_EQ(run.transfers[0].posted, 0u);
    EXPECT_EQ(run.transfers[0].arrived, 1'000u);
    EXPECT_EQ(run.transfers[1].posted, 2'000u);
    EXPECT_EQ(run.transfers[1].arrived, 0u) << "it arrives behind the end";
    EXPECT_EQ(run.arrivals[0].size(), 0u);
    ASSERT_EQ(run.arrivals[1].size(), 1u);
    EXPECT_EQ(run.arrivals[1][0], 0u);
    ASSERT_EQ(run.waits.size(), 2u);
    EXPECT_EQ(run.waits[0].began, 0u) << "it began before";
    EXPECT_EQ(run.waits[0].ended, 3'000u);
    EXPECT_EQ(run.waits[0].transfer, 1u);
    EXPECT_EQ(run.waits[1].transfer, 0u);
    EXPECT_EQ(run.notices.size(), 1u);
    EXPECT_EQ(run.entries.size(), 1u);
    ASSERT_EQ(run.gates.size(), 1u);
    EXPECT_EQ(run.gates[0].began, 3'000u);
    EXPECT_EQ(run.gates[0].ended, 0u) << "behind the end";
    ASSERT_EQ(run.computations.size(), 1u) << "the other one ends where the part begins";
    EXPECT_EQ(run.computations[0].ended, 3'500u);
}

TEST(Part, AllOfARunIsTheRun)
{
    trace::Run run = made_up();
    const trace::Run whole = made_up();
    cut(run, 0, run.length);
    EXPECT_EQ(run.length, whole.length);
    EXPECT_EQ(run.transfers.size(), whole.transfers.size());
    EXPECT_EQ(run.waits.size(), whole.waits.size());
    EXPECT_EQ(run.gates[0].ended, whole.gates[0].ended);
    EXPECT_EQ(run.arrivals, whole.arrivals);
}

} // namespace
} // namespace tofu::sim::trace
