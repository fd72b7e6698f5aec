// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Numbers of processes that contradict each other: one line and an error, and the job's other processes remain as they
// are. Restarts, children and consecutive jobs may use a number again.
#include "lib/harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace tofu::sim::test {
namespace {

struct Numbers {
    const char* rank;
    const char* size;
};

struct Answer {
    int rc = 0;
    std::string errors;
    [[nodiscard]] bool is_refused(const char* because) const
    {
        return rc == UTOFU_ERR_INVALID_ARG && std::count(errors.begin(), errors.end(), '\n') == 1 &&
               errors.find(because) != std::string::npos;
    }
};

volatile std::sig_atomic_t ended = 0;

void set_or_unset(const char* name, const char* value)
{
    value != nullptr ? ::setenv(name, value, 1) : ::unsetenv(name);
}

// A child, not yet a member of any job, that joins with these numbers and creates a VCQ; `stays`: until a signal
// comes.
class Guest {
  public:
    Guest(const Rank& rank, const Numbers& numbers, bool stays) : errors_(::memfd_create("errors", MFD_CLOEXEC))
    {
        rank.set(900, 0);
        pid_ = ::fork();
        if (pid_ == 0) {
            (void)::dup2(errors_, STDERR_FILENO);
            (void)::signal(SIGTERM, [](int) { ended = 1; });
            set_or_unset("TOFU_SIM_RANK", numbers.rank);
            set_or_unset("TOFU_SIM_SIZE", numbers.size);
            utofu_vcq_hdl_t vcq = 0;
            rank.set(901, static_cast<uint64_t>(static_cast<int64_t>(utofu_create_vcq(0, 0, &vcq))));
            rank.set(900, 1);
            for (timespec step{0, 1'000'000}; stays && ended == 0;)
                (void)::nanosleep(&step, nullptr);
            std::exit(0); // leaves the job
        }
        EXPECT_TRUE(wait_until([&] { return rank.get(900) == 1; }));
        answer_.rc = static_cast<int>(rank.get(901));
        if (!stays)
            end(0);
        answer_.errors.resize(1024);
        answer_.errors.resize(
            static_cast<size_t>(std::max<ssize_t>(0, ::pread(errors_, answer_.errors.data(), 1024, 0))));
    }
    ~Guest()
    {
        end(SIGTERM);
        ::close(errors_);
    }
    Guest(const Guest&) = delete;
    Guest& operator=(const Guest&) = delete;

    void kill() { end(SIGKILL); }
    [[nodiscard]] const Answer& answer() const { return answer_; }

  private:
    void end(int signal)
    {
        if (pid_ > 0) {
            (void)::kill(pid_, signal);
            EXPECT_EQ(::waitpid(pid_, nullptr, 0), pid_);
        }
        pid_ = 0;
    }
    int errors_;
    pid_t pid_ = 0;
    Answer answer_;
};

Answer ask(const Rank& rank, const Numbers& numbers)
{
    const Guest member(rank, numbers, false);
    return member.answer();
}

TEST(SimNumbers, ANumberThatALiveProcessHasIsRefusedUntilItIsGone)
{
    expect_processes(1, [](const Rank& rank) {
        const Guest other(rank, {"1", nullptr}, true);
        EXPECT_EQ(other.answer().rc, UTOFU_SUCCESS);
        for (int i = 0; i < 5; i++) {
            Guest first(rank, {"0", nullptr}, true);
            EXPECT_EQ(first.answer().rc, UTOFU_SUCCESS) << first.answer().errors;
            const Answer second = ask(rank, {"0", nullptr});
            EXPECT_TRUE(second.is_refused("TOFU_SIM_RANK=0, too")) << second.rc << second.errors;
            EXPECT_EQ(ask(rank, {"2", nullptr}).rc, UTOFU_SUCCESS);
            EXPECT_EQ(ask(rank, {nullptr, nullptr}).rc, UTOFU_SUCCESS); // numbered by the simulator
            first.kill();
            const Answer again = ask(rank, {"0", nullptr});
            EXPECT_EQ(again.rc, UTOFU_SUCCESS) << again.errors;
        }
    });
}

// Launchers of which the simulator knows no job give the same numbers twice.
TEST(SimNumbers, NumbersOfLaunchersMayBeTheSame)
{
    expect_processes(1, [](const Rank& rank) {
        ::setenv("PMI_RANK", "0", 1);
        const Guest first(rank, {nullptr, nullptr}, true);
        EXPECT_EQ(ask(rank, {nullptr, nullptr}).rc, UTOFU_SUCCESS);
        EXPECT_EQ(ask(rank, {"0", nullptr}).rc, UTOFU_SUCCESS);
    });
}

TEST(SimNumbers, AChildMayHaveItsParentsNumber)
{
    expect_processes(1, [](const Rank& rank) {
        ::setenv("TOFU_SIM_RANK", "3", 1);
        utofu_vcq_hdl_t vcq = 0;
        EXPECT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_SUCCESS);
        const Answer child = ask(rank, {"3", nullptr});
        EXPECT_EQ(child.rc, UTOFU_SUCCESS) << child.errors;
    });
}

