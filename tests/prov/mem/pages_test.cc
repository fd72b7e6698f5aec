// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Pages for what the provider registers for itself (mem/bounce_pool.h): whose they are, how they are shared and go
// back, with pages of 4 KiB and of 64 KiB; no memory left; a child of fork.
#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "lib/child.h"
#include "mem/bounce_pool.h"

namespace {

using tofu::PagePool;
using tofu::test::in_child;

constexpr std::size_t chunk = 65536;

std::uintptr_t number(const std::byte* p)
{
    return reinterpret_cast<std::uintptr_t>(p);
}

/// Something is mapped there. mincore wants the beginning of a page, and pages are the system's: 4, 16 or 64 KiB.
bool mapped(std::uintptr_t at)
{
    unsigned char in = 0;
    const std::uintptr_t page = at - at % static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    return mincore(reinterpret_cast<void*>(page), 1, &in) == 0 || errno != ENOMEM;
}

class Pages : public testing::TestWithParam<std::size_t> {
  protected:
    PagePool pool{GetParam()};
    std::size_t unit = std::max(GetParam(), chunk);
};
INSTANTIATE_TEST_SUITE_P(Sizes, Pages, testing::Values(4096, 65536, 1 << 19));

TEST_P(Pages, SmallPiecesShareAChunkAndDoNotMeet)
{
    std::vector<std::byte*> pieces;
    for (std::size_t i = 0; i < 100; i++) {
        pieces.push_back(pool.alloc(256));
        ASSERT_NE(pieces[i], nullptr);
        EXPECT_EQ(number(pieces[i]) % 256, 0u);
        EXPECT_EQ(number(pieces[i]) / unit, number(pieces[0]) / unit);
        std::memset(pieces[i], static_cast<int>(i), 256);
    }
    for (std::size_t i = 0; i < 100; i++)
        for (std::size_t at = 0; at < 256; at++)
            ASSERT_EQ(pieces[i][at], static_cast<std::byte>(i));
    for (std::byte* piece : pieces)
        pool.release(piece, 256);
}

TEST_P(Pages, AreAlignedAndWhole)
{
    for (std::size_t bytes : {unit / 2 + 1, unit, unit + 1, 10 * unit}) {
        std::byte* piece = pool.alloc(bytes);
        ASSERT_NE(piece, nullptr);
        EXPECT_EQ(number(piece) % unit, 0u);
        const std::size_t whole = (bytes + unit - 1) / unit * unit;
        std::memset(piece, 1, whole); // all is there
        std::byte* small = pool.alloc(256);
        EXPECT_TRUE(small < piece || small >= piece + whole); // and belongs to no other piece
        pool.release(small, 256);
        pool.release(piece, bytes);
        EXPECT_FALSE(mapped(number(piece)));
        EXPECT_FALSE(mapped(number(piece) + whole - 1));
    }
}

TEST_P(Pages, AChunkGoesWithTheLastOfItsPieces)
{
    const std::size_t half = unit / 2;
    std::byte* a = pool.alloc(half);
    std::byte* b = pool.alloc(half);
    std::byte* c = pool.alloc(half); // that one is full
    std::byte* d = pool.alloc(half);
    EXPECT_EQ(number(a) / unit, number(b) / unit);
    EXPECT_NE(number(a) / unit, number(c) / unit);
    pool.release(a, half);
    EXPECT_EQ(pool.alloc(half), a); // its place again
    pool.release(b, half);
    EXPECT_TRUE(mapped(number(a)));
    pool.release(a, half);
    EXPECT_FALSE(mapped(number(a)));
    EXPECT_TRUE(mapped(number(c)));
    pool.release(c, half);
    pool.release(d, half);
    EXPECT_FALSE(mapped(number(c)));
}

/// Compared with a list of owners: pieces never overlap, and at the end nothing is left.
TEST_P(Pages, AnyOrderOfPieces)
{
    struct Piece {
        std::byte* at;
        std::size_t bytes;
        std::byte mark;
    };
    std::mt19937 random(1);
    std::vector<Piece> pieces;
    std::vector<std::uintptr_t> used;
    for (unsigned i = 0; i < 3000; i++) {
        if (pieces.size() < 60 && random() % 5 < 3) {
            const std::size_t bytes = 1 + random() % (random() % 4 == 0 ? 2 * unit : unit / 16);
            const Piece piece{pool.alloc(bytes), bytes, static_cast<std::byte>(i)};
            ASSERT_NE(piece.at, nullptr);
            piece.at[0] = piece.at[bytes - 1] = piece.mark;
            pieces.push_back(piece);
            used.push_back(number(piece.at) & ~(unit - 1));
        } else if (!pieces.empty()) {
            std::swap(pieces[random() % pieces.size()], pieces.back());
            const Piece piece = pieces.back();
            ASSERT_EQ(piece.at[0], piece.mark);
            ASSERT_EQ(piece.at[piece.bytes - 1], piece.mark);
            pool.release(piece.at, piece.bytes);
            pieces.pop_back();
        }
        for (const Piece& one : pieces) {
            const Piece& last = pieces.back();
            ASSERT_TRUE(&one == &last || one.at + one.bytes <= last.at || last.at + last.bytes <= one.at);
        }
    }
    for (const Piece& piece : pieces)
        pool.release(piece.at, piece.bytes);
    for (std::uintptr_t at : used)
        ASSERT_FALSE(mapped(at));
}

TEST_P(Pages, NoMemoryIsAnAnswer)
{
    EXPECT_EQ(pool.alloc(SIZE_MAX), nullptr);
    EXPECT_EQ(pool.alloc(SIZE_MAX - unit), nullptr);
    constexpr int no_limit = 77;
    const int end = in_child([this] {
        std::byte* first = pool.alloc(256);
        rlimit limit{};
        if (first == nullptr || getrlimit(RLIMIT_AS, &limit) != 0)
            return 1;
        limit.rlim_cur = 1 << 20; // less than there is
        if (setrlimit(RLIMIT_AS, &limit) != 0)
            return 2;
        if (mmap(nullptr, 2 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
            return no_limit;
        if (pool.alloc(unit) != nullptr || pool.alloc(unit / 2 + 1) != nullptr)
            return 3;
        std::byte* second = pool.alloc(256); // of the chunk that is there
        if (second == nullptr)
            return 4;
        limit.rlim_cur = limit.rlim_max;
        if (setrlimit(RLIMIT_AS, &limit) != 0)
            return 5;
        std::byte* later = pool.alloc(unit);
        if (later == nullptr)
            return 6;
        pool.release(later, unit);
        pool.release(second, 256);
        pool.release(first, 256);
        return mapped(number(first) & ~(unit - 1)) ? 7 : 0;
    });
    if (end == no_limit)
        GTEST_SKIP() << "a limit of memory is no limit here: QEMU's user mode";
    EXPECT_EQ(end, 0);
}

/// It does not have them (guide 6.1.4.1), and takes others.
TEST_P(Pages, AChildLeavesItsParentsAlone)
{
    std::byte* small = pool.alloc(256);
    std::byte* large = pool.alloc(3 * unit);
    ASSERT_EQ(madvise(reinterpret_cast<void*>(number(small) & ~(unit - 1)), unit, MADV_DONTFORK), 0);
    ASSERT_EQ(madvise(large, 3 * unit, MADV_DONTFORK), 0);
    EXPECT_EQ(in_child([&] {
                  if (void* others =
                          mmap(large, unit, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
                      others != large)
                      return 1;
                  pool.release(large, 3 * unit); // nothing of it is its own
                  if (!mapped(number(large)))
                      return 2;
                  std::byte* own = pool.alloc(256);
                  if (own == nullptr)
                      return 3;
                  std::memset(own, 1, 256);
                  pool.release(own, 256);
                  return 0;
              }),
              0);
    std::memset(small, 1, 256);
    pool.release(small, 256);
    pool.release(large, 3 * unit);
}

TEST(OwnMemory, AnyThreadTakesAndGivesBack)
{
    const auto work = [](int mark) {
        for (int i = 0; i < 2000; i++) {
            tofu::OwnMemory memory(100 + static_cast<std::size_t>(i));
            ASSERT_TRUE(memory);
            std::memset(memory.get(), mark, memory.size());
            tofu::OwnMemory moved(std::move(memory));
            EXPECT_FALSE(memory);
            for (std::size_t at = 0; at < moved.size(); at++)
                ASSERT_EQ(moved.get()[at], static_cast<std::byte>(mark));
        }
    };
    std::thread other(work, 1);
    work(2);
    other.join();
}

} // namespace
