// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// More processes than processors: whoever reads a queue in vain gives the processor to the peer it waits for. Run by
// make check.
#include <array>
#include <sched.h>

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

/// Reads until the entry of `context`; how many reads were in vain.
std::uint64_t reads_until(Session& s, void* context)
{
    std::uint64_t in_vain = 0;
    for (fi_cq_data_entry entry{}; in_vain < 1'000'000'000; in_vain++) {
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

// Each message is a rendezvous, and takes three turns on the processor. Before, a reader looked 4096 times each turn.
TEST(Crowd, AReaderInVainGivesItsProcessorToThePeer)
{
    expect_processes(2, [](const Rank& rank) {
        ASSERT_NO_FATAL_FAILURE(share_one_processor());
        Options options;
        options.caps = FI_TAGGED;
        Session s(rank, options);
        static std::array<char, 64 * 1024> buffer;
        constexpr unsigned rounds = 200;
        std::uint64_t in_vain = 0;
        for (unsigned round = 0; round < rounds; round++) {
            ASSERT_EQ(s.post([&] {
                return rank.number == round % 2
                           ? fi_tsend(s.ep, buffer.data(), buffer.size(), nullptr, 1 - rank.number, 7, &buffer)
                           : fi_trecv(s.ep, buffer.data(), buffer.size(), nullptr, 1 - rank.number, 7, 0, &buffer);
            }), 0);
            in_vain += reads_until(s, &buffer);
        }
        EXPECT_LT(in_vain / rounds, 500u);
    });
}

} // namespace
