// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Sleeping until something arrives, and statistics (include/tofu_sim.h).
#include "lib/harness.h"

#include <gtest/gtest.h>
#include <tofu_sim.h>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

namespace tofu::sim::test {
namespace {

double cpu_seconds()
{
    timespec now{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

TEST(SimWait, MissesNoPutAndNoNoticeInAPingPongOfSleepers)
{
    expect_processes(2, [](const Rank& rank) {
        static volatile uint64_t word;
        utofu_vcq_hdl_t vcq = 0;
        utofu_vcq_id_t id = 0;
        utofu_stadd_t stadd = 0;
        ASSERT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_SUCCESS);
        ASSERT_EQ(utofu_query_vcq_id(vcq, &id), UTOFU_SUCCESS);
        ASSERT_EQ(utofu_reg_mem(vcq, const_cast<uint64_t*>(&word), 8, 0, &stadd), UTOFU_SUCCESS);
        rank.set(2 * rank.number, id);
        rank.set(2 * rank.number + 1, stadd);
        rank.barrier();
        const unsigned other = 1 - rank.number;
        unsigned timeouts = 0;
        for (uint64_t round = 1; round <= 2000; round++) {
            // Every other message is seen in memory only, the rest by its notice.
            const bool by_notice = round % 2 == 0;
            const auto send = [&] {
                EXPECT_EQ(posted([&] {
                              return utofu_put_piggyback8(vcq, rank.get(2 * other), round, rank.get(2 * other + 1), 8,
                                                          0, by_notice ? UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE : 0,
                                                          nullptr);
                          }),
                          UTOFU_SUCCESS);
                void* cbdata = nullptr;
                (void)utofu_poll_tcq(vcq, 0, &cbdata);
            };
            const auto arrived = [&] {
                utofu_mrq_notice notice;
                return by_notice ? utofu_poll_mrq(vcq, 0, &notice) == UTOFU_SUCCESS : word == round;
            };
            if (rank.number == 0)
                send();
            while (!arrived()) {
                const int rc = tofu_sim_wait(&vcq, 1, 5000);
                ASSERT_GE(rc, 0);
                timeouts += rc == 0 ? 1 : 0;
                ASSERT_EQ(timeouts, 0u) << "slept through round " << round;
            }
            if (rank.number == 1)
                send();
        }
        rank.barrier();
    });
}

TEST(SimWait, SleepsWhenNothingComesAndSeesOwnNotices)
{
    expect_processes(1, [](const Rank&) {
        utofu_vcq_hdl_t vcq = 0;
        ASSERT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_SUCCESS);
        EXPECT_EQ(tofu_sim_wait(&vcq, 1, 300), 1); // announces
        const auto start = std::chrono::steady_clock::now();
        const double cpu = cpu_seconds();
        unsigned woken = 0; // once after a millisecond: the sleep is announced again
        while (tofu_sim_wait(&vcq, 1, 300) != 0)
            ASSERT_LE(++woken, 1u);
        EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(290));
        EXPECT_LT(cpu_seconds() - cpu, 0.2);
        ASSERT_EQ(posted([&] { return utofu_nop(vcq, UTOFU_ONESIDED_FLAG_TCQ_NOTICE, nullptr); }), UTOFU_SUCCESS);
        void* cbdata = nullptr;
        (void)wait_until([&] {
            EXPECT_EQ(tofu_sim_wait(&vcq, 1, 1000), 1);
            return utofu_poll_tcq(vcq, 0, &cbdata) == UTOFU_SUCCESS;
        });
        EXPECT_EQ(tofu_sim_wait(nullptr, 1, 0), UTOFU_ERR_INVALID_POINTER);
        utofu_vcq_hdl_t bad = vcq + 8;
        EXPECT_EQ(tofu_sim_wait(&bad, 1, 0), UTOFU_ERR_INVALID_VCQ_HDL);
        tofu_sim_tni_statistics statistics{};
        ASSERT_EQ(tofu_sim_query_statistics(0, &statistics), UTOFU_SUCCESS);
        EXPECT_EQ(statistics.operations, 1u);
        EXPECT_EQ(tofu_sim_query_statistics(6, &statistics), UTOFU_ERR_INVALID_TNI_ID);
        EXPECT_STRNE(tofu_sim_version(), "");
    });
}

/// The provider's thread waits for notices of VCQs from which a thread of the program posts. A race shows under
/// ThreadSanitizer.
TEST(SimWait, WaitsBesideAThreadThatPostsRows)
{
    expect_processes(1, [](const Rank&) {
        constexpr size_t most = 64;
        alignas(256) std::array<uint64_t, most> memory{};
        utofu_vcq_hdl_t vcq = 0;
        utofu_vcq_id_t id = 0;
        utofu_stadd_t stadd = 0;
        ASSERT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_SUCCESS);
        ASSERT_EQ(utofu_query_vcq_id(vcq, &id), UTOFU_SUCCESS);
        ASSERT_EQ(utofu_reg_mem(vcq, memory.data(), sizeof memory, 0, &stadd), UTOFU_SUCCESS);
        std::vector<char> row(most * 64);
        size_t bytes = 0;
        for (size_t i = 0; i < most; i++) {
            size_t one = 0;
            ASSERT_EQ(utofu_prepare_armw8(vcq, id, UTOFU_ARMW_OP_ADD, 1, stadd + i * 8, 0, 0, row.data() + bytes, &one),
                      UTOFU_SUCCESS);
            bytes += one;
        }
        std::atomic<bool> over{false};
        std::thread waiter([&] {
            while (!over.load())
                (void)tofu_sim_wait(&vcq, 1, 1);
        });
        constexpr uint64_t rounds = 300;
        for (uint64_t i = 0; i < rounds; i++)
            ASSERT_EQ(posted([&] {
                          const int rc = utofu_post_toq(vcq, row.data(), bytes, nullptr);
                          void* cbdata = nullptr;
                          (void)utofu_poll_tcq(vcq, 0, &cbdata); // makes room
                          return rc;
                      }),
                      UTOFU_SUCCESS);
        EXPECT_TRUE(wait_until([&] { return std::atomic_ref(memory.back()).load() == rounds; }));
        over = true;
        waiter.join();
    });
}

