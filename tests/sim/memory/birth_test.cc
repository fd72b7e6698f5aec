// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a child of fork finds in moved pages does not depend on when it runs, nor on its parent's signals.
#include "leader.h"

#include <atomic>
#include <csignal>
#include <pthread.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace tofu::sim::test {
namespace {

void (*at_birth)() = nullptr;

// Before the library's own, which is a constructor of the default priority: a child gets here first.
[[gnu::constructor(101)]] void install_handler() noexcept
{
    (void)::pthread_atfork(nullptr, nullptr, [] {
        if (at_birth != nullptr)
            at_birth();
    });
}

class MemoryBirth : public ::testing::TestWithParam<As> {};

TEST_P(MemoryBirth, AStoppedChildDoesNotSeeWhatItsParentWritesLater)
{
    lead(
        [](Node& node, Leader& peer) {
            constexpr size_t words = 8192;
            auto* const memory = static_cast<uint64_t*>(
                ::mmap(nullptr, words * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
            ASSERT_NE(memory, MAP_FAILED);
            const utofu_stadd_t stadd = node.add(memory, words * 8);
            for (size_t i = 0; i < words; ++i)
                memory[i] = 5;
            for (size_t i = 0; i < words; i += 512)
                ASSERT_EQ(peer.ask(add_one, stadd + i * 8), UTOFU_SUCCESS);
            struct sigaction action = {};
            action.sa_handler = [](int) {};
            ASSERT_EQ(::sigaction(SIGUSR1, &action, nullptr), 0);
            at_birth = [] { (void)::raise(SIGSTOP); };
            // Signals to a process in fork, as soon as there is a child.
            std::atomic<bool> back{false};
            const pthread_t forker = ::pthread_self();
            std::thread sender([&] {
                siginfo_t info = {};
                EXPECT_TRUE(wait_until(
                    [&] { return ::waitid(P_ALL, 0, &info, WSTOPPED | WNOWAIT | WNOHANG) == 0 && info.si_pid != 0; }));
                EXPECT_TRUE(wait_until([&] { return back.load() || ::pthread_kill(forker, SIGUSR1) != 0; }));
            });
            const pid_t child = ::fork();
            if (child == 0) {
                size_t good = 0;
                for (size_t i = 0; i < words; ++i)
                    good += memory[i] == (i % 512 == 0 ? 6 : 5);
                ::_exit(good == words ? 0 : 1);
            }
            for (size_t i = 0; i < words; ++i)
                memory[i] = 99;
            back = true;
            sender.join();
            int status = -1;
            EXPECT_EQ(::waitpid(child, &status, WUNTRACED), child);
            EXPECT_TRUE(WIFSTOPPED(status));
            EXPECT_EQ(::kill(child, SIGCONT), 0);
            EXPECT_EQ(::waitpid(child, &status, 0), child);
            EXPECT_EQ(status, 0) << "it sees later writes";
            node.remove(stadd);
        },
        GetParam());
}

INSTANTIATE_TEST_SUITE_P(AsEveryone, MemoryBirth, ::testing::Values(As::is, As::ordinary),
                         [](const auto& test) { return test.param == As::is ? "Root" : "Ordinary"; });

} // namespace
} // namespace tofu::sim::test
