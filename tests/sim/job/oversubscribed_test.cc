// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// More processes than processors: a thread whose polls find nothing yields, and naps (job/oversubscription).
#include "lib/harness.h"
#include "oversubscribed.h"

#include <gtest/gtest.h>
#include <tofu_sim.h>

#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/file.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace tofu::sim::test {
namespace {

struct Port {
    Port()
    {
        EXPECT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_query_vcq_id(vcq, &id), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_reg_mem(vcq, const_cast<uint64_t*>(&word), 8, 0, &stadd), UTOFU_SUCCESS);
    }
    void publish(const Rank& rank) const
    {
        rank.set(2 * rank.number, id);
        rank.set(2 * rank.number + 1, stadd);
        rank.barrier();
    }
    void put(const Rank& rank, unsigned to, uint64_t value) const
    {
        EXPECT_EQ(posted([&] {
                      return utofu_put_piggyback8(vcq, rank.get(2 * to), value, rank.get(2 * to + 1), 8, 0,
                                                  UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, nullptr);
                  }),
                  UTOFU_SUCCESS);
        void* cbdata = nullptr;
        (void)utofu_poll_tcq(vcq, 0, &cbdata);
    }
    alignas(8) static inline volatile uint64_t word = 0;
    utofu_vcq_hdl_t vcq = 0;
    utofu_vcq_id_t id = 0;
    utofu_stadd_t stadd = 0;
};

// All its threads have ended: while one is left its files are open, and with them the lock that says it lives.
bool is_zombie(uint64_t pid)
{
    const std::string directory = "/proc/" + std::to_string(pid);
    std::error_code error;
    const std::filesystem::directory_iterator tasks(directory + "/task", error);
    if (error || std::distance(begin(tasks), end(tasks)) != 1)
        return false;
    std::ifstream stat(directory + "/stat");
    std::string text;
    std::getline(stat, text);
    const size_t name_end = text.rfind(')');
    return name_end != std::string::npos && text.compare(name_end + 2, 1, "Z") == 0;
}

TEST(SimCrowd, GivesWayWhileTheJobHasMoreProcessesThanProcessors)
{
    expect_processes(3, [](const Rank& rank) {
        ASSERT_NO_FATAL_FAILURE(stay_on(own_processors().front()));
        EXPECT_EQ(tofu_sim_give_way(0), 0) << "not of a job yet";
        ASSERT_NE(tofu_sim_job(), nullptr);
        rank.barrier();
        EXPECT_EQ(tofu_sim_give_way(0), 1);
        rank.barrier();
        if (rank.number == 0) // the others leave
            EXPECT_TRUE(wait_until([] { return tofu_sim_give_way(0) == 0; }));
    });
}

TEST(SimCrowd, APollWithAProcessorDoesNotYield)
{
    const std::vector<int> processors = own_processors();
    if (processors.size() < 2)
        GTEST_SKIP() << "one processor only";
    expect_processes(2, [&](const Rank& rank) {
        ASSERT_NO_FATAL_FAILURE(stay_on(processors[rank.number])); // as MPI binds: two, by all together
        ASSERT_NE(tofu_sim_job(), nullptr);
        rank.barrier();
        EXPECT_EQ(tofu_sim_give_way(0), 0);
        EXPECT_EQ(tofu_sim_give_way(1000), 0);
        rank.barrier();
    });
}

TEST(SimCrowd, AKilledProcessDoesNotCountOnceItsSlotIsTaken)
{
    const std::vector<int> processors = own_processors();
    if (processors.size() < 2)
        GTEST_SKIP() << "one processor only";
    expect_processes(3, [&](const Rank& rank) {
        constexpr unsigned victim = 10; // word of the board
        ASSERT_NO_FATAL_FAILURE(stay_on(processors[rank.number % 2]));
        if (rank.number == 2) {
            ASSERT_NE(tofu_sim_job(), nullptr);
            rank.set(victim, static_cast<uint64_t>(::getpid()));
            rank.barrier();
            ::_exit(0); // without leaving
        }
        if (rank.number == 0)
            ASSERT_NE(tofu_sim_job(), nullptr);
        rank.barrier();
        if (rank.number == 0) {
            EXPECT_TRUE(wait_until([&] { return rank.get(victim) == 0; }));
        } else {
            EXPECT_TRUE(wait_until([&] { return is_zombie(rank.get(victim)); }));
            ASSERT_NE(tofu_sim_job(), nullptr);
            rank.set(victim, 0);
        }
        EXPECT_EQ(tofu_sim_give_way(0), 0);
        EXPECT_TRUE(wait_until([&] { // the barrier is for three
            rank.set(11 + rank.number, 1);
            return rank.get(11) + rank.get(12) == 2;
        }));
    });
}

