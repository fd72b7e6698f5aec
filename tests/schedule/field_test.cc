// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The schedules of other libraries deliver the right data, and their two trees are what they should be.
#include "schedule/field.h"

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "schedule/executor.h"

namespace tofu::test {
namespace {

using namespace schedule;
using enum FieldAlgorithm;

Kind kind_of(FieldAlgorithm algorithm)
{
    switch (algorithm) {
    case linear:
    case pairwise: return Kind::alltoall;
    case ring: return Kind::allgather;
    case chain:
    case double_tree:
    case scatter_allgather: break;
    }
    return Kind::broadcast;
}

void expect_right(const FieldCall& call, unsigned members, std::mt19937_64& random)
{
    SCOPED_TRACE("algorithm " + std::to_string(static_cast<unsigned>(call.algorithm)) + ", " +
                 std::to_string(call.bytes) + " bytes by " + std::to_string(call.segment) + ", root " +
                 std::to_string(call.root) + " of " + std::to_string(members));
    const Kind kind = kind_of(call.algorithm);
    constexpr std::size_t unlimited = ~std::size_t{0};
    Group<FieldSchedule> group(unlimited, unlimited);
    for (unsigned m = 0; m < members; m++)
        group.add(FieldSchedule(call, m, members), members, input_of(kind, m, members, call.bytes),
                  empty_output(kind, m, members, call.root, call.bytes));
    ASSERT_EQ(group.run(random), "");
    for (unsigned m = 0; m < members; m++)
        ASSERT_TRUE(group.member[m].out() == output_of(kind, m, members, call.root, call.bytes).cells)
            << "at member " << m;
}

constexpr FieldAlgorithm algorithms[] = {linear, pairwise, ring, chain, double_tree, scatter_allgather};

TEST(FieldSchedule, DeliversTheDataForEveryGroupRootAndSegment)
{
    std::mt19937_64 random(1);
    for (unsigned members = 1; members <= 24; members++)
        for (const FieldAlgorithm algorithm : algorithms) {
            const bool rooted = kind_of(algorithm) == Kind::broadcast;
            for (unsigned root = 0; root < (rooted ? members : 1) && !HasFailure(); root++)
                for (const std::size_t segment : {std::size_t{0}, std::size_t{1}, std::size_t{7}})
                    expect_right({algorithm, random() % 30, segment, root}, members, random);
        }
}

TEST(FieldSchedule, DeliversTheDataInLargeGroups)
{
    std::mt19937_64 random(2);
    for (const unsigned members : {64u, 65u, 130u})
        for (const FieldAlgorithm algorithm : algorithms)
            if (!HasFailure())
                expect_right({algorithm, 5, 2, kind_of(algorithm) == Kind::broadcast ? members - 3 : 0}, members,
                             random);
}

TEST(FieldSchedule, NoMemberRelaysInBothTrees)
{
    struct Sink {
        void copy(const Blocks&, const Blocks&) {}
        void send_to(unsigned, const Blocks& blocks, std::uint64_t) { sends[blocks.offset]++; }
        void receive_from(unsigned, const Blocks&, std::uint64_t) {}
        unsigned sends[2] = {0, 0}; // by segment
    };
    for (unsigned members = 2; members <= 70; members++)
        for (unsigned rank = 1; rank < members; rank++) {
            FieldSchedule schedule({double_tree, 2, 1, 0}, rank, members);
            Sink sink;
            while (schedule.next(sink)) {
            }
            ASSERT_TRUE(sink.sends[0] == 0 || sink.sends[1] == 0) << rank << " of " << members;
            ASSERT_LE(std::max(sink.sends[0], sink.sends[1]), 2u) << rank << " of " << members;
        }
}

// What replay makes of the two trees: a thread for each.
TEST(FieldSchedule, TwoStrandsTogetherSendWhatOneSends)
{
    struct Sink {
        void copy(const Blocks&, const Blocks&) {}
        void send_to(unsigned to, const Blocks& b, std::uint64_t tag)
        {
            seen.insert({0, to, b.offset, b.bytes(), tag});
        }
        void receive_from(unsigned from, const Blocks& b, std::uint64_t tag)
        {
            seen.insert({1, from, b.offset, b.bytes(), tag});
        }
        std::multiset<std::array<std::uint64_t, 5>> seen;
    };
    for (const unsigned members : {2u, 9u, 30u})
        for (unsigned rank = 0; rank < members; rank++) {
            Sink whole, parts;
            for (const unsigned strand : {0u, 1u, 2u}) {
                FieldSchedule schedule({double_tree, 50, 7, 1, strand}, rank, members);
                while (schedule.next(strand == 2 ? whole : parts)) {
                }
            }
            EXPECT_EQ(whole.seen, parts.seen) << rank << " of " << members;
        }
}

// By peer and direction a message has a tag of its own.
TEST(FieldSchedule, TagsTellMessagesApart)
{
    struct Sink {
        void copy(const Blocks&, const Blocks&) {}
        void send_to(unsigned to, const Blocks&, std::uint64_t tag) { add(to, tag); }
        void receive_from(unsigned from, const Blocks&, std::uint64_t tag) { add(from + 1000, tag); }
        void add(unsigned peer, std::uint64_t tag) { sound &= tag < tags && seen.insert({peer, tag}).second; }
        std::uint64_t tags = 0;
        std::set<std::pair<unsigned, std::uint64_t>> seen;
        bool sound = true;
    };
    for (unsigned members = 1; members <= 20; members++)
        for (const FieldAlgorithm algorithm : algorithms)
            for (unsigned rank = 0; rank < members; rank++) {
                FieldSchedule schedule({algorithm, 40, 3, 0}, rank, members);
                Sink sink;
                sink.tags = schedule.tags();
                while (schedule.next(sink)) {
                }
                EXPECT_TRUE(sink.sound) << static_cast<unsigned>(algorithm) << ": " << rank << " of " << members;
            }
}

TEST(OrderedTree, IsAsDeepAsItHasToBe)
{
    for (unsigned size = 1; size <= 300; size++) {
        const OrderedTree tree{size};
        unsigned deepest = 0;
        for (unsigned v = 1; v <= size; v++) {
            unsigned depth = 0;
            for (unsigned at = v; at != 0 && depth <= size; at = tree.parent(at)) {
                const unsigned up = tree.parent(at);
                ASSERT_TRUE(up == 0 ? at == tree.root() : tree.left(up) == at || tree.right(up) == at)
                    << at << " of " << size;
                depth++;
            }
            deepest = std::max(deepest, depth);
        }
        EXPECT_LE(deepest, static_cast<unsigned>(std::bit_width(size)) + 1) << size;
    }
}

} // namespace
} // namespace tofu::test
