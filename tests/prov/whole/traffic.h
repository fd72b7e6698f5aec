// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Some of everything between all pairs of ranks, each byte checked: messages of every protocol, awaited and not, RMA,
// atomics of every method.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "prov/lib/session.h"

namespace tofu::test {

inline Options traffic_options()
{
    Options options;
    options.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
    options.threading = FI_THREAD_COMPLETION;
    return options;
}

class Traffic {
  public:
    explicit Traffic(Session& s) : s_(s), memory_(words_offset + 1024)
    {
        windows_ = s.share(memory_.data(), memory_.size());
    }

    void run()
    {
        messages(true);
        messages(false);
        rma();
        atomics();
    }

    /// Every rank to every other, `sizes` in order. Awaited: the receives are posted before any rank sends.
    void messages(bool awaited)
    {
        std::vector<Piece> sends, receives;
        for (unsigned peer = 0; peer < s_.rank.size; peer++)
            for (unsigned i = 0; peer != s_.rank.number && i < std::size(sizes); i++) {
                sends.push_back({peer, i, std::vector<std::uint8_t>(sizes[i])});
                fill(sends.back().bytes, s_.rank.number, i);
                receives.push_back({peer, i, std::vector<std::uint8_t>(sizes[i] + 1, 0xee)});
            }
        std::size_t sent = 0, posted = 0, done = 0;
        const std::size_t all = sends.size() + receives.size();
        if (awaited) {
            posted = post_receives(receives, posted);
            s_.barrier();
        }
        unsigned in_vain = 0; // a rank that keeps little is full before everything has been sent
        const bool over = sim::test::wait_until([&] {
            while (sent < sends.size() && send(sends[sent])) {
                sent++;
                in_vain = 0;
            }
            in_vain++;
            if (sent == sends.size() || in_vain > 300)
                posted = post_receives(receives, posted);
            fi_cq_data_entry entry{};
            ssize_t got = 0;
            while ((got = fi_cq_read(s_.cq, &entry, 1)) == 1) {
                done++;
                auto* piece = static_cast<Piece*>(entry.op_context);
                EXPECT_TRUE((entry.flags & FI_RECV) == 0 || entry.len == sizes[piece->number]);
            }
            EXPECT_EQ(got, -FI_EAGAIN);
            return done == all || got != -FI_EAGAIN;
        });
        ASSERT_TRUE(over) << done << " of " << all << " have completed, " << sent << " were sent";
        for (const Piece& piece : receives) {
            std::vector<std::uint8_t> expected(sizes[piece.number]);
            fill(expected, piece.peer, piece.number);
            expected.push_back(0xee);
            EXPECT_TRUE(piece.bytes == expected) << sizes[piece.number] << " bytes of " << piece.peer;
        }
        s_.barrier();
        s_.expect_silence();
    }

    /// Writes to a part of every peer's memory that is the writer's own, and reads it back.
    void rma()
    {
        for (unsigned peer = 0; peer < s_.rank.size; peer++) {
            const std::uint64_t at = windows_[peer].base + s_.rank.number * part;
            for (unsigned i = 0; i < std::size(sizes); i++) {
                std::vector<std::uint8_t> out(sizes[i]), in(sizes[i] + 1, 0xee);
                fill(out, s_.rank.number + 100, i);
                ASSERT_EQ(s_.post([&] {
                    return fi_write(s_.ep, out.data(), sizes[i], nullptr, peer, at, windows_[peer].key, &out);
                }),
                          0);
                s_.expect(&out, FI_WRITE);
                ASSERT_EQ(s_.post([&] {
                    return fi_read(s_.ep, in.data(), sizes[i], nullptr, peer, at, windows_[peer].key, &in);
                }),
                          0);
                s_.expect(&in, FI_READ);
                out.push_back(0xee);
                EXPECT_TRUE(in == out) << sizes[i] << " bytes at " << peer;
            }
        }
        s_.barrier();
    }

