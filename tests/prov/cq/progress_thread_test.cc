// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Automatic progress beside computation: a transfer by rendezvous ends though one side calls nothing meanwhile, so all
// of its bytes move beside the computation, counted and not timed; and the progress thread runs on the processors that
// were set.
#include "prov/lib/session.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <rdma/fi_tagged.h>
#include <sched.h>

namespace tofu::test {
namespace {

using sim::test::expect_processes;
using sim::test::run_processes;
using sim::test::wait_until;

Options automatic()
{
    Options options;
    options.caps = FI_TAGGED;
    options.progress = FI_PROGRESS_AUTO;
    return options;
}

/// Computes, and calls nothing of libfabric, until `done`.
template <class Done>
void compute(Done&& done)
{
    EXPECT_TRUE(wait_until(done)) << "it did not go on by itself";
}

enum Word : unsigned { posted = 520, received };

class Overlap : public testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(All, Overlap, testing::Bool(),
                         [](const auto& info) { return info.param ? "ReceiveFirst" : "SendFirst"; });

constexpr std::size_t length = 16 << 20;

/// A message of `length` from rank 0 to rank 1; both have posted their side, in the order of the parameter, when
/// `sent(s, rank)` and `came(s, rank)` go on.
template <class Sent, class Came>
void overlap(bool receive_first, Sent sent, Came came)
{
    expect_processes(2, [=](const Rank& rank) {
        Session s(rank, automatic());
        std::vector<char> bytes(length, static_cast<char>(7 - rank.number));
        if ((rank.number == 1) != receive_first)
            compute([&] { return rank.get(posted) == 1; });
        if (rank.number == 0) {
            ASSERT_EQ(s.post([&] { return fi_tsend(s.ep, bytes.data(), length, nullptr, 1, 5, &s); }), 0);
            rank.set(posted, 1);
            sent(s, rank);
        } else {
            ASSERT_EQ(fi_trecv(s.ep, bytes.data(), length, nullptr, 0, 5, 0, &s), 0);
            rank.set(posted, 1);
            came(s, rank);
            EXPECT_EQ(std::count(bytes.begin(), bytes.end(), 7),
                      std::ptrdiff_t{length}); // what was acknowledged is here
        }
    });
}

void compute_until_received(Session&, const Rank& rank)
{
    compute([&] { return rank.get(received) == 1; });
}

void find_sent(Session& s, const Rank&)
{
    s.expect(&s, FI_TAGGED | FI_SEND);
}

void find_received(Session& s, const Rank&)
{
    fi_cq_data_entry entry{};
    EXPECT_TRUE(s.next(entry));
    EXPECT_EQ(entry.len, length);
}

TEST_P(Overlap, TheSenderComputesMeanwhile)
{
    overlap(
        GetParam(),
        [](Session& s, const Rank& rank) {
            compute_until_received(s, rank);
            find_sent(s, rank);
        },
        [](Session& s, const Rank& rank) {
            find_received(s, rank);
            rank.set(received, 1);
        });
}

TEST_P(Overlap, TheReceiverComputesMeanwhile)
{
    overlap(
        GetParam(),
        [](Session& s, const Rank& rank) {
            find_sent(s, rank);
            rank.set(received, 1);
        },
        [](Session& s, const Rank& rank) {
            compute_until_received(s, rank);
            find_received(s, rank);
        });
}

/// Of the progress thread; empty where there is none.
cpu_set_t processors_of_thread()
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name;
        std::getline(std::ifstream(task.path() / "comm"), name);
        if (name == "tofu-progress")
            EXPECT_EQ(sched_getaffinity(std::stoi(task.path().filename()), sizeof(cpus), &cpus), 0);
    }
    return cpus;
}

TEST(ProgressCpus, AreThoseThatWereAskedFor)
{
    expect_processes(1, [](const Rank& rank) {
        cpu_set_t own, one;
        ASSERT_EQ(sched_getaffinity(0, sizeof(own), &own), 0);
        int last = CPU_SETSIZE - 1;
        while (!CPU_ISSET(last, &own))
            last--;
        CPU_ZERO(&one);
        CPU_SET(last, &one);
        setenv("FI_TOFU_PROGRESS_CPUS", std::to_string(last).c_str(), 1);
        Session s(rank, automatic());
        const cpu_set_t found = processors_of_thread();
        EXPECT_TRUE(CPU_EQUAL(&found, &one));
        cpu_set_t now;
        ASSERT_EQ(sched_getaffinity(0, sizeof(now), &now), 0);
        EXPECT_TRUE(CPU_EQUAL(&now, &own)) << "the application's own thread stays where it is";
    });
}

/// What the thread has where the process is bound to its first processor; and what the process had.
void expect_apart(bool on)
{
    expect_processes(1, [on](const Rank& rank) {
        cpu_set_t own, first, others;
        ASSERT_EQ(sched_getaffinity(0, sizeof(own), &own), 0);
        int processor = 0;
        while (!CPU_ISSET(processor, &own))
            processor++;
        CPU_ZERO(&first);
        CPU_SET(processor, &first);
        CPU_XOR(&others, &own, &first);
        if (CPU_COUNT(&others) == 0)
            return; // nowhere else to go
        setenv("FI_TOFU_NUMA", on ? "on" : "off", 1);
        ASSERT_EQ(sched_setaffinity(0, sizeof(first), &first), 0);
        Session s(rank, automatic());
        const cpu_set_t found = processors_of_thread();
        if (!on) {
            EXPECT_TRUE(CPU_EQUAL(&found, &first));
            return;
        }
        // In a cpuset of its own, or where others have bound this test, there may be more that are allowed.
        EXPECT_FALSE(CPU_ISSET(processor, &found));
        cpu_set_t both;
        CPU_AND(&both, &found, &others);
        EXPECT_NE(CPU_COUNT(&both), 0);
    });
}

TEST(ProgressCpus, AreByDefaultThoseThatNothingOfTheProcessIsBoundTo)
{
    expect_apart(true);
}

TEST(ProgressCpus, AreTheMakersWhereHwlocIsNotAsked)
{
    expect_apart(false);
}

TEST(ProgressCpus, ThatAreNotThereAreSaidSo)
{
    const auto exits = run_processes(1, [](const Rank& rank) {
        cpu_set_t own;
        ASSERT_EQ(sched_getaffinity(0, sizeof(own), &own), 0);
        ASSERT_FALSE(CPU_ISSET(1023, &own));
        setenv("FI_TOFU_PROGRESS_CPUS", "1023", 1);
        setenv("FI_LOG_LEVEL", "warn", 1);
        Session s(rank, automatic());
        const cpu_set_t found = processors_of_thread();
        EXPECT_TRUE(CPU_EQUAL(&found, &own));
    });
    EXPECT_TRUE(exits[0].success()) << exits[0].errors;
    EXPECT_NE(exits[0].errors.find("FI_TOFU_PROGRESS_CPUS"), std::string::npos) << exits[0].errors;
}

} // namespace
} // namespace tofu::test
