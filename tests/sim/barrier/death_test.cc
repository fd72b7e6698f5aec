// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Participants of barriers that are killed at any instant: the others go on, the gates are used again.
#include "member.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <random>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace tofu::sim::test {
namespace {

constexpr unsigned arrivals = 1000; // words on the board: one for each meeting

// A barrier of `count` processes that does not expect the dead.
void meet(const Rank& rank, unsigned meeting, unsigned count)
{
    rank.board->words[arrivals + meeting].fetch_add(1);
    EXPECT_TRUE(wait_until([&] { return rank.get(arrivals + meeting) >= count; }));
}

// Kills this process at about the given time from now, wherever it is then.
void die_in(unsigned microseconds)
{
    std::thread([=] {
        ::usleep(microseconds);
        ::kill(::getpid(), SIGKILL);
    }).detach();
}

void run_rounds(const Member& member, uint64_t number, uint64_t members, unsigned rounds)
{
    for (unsigned round = 0; round < rounds; round++) {
        uint64_t words[2] = {number, 1};
        ASSERT_EQ(utofu_reduce_uint64(member.start(), UTOFU_REDUCE_OP_SUM, words, 2, 0), UTOFU_SUCCESS);
        ASSERT_EQ(wait_for([&] { return utofu_poll_reduce_uint64(member.start(), 0, words); }), UTOFU_SUCCESS);
        ASSERT_EQ(words[0], members * (members - 1) / 2);
        ASSERT_EQ(words[1], members);
    }
}

// Until a barrier fails, and it must.
void run_until_broken(const Member& member)
{
    for (;;) {
        ASSERT_EQ(utofu_barrier(member.start(), 0), UTOFU_SUCCESS);
        const int rc = wait_barrier(member.start());
        if (rc != UTOFU_SUCCESS) {
            ASSERT_EQ(rc, UTOFU_ERR_BARRIER_OTHER);
            ASSERT_EQ(utofu_poll_barrier(member.start(), 0), UTOFU_ERR_BUSY); // that one is over
            return;
        }
    }
}

void die_or_survive(const Rank& rank, Shape shape, unsigned victim, unsigned when)
{
    const unsigned survivors = rank.size - 1;
    Member member = allocate(rank, shape, static_cast<int>(rank.size), static_cast<int>(rank.number), 0);
    meet(rank, 0, rank.size);
    connect(rank, shape, static_cast<int>(rank.size), member);
    meet(rank, 1, rank.size);
    if (rank.number == victim) {
        die_in(when);
        for (;;) {
            (void)utofu_barrier(member.start(), 0);
            (void)utofu_poll_barrier(member.start(), 0);
        }
    }
    run_until_broken(member);
    meet(rank, 2, survivors);
    // The same gates in a smaller circuit.
    EXPECT_EQ(utofu_free_vbg(member.ids.data(), member.ids.size()), UTOFU_SUCCESS);
    const unsigned number = rank.number - (rank.number > victim ? 1 : 0);
    member = allocate(rank, shape, static_cast<int>(survivors), static_cast<int>(number), 0);
    meet(rank, 3, survivors);
    connect(rank, shape, static_cast<int>(survivors), member);
    meet(rank, 4, survivors);
    run_rounds(member, number, survivors, 20);
    meet(rank, 5, survivors);
}

class BarrierDeath : public ::testing::TestWithParam<Shape> {};

TEST_P(BarrierDeath, BreaksTheRoundOfTheOthersWhichBuildANewCircuit)
{
    ::setenv("TOFU_SIM_PPN", "5", 1); // on one node, so that gates of dead processes are reused
    std::mt19937 random(static_cast<unsigned>(GetParam()));
    for (int run = 0; run < 8 && !HasFailure(); run++) {
        const unsigned victim = random() % 5;
        const unsigned when = random() % 3000;
        const auto exits = run_processes(5, [&](const Rank& rank) { die_or_survive(rank, GetParam(), victim, when); });
        for (unsigned i = 0; i < 5; i++)
            if (i == victim)
                EXPECT_TRUE(WIFSIGNALED(exits[i].status) && WTERMSIG(exits[i].status) == SIGKILL);
            else
                EXPECT_TRUE(exits[i].success()) << "process " << i << ": " << exits[i].errors;
        EXPECT_FALSE(job_is_left());
    }
    ::unsetenv("TOFU_SIM_PPN");
}

INSTANTIATE_TEST_SUITE_P(All, BarrierDeath, ::testing::ValuesIn(all_shapes));

TEST(BarrierDeath, OfAMemberThatHadDoneItsPartDoesNotBreakTheRound)
{
    const auto exits = run_processes(3, [](const Rank& rank) {
        const Member member = allocate(rank, Shape::tree, 3, static_cast<int>(rank.number), 0);
        meet(rank, 0, 3);
        connect(rank, Shape::tree, 3, member);
        meet(rank, 1, 3);
        if (rank.number == 1) {
            (void)utofu_barrier(member.start(), 0);
            meet(rank, 2, 2);
            ::kill(::getpid(), SIGKILL);
        }
        if (rank.number == 2)
            meet(rank, 2, 2);
        else
            EXPECT_TRUE(wait_until([&] { return rank.get(arrivals + 2) >= 2; }));
        EXPECT_EQ(utofu_barrier(member.start(), 0), UTOFU_SUCCESS);
        EXPECT_EQ(wait_barrier(member.start()), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_barrier(member.start(), 0), UTOFU_SUCCESS);
        EXPECT_EQ(wait_barrier(member.start()), UTOFU_ERR_BARRIER_OTHER);
        meet(rank, 3, 2);
    });
    EXPECT_TRUE(exits[0].success() && exits[2].success());
    EXPECT_TRUE(WIFSIGNALED(exits[1].status));
}

TEST(BarrierDeath, GivesAllGatesBack)
{
    ::setenv("TOFU_SIM_PPN", "2", 1);
    const auto exits = run_processes(2, [](const Rank& rank) {
        utofu_vbg_id_t ids[17][2];
        if (rank.number == 0) { // takes all there are, and dies with them
            for (unsigned i = 0; i < 16; i++)
                EXPECT_EQ(utofu_alloc_vbg(4, 2, 0, ids[i]), UTOFU_SUCCESS);
            EXPECT_EQ(utofu_alloc_vbg(4, 1, 0, ids[16]), UTOFU_ERR_FULL);
            rank.board->words[arrivals].store(1);
            EXPECT_TRUE(wait_until([&] { return rank.get(arrivals + 1) == 1; }));
            ::kill(::getpid(), SIGKILL);
        }
        EXPECT_TRUE(wait_until([&] { return rank.get(arrivals) == 1; }));
        EXPECT_EQ(utofu_alloc_vbg(4, 1, 0, ids[0]), UTOFU_ERR_FULL);
        EXPECT_EQ(utofu_alloc_vbg(5, 1, 0, ids[0]), UTOFU_SUCCESS); // the other TNIs have theirs
        rank.board->words[arrivals + 1].store(1);
        EXPECT_TRUE(wait_until([&] { return utofu_alloc_vbg(4, 2, 0, ids[0]) == UTOFU_SUCCESS; }));
        for (unsigned i = 1; i < 16; i++)
            EXPECT_EQ(utofu_alloc_vbg(4, 2, 0, ids[i]), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_alloc_vbg(4, 1, 0, ids[16]), UTOFU_ERR_FULL);
    });
    EXPECT_TRUE(WIFSIGNALED(exits[0].status));
    EXPECT_TRUE(exits[1].success()) << exits[1].errors;
    ::unsetenv("TOFU_SIM_PPN");
}

TEST(BarrierDeath, WhileAllocatingAndSettingLosesNoGate)
{
    ::setenv("TOFU_SIM_PPN", "3", 1);
    std::mt19937 random(77);
    for (int run = 0; run < 10 && !::testing::Test::HasFailure(); run++) {
        const unsigned when = random() % 2000;
        const auto exits = run_processes(3, [&](const Rank& rank) {
            if (rank.number != 0) {
                die_in(when + 300 * rank.number);
                for (unsigned long long turn = 0;; turn++) {
                    utofu_vbg_id_t ids[2];
                    if (utofu_alloc_vbg(3, 2, 0, ids) != UTOFU_SUCCESS)
                        continue;
                    auto settings =
                        settings_of(plan_circuit(Shape::ring, 1, 0), 0, [&](GateAt at) { return ids[at.gate]; });
                    EXPECT_EQ(utofu_set_vbg(settings.data(), 2), UTOFU_SUCCESS);
                    EXPECT_EQ(utofu_barrier(ids[0], 0), UTOFU_SUCCESS);
                    EXPECT_EQ(utofu_poll_barrier(ids[0], 0), UTOFU_SUCCESS);
                    if (turn % 7 != 0) // some stay with the dead
                        EXPECT_EQ(utofu_free_vbg(ids, 2), UTOFU_SUCCESS);
                    else if (turn > 50)
                        ::pause();
                }
            }
            // All gates of the TNI are to be had once both are gone.
            utofu_vbg_id_t ids[33];
            EXPECT_TRUE(wait_until([&] { return utofu_alloc_vbg(3, 33, 0, ids) == UTOFU_SUCCESS; }));
            for (unsigned i = 1; i < 16; i++) {
                utofu_vbg_id_t start = 0;
                EXPECT_TRUE(wait_until([&] { return utofu_alloc_vbg(3, 1, 0, &start) == UTOFU_SUCCESS; }));
            }
            EXPECT_EQ(utofu_alloc_vbg(3, 1, 0, ids), UTOFU_ERR_FULL);
        });
        EXPECT_TRUE(exits[0].success()) << exits[0].errors;
        if (job_is_left()) // the others, which had freed their gates, were killed after the first had left
            clear_last_job();
        EXPECT_FALSE(job_is_left());
    }
    ::unsetenv("TOFU_SIM_PPN");
}

TEST(BarrierDeath, NormalEndOfOneBreaksTheNextRoundOfTheOthers)
{
    expect_processes(3, [](const Rank& rank) {
        const Member member = allocate(rank, Shape::butterfly, 3, static_cast<int>(rank.number), 0);
        rank.barrier();
        connect(rank, Shape::butterfly, 3, member);
        rank.barrier();
        ASSERT_EQ(utofu_barrier(member.start(), 0), UTOFU_SUCCESS);
        ASSERT_EQ(wait_barrier(member.start()), UTOFU_SUCCESS);
        if (rank.number != 0) {
            ASSERT_EQ(utofu_barrier(member.start(), 0), UTOFU_SUCCESS);
            ASSERT_EQ(wait_barrier(member.start()), UTOFU_ERR_BARRIER_OTHER);
        }
    });
}

} // namespace
} // namespace tofu::sim::test
