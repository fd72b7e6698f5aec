// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The file that moved pages lie in: which of its pages are given back, beside a program that moves its mappings.
#include "memory/mover.h"

#include <atomic>
#include <cstring>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <thread>

namespace tofu::sim {
namespace {

/// Addresses without memory, with many mappings, so that a look at all of them takes a while.
class Places {
  public:
    explicit Places(size_t count)
        : bytes_(count * page_bytes),
          memory_(static_cast<std::byte*>(
              ::mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)))
    {
        EXPECT_NE(memory_, MAP_FAILED);
        for (size_t i = 1; i < count; i += 2)
            EXPECT_EQ(::mprotect(at(i), page_bytes, PROT_READ), 0);
    }
    ~Places() { ::munmap(memory_, bytes_); }
    Places(const Places&) = delete;
    Places& operator=(const Places&) = delete;
    [[nodiscard]] std::byte* at(size_t place) const { return memory_ + place * page_bytes; }

  private:
    const size_t bytes_;
    std::byte* const memory_;
};

/// A page of the arena at this address.
void show_page(Arena& arena, std::byte* at, uint64_t content)
{
    const auto address = reinterpret_cast<uint64_t>(at);
    uint64_t offset = 0;
    ASSERT_TRUE(arena.place(address, page_bytes, address, address + page_bytes, &offset));
    ASSERT_EQ(::mmap(at, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, arena.fd(), off_t(offset)), at);
    std::memcpy(at, &content, sizeof content);
}

// A program moves a mapping (mremap, of which realloc makes use) beside the look for pages that no mapping shows any
// more. A mapping that is ahead of the look until it has passed the other place is shown all the same.
TEST(Arena, PagesThatMoveBesideACollectionAreKept)
{
    constexpr size_t count = 1000;
    const Places places(count);
    Arena arena;
    ASSERT_TRUE(arena.open());
    const VmaQuery vmas;
    constexpr uint64_t content = 4711;
    ASSERT_NO_FATAL_FAILURE(show_page(arena, places.at(count - 1), content));
    std::atomic<bool> ends{false};
    std::atomic<unsigned> lost{0};
    std::atomic<unsigned> moves{0};
    std::thread mover([&] {
        for (unsigned i = 0; !ends; i++) {
            std::byte* const from = places.at(i % 2 == 0 ? count - 1 : 0);
            std::byte* const to = places.at(i % 2 == 0 ? 0 : count - 1);
            if (::mremap(from, page_bytes, page_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to)
                return;
            moves++;
            uint64_t found = 0;
            std::memcpy(&found, to, sizeof found);
            lost += found != content;
        }
    });
    for (unsigned i = 0; i < 200 && lost == 0; i++) {
        const unsigned before = moves;
        arena.collect(vmas);
        while (moves == before)
            std::this_thread::yield();
    }
    ends = true;
    mover.join();
    EXPECT_EQ(lost, 0u);
    arena.collect(vmas);
    EXPECT_FALSE(arena.empty());
    for (const size_t place : {size_t{0}, count - 1})
        ASSERT_EQ(::munmap(places.at(place), page_bytes), 0);
    arena.collect(vmas);
    EXPECT_TRUE(arena.empty());
}

} // namespace
} // namespace tofu::sim