    /// All ranks on the words of rank 0: done by ARMW, by a loop of CSWAPs, under a lock word; sums that must be right.
    void atomics()
    {
        constexpr unsigned rounds = 8;
        auto* own = reinterpret_cast<Words*>(memory_.data() + words_offset);
        *own = Words{0, 1, 0};
        s_.barrier();
        const std::uint64_t at = windows_[0].base + words_offset;
        const std::uint64_t one = 1;
        const double two = 2;
        const long double three = 3;
        std::uint64_t last = 0;
        for (unsigned i = 0; i < rounds; i++) {
            std::uint64_t before = 0;
            ASSERT_EQ(s_.post([&] {
                return fi_fetch_atomic(s_.ep, &one, 1, nullptr, &before, nullptr, 0, at, windows_[0].key, FI_UINT64,
                                       FI_SUM, &before);
            }),
                      0);
            s_.expect(&before, FI_ATOMIC);
            EXPECT_TRUE(i == 0 || before > last);
            last = before;
            ASSERT_EQ(s_.post([&] {
                return fi_atomic(s_.ep, &two, 1, nullptr, 0, at + offsetof(Words, product), windows_[0].key, FI_DOUBLE,
                                 FI_PROD, &last);
            }),
                      0);
            s_.expect(&last, FI_ATOMIC);
            ASSERT_EQ(s_.post([&] {
                return fi_atomic(s_.ep, &three, 1, nullptr, 0, at + offsetof(Words, wide), windows_[0].key,
                                 FI_LONG_DOUBLE, FI_SUM, &last);
            }),
                      0);
            s_.expect(&last, FI_ATOMIC);
        }
        s_.barrier();
        if (s_.rank.number == 0) {
            const unsigned times = rounds * s_.rank.size;
            EXPECT_EQ(own->sum, times);
            EXPECT_EQ(own->product, static_cast<double>(std::uint64_t{1} << times));
            EXPECT_EQ(own->wide, 3.0L * times);
        }
        s_.barrier();
    }

  private:
    /// In one slot, in several, beyond a quarter of the ring for each number of slots that there is.
    static constexpr std::size_t sizes[] = {0, 8, 192, 248, 1000, 1025, 4096, 4097, 20000, 70000, 100000, 262145};
    static constexpr std::size_t part = 262160;
    static constexpr std::size_t words_offset = 2 * part + 96;

    struct Piece {
        unsigned peer;
        unsigned number;
        std::vector<std::uint8_t> bytes;
    };
    struct Words {
        std::uint64_t sum;
        double product;
        alignas(16) long double wide;
    };
    static_assert(words_offset % 16 == 0);

    static void fill(std::vector<std::uint8_t>& bytes, unsigned who, unsigned number)
    {
        std::uint32_t x = who * 7919 + number * 104729 + 1;
        for (std::uint8_t& byte : bytes)
            byte = static_cast<std::uint8_t>((x = x * 1664525 + 1013904223) >> 24);
    }
    bool send(Piece& piece)
    {
        const ssize_t ret =
            piece.number % 2 == 0
                ? fi_send(s_.ep, piece.bytes.data(), piece.bytes.size(), nullptr, piece.peer, &piece)
                : fi_tsend(s_.ep, piece.bytes.data(), piece.bytes.size(), nullptr, piece.peer, piece.number, &piece);
        EXPECT_TRUE(ret == 0 || ret == -FI_EAGAIN) << fi_strerror(static_cast<int>(-ret));
        return ret == 0;
    }
    std::size_t post_receives(std::vector<Piece>& receives, std::size_t from)
    {
        for (; from < receives.size(); from++) {
            Piece& piece = receives[from];
            const ssize_t ret = piece.number % 2 == 0 ? fi_recv(s_.ep, piece.bytes.data(), sizes[piece.number], nullptr,
                                                                piece.peer, &piece)
                                                      : fi_trecv(s_.ep, piece.bytes.data(), sizes[piece.number],
                                                                 nullptr, piece.peer, piece.number, 0, &piece);
            if (ret == -FI_EAGAIN)
                break;
            EXPECT_EQ(ret, 0);
        }
        return from;
    }

    Session& s_;
    std::vector<std::uint8_t> memory_;
    std::vector<Window> windows_;
};

} // namespace tofu::test