constexpr uint64_t counted_posts = 200'000;

// Puts to its own node and NOPs through a VCQ that only this thread uses.
void post_counted(unsigned long vcq_flags, std::barrier<>& all_ready)
{
    alignas(256) uint64_t word = 0;
    utofu_vcq_hdl_t vcq = 0;
    utofu_vcq_id_t id = 0;
    utofu_stadd_t stadd = 0;
    ASSERT_EQ(utofu_create_vcq(2, vcq_flags, &vcq), UTOFU_SUCCESS);
    ASSERT_EQ(utofu_query_vcq_id(vcq, &id), UTOFU_SUCCESS);
    ASSERT_EQ(utofu_reg_mem(vcq, &word, sizeof word, 0, &stadd), UTOFU_SUCCESS);
    all_ready.arrive_and_wait();
    void* cbdata = nullptr;
    for (uint64_t n = 0; n < counted_posts; n++) {
        ASSERT_EQ(posted([&] {
                      const int rc = n % 4 == 0 ? utofu_nop(vcq, 0, nullptr)
                                                : utofu_put_piggyback8(vcq, id, n, stadd, 8, 0, 0, nullptr);
                      (void)utofu_poll_tcq(vcq, 0, &cbdata);
                      return rc;
                  }),
                  UTOFU_SUCCESS);
    }
    size_t unread = 1; // in adversarial mode some are still on their way
    EXPECT_TRUE(wait_until([&] {
        (void)utofu_poll_tcq(vcq, 0, &cbdata);
        return utofu_query_num_unread_tcq(vcq, &unread) == UTOFU_SUCCESS && unread == 0;
    }));
    EXPECT_EQ(utofu_dereg_mem(vcq, stadd, 0), UTOFU_SUCCESS);
    EXPECT_EQ(utofu_free_vcq(vcq), UTOFU_SUCCESS);
}

// Whether their VCQs share a CQ or not, and after they are gone.
TEST(SimStatistics, CountAllThatThreadsPostToOneNode)
{
    expect_processes(1, [](const Rank&) {
        std::barrier all_ready(4);
        std::vector<std::thread> threads;
        for (const unsigned long flags : {UTOFU_VCQ_FLAG_EXCLUSIVE, UTOFU_VCQ_FLAG_EXCLUSIVE,
                                          UTOFU_VCQ_FLAG_THREAD_SAFE, UTOFU_VCQ_FLAG_THREAD_SAFE})
            threads.emplace_back(post_counted, flags, std::ref(all_ready));
        for (std::thread& thread : threads)
            thread.join();
        tofu_sim_tni_statistics statistics{};
        EXPECT_EQ(tofu_sim_query_statistics(2, &statistics), UTOFU_SUCCESS);
        EXPECT_EQ(statistics.operations, 4 * counted_posts);
        EXPECT_EQ(statistics.bytes, 4 * (counted_posts - counted_posts / 4) * 8);
    });
}

} // namespace
} // namespace tofu::sim::test