// Without it a round takes the time slice of the polling process, and some hundred thousand polls.
TEST(SimCrowd, IdlePollsYieldToThePeer)
{
    expect_processes(2, [](const Rank& rank) {
        ASSERT_NO_FATAL_FAILURE(stay_on(own_processors().front()));
        const Port port;
        port.publish(rank);
        constexpr uint64_t rounds = 400;
        uint64_t in_vain = 0;
        utofu_mrq_notice notice;
        for (uint64_t round = 0; round < rounds; round++) {
            if (rank.number == round % 2) {
                port.put(rank, 1 - rank.number, round);
                continue;
            }
            EXPECT_TRUE(wait_until([&] {
                for (unsigned look = 0; look < 1000; look++, in_vain++)
                    if (utofu_poll_mrq(port.vcq, 0, &notice) == UTOFU_SUCCESS)
                        return true;
                return false;
            }));
        }
        EXPECT_LT(in_vain / rounds, 5000u);
        rank.barrier();
    });
}

TEST(SimCrowd, AThreadThatFindsNothingForLongNapsUntilSomethingArrives)
{
    expect_processes(2, [](const Rank& rank) {
        ASSERT_NO_FATAL_FAILURE(stay_on(own_processors().front()));
        const Port port;
        port.publish(rank);
        constexpr unsigned slept = 10; // word of the board
        if (rank.number == 0) {
            const uint64_t before = sleeps();
            // Not wait_until, which sleeps by itself.
            const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(40);
            for (unsigned times = 0; Port::word == 0; times++) {
                ASSERT_LT(std::chrono::steady_clock::now(), end);
                EXPECT_EQ(tofu_sim_give_way(times), 1);
                rank.set(slept, sleeps() - before);
            }
        } else {
            EXPECT_TRUE(wait_until([&] {
                (void)::sched_yield();
                return rank.get(slept) != 0;
            }));
            port.put(rank, 0, 1);
        }
        rank.barrier();
    });
}

// A program may poll something else beside us, which rings no bell: naps would delay each look at it.
TEST(SimCrowd, AThreadThatWaitsForSomethingElseNapsSeldom)
{
    expect_processes(2, [](const Rank& rank) {
        ASSERT_NO_FATAL_FAILURE(stay_on(own_processors().front()));
        const Port port;
        port.publish(rank);
        constexpr unsigned over = 10; // word of the board
        if (rank.number == 0) {
            constexpr uint64_t most_naps =
                40; // with an announcement each; a nap in every other call would be thousands
            const uint64_t before = sleeps();
            for (unsigned times = 0; times < 4'000 && sleeps() - before <= most_naps; times++)
                EXPECT_EQ(tofu_sim_give_way(times), 1);
            EXPECT_LE(sleeps() - before, most_naps);
            rank.set(over, 1);
        } else {
            EXPECT_TRUE(wait_until([&] { return rank.get(over) != 0; }));
        }
        rank.barrier();
    });
}

// 256 ranks that start on two processors: those that waited for their turn to join took the processors from the one
// that had it, each by thousands of looks a second.
TEST(SimCrowd, AWaitToJoinPollsSeldom)
{
    expect_processes(2, [](const Rank& rank) {
        constexpr unsigned asked = 10; // words of the board
        constexpr unsigned joined = 11;
        if (rank.number == 1) {
            (void)wait_until([&] { return rank.get(asked) != 0; });
            const uint64_t before = sleeps();
            ASSERT_NE(tofu_sim_job(), nullptr);
            EXPECT_LT(sleeps() - before, 200u);
            rank.set(joined, 1);
            return;
        }
        const char* const job = tofu_sim_job();
        ASSERT_NE(job, nullptr);
        const std::string path = "/dev/shm/tofu-sim-" + std::to_string(::geteuid()) + "/" + job;
        const int directory = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        ASSERT_GE(directory, 0);
        ASSERT_EQ(::flock(directory, LOCK_EX), 0);
        rank.set(asked, 1);
        // Not a wait for something: what the other does in it is counted.
        std::this_thread::sleep_for(std::chrono::milliseconds(600));
        EXPECT_EQ(rank.get(joined), 0u);
        ::close(directory);
        EXPECT_TRUE(wait_until([&] { return rank.get(joined) != 0; }));
    });
}

} // namespace
} // namespace tofu::sim::test
