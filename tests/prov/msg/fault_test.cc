// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Ranks that die in the middle of transfers, in both directions and at many instants; storms of messages that no
// receive waits for.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include <sys/wait.h>
#include <unistd.h>

#include "prov/lib/many_endpoints.h"

namespace tofu::test {
namespace {

constexpr unsigned victim = 3;
constexpr unsigned window = 4; ///< sends, and receives, at a time between the victim and each of the others

struct Transfer {
    std::vector<std::uint8_t> bytes;
    unsigned peer = 0;
    bool receives = false;
    bool busy = false;
};

/// Keeps transfers with `peers` going until one fails. True when one did.
bool exchange_until_lost(Session& s, std::vector<Transfer>& transfers)
{
    return sim::test::wait_until([&] {
        for (Transfer& t : transfers) {
            if (t.busy)
                continue;
            const ssize_t ret = t.receives ? fi_trecv(s.ep, t.bytes.data(), t.bytes.size(), nullptr, t.peer, 1, 0, &t)
                                           : fi_tsend(s.ep, t.bytes.data(), t.bytes.size(), nullptr, t.peer, 1, &t);
            if (ret != 0 && ret != -FI_EAGAIN)
                return true;
            t.busy = ret == 0;
        }
        fi_cq_data_entry entry{};
        const ssize_t got = fi_cq_read(s.cq, &entry, 1);
        if (got == 1)
            static_cast<Transfer*>(entry.op_context)->busy = false;
        if (got != -FI_EAVAIL)
            return false;
        fi_cq_err_entry error{};
        EXPECT_EQ(fi_cq_readerr(s.cq, &error, 0), 1);
        static_cast<Transfer*>(error.op_context)->busy = false;
        return true;
    });
}

/// Every transfer ends, by success, by an error, or by being cancelled.
void end_all(Session& s, std::vector<Transfer>& transfers)
{
    for (Transfer& t : transfers)
        if (t.busy && t.receives)
            (void)fi_cancel(&s.ep->fid, &t); // or it is matched, and ends by itself
    EXPECT_TRUE(sim::test::wait_until([&] {
        fi_cq_data_entry entry{};
        fi_cq_err_entry error{};
        const ssize_t got = fi_cq_read(s.cq, &entry, 1);
        if (got == 1)
            static_cast<Transfer*>(entry.op_context)->busy = false;
        else if (got == -FI_EAVAIL && fi_cq_readerr(s.cq, &error, 0) == 1)
            static_cast<Transfer*>(error.op_context)->busy = false;
        for (const Transfer& t : transfers)
            if (t.busy)
                return false;
        return true;
    })) << "an operation with the dead does not end";
}

/// The living exchange messages of their own.
void go_on(Session& s, std::size_t size)
{
    std::vector<std::uint8_t> out(size), in(size);
    for (unsigned i = 0; i < 20; i++)
        for (unsigned step = 1; step < victim; step++) {
            const unsigned to = (s.rank.number + step) % victim;
            const unsigned from = (s.rank.number + victim - step) % victim;
            std::fill(out.begin(), out.end(), static_cast<std::uint8_t>(i * 3 + s.rank.number));
            ASSERT_EQ(fi_trecv(s.ep, in.data(), size, nullptr, from, 100 + i, 0, &in), 0);
            ASSERT_EQ(s.post([&] { return fi_tsend(s.ep, out.data(), size, nullptr, to, 100 + i, &out); }), 0);
            fi_cq_data_entry entry{};
            ASSERT_TRUE(s.next(entry));
            ASSERT_TRUE(s.next(entry));
            for (std::uint8_t byte : in)
                ASSERT_EQ(byte, static_cast<std::uint8_t>(i * 3 + from));
        }
}

void lose_a_rank(std::size_t size, unsigned delay_us)
{
    SCOPED_TRACE(testing::Message() << size << " bytes, killed after " << delay_us << " us");
    const auto exits = sim::test::run_processes(4, [=](const sim::test::Rank& rank) {
        Session s(rank, many_options());
        std::vector<Transfer> transfers;
        for (unsigned peer = 0; peer < 4; peer++)
            for (unsigned i = 0; i < 2 * window; i++)
                if (peer != rank.number && (peer == victim || rank.number == victim))
                    transfers.push_back({std::vector<std::uint8_t>(size), peer, i % 2 == 0, false});
        if (rank.number == victim) {
            die_after(delay_us);
            (void)exchange_until_lost(s, transfers);
            for (;;) // the timer is late
                pause();
        }
        ASSERT_TRUE(exchange_until_lost(s, transfers)) << "no survivor noticed the death";
        end_all(s, transfers);
        for (Transfer& t : transfers)
            std::fill(t.bytes.begin(), t.bytes.end(), std::uint8_t{0x5a});
        go_on(s, size);
        for (const Transfer& t : transfers)
            for (std::uint8_t byte : t.bytes)
                ASSERT_EQ(byte, 0x5a) << "a buffer was written to after its end";
        leave_without(s, victim);
    });
    for (unsigned r = 0; r < victim; r++)
        EXPECT_TRUE(exits[r].success()) << r << ": " << exits[r].errors;
    EXPECT_TRUE(WIFSIGNALED(exits[victim].status));
}

void lose_ranks(std::size_t size, unsigned step_us)
{
    const char* more = std::getenv("TOFU_TEST_KILLS"); // by hand: hundreds
    const unsigned kills = more != nullptr ? static_cast<unsigned>(std::atoi(more)) : 2;
    for (unsigned i = 0; i < kills && !testing::Test::HasFailure(); i++)
        lose_a_rank(size, 700 + i * step_us % 30000);
}

TEST(Fault, RanksKilledInEagerTransfers)
{
    lose_ranks(100, 3301);
}
TEST(Fault, RanksKilledInLongEagerTransfers)
{
    lose_ranks(3000, 4127);
}
TEST(Fault, RanksKilledInRendezvous)
{
    lose_ranks(300000, 5209);
}

/// Pages of this process in memory, in bytes.
std::size_t resident()
{
    std::FILE* file = std::fopen("/proc/self/statm", "r");
    unsigned long all = 0, resident = 0;
    EXPECT_EQ(std::fscanf(file, "%lu %lu", &all, &resident), 2);
    std::fclose(file);
    return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t storm_bound = 12 << 20; ///< their shadow, or stack frames (ASan's detect_stack_use_after_return)
#else
constexpr std::size_t storm_bound = 4 << 20; ///< 1 MiB kept, rings, tables
#endif

/// Many to one, 30 MiB of all protocols, before the one receives anything: its memory stays bounded, then all arrives.
TEST(Fault, AStormOfLongMessagesIsHeldBack)
{
    sim::test::expect_processes(5, [](const sim::test::Rank& rank) {
        setenv("FI_TOFU_UNEXPECTED_BYTES", "1048576", 1);
        Session s(rank, many_options());
        // More than one sender alone can have taken: some 750 kept in its place, 64 in its ring, 1032 that wait with
        // it.
        constexpr unsigned count = 2500;
        constexpr std::size_t sizes[] = {16, 200, 3000, 4000, 8000};
        if (rank.number != 0) {
            std::vector<std::vector<std::uint8_t>> out(count);
            unsigned ended = 0, refused = 0;
            for (unsigned i = 0; i < count; i++) {
                out[i].assign(sizes[i % 5], static_cast<std::uint8_t>(i));
                ASSERT_TRUE(sim::test::wait_until([&] {
                    const ssize_t ret = fi_tsend(s.ep, out[i].data(), out[i].size(), nullptr, 0, i, &out[i]);
                    if (ret == 0)
                        return true;
                    EXPECT_EQ(ret, -FI_EAGAIN);
                    if (++refused == 2000)
                        rank.set(1000 + rank.number, 1); // held back
                    fi_cq_data_entry entry{};
                    ended += fi_cq_read(s.cq, &entry, 1) == 1;
                    return false;
                })) << i;
            }
            EXPECT_GE(refused, 2000u) << "nothing held the storm back";
            while (ended < count) {
                fi_cq_data_entry entry{};
                ASSERT_TRUE(s.next(entry));
                ended++;
            }
            return;
        }
        const std::size_t before = resident();
        ASSERT_TRUE(sim::test::wait_until([&] {
            fi_cq_read(s.cq, nullptr, 0);
            return rank.get(1001) + rank.get(1002) + rank.get(1003) + rank.get(1004) == 4;
        }));
        for (int i = 0; i < 5000; i++)
            fi_cq_read(s.cq, nullptr, 0);
        EXPECT_LT(resident() - before, storm_bound);
        for (unsigned i = 0; i < count; i++)
            for (unsigned from = 1; from < rank.size; from++) {
                std::uint8_t in[8000];
                ASSERT_EQ(fi_trecv(s.ep, in, sizeof in, nullptr, from, i, 0, in), 0);
                fi_cq_data_entry entry{};
                ASSERT_TRUE(s.next(entry)) << i;
                ASSERT_EQ(entry.len, sizes[i % 5]);
                ASSERT_EQ(in[entry.len - 1], static_cast<std::uint8_t>(i));
            }
    });
}

/// Credit updates go to a sender that has closed: no write of the application has failed.
TEST(Fault, AReportToAClosedPeerIsNoErrorOfAWrite)
{
    sim::test::expect_processes(2, [](const Rank& rank) {
        Options options;
        options.caps = FI_MSG | FI_TAGGED | FI_RMA;
        options.leaves_together = false;
        std::uint64_t memory = 0, word = 7;
        constexpr std::uint64_t count = 40; // reports are due before they have all been taken
        auto s = std::make_unique<Session>(rank, options);
        const auto windows = s->share(&memory, sizeof memory);
        if (rank.number == 0) {
            for (std::uint64_t i = 0; i < count; i++)
                ASSERT_EQ(s->post([&] { return fi_tinject(s->ep, &i, 8, 1, 5); }), 0);
            ASSERT_TRUE(sim::test::wait_until([&] { return std::atomic_ref<std::uint64_t>(memory).load() == word; }));
            s.reset();
            rank.barrier();
            return;
        }
        ASSERT_EQ(s->post([&] { return fi_inject_write(s->ep, &word, 8, 0, windows[0].base, windows[0].key); }), 0);
        rank.barrier();
        for (std::uint64_t i = 0; i < count; i++) {
            std::uint64_t in = 0;
            ASSERT_EQ(fi_trecv(s->ep, &in, 8, nullptr, FI_ADDR_UNSPEC, 5, 0, &in), 0);
            s->expect(&in, FI_RECV);
            EXPECT_EQ(in, i);
        }
        s->expect_silence();
    });
}

} // namespace
} // namespace tofu::test
