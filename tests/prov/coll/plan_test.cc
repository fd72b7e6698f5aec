// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The rounds of each collective, by a network of queues in one process whose members go on in any order.
#include "coll/plan.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <set>

#include <gtest/gtest.h>

#include "prov/coll/model.h"

namespace tofu::test {
namespace {

using namespace coll;

/// All members of a group, and the messages between them.
struct Net {
    struct Member {
        Plan plan;
        Round round;
        bool begun = false;
        bool over = false;
        std::set<unsigned> heard; ///< members that it has heard of, at whatever hand
        Bytes in, out;
    };
    struct Message {
        Bytes bytes;
        std::set<unsigned> heard;
    };
    explicit Net(const Case& c) : member(c.members)
    {
        const Shape shape{c.coll, c.type, c.op, c.count, c.root};
        for (unsigned m = 0; m < c.members; m++) {
            member[m].in = input_of(c, m);
            member[m].out = Bytes(out_bytes(c, m), std::byte{0xee});
            member[m].heard.insert(m);
            const Bytes& in = member[m].in;
            if (c.coll == FI_BROADCAST && m == c.root)
                member[m].out = in;
            EXPECT_EQ(member[m].plan.open(shape, m, c.members, in.data(), member[m].out.data()), 0);
        }
    }
    /// Some of what the member can do. True: something has moved.
    bool step(unsigned m)
    {
        Member& me = member[m];
        if (me.over)
            return false;
        if (!me.begun && !me.plan.next(me.round)) {
            EXPECT_EQ(me.heard.size(), member.size()) << "member " << m << " ends before all have called";
            me.over = true;
            return true;
        }
        me.begun = true;
        bool moved = false, over = true;
        for (unsigned i = 0; i < me.round.sends; i++) {
            Transfer& t = me.round.send[i];
            auto& lane = lanes[{member_at(t.lane, m, size()), mirror(t.lane)}];
            while (!t.over && lane.size() < slots) {
                const std::size_t n = std::min(chunk, t.view.bytes() - t.done);
                Message message{Bytes(n), me.heard};
                t.view.read(t.done, message.bytes.data(), n);
                lane.push_back(message);
                t.done += n;
                t.over = t.done == t.view.bytes();
                moved = true;
            }
            over &= t.over;
        }
        for (unsigned i = 0; i < me.round.receives; i++) {
            Transfer& t = me.round.receive[i];
            auto& lane = lanes[{m, t.lane}];
            while (!t.over && !lane.empty()) {
                if (t.behind != Transfer::none && !me.round.send[t.behind].over &&
                    me.round.send[t.behind].done <= t.done)
                    break;
                Message message = lane.front();
                lane.pop_front();
                EXPECT_EQ(message.bytes.size(), std::min(chunk, t.view.bytes() - t.done));
                me.heard.insert(message.heard.begin(), message.heard.end());
                if (t.take == Take::copy)
                    t.view.write(t.done, message.bytes.data(), message.bytes.size());
                else
                    me.plan.combine(t.view.base + t.done, message.bytes.data(), message.bytes.size(), t.take);
                t.done += message.bytes.size();
                t.over = t.done == t.view.bytes();
                moved = true;
            }
            over &= t.over;
        }
        me.begun = !over;
        return moved || over;
    }
    [[nodiscard]] unsigned size() const { return static_cast<unsigned>(member.size()); }
    /// Members take turns as the dice fall. False: all wait for each other.
    bool run(std::mt19937_64& random)
    {
        for (;;) {
            bool moved = false, over = true;
            for (unsigned i = 0; i < 4 * size(); i++)
                moved |= step(static_cast<unsigned>(random() % size()));
            for (unsigned m = 0; m < size(); m++)
                over &= member[m].over;
            if (over)
                return true;
            for (unsigned m = 0; m < size() && !moved; m++)
                moved |= step(m);
            if (!moved)
                return false;
        }
    }
    std::vector<Member> member;
    std::map<std::pair<unsigned, unsigned>, std::deque<Message>> lanes;
};

void expect_case(const Case& c, std::mt19937_64& random)
{
    SCOPED_TRACE(testing::Message() << "collective " << c.coll << " type " << c.type << " op " << c.op << " count "
                                    << c.count << " root " << c.root << " members " << c.members);
    Net net(c);
    ASSERT_TRUE(net.run(random)) << "all wait for each other";
    for (unsigned m = 0; m < c.members; m++)
        ASSERT_EQ(net.member[m].out, output_of(c, m)) << "member " << m;
    for (const auto& [where, lane] : net.lanes)
        ASSERT_TRUE(lane.empty()) << "a message that no member takes, at " << where.first;
}

TEST(Plan, EveryCollectiveEndsAsTheModelSaysForEveryGroup)
{
    std::mt19937_64 random(1);
    for (unsigned members = 1; members <= 19; members++)
        for (int i = 0; i < 25 && !testing::Test::HasFailure(); i++)
            expect_case(random_case(random, members, 512), random);
}

TEST(Plan, LongVectorsGoInChunks)
{
    std::mt19937_64 random(2);
    for (unsigned members : {2u, 3u, 4u, 7u})
        for (int i = 0; i < 40 && !testing::Test::HasFailure(); i++)
            expect_case(random_case(random, members, 40000), random);
}

TEST(Plan, RelaysOfVeryLongBlocksTakeSegments)
{
    std::mt19937_64 random(3);
    for (const fi_collective_op coll : {FI_GATHER, FI_SCATTER, FI_ALLTOALL})
        expect_case({coll, FI_UINT64, FI_SUM, 80001, 1, 3, 7}, random);
}

TEST(Plan, AllHaveTheSameBitsOfAFloatSum)
{
    std::mt19937_64 random(4);
    for (unsigned members = 2; members <= 13; members++)
        for (std::size_t count : {std::size_t{5}, std::size_t{5000}}) {
            Case c{FI_ALLREDUCE, FI_DOUBLE, FI_SUM, count, 0, members, members};
            std::vector<Bytes> results;
            for (int run = 0; run < 2; run++) {
                Net net(c);
                for (auto& me : net.member)
                    for (std::size_t i = 0; i < count; i++) { // sums that depend on their order
                        std::uint64_t dice =
                            (i * 31 + static_cast<std::size_t>(&me - net.member.data()) + 1) * 0x9e3779b97f4a7c15;
                        dice ^= dice >> 31;
                        const double value = std::ldexp(static_cast<double>(dice), static_cast<int>(dice % 80) - 100);
                        std::memcpy(me.in.data() + i * 8, &value, 8); // the plan reads it as it begins
                    }
                ASSERT_TRUE(net.run(random));
                for (auto& me : net.member)
                    results.push_back(me.out);
            }
            for (const Bytes& result : results)
                ASSERT_EQ(result, results[0]) << members << " members, count " << count;
        }
}

} // namespace
} // namespace tofu::test
