// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Copies are exact, store each byte once, and the last line last.
#include "memory/copy.h"
#include "memory/vm_copy.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <unistd.h>
#include <vector>

namespace tofu::sim {
namespace {

TEST(MemoryCopy, EverySizeAndAlignmentIsExact)
{
    std::vector<std::byte> from(5000), to(5000);
    for (size_t i = 0; i < from.size(); ++i)
        from[i] = std::byte(i * 131 + i / 256);
    std::vector<size_t> sizes;
    for (size_t size = 0; size < 600; ++size)
        sizes.push_back(size);
    for (size_t size : {767, 768, 1023, 1024, 1025, 1279, 1280, 2000, 4096, 4099})
        sizes.push_back(size);
    for (const CopyOrder order : {CopyOrder::relaxed, CopyOrder::last_line})
        for (const size_t size : sizes)
            for (size_t shift = 0; shift < 66; ++shift) { // all places in a cache line
                std::fill(to.begin(), to.end(), std::byte{0xee});
                std::byte* const target = to.data() + 64 + shift;
                const std::byte* const source = from.data() + (shift * 5) % 19;
                copy_bytes(target, source, size, order);
                ASSERT_EQ(std::memcmp(target, source, size), 0) << size << ' ' << shift;
                for (size_t i = 0; i < 32; ++i) {
                    ASSERT_EQ(target[-1 - int(i)], std::byte{0xee}) << size << ' ' << shift;
                    ASSERT_EQ(target[size + i], std::byte{0xee}) << size << ' ' << shift;
                }
            }
}

// The ways of both kinds of processors: one call for all pieces, and a call for each with a barrier between.
TEST(MemoryCopy, ThroughTheKernelItIsExactInPiecesToo)
{
    std::vector<std::byte> from(1000), to(1000);
    for (size_t i = 0; i < from.size(); ++i)
        from[i] = std::byte(i * 131 + i / 256);
    const auto both = [&](auto copy) {
        for (const Towards towards : {Towards::there, Towards::here})
            for (const CopyOrder order : {CopyOrder::relaxed, CopyOrder::last_line})
                for (const size_t size : {0, 1, 7, 8, 9, 255, 256, 257, 263, 600})
                    for (size_t shift = 0; shift < 260; shift += 13) {
                        std::fill(to.begin(), to.end(), std::byte{0xee});
                        std::byte* const target = to.data() + 8 + shift;
                        std::byte* const source = from.data() + shift % 19;
                        std::byte* const there = towards == Towards::there ? target : source;
                        std::byte* const here = towards == Towards::there ? source : target;
                        ASSERT_EQ(copy(reinterpret_cast<uint64_t>(there), here, size, towards, order), ssize_t(size));
                        ASSERT_EQ(std::memcmp(target, source, size), 0) << size << ' ' << shift;
                        ASSERT_EQ(target[-1], std::byte{0xee});
                        ASSERT_EQ(target[size], std::byte{0xee});
                    }
        EXPECT_EQ(copy(8, to.data(), 100, Towards::there, CopyOrder::last_line), -1); // nothing is mapped there
    };
    const pid_t self = ::getpid();
    std::byte probe{};
    if (vm_copy(self, reinterpret_cast<uint64_t>(&probe), to.data(), 1, Towards::there, CopyOrder::relaxed) < 0)
        GTEST_SKIP() << "process_vm_writev is refused here";
    both([&](auto... how) { return vm_copy<true>(self, how...); });
    both([&](auto... how) { return vm_copy<false>(self, how...); });
}

// A reader takes a message when its last byte appears, and clears it: it must not appear again, and all that
// was sent before it must be there.
TEST(MemoryCopy, AMessageThatWasTakenDoesNotComeBack)
{
    alignas(256) static std::byte box[8192];
    std::atomic<uint32_t> taken{0};
    constexpr uint32_t rounds = 3000;
    for (const size_t size : {9, 13, 24, 100, 257, 300, 1300, 5000}) {
        std::memset(box, 0, sizeof box);
        taken = 0;
        uint32_t wrong = 0;
        uint32_t again = 0;
        std::thread reader([&, size] {
            auto* flag = reinterpret_cast<uint8_t*>(&box[size - 1]);
            for (uint32_t round = 1; round <= rounds; ++round) {
                while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) == 0)
                    std::this_thread::yield();
                for (size_t i = 0; i < size; i += 7)
                    wrong += __atomic_load_n(reinterpret_cast<uint8_t*>(&box[i]), __ATOMIC_RELAXED) != round % 255 + 1;
                __atomic_store_n(flag, 0, __ATOMIC_RELAXED);
                for (int i = 0; i < 50; ++i)
                    again += __atomic_load_n(flag, __ATOMIC_RELAXED) != 0;
                taken.store(round, std::memory_order_release);
            }
        });
        for (uint32_t round = 1; round <= rounds; ++round) {
            std::byte message[5000];
            std::memset(message, int(round % 255 + 1), size);
            copy_bytes(box, message, size, CopyOrder::last_line);
            while (taken.load(std::memory_order_acquire) != round)
                std::this_thread::yield();
        }
        reader.join();
        EXPECT_EQ(wrong, 0u) << size;
        EXPECT_EQ(again, 0u) << size;
    }
}

} // namespace
} // namespace tofu::sim
