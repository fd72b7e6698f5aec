// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Barrier circuits of real processes: results, rounds that overlap, errors, death (guide 2.3, 3.4, 3.8).
#include "../job/oversubscribed.h"
#include "member.h"

#include <gtest/gtest.h>
#include <tofu_sim.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <random>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace tofu::sim::test {
namespace {

// Every member knows what every other gives in a round.
uint64_t input(unsigned seed, int round, int member, unsigned element)
{
    std::seed_seq sequence{seed, unsigned(round), unsigned(member), element};
    uint32_t words[2];
    sequence.generate(words, words + 2);
    const uint64_t value = uint64_t{words[0]} << 32 | words[1];
    return element % 2 == 0 ? value % 5 : value; // ties for MAXLOC
}

struct RoundPlan {
    utofu_reduce_op op;
    size_t count;
};

RoundPlan plan_round(unsigned seed, int round)
{
    const uint64_t choice = input(seed, round, 0x7fff, 1);
    const auto op = static_cast<utofu_reduce_op>(1 + choice % 8);
    const size_t count = op == UTOFU_REDUCE_OP_BARRIER  ? 0
                         : op == UTOFU_REDUCE_OP_BFPSUM ? 1 + choice / 8 % 3
                         : op == UTOFU_REDUCE_OP_MAXLOC ? 2 + choice / 8 % 3 * 2
                                                        : 1 + choice / 8 % 6;
    return {op, count};
}

uint64_t expected(unsigned seed, int round, const RoundPlan& plan, int members, unsigned element)
{
    uint64_t result = input(seed, round, 0, element);
    for (int m = 1; m < members; m++) {
        const uint64_t value = input(seed, round, m, element);
        switch (plan.op) {
        case UTOFU_REDUCE_OP_BAND: result &= value; break;
        case UTOFU_REDUCE_OP_BOR: result |= value; break;
        case UTOFU_REDUCE_OP_BXOR: result ^= value; break;
        case UTOFU_REDUCE_OP_SUM: result += value; break;
        case UTOFU_REDUCE_OP_MAX: result = std::max(result, value); break;
        default: break;
        }
    }
    if (plan.op == UTOFU_REDUCE_OP_MAXLOC) {
        uint64_t best[2] = {0, 0};
        for (int m = 0; m < members; m++) {
            const uint64_t value = input(seed, round, m, element & ~1u);
            const uint64_t place = input(seed, round, m, element | 1u);
            if (m == 0 || value > best[0] || (value == best[0] && place < best[1])) {
                best[0] = value;
                best[1] = place;
            }
        }
        result = best[element % 2];
    }
    return result;
}

double as_double(uint64_t value)
{
    return static_cast<double>(static_cast<int64_t>(value)) / 1024.0;
}

void start_round(const Member& member, unsigned seed, int round)
{
    const RoundPlan plan = plan_round(seed, round);
    if (plan.op == UTOFU_REDUCE_OP_BARRIER) {
        ASSERT_EQ(utofu_barrier(member.start(), 0), UTOFU_SUCCESS);
        return;
    }
    uint64_t words[6];
    double values[6];
    for (unsigned i = 0; i < plan.count; i++) {
        words[i] = input(seed, round, member.number, i);
        values[i] = as_double(words[i]);
    }
    if (plan.op == UTOFU_REDUCE_OP_BFPSUM)
        ASSERT_EQ(utofu_reduce_double(member.start(), plan.op, values, plan.count, 0), UTOFU_SUCCESS);
    else
        ASSERT_EQ(utofu_reduce_uint64(member.start(), plan.op, words, plan.count, 0), UTOFU_SUCCESS);
}

void finish_round(const Member& member, unsigned seed, int round, int members)
{
    const RoundPlan plan = plan_round(seed, round);
    const utofu_vbg_id_t id = member.start();
    uint64_t words[7] = {};
    double values[4] = {};
    words[plan.count] = 4711; // not to be touched
    int rc = 0;
    if (plan.op == UTOFU_REDUCE_OP_BARRIER)
        rc = wait_barrier(id);
    else if (plan.op == UTOFU_REDUCE_OP_BFPSUM)
        rc = wait_for([&] { return utofu_poll_reduce_double(id, 0, values); });
    else
        rc = wait_for([&] { return utofu_poll_reduce_uint64(id, 0, words); });
    ASSERT_EQ(rc, UTOFU_SUCCESS) << "round " << round << " operation " << plan.op;
    for (unsigned i = 0; i < plan.count; i++) {
        if (plan.op != UTOFU_REDUCE_OP_BFPSUM) {
            ASSERT_EQ(words[i], expected(seed, round, plan, members, i)) << "operation " << plan.op;
            continue;
        }
        typedef float Quad __attribute__((mode(TF))); // wide enough for these summands to be added without loss
        Quad sum = 0;
        for (int m = 0; m < members; m++)
            sum += as_double(input(seed, round, m, i));
        ASSERT_EQ(values[i], static_cast<double>(sum));
    }
    ASSERT_EQ(words[plan.count], 4711u);
}

// `members` members dealt out to the processes, on random TNIs.
void run_circuit(const Rank& rank, Shape shape, int members, unsigned seed, int rounds)
{
    std::vector<Member> mine;
    for (int m = static_cast<int>(rank.number); m < members; m += static_cast<int>(rank.size))
        mine.push_back(allocate(rank, shape, members, m, static_cast<utofu_tni_id_t>(input(seed, 0, m, 1) % 6)));
    rank.barrier();
    for (const Member& member : mine)
        connect(rank, shape, members, member);
    rank.barrier();
    for (int round = 0; round < rounds && !::testing::Test::HasFailure(); round++) {
        for (const Member& member : mine)
            start_round(member, seed, round);
        for (const Member& member : mine)
            finish_round(member, seed, round, members);
    }
    rank.barrier();
    for (Member& member : mine)
        EXPECT_EQ(utofu_free_vbg(member.ids.data(), member.ids.size()), UTOFU_SUCCESS);
}

class BarrierShapes : public ::testing::TestWithParam<Shape> {};

TEST_P(BarrierShapes, GiveTheRightResultForOneToTenProcesses)
{
    for (unsigned size = 1; size <= 10; size++) {
        expect_processes(
            size, [&](const Rank& rank) { run_circuit(rank, GetParam(), static_cast<int>(size), 100 + size, 60); });
    }
}

TEST_P(BarrierShapes, GiveTheRightResultWhenProcessesHaveSeveralMembers)
{
    for (const int members : {5, 16, 23}) {
        expect_processes(3, [&](const Rank& rank) {
            run_circuit(rank, GetParam(), members, 7u + static_cast<unsigned>(members), 60);
        });
    }
}

TEST_P(BarrierShapes, GiveTheRightResultWith48Processes)
{
    expect_processes(48, [&](const Rank& rank) { run_circuit(rank, GetParam(), 48, 48, 20); });
}

TEST_P(BarrierShapes, GiveTheRightResultWhenPacketsComeLate)
{
    ::setenv("TOFU_SIM_CHAOS", "5", 1);
    expect_processes(6, [&](const Rank& rank) { run_circuit(rank, GetParam(), 13, 77, 100); });
    ::unsetenv("TOFU_SIM_CHAOS");
}

INSTANTIATE_TEST_SUITE_P(All, BarrierShapes, ::testing::ValuesIn(all_shapes));

TEST(Barrier, HoldsBackTheFastUntilTheSlowHasCome)
{
    expect_processes(4, [](const Rank& rank) {
        const Member member = allocate(rank, Shape::butterfly, 4, static_cast<int>(rank.number), 0);
        rank.barrier();
        connect(rank, Shape::butterfly, 4, member);
        rank.barrier();
        std::mt19937 random(rank.number);
        for (uint64_t round = 1; round <= 200; round++) {
            for (unsigned pause = random() % 50; pause != 0; pause--)
                ::sched_yield();
            rank.set(900 + rank.number, round);
            ASSERT_EQ(utofu_barrier(member.start(), 0), UTOFU_SUCCESS);
            ASSERT_EQ(wait_barrier(member.start()), UTOFU_SUCCESS);
            for (unsigned other = 0; other < 4; other++) {
                ASSERT_GE(rank.get(900 + other), round);     // no process is behind,
                ASSERT_LE(rank.get(900 + other), round + 1); // and none more than one round ahead
            }
        }
        rank.barrier();
    });
}

// Packets ring no doorbell. With more processes than processors each round took the sleep of its waiters, 8 ms.
TEST(Barrier, AWaitForARoundDoesNotSleep)
{
    expect_processes(2, [](const Rank& rank) {
        ASSERT_NO_FATAL_FAILURE(stay_on(own_processors().front()));
        constexpr unsigned waited = 100; // word of the board
        const Member member = allocate(rank, Shape::ring, 2, int(rank.number), 0);
        rank.barrier();
        connect(rank, Shape::ring, 2, member);
        rank.barrier();
        if (rank.number == 1) { // the slow one
            EXPECT_TRUE(wait_until([&] { return rank.get(waited) != 0; }));
            EXPECT_EQ(utofu_barrier(member.start(), 0), UTOFU_SUCCESS);
            EXPECT_EQ(wait_barrier(member.start()), UTOFU_SUCCESS);
        } else {
            EXPECT_EQ(utofu_barrier(member.start(), 0), UTOFU_SUCCESS);
            const uint64_t before = sleeps();
            for (unsigned times = 0; times < 300; times++)
                EXPECT_EQ(tofu_sim_give_way(times), 1);
            EXPECT_LT(sleeps() - before, 20u);
            rank.set(waited, 1);
            EXPECT_EQ(wait_for([&] { // without an end of its own
                          (void)tofu_sim_wait(nullptr, 0, -1);
                          return utofu_poll_barrier(member.start(), 0);
                      }),
                      UTOFU_SUCCESS);
            uint64_t slept = sleeps(); // and again where no round is under way
            for (unsigned times = 0; times < 100; times++)
                (void)tofu_sim_give_way(times);
            EXPECT_GT(sleeps() - slept, 0u);
        }
        rank.barrier();
    });
}

TEST(Barrier, CircuitsOfTheSameProcessesDoNotDisturbEachOther)
{
    expect_processes(4, [](const Rank& rank) {
        constexpr int circuits = 3;
        Member member[circuits];
        for (int c = 0; c < circuits; c++) {
            member[c] = allocate(rank, all_shapes[c], 4, static_cast<int>(rank.number), 2);
            rank.barrier();
            connect(rank, all_shapes[c], 4, member[c]);
            rank.barrier();
        }
        for (int round = 0; round < 100; round++) {
            for (int c = 0; c < circuits; c++) { // each process in its own order
                const int at = (c + static_cast<int>(rank.number)) % circuits;
                start_round(member[at], 30 + static_cast<unsigned>(at), round);
            }
            for (int c = 0; c < circuits; c++)
                finish_round(member[c], 30 + static_cast<unsigned>(c), round, 4);
        }
        rank.barrier();
    });
}

TEST(Barrier, SaysWhatIsWrongWithTheOrderOfCalls)
{
    expect_processes(2, [](const Rank& rank) {
        const Member member = allocate(rank, Shape::butterfly, 2, static_cast<int>(rank.number), 1);
        const utofu_vbg_id_t id = member.start();
        uint64_t word = 3;
        double value = 1;
        EXPECT_EQ(utofu_barrier(id, 0), UTOFU_ERR_INVALID_VBG_ID); // not set
        rank.barrier();
        connect(rank, Shape::butterfly, 2, member);
        rank.barrier();
        EXPECT_EQ(utofu_poll_barrier(id, 0), UTOFU_ERR_BUSY);
        EXPECT_EQ(utofu_poll_reduce_uint64(id, 0, &word), UTOFU_ERR_BUSY);
        EXPECT_EQ(utofu_poll_reduce_double(id, 0, &value), UTOFU_ERR_BUSY);
        if (rank.number == 0) {
            ASSERT_EQ(utofu_barrier(id, 0), UTOFU_SUCCESS);
            EXPECT_EQ(utofu_poll_barrier(id, 0), UTOFU_ERR_NOT_COMPLETED);
            EXPECT_EQ(utofu_barrier(id, 0), UTOFU_ERR_BUSY);
            EXPECT_EQ(utofu_reduce_uint64(id, UTOFU_REDUCE_OP_SUM, &word, 1, 0), UTOFU_ERR_BUSY);
            EXPECT_EQ(utofu_reduce_double(id, UTOFU_REDUCE_OP_BFPSUM, &value, 1, 0), UTOFU_ERR_BUSY);
            EXPECT_EQ(utofu_poll_reduce_uint64(id, 0, &word), UTOFU_ERR_BUSY); // none of this kind
        }
        rank.barrier();
        if (rank.number == 1) {
            ASSERT_EQ(utofu_barrier(id, 0), UTOFU_SUCCESS);
            // Done for long, but busy until it is confirmed.
            EXPECT_EQ(utofu_barrier(id, 0), UTOFU_ERR_BUSY);
        }
        EXPECT_EQ(wait_barrier(id), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_poll_barrier(id, 0), UTOFU_ERR_BUSY);
        rank.barrier();
    });
}

TEST(Barrier, ReportsMismatchToAllAndGoesOn)
{
    expect_processes(5, [](const Rank& rank) {
        for (const Shape shape : all_shapes) {
            const Member member = allocate(rank, shape, 5, static_cast<int>(rank.number), 3);
            rank.barrier();
            connect(rank, shape, 5, member);
            rank.barrier();
            const utofu_vbg_id_t id = member.start();
            uint64_t words[2] = {rank.number, 1};
            double values[2] = {1.5, 2.5};
            // One asks for another operation.
            const auto op = rank.number == 2 ? UTOFU_REDUCE_OP_MAX : UTOFU_REDUCE_OP_SUM;
            ASSERT_EQ(utofu_reduce_uint64(id, op, words, 1, 0), UTOFU_SUCCESS);
            EXPECT_EQ(wait_for([&] { return utofu_poll_reduce_uint64(id, 0, words); }), UTOFU_ERR_BARRIER_MISMATCH);
            EXPECT_EQ(words[0], rank.number); // only success writes
            // One calls another function.
            if (rank.number == 4) {
                ASSERT_EQ(utofu_reduce_double(id, UTOFU_REDUCE_OP_BFPSUM, values, 1, 0), UTOFU_SUCCESS);
                EXPECT_EQ(wait_for([&] { return utofu_poll_reduce_double(id, 0, values); }),
                          UTOFU_ERR_BARRIER_MISMATCH);
            } else {
                ASSERT_EQ(utofu_barrier(id, 0), UTOFU_SUCCESS);
                EXPECT_EQ(wait_barrier(id), UTOFU_ERR_BARRIER_MISMATCH);
            }
            // One has another number of elements.
            ASSERT_EQ(utofu_reduce_double(id, UTOFU_REDUCE_OP_BFPSUM, values, rank.number == 0 ? 2 : 1, 0),
                      UTOFU_SUCCESS);
            EXPECT_EQ(wait_for([&] { return utofu_poll_reduce_double(id, 0, values); }), UTOFU_ERR_BARRIER_MISMATCH);
            // And all is well again.
            ASSERT_EQ(utofu_reduce_uint64(id, UTOFU_REDUCE_OP_SUM, words, 1, 0), UTOFU_SUCCESS);
            EXPECT_EQ(wait_for([&] { return utofu_poll_reduce_uint64(id, 0, words); }), UTOFU_SUCCESS);
            EXPECT_EQ(words[0], 0u + 1 + 2 + 3 + 4);
            rank.barrier();
        }
    });
}

TEST(Barrier, CircuitIsSetAgainByOneMemberOrByAll)
{
    expect_processes(4, [](const Rank& rank) {
        const Member member = allocate(rank, Shape::ring, 4, static_cast<int>(rank.number), 0);
        rank.barrier();
        connect(rank, Shape::ring, 4, member);
        rank.barrier();
        int round = 0;
        for (unsigned setting = 0; setting < 12; setting++) {
            for (int i = 0; i < 7; i++, round++) {
                start_round(member, 9, round);
                finish_round(member, 9, round, 4);
            }
            rank.barrier();
            // 0 … 3: that one alone; 4, 5: all; 6 …: a pair.
            const unsigned what = setting % 8;
            if (what == rank.number || what == 4 || what == 5 || (what > 5 && rank.number % 2 == what % 2))
                connect(rank, Shape::ring, 4, member);
            rank.barrier();
        }
    });
}

TEST(Barrier, SetAgainForgetsWhatWasUnderWay)
{
    expect_processes(3, [](const Rank& rank) {
        const Member member = allocate(rank, Shape::tree, 3, static_cast<int>(rank.number), 0);
        rank.barrier();
        connect(rank, Shape::tree, 3, member);
        rank.barrier();
        for (unsigned setting = 0; setting < 20; setting++) {
            if (rank.number != setting % 3) { // one does not come
                ASSERT_EQ(utofu_barrier(member.start(), 0), UTOFU_SUCCESS);
                EXPECT_EQ(utofu_poll_barrier(member.start(), 0), UTOFU_ERR_NOT_COMPLETED);
            }
            rank.barrier();
            connect(rank, Shape::tree, 3, member);
            rank.barrier();
            for (int round = 0; round < 3; round++) {
                start_round(member, 11, round);
                finish_round(member, 11, round, 3);
            }
            rank.barrier();
        }
    });
}

TEST(Barrier, ThreadSafeGateServesThreads)
{
    expect_processes(2, [](const Rank& rank) {
        const Member member =
            allocate(rank, Shape::butterfly, 2, static_cast<int>(rank.number), 0, UTOFU_VBG_FLAG_THREAD_SAFE);
        rank.barrier();
        connect(rank, Shape::butterfly, 2, member);
        rank.barrier();
        // Whichever thread comes first starts, whichever comes first confirms: all in all 300 rounds of each.
        std::atomic<int> started{0};
        std::atomic<int> confirmed{0};
        const auto work = [&] {
            while (confirmed.load() < 300 && !::testing::Test::HasFailure()) {
                const int rc = utofu_poll_barrier(member.start(), 0);
                if (rc == UTOFU_SUCCESS) {
                    confirmed.fetch_add(1);
                } else if (rc == UTOFU_ERR_BUSY && started.load() == confirmed.load()) {
                    int expected = confirmed.load();
                    if (expected < 300 && started.compare_exchange_strong(expected, expected + 1))
                        EXPECT_EQ(utofu_barrier(member.start(), 0), UTOFU_SUCCESS);
                }
            }
        };
        std::thread other(work);
        work();
        other.join();
        EXPECT_EQ(started.load(), 300);
        rank.barrier();
    });
}

} // namespace
} // namespace tofu::sim::test