TEST(SimNumbers, AllProcessesOfAJobStateOneSize)
{
    expect_processes(1, [](const Rank& rank) {
        {
            const Guest unsaid(rank, {"5", nullptr}, true);
            const Guest first(rank, {"0", "3"}, true);
            EXPECT_EQ(first.answer().rc, UTOFU_SUCCESS);
            const Answer other = ask(rank, {"1", "2"});
            EXPECT_TRUE(other.is_refused("TOFU_SIM_SIZE=3")) << other.rc << other.errors;
            EXPECT_EQ(ask(rank, {"1", "3"}).rc, UTOFU_SUCCESS);
            EXPECT_EQ(ask(rank, {"2", nullptr}).rc, UTOFU_SUCCESS);
        }
        EXPECT_EQ(ask(rank, {"1", "2"}).rc, UTOFU_SUCCESS); // the next job of this name
    });
}

// It decides how many processes a node has: others without it would have the same control queues.
TEST(SimNumbers, ASizeAboveTheNumberOfNodesHoldsForAllProcesses)
{
    expect_processes(1, [](const Rank& rank) {
        for (const auto& [first, second] : {std::pair(Numbers{"0", "24"}, Numbers{"1", nullptr}),
                                            std::pair(Numbers{"0", nullptr}, Numbers{"1", "24"})}) {
            const Guest stays(rank, first, true);
            EXPECT_EQ(stays.answer().rc, UTOFU_SUCCESS) << stays.answer().errors;
            const Answer other = ask(rank, second);
            EXPECT_TRUE(other.is_refused("TOFU_SIM_SIZE")) << other.rc << other.errors;
            EXPECT_EQ(ask(rank, {"2", first.size}).rc, UTOFU_SUCCESS);
            EXPECT_EQ(ask(rank, {"2", first.size == nullptr ? "12" : "24"}).rc, UTOFU_SUCCESS); // one on each node
        }
        ::setenv("TOFU_SIM_PPN", "2", 1);
        const Guest stays(rank, {"0", "24"}, true);
        EXPECT_EQ(stays.answer().rc, UTOFU_SUCCESS) << stays.answer().errors;
        EXPECT_EQ(ask(rank, {"1", nullptr}).rc, UTOFU_SUCCESS);
    });
}

// Those that a program spawns have no size, and their launcher has placed the program's processes.
TEST(SimNumbers, ALaunchersSizeHoldsForItsOwnProcesses)
{
    expect_processes(1, [](const Rank& rank) {
        ::setenv("PMI_RANK", "0", 1);
        ::setenv("PMI_SIZE", "24", 1);
        const Guest first(rank, {nullptr, nullptr}, true);
        EXPECT_EQ(first.answer().rc, UTOFU_SUCCESS) << first.answer().errors;
        ::unsetenv("PMI_RANK");
        EXPECT_EQ(ask(rank, {nullptr, nullptr}).rc, UTOFU_SUCCESS);
        EXPECT_EQ(ask(rank, {"1", "24"}).rc, UTOFU_SUCCESS);
    });
}

TEST(SimNumbers, ANumberBeyondTheSizeIsRefused)
{
    expect_processes(1, [](const Rank& rank) {
        for (const auto& [number, size] : {Numbers{"2", "2"}, Numbers{"4294967294", "14155776"}, Numbers{"1", "1"}}) {
            const Answer answer = ask(rank, {number, size});
            EXPECT_TRUE(answer.is_refused("TOFU_SIM_RANK")) << answer.rc << answer.errors;
        }
        ::setenv("PMI_RANK", "7", 1);
        ::setenv("PMI_SIZE", "8", 1);
        EXPECT_TRUE(ask(rank, {nullptr, "4"}).is_refused("the launcher's rank=7"));
        EXPECT_EQ(ask(rank, {"9", nullptr}).rc, UTOFU_SUCCESS); // one of several launchers' processes
    });
}

} // namespace
} // namespace tofu::sim::test
