// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Processes with a virtual clock, in whole picoseconds: what calls, messages and waits make of it.
#include "lib/harness.h"

#include <gtest/gtest.h>
#include <tofu_sim.h>

#include <cmath>
#include <cstdlib>
#include <sys/mman.h>

namespace tofu::sim::test {
namespace {

constexpr size_t words = 8192;
constexpr uint64_t us = 1'000'000; // in picoseconds

// With TOFU_SIM_CPU=0, so that calls alone cost anything.
void expect_clocked(unsigned size, const std::function<void(const Rank&)>& body)
{
    ::setenv("TOFU_SIM_CLOCK", "tofud", 1);
    ::setenv("TOFU_SIM_CPU", "0", 1);
    expect_processes(size, body);
    ::unsetenv("TOFU_SIM_CLOCK");
    ::unsetenv("TOFU_SIM_CPU");
}

struct Member {
    const Rank& rank;
    utofu_vcq_hdl_t vcq = 0;
    utofu_stadd_t stadd = 0;
    volatile uint64_t* memory = nullptr;

    explicit Member(const Rank& r, unsigned long flags = 0) : rank(r)
    {
        void* const page = ::mmap(nullptr, words * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memory = static_cast<volatile uint64_t*>(page);
        utofu_vcq_id_t id = 0;
        EXPECT_EQ(utofu_create_vcq(0, flags, &vcq), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_query_vcq_id(vcq, &id), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_reg_mem(vcq, page, words * 8, 0, &stadd), UTOFU_SUCCESS);
        rank.set(2 * rank.number, id);
        rank.set(2 * rank.number + 1, stadd);
        rank.barrier();
    }
    [[nodiscard]] utofu_vcq_id_t id_of(unsigned other) const { return rank.get(2 * other); }
    [[nodiscard]] utofu_stadd_t at(unsigned other) const { return rank.get(2 * other + 1); }
    void put(unsigned to, size_t bytes, unsigned long flags) const
    {
        EXPECT_EQ(utofu_put(vcq, id_of(to), stadd + words * 4, at(to), bytes, 0, flags, nullptr), UTOFU_SUCCESS);
    }
    void wait_notice() const
    {
        utofu_mrq_notice notice;
        EXPECT_EQ(wait_mrq(vcq, &notice), UTOFU_SUCCESS);
    }
};

// Nodes 0 and 1 differ in C: one hop. One way: 0.98 us by memory, 0.075 us more by a notice.
TEST(SimClock, APingPongTakesWhatItTakesOnTofuD)
{
    expect_clocked(2, [](const Rank& rank) {
        Member me(rank);
        const uint64_t begin = tofu_sim_time();
        constexpr unsigned rounds = 100;
        for (unsigned i = 0; i < rounds; i++) {
            if (rank.number == 0) {
                me.put(1, 8, UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE);
                me.wait_notice();
            } else {
                me.wait_notice();
                me.put(0, 8, UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE);
            }
        }
        const uint64_t one_way = (tofu_sim_time() - begin) / rounds / 2;
        if (rank.number == 0)
            EXPECT_NEAR(static_cast<double>(one_way), 1.055 * us, 0.01 * us);
        rank.barrier();
    });
}

TEST(SimClock, MemoryIsSeenAtTheNextCall)
{
    expect_clocked(2, [](const Rank& rank) {
        Member me(rank);
        const uint64_t begin = tofu_sim_time();
        constexpr unsigned rounds = 100;
        for (uint64_t i = 1; i <= rounds; i++) {
            me.memory[words / 2] = i;
            if (rank.number == 0)
                me.put(1, 8, 0);
            EXPECT_TRUE(wait_until([&] { return me.memory[0] == i; }));
            if (rank.number == 1)
                me.put(0, 8, 0);
        }
        utofu_mrq_notice notice;
        EXPECT_EQ(utofu_poll_mrq(me.vcq, 0, &notice), UTOFU_ERR_NOT_FOUND); // a call: the last one is seen
        const uint64_t one_way = (tofu_sim_time() - begin) / rounds / 2;
        if (rank.number == 0)
            EXPECT_NEAR(static_cast<double>(one_way), 0.98 * us, 0.01 * us);
        rank.barrier();
    });
}

// The clock of a process that reports what it sees is moved by these reports, and not by other arrivals.
TEST(SimClock, MemoryIsSeenWhenTheProgramSaysSo)
{
    expect_clocked(2, [](const Rank& rank) {
        Member me(rank);
        EXPECT_EQ(tofu_sim_seen(const_cast<const uint64_t*>(&me.memory[9]), 8), 1); // nothing is known of it
        rank.barrier();
        const uint64_t before = tofu_sim_time();
        me.memory[words / 2] = 7;
        if (rank.number == 0)
            me.put(1, 8, 0);
        rank.barrier();
        if (rank.number == 1) {
            utofu_mrq_notice notice;
            EXPECT_EQ(utofu_poll_mrq(me.vcq, 0, &notice), UTOFU_ERR_NOT_FOUND);
            EXPECT_EQ(tofu_sim_time(), before);
            EXPECT_EQ(tofu_sim_seen(const_cast<const uint64_t*>(&me.memory[0]), 8), 1);
            EXPECT_GT(tofu_sim_time(), before + us / 2);
        }
        rank.barrier();
    });
}

TEST(SimClock, AnIdlePollTakesNoTime)
{
    expect_clocked(1, [](const Rank& rank) {
        Member me(rank);
        const uint64_t before = tofu_sim_time();
        utofu_mrq_notice notice;
        void* cbdata = nullptr;
        for (unsigned i = 0; i < 1000; i++) {
            EXPECT_EQ(utofu_poll_mrq(me.vcq, 0, &notice), UTOFU_ERR_NOT_FOUND);
            EXPECT_EQ(utofu_poll_tcq(me.vcq, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
        }
        EXPECT_EQ(tofu_sim_time(), before);
    });
}

uint64_t processor_time() noexcept
{
    timespec now{};
    (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return uint64_t(now.tv_sec) * 1'000'000'000 + uint64_t(now.tv_nsec);
}

void compute(uint64_t ns) noexcept
{
    for (const uint64_t begin = processor_time(); processor_time() - begin < ns;) {
    }
}

TEST(SimClock, ComputingCountsByTheFactor)
{
    ::setenv("TOFU_SIM_CLOCK", "tofud", 1);
    ::setenv("TOFU_SIM_CPU", "10", 1);
    expect_processes(1, [](const Rank& rank) {
        Member me(rank);
        utofu_mrq_notice notice;
        const uint64_t before = tofu_sim_time();
        me.put(0, 8, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE);
        me.wait_notice();
        compute(2'000'000);
        EXPECT_EQ(utofu_poll_mrq(me.vcq, 0, &notice), UTOFU_ERR_NOT_FOUND);
        EXPECT_GT(tofu_sim_time() - before, 20'000 * us);
    });
    ::unsetenv("TOFU_SIM_CLOCK");
    ::unsetenv("TOFU_SIM_CPU");
}

// A poll that finds nothing and a switch to another thread do not hide what is computed afterwards.
TEST(SimClock, ComputingBehindAPollThatFoundNothingCounts)
{
    ::setenv("TOFU_SIM_CLOCK", "tofud", 1);
    ::setenv("TOFU_SIM_CPU", "1", 1);
    expect_processes(1, [](const Rank& rank) {
        Member me(rank);
        utofu_mrq_notice notice;
        EXPECT_EQ(utofu_poll_mrq(me.vcq, 0, &notice), UTOFU_ERR_NOT_FOUND);
        const uint64_t before = tofu_sim_time();
        compute(10'000'000);
        ::usleep(1);
        compute(10'000'000);
        EXPECT_EQ(utofu_poll_mrq(me.vcq, 0, &notice), UTOFU_ERR_NOT_FOUND);
        EXPECT_GT(tofu_sim_time() - before, 20'000 * us);
    });
    ::unsetenv("TOFU_SIM_CLOCK");
    ::unsetenv("TOFU_SIM_CPU");
}

// A relay in session mode begins when the put arrives that starts it, whichever process executes it.
TEST(SimClock, ARelayBeginsWhenItsPutHasArrived)
{
    expect_clocked(3, [](const Rank& rank) {
        Member me(rank, rank.number == 1 ? UTOFU_VCQ_FLAG_SESSION_MODE : 0);
        if (rank.number == 1)
            me.put(2, 8, UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE);
        rank.barrier();
        const uint64_t before = tofu_sim_time();
        if (rank.number == 0) {
            me.put(1, 8, UTOFU_ONESIDED_FLAG_SPS(1));
        } else if (rank.number == 2) {
            me.wait_notice();
            const auto took = static_cast<double>(tofu_sim_time() - before);
            EXPECT_GT(took, 1.6 * us); // two ways, one call
            EXPECT_LT(took, 3.0 * us);
        }
        rank.barrier();
    });
}

TEST(SimClock, StrongOrderKeepsAShortPutBehindALongOne)
{
    expect_clocked(2, [](const Rank& rank) {
        Member me(rank);
        if (rank.number == 0) {
            me.put(1, words * 4, UTOFU_ONESIDED_FLAG_STRONG_ORDER | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE);
            const uint64_t posted = tofu_sim_time();
            me.put(1, 8, UTOFU_ONESIDED_FLAG_STRONG_ORDER | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE);
            me.wait_notice();
            const uint64_t first = tofu_sim_time();
            me.wait_notice();
            EXPECT_GT(first, posted + 5 * us); // 32 KiB
            EXPECT_GE(tofu_sim_time(), first);
        }
        rank.barrier();
    });
}

TEST(SimClock, RegisteringMemoryTakesTime)
{
    expect_clocked(1, [](const Rank& rank) {
        Member me(rank);
        const uint64_t before = tofu_sim_time();
        utofu_stadd_t again = 0;
        EXPECT_EQ(utofu_reg_mem(me.vcq, const_cast<uint64_t*>(me.memory), words * 8, 0, &again), UTOFU_SUCCESS);
        EXPECT_GT(tofu_sim_time(), before + us);
    });
}

// Two processes on a node each, gates that send to each other: the call, a stage and the poll.
TEST(SimClock, ABarrierTakesItsGatesAndHops)
{
    expect_clocked(2, [](const Rank& rank) {
        utofu_vbg_id_t own[2];
        ASSERT_EQ(utofu_alloc_vbg(0, 2, 0, own), UTOFU_SUCCESS);
        rank.set(rank.number, own[1]);
        rank.barrier();
        const utofu_vbg_id_t other = rank.get(1 - rank.number);
        // The start gate signals the relay... which sends to the peer's relay; its signal ends the round.
        utofu_vbg_setting settings[2] = {};
        for (auto& setting : settings) {
            setting.src_lcl_vbg_id = setting.src_rmt_vbg_id = UTOFU_VBG_ID_NULL;
            setting.dst_lcl_vbg_id = setting.dst_rmt_vbg_id = UTOFU_VBG_ID_NULL;
            setting.dst_path_coords[0] = UTOFU_PATH_COORD_NULL;
        }
        settings[0].vbg_id = own[0];
        settings[0].dst_rmt_vbg_id = other;
        settings[0].dst_lcl_vbg_id = own[1];
        settings[0].src_lcl_vbg_id = own[1];
        settings[1].vbg_id = own[1];
        settings[1].src_lcl_vbg_id = own[0];
        settings[1].dst_lcl_vbg_id = own[0];
        // The packet of the peer's start gate.
        rank.set(16 + rank.number, own[0]);
        rank.barrier();
        settings[1].src_rmt_vbg_id = rank.get(16 + 1 - rank.number);
        ASSERT_EQ(utofu_set_vbg(settings, 2), UTOFU_SUCCESS);
        rank.barrier();
        constexpr unsigned rounds = 50;
        const uint64_t before = tofu_sim_time();
        for (unsigned i = 0; i < rounds; i++) {
            ASSERT_EQ(utofu_barrier(own[0], 0), UTOFU_SUCCESS);
            int rc = UTOFU_ERR_NOT_COMPLETED;
            EXPECT_TRUE(wait_until([&] { return (rc = utofu_poll_barrier(own[0], 0)) != UTOFU_ERR_NOT_COMPLETED; }));
            ASSERT_EQ(rc, UTOFU_SUCCESS);
        }
        // 0.66 us, one gate, one hop
        EXPECT_NEAR(static_cast<double>(tofu_sim_time() - before) / rounds, 0.9175 * us, 0.01 * us);
        rank.barrier();
    });
}

int first_call()
{
    utofu_vcq_hdl_t vcq = 0;
    return utofu_create_vcq(0, 0, &vcq);
}

TEST(SimClock, AllProcessesOfAJobHaveOneOrNone)
{
    const auto exits = run_processes(2, [](const Rank& rank) {
        if (rank.number == 1) {
            rank.barrier();
            ::setenv("TOFU_SIM_CLOCK", "tofud", 1);
        }
        EXPECT_EQ(first_call(), rank.number == 0 ? UTOFU_SUCCESS : UTOFU_ERR_INVALID_ARG);
        if (rank.number == 0)
            rank.barrier();
        rank.barrier();
    });
    EXPECT_TRUE(exits[0].success()) << exits[0].errors;
    EXPECT_NE(exits[1].errors.find("use the same for all processes, or choose another TOFU_SIM_JOB"), std::string::npos)
        << exits[1].errors;
}

TEST(SimClock, UnknownValuesAreRefusedWithALine)
{
    const struct {
        const char* name;
        const char* value;
        const char* line;
    } cases[] = {{"TOFU_SIM_CLOCK", "tofu1", "use tofud"}, {"TOFU_SIM_CPU", "fast", "use the ratio of computing time"}};
    for (const auto& one : cases) {
        const auto exits = run_processes(1, [&](const Rank&) {
            ::setenv(one.name, one.value, 1);
            EXPECT_EQ(first_call(), UTOFU_ERR_INVALID_ARG);
        });
        EXPECT_NE(exits[0].errors.find(one.line), std::string::npos) << exits[0].errors;
    }
    const auto exits = run_processes(1, [](const Rank&) {
        ::setenv("TOFU_SIM_CLOCK", "tofud", 1);
        ::setenv("TOFU_SIM_CHAOS", "1", 1);
        EXPECT_EQ(first_call(), UTOFU_ERR_INVALID_ARG);
    });
    EXPECT_NE(exits[0].errors.find("unset one of them"), std::string::npos) << exits[0].errors;
}

TEST(SimClock, ThereIsNoneUnlessItIsAskedFor)
{
    expect_processes(1, [](const Rank&) {
        EXPECT_EQ(first_call(), UTOFU_SUCCESS);
        EXPECT_EQ(tofu_sim_time(), 0u);
        EXPECT_EQ(tofu_sim_seen(nullptr, 0), 0);
    });
}

} // namespace
} // namespace tofu::sim::test
