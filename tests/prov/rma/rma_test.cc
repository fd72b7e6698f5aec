// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_rma between processes over the simulator: every call, sizes around each change of method, many at once, orders.
// Run by make check; the children call libfabric, the program itself does not.
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <random>
#include <string>

#include "prov/lib/session.h"

namespace {

using namespace tofu::test;
using tofu::sim::test::expect_processes;
using tofu::sim::test::wait_until;

constexpr int chosen_keys = 0;

std::vector<std::uint8_t> pattern(std::size_t size, unsigned seed)
{
    std::vector<std::uint8_t> bytes(size);
    std::uint64_t word = seed * 0x9e3779b97f4a7c15u + 1;
    std::size_t i = 0;
    for (; i + 8 <= size; i += 8) {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        std::memcpy(&bytes[i], &word, 8);
    }
    for (; i < size; i++)
        bytes[i] = static_cast<std::uint8_t>(word >> (i % 8 * 8));
    return bytes;
}

/// Sizes on both sides of each limit: piggyback 32, blocks 512 and 8192, one transfer 16 MiB - 1.
const std::size_t sizes[] = {1,    2,    7,    8,    31,   32,    33,      64,      511,           512,          513,
                             4095, 4096, 8191, 8192, 8193, 65536, 1000003, 1 << 24, (1 << 24) - 1, (1 << 25) + 5};

class RmaModes : public testing::TestWithParam<int> {
  protected:
    /// `body(rank, session)` in so many processes, with keys and addresses as the parameter says.
    template <class Body>
    static void between(unsigned ranks, Body body)
    {
        expect_processes(ranks, [body, mode = GetParam()](const Rank& rank) {
            Options options;
            options.mr_mode = mode;
            Session s(rank, options);
            body(rank, s);
        });
    }
};
INSTANTIATE_TEST_SUITE_P(Keys, RmaModes, testing::Values(provider_keys, FI_MR_VIRT_ADDR, FI_MR_PROV_KEY, chosen_keys),
                         [](const auto& info) {
                             return std::string(info.param & FI_MR_PROV_KEY ? "Provider" : "User") +
                                    (info.param & FI_MR_VIRT_ADDR ? "Addresses" : "Offsets");
                         });

TEST_P(RmaModes, WritesAndReadsOfEverySize)
{
    between(2, [](const Rank& rank, Session& s) {
        std::vector<std::uint8_t> window((1 << 25) + 4096);
        auto peers = s.share(window.data(), window.size(), FI_REMOTE_READ | FI_REMOTE_WRITE, 0xC0DE);
        const unsigned peer = 1 - rank.number;
        const Window there = peers[peer];
        for (std::size_t size : sizes) {
            const std::size_t offset = size % 61;
            auto mine = pattern(size, static_cast<unsigned>(size + rank.number));
            auto theirs = pattern(size, static_cast<unsigned>(size + peer));
            int context = 0;
            ASSERT_EQ(s.post([&] {
                return fi_write(s.ep, mine.data(), size, nullptr, peer, there.base + offset, there.key, &context);
            }),
                      0);
            s.expect(&context, FI_RMA | FI_WRITE);
            s.barrier(); // delivered on both sides
            ASSERT_EQ(std::memcmp(window.data() + offset, theirs.data(), size), 0) << size;
            ASSERT_EQ(window[offset + size], 0) << size;
            std::vector<std::uint8_t> back(size + 1, 0);
            ASSERT_EQ(s.post([&] {
                return fi_read(s.ep, back.data(), size, nullptr, peer, there.base + offset, there.key, &context);
            }),
                      0);
            s.expect(&context, FI_RMA | FI_READ);
            ASSERT_EQ(std::memcmp(back.data(), mine.data(), size), 0) << size;
            ASSERT_EQ(back[size], 0);
            s.barrier();
            std::memset(window.data(), 0, offset + size);
            s.barrier();
        }
        s.expect_silence();
    });
}

TEST_P(RmaModes, InjectLeavesTheBufferAtOnceAndTheQueueAlone)
{
    between(2, [](const Rank& rank, Session& s) {
        std::vector<std::uint64_t> window(1 << 12);
        auto peers = s.share(window.data(), window.size() * 8, FI_REMOTE_READ | FI_REMOTE_WRITE, 3);
        const unsigned peer = 1 - rank.number;
        for (std::size_t words : {std::size_t{1}, std::size_t{4}, s.info->tx_attr->inject_size / 8}) {
            for (std::size_t i = 0; i + words <= window.size(); i += words) {
                std::vector<std::uint64_t> value(words, i * 7 + 1 + rank.number);
                ASSERT_EQ(s.post([&] {
                    return fi_inject_write(s.ep, value.data(), words * 8, peer, peers[peer].base + i * 8,
                                           peers[peer].key);
                }),
                          0);
                std::fill(value.begin(), value.end(), ~std::uint64_t{0});
            }
            // No order was asked for: the last one need not arrive last.
            EXPECT_TRUE(wait_until([&] {
                fi_cq_read(s.cq, nullptr, 0);
                for (std::size_t i = 0; i + words <= window.size(); i += words)
                    if (std::atomic_ref(window[i + words - 1]).load() != i * 7 + 1 + peer)
                        return false;
                return true;
            }));
            for (unsigned i = 0; i < 3200; i++) // until the adversary lets go of ours, which it may hold back
                fi_cq_read(s.cq, nullptr, 0);
            s.expect_silence();
            s.barrier();
            for (std::size_t i = 0; i + words <= window.size(); i += words)
                for (std::size_t k = 0; k < words; k++)
                    ASSERT_EQ(window[i + k], i * 7 + 1 + peer) << i << " of " << words;
            s.barrier();
            std::fill(window.begin(), window.end(), 0);
            s.barrier();
        }
        std::vector<char> large(s.info->tx_attr->inject_size + 1);
        EXPECT_EQ(fi_inject_write(s.ep, large.data(), large.size(), peer, peers[peer].base, peers[peer].key),
                  -FI_EMSGSIZE);
    });
}

TEST_P(RmaModes, VectorsCutDifferentlyHereAndThere)
{
    between(2, [](const Rank& rank, Session& s) {
        std::vector<std::uint8_t> window(200000);
        auto peers = s.share(window.data(), window.size(), FI_REMOTE_READ | FI_REMOTE_WRITE, 77);
        const unsigned peer = 1 - rank.number;
        const Window there = peers[peer];
        std::mt19937 random(42);
        for (int round = 0; round < 60; round++) {
            const std::size_t total = round < 20 ? 1 + random() % 40 : 1 + random() % 40000;
            auto cut = [&](std::size_t parts) {
                std::vector<std::size_t> lengths(parts, 0);
                for (std::size_t left = total, i = 0; i < parts; i++) {
                    lengths[i] = i + 1 == parts ? left : random() % (left + 1);
                    left -= lengths[i];
                }
                return lengths;
            };
            const auto here_cut = cut(1 + random() % 4);
            const auto there_cut = cut(1 + random() % 4);
            auto mine = pattern(total, static_cast<unsigned>(round * 2 + rank.number));
            auto theirs = pattern(total, static_cast<unsigned>(round * 2 + peer));
            std::vector<iovec> local;
            std::size_t at = 0;
            for (std::size_t length : here_cut) {
                local.push_back({mine.data() + at, length});
                at += length;
            }
            std::vector<fi_rma_iov> remote;
            std::vector<std::size_t> places;
            for (std::size_t i = 0; i < there_cut.size(); i++) {
                places.push_back(i * 50000 + random() % 100);
                remote.push_back({there.base + places.back(), there_cut[i], there.key});
            }
            fi_msg_rma msg{};
            msg.msg_iov = local.data();
            msg.iov_count = local.size();
            msg.addr = peer;
            msg.rma_iov = remote.data();
            msg.rma_iov_count = remote.size();
            msg.context = &msg;
            ASSERT_EQ(s.post([&] { return fi_writemsg(s.ep, &msg, FI_COMPLETION); }), 0);
            s.expect(&msg, FI_RMA | FI_WRITE);
            s.barrier();
            at = 0;
            for (std::size_t i = 0; i < there_cut.size(); i++) {
                ASSERT_EQ(std::memcmp(window.data() + places[i], theirs.data() + at, there_cut[i]), 0) << round;
                at += there_cut[i];
            }
            std::vector<std::uint8_t> back(total);
            at = 0;
            for (std::size_t i = 0; i < local.size(); i++) {
                local[i].iov_base = back.data() + at;
                at += here_cut[i];
            }
            ASSERT_EQ(s.post([&] { return fi_readmsg(s.ep, &msg, FI_COMPLETION); }), 0);
            s.expect(&msg, FI_RMA | FI_READ);
            ASSERT_EQ(back, mine);
            s.barrier();
        }
    });
}

TEST_P(RmaModes, ToOneself)
{
    between(1, [](const Rank&, Session& s) {
        std::vector<std::uint8_t> window(100000);
        auto peers = s.share(window.data(), window.size(), FI_REMOTE_READ | FI_REMOTE_WRITE, 5);
        for (std::size_t size : {std::size_t{8}, std::size_t{100}, std::size_t{50000}}) {
            auto mine = pattern(size, 1);
            ASSERT_EQ(s.post([&] {
                return fi_write(s.ep, mine.data(), size, nullptr, 0, peers[0].base + 3, peers[0].key, &s);
            }),
                      0);
            s.expect(&s, FI_RMA | FI_WRITE);
            EXPECT_EQ(std::memcmp(window.data() + 3, mine.data(), size), 0);
        }
    });
}

TEST(Rma, ZeroBytesComplete)
{
    expect_processes(1, [](const Rank& rank) {
        Session s(rank);
        char window[64] = {};
        auto peers = s.share(window, sizeof(window));
        ASSERT_EQ(s.post([&] { return fi_write(s.ep, window, 0, nullptr, 0, peers[0].base, peers[0].key, &s); }), 0);
        s.expect(&s, FI_RMA | FI_WRITE);
        ASSERT_EQ(s.post([&] { return fi_read(s.ep, window, 0, nullptr, 0, peers[0].base, peers[0].key, &s); }), 0);
        s.expect(&s, FI_RMA | FI_READ);
        ASSERT_EQ(s.post([&] { return fi_inject_write(s.ep, window, 0, 0, peers[0].base, peers[0].key); }), 0);
        s.expect_silence();
    });
}

TEST(Rma, ManyUnderWayAtOnce)
{
    expect_processes(3, [](const Rank& rank) {
        Session s(rank);
        constexpr unsigned each = 3000;
        std::vector<std::uint64_t> window(each * 3);
        auto peers = s.share(window.data(), window.size() * 8);
        std::vector<std::uint64_t> values(each);
        std::iota(values.begin(), values.end(), rank.number * 1000000u);
        for (unsigned i = 0; i < each; i++)
            for (unsigned peer = 0; peer < 3; peer++)
                ASSERT_EQ(s.post([&] {
                    return fi_write(s.ep, &values[i], 8, nullptr, peer, peers[peer].base + (rank.number * each + i) * 8,
                                    peers[peer].key, &values[i]);
                }),
                          0);
        for (unsigned i = 0; i < each * 3; i++) {
            fi_cq_data_entry entry{};
            ASSERT_TRUE(s.next(entry));
        }
        s.expect_silence();
        s.barrier();
        for (unsigned from = 0; from < 3; from++)
            for (unsigned i = 0; i < each; i++)
                ASSERT_EQ(window[from * each + i], from * 1000000u + i);
    });
}

TEST(Rma, WritesInOrderWhereAskedFor)
{
    expect_processes(2, [](const Rank& rank) {
        Options options;
        options.tx_order = FI_ORDER_RMA_WAW;
        Session s(rank, options);
        std::vector<std::uint64_t> window(9000);
        auto peers = s.share(window.data(), window.size() * 8);
        constexpr std::uint64_t rounds = 2000;
        if (rank.number == 0) {
            std::vector<std::uint64_t> data(8000);
            for (std::uint64_t round = 1; round <= rounds; round++) {
                const std::size_t words = 1 + (round * 37) % 64;
                std::fill_n(data.begin(), words, round);
                iovec local{data.data(), words * 8};
                fi_rma_iov remote{peers[1].base, words * 8, peers[1].key};
                fi_msg_rma msg{};
                msg.msg_iov = &local;
                msg.iov_count = 1;
                msg.addr = 1;
                msg.rma_iov = &remote;
                msg.rma_iov_count = 1;
                // Reusable at once up to inject_size; beyond, the completion tells when.
                const bool inject = words * 8 <= s.info->tx_attr->inject_size;
                ASSERT_EQ(s.post([&] { return fi_writemsg(s.ep, &msg, inject ? FI_INJECT : 0); }), 0);
                s.expect(nullptr, FI_RMA | FI_WRITE);
                ASSERT_EQ(
                    s.post([&] { return fi_inject_write(s.ep, &round, 8, 1, peers[1].base + 8999 * 8, peers[1].key); }),
                    0);
            }
        } else {
            auto* flag = reinterpret_cast<std::atomic<std::uint64_t>*>(&window[8999]);
            std::uint64_t seen = 0;
            EXPECT_TRUE(wait_until([&] {
                const std::uint64_t now = flag->load(std::memory_order_acquire);
                EXPECT_GE(now, seen);
                // All of round `now` was written before its flag; a later round may be on its way.
                const std::size_t words = 1 + (now * 37) % 64;
                for (std::size_t i = 0; now != 0 && i < words; i++)
                    EXPECT_GE(reinterpret_cast<std::atomic<std::uint64_t>*>(&window[i])->load(), now);
                seen = now;
                return now == rounds || testing::Test::HasFailure();
            }));
        }
        s.barrier();
    });
}

} // namespace
