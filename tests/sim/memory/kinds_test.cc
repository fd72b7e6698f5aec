// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Every kind of memory that a process has can be registered, reached and updated atomically by a peer.
#include "harness.h"

#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <thread>
#include <unistd.h>

namespace tofu::sim::test {
namespace {

struct alignas(8) Words {
    uint64_t word[4096]; // 32 KiB
};
Words initialised = {{1, 2, 3}};
Words zeroed;

void exercise_mapping(int flags, int fd, size_t bytes)
{
    expect_processes(2, [=](const Rank& rank) {
        exercise(rank, [=](const auto& run) {
            void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
            ASSERT_NE(base, MAP_FAILED);
            run(base, bytes);
            ::munmap(base, bytes);
        });
    });
}

TEST(MemoryKinds, SmallHeap)
{
    expect_processes(2, [](const Rank& rank) {
        exercise(rank, [](const auto& run) {
            std::vector<uint64_t> words(40);
            run(words.data(), words.size() * 8);
        });
    });
}

TEST(MemoryKinds, LargeHeap)
{
    expect_processes(2, [](const Rank& rank) {
        exercise(rank, [](const auto& run) {
            std::vector<uint64_t> words(300001);
            run(words.data(), words.size() * 8);
        });
    });
}

TEST(MemoryKinds, StackOfTheFirstThread)
{
    expect_processes(2, [](const Rank& rank) {
        exercise(rank, [](const auto& run) {
            uint64_t words[3000];
            run(words, sizeof words);
        });
    });
}

TEST(MemoryKinds, StackOfAnotherThread)
{
    expect_processes(2, [](const Rank& rank) {
        exercise(rank, [](const auto& run) {
            std::thread([&] {
                uint64_t words[3000];
                run(words, sizeof words);
            }).join();
        });
    });
}

TEST(MemoryKinds, InitialisedData)
{
    expect_processes(
        2, [](const Rank& rank) { exercise(rank, [](const auto& run) { run(&initialised, sizeof initialised); }); });
}

TEST(MemoryKinds, ZeroedData)
{
    expect_processes(2, [](const Rank& rank) { exercise(rank, [](const auto& run) { run(&zeroed, sizeof zeroed); }); });
}

TEST(MemoryKinds, PrivateMapping)
{
    exercise_mapping(MAP_PRIVATE | MAP_ANONYMOUS, -1, 100 * page);
}

TEST(MemoryKinds, SharedAnonymousMapping)
{
    exercise_mapping(MAP_SHARED | MAP_ANONYMOUS, -1, 100 * page);
}

TEST(MemoryKinds, SealedMemfd)
{
    const int fd = ::memfd_create("test", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    ASSERT_EQ(::ftruncate(fd, 100 * page), 0);
    ASSERT_EQ(::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    exercise_mapping(MAP_SHARED, fd, 100 * page);
    ::close(fd);
}

TEST(MemoryKinds, UnsealedMemfd)
{
    const int fd = ::memfd_create("test", MFD_CLOEXEC);
    ASSERT_EQ(::ftruncate(fd, 20 * page), 0);
    exercise_mapping(MAP_SHARED, fd, 20 * page);
    exercise_mapping(MAP_PRIVATE, fd, 20 * page);
    ::close(fd);
}

TEST(MemoryKinds, SystemVSharedMemory)
{
    expect_processes(2, [](const Rank& rank) {
        exercise(rank, [](const auto& run) {
            const int id = ::shmget(IPC_PRIVATE, 40 * page, IPC_CREAT | 0600);
            void* base = ::shmat(id, nullptr, 0);
            ::shmctl(id, IPC_RMID, nullptr);
            ASSERT_NE(base, reinterpret_cast<void*>(-1));
            run(base, 40 * page);
            ::shmdt(base);
        });
    });
}

// One registration over pages of four kinds.
TEST(MemoryKinds, RangeOverSeveralMappings)
{
    expect_processes(2, [](const Rank& rank) {
        exercise(rank, [](const auto& run) {
            auto* base = static_cast<char*>(
                ::mmap(nullptr, 40 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
            const int sealed = ::memfd_create("sealed", MFD_ALLOW_SEALING | MFD_CLOEXEC);
            const int plain = ::memfd_create("plain", MFD_CLOEXEC);
            ASSERT_EQ(::ftruncate(sealed, 10 * page), 0);
            ASSERT_EQ(::fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK), 0);
            ASSERT_EQ(::ftruncate(plain, 10 * page), 0);
            const int rights = PROT_READ | PROT_WRITE;
            ASSERT_EQ(::mmap(base + 5 * page, 3 * page, rights, MAP_SHARED | MAP_FIXED, sealed, page), base + 5 * page);
            ASSERT_EQ(::mmap(base + 8 * page, 3 * page, rights, MAP_SHARED | MAP_FIXED, plain, 0), base + 8 * page);
            ASSERT_EQ(::mmap(base + 20 * page, page, rights, MAP_PRIVATE | MAP_FIXED, plain, 0), base + 20 * page);
            ASSERT_EQ(::mmap(base + 30 * page, page, rights, MAP_SHARED | MAP_FIXED, sealed, 0), base + 30 * page);
            run(base, 40 * page);
            ::close(sealed);
            ::close(plain);
            ::munmap(base, 40 * page);
        });
    });
}

TEST(MemoryKinds, ReadOnlyMemoryIsReadOnly)
{
    expect_processes(2, [](const Rank& rank) {
        Node node;
        rank.set(rank.number, node.id);
        static const uint64_t constant[1000] = {5, 6, 7};
        if (rank.number == 0) {
            utofu_stadd_t stadd = 0;
            EXPECT_EQ(utofu_reg_mem(node.vcq, const_cast<uint64_t*>(constant), sizeof constant, 0, &stadd),
                      UTOFU_ERR_INVALID_ADDRESS);
            rank.set(10, node.add(const_cast<uint64_t*>(constant), sizeof constant, UTOFU_REG_MEM_FLAG_READ_ONLY));
            static uint64_t writable[8] = {9};
            rank.set(11, node.add(writable, sizeof writable, UTOFU_REG_MEM_FLAG_READ_ONLY));
            rank.set(12, node.add(writable, sizeof writable));
            EXPECT_EQ(rank.get(11) >> 40 & 1, 1u);
            EXPECT_EQ(rank.get(12) >> 40 & 1, 0u);
            rank.barrier();
            rank.barrier();
            EXPECT_EQ(writable[0], 11u);
        } else {
            rank.barrier();
            uint64_t value = 0;
            EXPECT_EQ(node.get8(rank.get(0), rank.get(10) + 8, &value), UTOFU_SUCCESS);
            EXPECT_EQ(value, 6u);
            EXPECT_EQ(node.put8(rank.get(0), rank.get(10), 1), UTOFU_ERR_MRQ_RMT_MEMORY);
            EXPECT_EQ(node.put8(rank.get(0), rank.get(11), 1), UTOFU_ERR_MRQ_RMT_MEMORY);
            EXPECT_EQ(node.add8(rank.get(0), rank.get(11), 1), UTOFU_ERR_MRQ_RMT_MEMORY);
            EXPECT_EQ(node.put8(rank.get(0), rank.get(12), 10), UTOFU_SUCCESS);
            EXPECT_EQ(node.add8(rank.get(0), rank.get(12), 1), UTOFU_SUCCESS);
            EXPECT_EQ(node.get8(rank.get(0), rank.get(11), &value), UTOFU_SUCCESS);
            EXPECT_EQ(value, 11u);
            rank.barrier();
        }
    });
}

TEST(MemoryKinds, UnmappedMemoryIsRefused)
{
    expect_processes(1, [](const Rank&) {
        Node node;
        // Far from where the kernel would put what another thread maps into the holes.
        auto* base = static_cast<char*>(::mmap(reinterpret_cast<void*>(uintptr_t{1} << 45), 5 * page,
                                               PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        ASSERT_NE(base, MAP_FAILED);
        ::munmap(base + 2 * page, page);
        ::munmap(base + 4 * page, page);
        ::mprotect(base + page, page, PROT_NONE);
        utofu_stadd_t stadd = 77;
        for (auto [at, size] : {std::pair{base, 3 * page},
                                {base + page, size_t{1}},
                                {base + 2 * page, size_t{8}},
                                {base + 3 * page, 2 * page}})
            EXPECT_EQ(utofu_reg_mem(node.vcq, at, size, 0, &stadd), UTOFU_ERR_INVALID_ADDRESS);
        EXPECT_EQ(utofu_reg_mem(node.vcq, base, 0, 0, &stadd), UTOFU_ERR_INVALID_SIZE);
        EXPECT_EQ(stadd, 77u);
    });
}

} // namespace
} // namespace tofu::sim::test
