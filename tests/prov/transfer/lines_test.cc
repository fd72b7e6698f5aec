// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Lines of operations that wait: order within a line, none between lines, and who is held up by whom. Run by make
// check; calls lines.h alone.
#include "transfer/lines.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace {

using tofu::Lack;

struct Op {
    tofu::InLine<Op> line{};
    unsigned number = 0;
};

struct LinesTest : testing::Test {
    void push(unsigned number, std::uint64_t key, Lack lack = Lack::peer)
    {
        ops[number].number = number;
        lines.push(ops[number], key, lack);
    }
    /// As many rounds as it takes to come by all buckets.
    std::vector<unsigned> resume(const std::set<std::uint64_t>& blocked = {})
    {
        std::vector<unsigned> gone;
        for (int round = 0; round < 4; round++)
            lines.resume([&](const Op& op) { return blocked.contains(op.line.key) ? Lack::peer : Lack::nothing; },
                         [&](const Op& op) { gone.push_back(op.number); });
        return gone;
    }
    tofu::Lines<Op> lines;
    std::map<unsigned, Op> ops;
    using Numbers = std::vector<unsigned>;
};

TEST_F(LinesTest, NobodyWaitsAtFirst)
{
    EXPECT_TRUE(lines.empty());
    for (std::uint64_t key = 0; key < 1000; key++) {
        EXPECT_FALSE(lines.may_hold(key));
        EXPECT_FALSE(lines.holds(key));
    }
    EXPECT_EQ(resume(), Numbers{});
}

TEST_F(LinesTest, ALineKeepsItsOrderAndHoldsUpItselfAlone)
{
    for (unsigned n = 0; n < 10; n++)
        push(n, n % 2);
    EXPECT_EQ(lines.size(), 10u);
    EXPECT_TRUE(lines.holds(0) && lines.holds(1));
    EXPECT_EQ(resume({0}), (Numbers{1, 3, 5, 7, 9}));
    EXPECT_TRUE(lines.holds(0));
    EXPECT_FALSE(lines.holds(1));
    push(11, 0);
    EXPECT_EQ(resume(), (Numbers{0, 2, 4, 6, 8, 11}));
    EXPECT_TRUE(lines.empty());
    EXPECT_FALSE(lines.may_hold(0));
}

/// More lines than there are buckets: keys that share one are told apart.
TEST_F(LinesTest, ManyLinesHoldUpNoOther)
{
    constexpr unsigned peers = 1000;
    for (unsigned n = 0; n < 3 * peers; n++)
        push(n, n % peers);
    for (std::uint64_t key = 0; key < peers; key++)
        EXPECT_TRUE(lines.holds(key));
    for (std::uint64_t key = peers; key < 2 * peers; key++)
        EXPECT_FALSE(lines.holds(key)) << key;
    std::set<std::uint64_t> even;
    for (std::uint64_t key = 0; key < peers; key += 2)
        even.insert(key);
    std::map<std::uint64_t, unsigned> last;
    for (unsigned n : resume(even)) {
        EXPECT_EQ(n % peers % 2, 1u);
        EXPECT_TRUE(!last.contains(n % peers) || last[n % peers] < n);
        last[n % peers] = n;
    }
    EXPECT_EQ(lines.size(), 3 * peers / 2);
    for (std::uint64_t key = 0; key < peers; key++)
        EXPECT_EQ(lines.holds(key), key % 2 == 0) << key;
    EXPECT_EQ(resume().size(), 3 * peers / 2);
    EXPECT_TRUE(lines.empty());
}

TEST_F(LinesTest, WhoWaitsForRoomHoldsUpEverybodyUntilItHasIt)
{
    push(0, 5);
    push(1, 6, Lack::room);
    push(2, 7);
    EXPECT_TRUE(lines.holds(1234));
    EXPECT_FALSE(lines.has_line(1234));
    unsigned asked = 0;
    for (int round = 0; round < 10; round++)
        lines.resume(
            [&](const Op& op) {
                asked += op.line.key == 6;
                return op.line.key == 6 ? Lack::room : Lack::peer;
            },
            [](const Op&) {});
    EXPECT_GE(asked, 9u); // it is the first to be asked
    EXPECT_TRUE(lines.holds(1234));
    EXPECT_EQ(resume({5, 7}), Numbers{1});
    EXPECT_FALSE(lines.holds(1234));
    EXPECT_TRUE(lines.holds(5) && lines.holds(7));
}

TEST_F(LinesTest, WhoIsThroughMayHaveToWaitAgain)
{
    push(0, 5);
    push(1, 5);
    bool again = true;
    Numbers gone;
    for (int round = 0; round < 4; round++)
        lines.resume([](const Op&) { return Lack::nothing; },
                     [&](Op& op) {
                         gone.push_back(op.number);
                         if (std::exchange(again, false))
                             lines.push(op, op.line.key, Lack::peer);
                     });
    EXPECT_EQ(gone, (Numbers{0, 1, 0}));
    EXPECT_TRUE(lines.empty());
}

} // namespace
