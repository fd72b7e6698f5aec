// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Sleeping until a ring, also if the ringing process is killed half-way, or the kernel has no membarrier.
#include "job/doorbell.h"

#include "lib/harness.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <fstream>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <memory>
#include <string>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace tofu::sim {
namespace {

constexpr int long_ms = 10'000;

// Sleeps with a long limit: true and soon, or the test fails.
void expect_rung(SegmentHeader& header, uint32_t announced)
{
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(sleep_until_rung(header, announced, long_ms));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(long_ms / 2));
}

bool sleeps(pid_t thread)
{
    std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/stat");
    std::string text;
    std::getline(stat, text);
    const size_t name_end = text.rfind(')');
    return name_end != std::string::npos && text.compare(name_end + 2, 1, "S") == 0;
}

TEST(SimDoorbell, ASleeperOutlivesARingerKilledAfterItsFirstStep)
{
    const auto header = std::make_unique<SegmentHeader>();
    const uint32_t announced = announce_sleeper(*header);
    (void)header->sleepers.exchange(0); // as wake_sleepers begins
    expect_rung(*header, announced);
}

TEST(SimDoorbell, ASleeperOutlivesARingerKilledBeforeItWakes)
{
    const auto header = std::make_unique<SegmentHeader>();
    std::atomic<pid_t> thread{0};
    std::thread sleeper([&] {
        const uint32_t announced = announce_sleeper(*header);
        thread.store(::gettid());
        expect_rung(*header, announced);
    });
    EXPECT_TRUE(test::wait_until([&] { return thread.load() != 0 && sleeps(thread.load()); }));
    (void)header->sleepers.exchange(0);
    (void)header->doorbell.fetch_add(1);
    sleeper.join();
}

TEST(SimDoorbell, AnotherSleeperDoesNotHideTheHalfRing)
{
    const auto header = std::make_unique<SegmentHeader>();
    const uint32_t first = announce_sleeper(*header);
    (void)header->sleepers.exchange(0);
    (void)announce_sleeper(*header);
    expect_rung(*header, first);
}

TEST(SimDoorbell, SleepsToItsEndWithoutADoorbell)
{
    const auto header = std::make_unique<SegmentHeader>();
    const uint32_t announced = announce_sleeper(*header);
    EXPECT_FALSE(sleep_until_rung(*header, announced, 0));
    const auto start = std::chrono::steady_clock::now();
    EXPECT_FALSE(sleep_until_rung(*header, announced, 600)); // longer than it sleeps without looking
    EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(600));
}

/// `body` in a child in which a membarrier answers `answer`; whether it has passed.
void expect_with_membarrier(uint32_t answer, int expected_status, void (*body)())
{
    if (!test::filters_calls())
        GTEST_SKIP() << "no system call can be refused here";
    const pid_t child = ::fork();
    if (child == 0) {
        sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, answer),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        const sock_fprog program{std::size(filter), filter};
        if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
            ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
            ::_exit(2);
        body();
        ::_exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status & ~WCOREFLAG, expected_status);
}

// Without the barrier a poster may read `sleepers` before its data is seen: no sleeper may rely on a ring.
TEST(SimDoorbell, WithoutMembarrierSleepsAreShort)
{
    expect_with_membarrier(SECCOMP_RET_ERRNO | EPERM, 0, [] {
        SegmentHeader header{};
        const uint32_t announced = announce_sleeper(header);
        expect_rung(header, announced);
    });
}

// The barrier interrupts each thread of each process of the machine that posts.
TEST(SimDoorbell, BriefSleepsInterruptNoThread)
{
    expect_with_membarrier(SECCOMP_RET_KILL_PROCESS, 0, [] {
        SegmentHeader header{};
        for (int i = 0; i < 10; ++i) {
            EXPECT_EQ(doze_for(header, -1), Doze::announced);
            ring_doorbell(header);
        }
        EXPECT_EQ(doze_for(header, -1), Doze::announced);
        EXPECT_EQ(doze_for(header, 100'000), Doze::timed_out);
    });
}

TEST(SimDoorbell, ALongSleepIsAnnouncedToAll)
{
    expect_with_membarrier(SECCOMP_RET_KILL_PROCESS, SIGSYS, [] {
        SegmentHeader header{};
        while (doze_for(header, 20'000'000) == Doze::announced) {
        }
    });
}

} // namespace
} // namespace tofu::sim
