// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Regions of one memory, or within each other (fi_mr(3)): each key lives and dies for itself, though uTofu gives memory
// that is registered already the same steering tag again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <span>
#include <vector>

#include "prov/lib/session.h"

namespace {

using namespace tofu::test;
using tofu::sim::test::expect_processes;
using tofu::sim::test::wait_until;

constexpr std::uint64_t offset = 80; ///< of what is written, in bytes

/// One rank writes, the other has the regions.
struct Pair {
    explicit Pair(const Rank& rank, const Options& options) : s(rank, options), writes(rank.number == 0) {}

    /// Writes by this key; `err` is what the entry says, 0 a success. Both ranks call it.
    void write(std::uint64_t value, std::uint64_t key, int err)
    {
        s.barrier();
        if (writes) {
            ASSERT_EQ(s.post([&] { return fi_write(s.ep, &value, 8, nullptr, 1, offset, key, &s); }), 0);
            fi_cq_data_entry entry{};
            fi_cq_err_entry error{};
            if (s.next(entry, err != 0 ? &error : nullptr))
                EXPECT_EQ(error.err, err);
        }
        s.barrier();
    }
    fid_mr* reg(std::span<std::uint64_t> memory, std::uint64_t key)
    {
        fid_mr* mr = nullptr;
        if (!writes) {
            EXPECT_EQ(fi_mr_reg(s.domain, memory.data(), memory.size_bytes(), remote_access, 0, key, 0, &mr, nullptr),
                      0);
        }
        return mr;
    }
    void close(fid_mr* mr)
    {
        if (!writes)
            ASSERT_EQ(fi_close(&mr->fid), 0);
    }
    void expect(const std::vector<std::uint64_t>& memory, std::uint64_t value)
    {
        if (!writes)
            EXPECT_EQ(memory[offset / 8], value);
    }

    Session s;
    const bool writes;
};

TEST(Overlap, AKeyThatIsClosedOrAnothersReachesTheMemoryItStoodForNoMore)
{
    expect_processes(2, [](const Rank& rank) {
        Options options;
        options.mr_mode = 0;
        Pair p(rank, options);
        std::vector<std::uint64_t> first(512, 0), second(512, 0);
        fid_mr* five = p.reg(first, 5);
        fid_mr* six = p.reg(first, 6); // keeps the memory registered
        p.write(101, 5, 0);
        p.expect(first, 101);
        p.close(five);
        p.write(102, 5, FI_EKEYREJECTED);
        p.expect(first, 101);
        five = p.reg(second, 5);
        p.write(103, 5, 0);
        p.expect(first, 101);
        p.expect(second, 103);
        p.write(104, 6, 0);
        p.expect(first, 104);
        p.close(five);
        p.close(six);
    });
}

/// The machine's driver gives the lowest free steering tag. So a new region has that of the closed one, and what the
/// writer has cached of the key would lead to other bytes of the new region.
TEST(Overlap, AKeyThatComesBackReachesItsNewRegionAlsoIfThatHasTheTagOfTheOldOne)
{
    setenv("TOFU_SIM_CHAOS", "1:tags", 1);
    expect_processes(2, [](const Rank& rank) {
        Options options;
        options.mr_mode = 0;
        Pair p(rank, options);
        constexpr std::size_t shift = 4;
        std::vector<std::uint64_t> memory(1024, 0);
        for (std::uint64_t round = 0; round < 20; round++) {
            const std::size_t first = round % 2 * shift;
            fid_mr* const five = p.reg(std::span(memory).subspan(first, 512), 5);
            p.write(100 + round, 5, 0);
            p.expect(std::vector<std::uint64_t>(memory.begin() + static_cast<std::ptrdiff_t>(first), memory.end()),
                     100 + round);
            p.close(five);
        }
    });
    unsetenv("TOFU_SIM_CHAOS");
}

/// The second region is reached by another VCQ of the peer, the data of a write by the first: also where it has no
/// bytes.
TEST(Overlap, DataOfAWriteWithoutBytesComesBehindEarlierWrites)
{
    setenv("TOFU_SIM_CHAOS", "1", 1);
    expect_processes(2, [](const Rank& rank) {
        Options options;
        options.mr_mode = 0;
        options.tx_order = FI_ORDER_RMA_WAW;
        Session s(rank, options);
        constexpr unsigned rounds = 300, told = 900; // a word of the board
        std::vector<std::uint64_t> memory(25000, 0);
        s.share(memory.data(), memory.size() * 8, remote_access, 5);
        const Window second = s.share(memory.data(), memory.size() * 8, remote_access, 6)[1];
        for (std::uint64_t round = 1; round <= rounds; round++) {
            if (rank.number == 0) {
                const std::vector<std::uint64_t> bytes(memory.size(), round);
                ASSERT_EQ(s.post([&] {
                    return fi_write(s.ep, bytes.data(), bytes.size() * 8, nullptr, 1, second.base, second.key, &s);
                }),
                          0);
                ASSERT_EQ(
                    s.post([&] { return fi_inject_writedata(s.ep, nullptr, 0, round, 1, second.base, second.key); }),
                    0);
                s.expect(&s, FI_WRITE);
                ASSERT_TRUE(wait_until([&] {
                    fi_cq_read(s.cq, nullptr, 0); // what was injected goes on behind the call
                    return rank.get(told) == round;
                }));
            } else {
                fi_cq_data_entry entry{};
                ASSERT_TRUE(s.next(entry));
                EXPECT_EQ(entry.data, round);
                EXPECT_EQ(std::count(memory.begin(), memory.end(), round), std::ssize(memory));
                rank.set(told, round);
            }
        }
    });
    unsetenv("TOFU_SIM_CHAOS");
}

} // namespace
