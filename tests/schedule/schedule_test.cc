// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The provider's schedules deliver the right data, and end only after all members have called.
#include "schedule/schedule.h"

#include <random>
#include <string>

#include <gtest/gtest.h>

#include "schedule/executor.h"

namespace tofu::test {
namespace {

using namespace schedule;

void expect_right(const Call& call, unsigned members, std::mt19937_64& random)
{
    SCOPED_TRACE("kind " + std::to_string(static_cast<unsigned>(call.kind)) + ", " + std::to_string(call.count) +
                 " elements, root " + std::to_string(call.root) + " of " + std::to_string(members));
    Group<Schedule> group(chunk, slots);
    for (unsigned m = 0; m < members; m++)
        group.add(Schedule(call, m, members), members, input_of(call.kind, m, members, call.count),
                  empty_output(call.kind, m, members, call.root, call.count));
    ASSERT_EQ(group.run(random), "");
    for (unsigned m = 0; m < members; m++) {
        ASSERT_EQ(group.member[m].heard.count(), members) << "member " << m << " ends before all have called";
        const Expected expected = output_of(call.kind, m, members, call.root, call.count);
        ASSERT_TRUE(!expected.matters || group.member[m].out() == expected.cells) << "at member " << m;
    }
}

constexpr Kind kinds[] = {Kind::barrier,   Kind::broadcast, Kind::reduce,  Kind::allreduce, Kind::reduce_scatter,
                          Kind::allgather, Kind::gather,    Kind::scatter, Kind::alltoall};

TEST(Schedule, DeliversTheDataForEveryGroupAndRoot)
{
    std::mt19937_64 random(1);
    for (unsigned members = 1; members <= 20; members++)
        for (unsigned root = 0; root < members && !HasFailure(); root++)
            for (const Kind kind : kinds)
                expect_right({.kind = kind, .count = 1 + random() % 40, .root = root}, members, random);
}

TEST(Schedule, DeliversTheDataInLargeGroups)
{
    std::mt19937_64 random(2);
    for (const unsigned members : {64u, 101u})
        for (const Kind kind : kinds)
            if (!HasFailure())
                expect_right({.kind = kind, .count = 3, .root = members / 3}, members, random);
}

TEST(Schedule, DeliversBlocksOfManyMessages)
{
    std::mt19937_64 random(3);
    for (const unsigned members : {2u, 3u, 8u, 13u})
        for (const Kind kind : kinds)
            if (!HasFailure())
                expect_right({.kind = kind, .count = 3 * chunk + 77, .root = members - 1}, members, random);
}

TEST(Schedule, BothReductionsDeliverWhateverTheSize)
{
    std::mt19937_64 random(4);
    for (unsigned members = 1; members <= 17; members++)
        for (const Choice choice : {Choice::doubling, Choice::ring})
            for (const Kind kind : {Kind::allreduce, Kind::reduce_scatter})
                for (const std::size_t count : {std::size_t{1}, std::size_t{members + 1}, std::size_t{5000}})
                    if (!HasFailure())
                        expect_right({.kind = kind, .count = count, .choice = choice}, members, random);
}

TEST(Schedule, AMemberOfTheLargestGroupNamesOthersOnly)
{
    struct Sink {
        void copy(const Blocks&, const Blocks&) {}
        void send(unsigned lane, const Blocks&)
        {
            sound &= lane < 2 * max_bits && member_at(lane, rank, members) != rank;
        }
        void receive(unsigned lane, const Blocks& blocks, Take, unsigned) { send(lane, blocks); }
        unsigned rank, members;
        bool sound = true;
    };
    constexpr unsigned members = 1u << max_bits;
    for (const unsigned rank : {0u, 1u, members / 2, members - 1})
        for (const Kind kind : {Kind::barrier, Kind::broadcast, Kind::reduce, Kind::allreduce, Kind::gather}) {
            Schedule schedule({.kind = kind, .count = 1, .root = members - 2}, rank, members);
            Sink sink{rank, members};
            unsigned rounds = 0;
            while (schedule.next(sink) && rounds < 1000)
                rounds++;
            EXPECT_TRUE(sink.sound && rounds >= 20 && rounds < 1000) << rank << ", " << rounds << " rounds";
        }
}

} // namespace
} // namespace tofu::test
