// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// More processes than processors: an idle poll of a queue yields the processor to the peer that it waits for. Run by
// make check.
#include <algorithm>
#include <array>
#include <iterator>
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
TEST(ManyEndpoints, AReaderInVainGivesItsProcessorToThePeer)
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

/// A rendezvous each way, after which both have polled without success often enough to detect it.
void detect_oversubscription(Session& s, unsigned self)
{
    static std::array<char, 64 * 1024> buffer;
    for (unsigned round = 0; round < 20; round++) {
        ASSERT_NO_FATAL_FAILURE(post_turn(s, self == round % 2, 1 - self, buffer, 7));
        (void)reads_until(s, &buffer);
    }
}

constexpr std::size_t copied = 16384;

// The peer waits at a barrier meanwhile and calls nothing of the provider's.
TEST(ManyEndpoints, AMessageThatIsCopiedWaitsForNoProcessor)
{
    expect_oversubscribed([](Session& s, const Rank& rank) {
        ASSERT_NO_FATAL_FAILURE(detect_oversubscription(s, rank.number));
        static std::array<char, copied> buffer;
        constexpr unsigned messages = 16;
        if (rank.number == 0) {
            for (unsigned i = 0; i < messages; i++) {
                buffer.fill(static_cast<char>(i + 1));
                ASSERT_EQ(fi_tsend(s.ep, buffer.data(), buffer.size(), nullptr, 1, i, &buffer), 0);
                fi_cq_data_entry entry{};
                ASSERT_EQ(fi_cq_read(s.cq, &entry, 1), 1) << i;
            }
            buffer.fill(0);
        }
        rank.barrier();
        for (unsigned i = 0; rank.number == 1 && i < messages; i++) {
            ASSERT_NO_FATAL_FAILURE(post_turn(s, false, 0, buffer, i));
            (void)reads_until(s, &buffer);
            EXPECT_EQ(std::count(buffer.begin(), buffer.end(), static_cast<char>(i + 1)), std::ssize(buffer)) << i;
        }
    });
}

// One more than there are blocks, one byte more than a block has, and one whose sender wants to know that it was taken.
TEST(ManyEndpoints, AMessageThatIsNotCopiedWaitsForItsReceiver)
{
    expect_oversubscribed([](Session& s, const Rank& rank) {
        ASSERT_NO_FATAL_FAILURE(detect_oversubscription(s, rank.number));
        static std::array<char, copied + 1> buffer;
        constexpr unsigned blocks = 16;
        const auto send = [&](std::size_t size, std::uint64_t tag, std::uint64_t flags) {
            const iovec iov{buffer.data(), size};
            const fi_msg_tagged message{&iov, nullptr, 1, 1, tag, 0, &buffer, 0};
            return fi_tsendmsg(s.ep, &message, flags | FI_COMPLETION);
        };
        const auto ends = [&] {
            fi_cq_data_entry entry{};
            ssize_t ret = -FI_EAGAIN;
            for (unsigned i = 0; i < 200 && ret == -FI_EAGAIN; i++)
                ret = fi_cq_read(s.cq, &entry, 1);
            return ret == 1;
        };
        if (rank.number == 0) {
            ASSERT_EQ(send(copied + 1, 0, 0), 0);
            EXPECT_FALSE(ends());
            ASSERT_EQ(send(copied, 1, FI_DELIVERY_COMPLETE), 0);
            EXPECT_FALSE(ends());
            for (unsigned i = 0; i < blocks; i++) {
                ASSERT_EQ(send(copied, 2 + i, 0), 0);
                EXPECT_TRUE(ends()) << i;
            }
            ASSERT_EQ(send(copied, 2 + blocks, 0), 0);
            EXPECT_FALSE(ends());
        }
        rank.barrier();
        for (unsigned i = 0; rank.number == 1 && i < 3 + blocks; i++) {
            ASSERT_NO_FATAL_FAILURE(post_turn(s, false, 0, buffer, i));
            (void)reads_until(s, &buffer);
        }
        for (unsigned i = 0; rank.number == 0 && i < 3; i++)
            (void)reads_until(s, &buffer);
    });
}

// Copies wait for receives that may come late: what is sent behind them needs none of their blocks.
TEST(ManyEndpoints, CopiesLeaveOtherMessagesTheirBlocks)
{
    expect_oversubscribed([](Session& s, const Rank& rank) {
        ASSERT_NO_FATAL_FAILURE(detect_oversubscription(s, rank.number));
        constexpr unsigned messages = 100;
        constexpr std::size_t sizes[] = {5000, 8192, 9000, copied};
        static std::array<char, copied> buffer;
        const auto size_of = [&](unsigned tag) {
            return tag == messages ? sizes[1] / 2 : sizes[tag % std::size(sizes)];
        };
        for (unsigned tag = 0; rank.number == 0 && tag <= messages; tag++)
            ASSERT_NO_FATAL_FAILURE(post_turn(s, true, 1, std::span(buffer).first(size_of(tag)), tag));
        rank.barrier();
        for (unsigned tag = messages + 1; tag-- > 0;) { // the last one first
            if (rank.number == 1) {
                ASSERT_NO_FATAL_FAILURE(post_turn(s, false, 0, buffer, tag));
            }
            (void)reads_until(s, &buffer);
        }
    });
}

} // namespace
