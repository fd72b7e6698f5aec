// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// More processes than processors: an idle poll of a queue yields the processor to the peer that it waits for.
#include <array>
#include <span>

#include <sched.h>
#include <sys/resource.h>

#include "prov/lib/session.h"

namespace {

using namespace tofu::test;
using tofu::sim::test::expect_processes;
using tofu::sim::test::Rank;

/// The process's first processor alone, before it joins the job.
void share_one_processor()
{
    cpu_set_t own, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof own, &own), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &own))
            CPU_SET(cpu, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
}

/// Reads until the entry of `context`; returns the number of reads without success.
std::uint64_t reads_until(Session& s, void* context)
{
    std::uint64_t in_vain = 0;
    for (fi_cq_data_entry entry{}; in_vain < 20'000; in_vain++) {
        const ssize_t ret = fi_cq_read(s.cq, &entry, 1);
        if (ret == 1) {
            EXPECT_EQ(entry.op_context, context);
            return in_vain;
        }
        EXPECT_EQ(ret, -FI_EAGAIN);
    }
    ADD_FAILURE() << "no completion";
    return in_vain;
}

/// Runs `body` in two processes that share a processor, with an endpoint for tagged messages each.
template <class Body>
void expect_oversubscribed(Body body)
{
    expect_processes(2, [body](const Rank& rank) {
        ASSERT_NO_FATAL_FAILURE(share_one_processor());
        Options options;
        options.caps = FI_TAGGED;
        Session s(rank, options);
        body(s, rank);
    });
}

/// Posts the one message of a turn: a send by the process that `sends`, a receive by its peer.
void post_turn(Session& s, bool sends, fi_addr_t peer, std::span<char> buffer, std::uint64_t tag)
{
    ASSERT_EQ(s.post([&] {
        return sends ? fi_tsend(s.ep, buffer.data(), buffer.size(), nullptr, peer, tag, buffer.data())
                     : fi_trecv(s.ep, buffer.data(), buffer.size(), nullptr, peer, tag, 0, buffer.data());
    }),
              0);
}

// Each message is a rendezvous, and takes three turns on the processor. Before, a reader looked 4096 times each turn.
TEST(ManyEndpoints, AnIdlePollYieldsToThePeer)
{
    expect_oversubscribed([](Session& s, const Rank& rank) {
        static std::array<char, 64 * 1024> buffer;
        constexpr unsigned rounds = 200;
        std::uint64_t in_vain = 0;
        for (unsigned round = 0; round < rounds; round++) {
            ASSERT_NO_FATAL_FAILURE(post_turn(s, rank.number == round % 2, 1 - rank.number, buffer, 7));
            in_vain += reads_until(s, &buffer);
        }
        EXPECT_LT(in_vain / rounds, 500u);
    });
}

/// Of the calling thread: how often it has left its processor without being sent away.
std::uint64_t sleeps()
{
    rusage usage{};
    (void)getrusage(RUSAGE_THREAD, &usage);
    return static_cast<std::uint64_t>(usage.ru_nvcsw);
}

// A program may poll other things beside an empty queue, and a sleep would delay each look at them.
TEST(ManyEndpoints, ReadsOfAnEmptyQueueDoNotBlock)
{
    expect_oversubscribed([](Session& s, const Rank& rank) {
        constexpr std::uint64_t most_naps = 40;
        const std::uint64_t before = sleeps();
        fi_cq_data_entry entry{};
        for (unsigned look = 0; look < 16'000 && sleeps() - before <= most_naps; look++)
            EXPECT_EQ(fi_cq_read(s.cq, &entry, 1), -FI_EAGAIN);
        EXPECT_LE(sleeps() - before, most_naps);
        rank.barrier();
    });
}

} // namespace
