// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What happens to registrations and moved pages as a program lives: free, realloc, munmap, reuse of STags. Fork is in
// fork_test.cc.
#include "leader.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <thread>
#include <tofu_sim.h>
#include <unistd.h>
#include <utility>

namespace tofu::sim::test {
namespace {

TEST(MemoryLife, StaddOfAFreedRegistrationStaysAnError)
{
    lead([](Node& node, Leader& peer) {
        uint64_t words[64] = {};
        const utofu_stadd_t first = node.add(words, sizeof words);
        EXPECT_EQ(peer.ask(add_one, first), UTOFU_SUCCESS);
        node.remove(first);
        EXPECT_EQ(utofu_dereg_mem(node.vcq, first, 0), UTOFU_ERR_INVALID_STADD);
        for (int i = 0; i < 3000; ++i) {
            const utofu_stadd_t other = node.add(words, sizeof words);
            ASSERT_NE(other, first);
            node.remove(other);
        }
        EXPECT_EQ(peer.ask(add_one, first), UTOFU_ERR_MRQ_RMT_STADD);
        EXPECT_EQ(words[0], 1u);
    });
}

TEST(MemoryLife, SameRangeHasTheSameStaddUntilFreedAsOften)
{
    lead([](Node& node, Leader& peer) {
        std::vector<uint64_t> words(1000);
        const utofu_stadd_t first = node.add(words.data(), 8000);
        EXPECT_EQ(node.add(words.data(), 8000), first);
        EXPECT_EQ(node.add(words.data() + 100, 800), first + 800); // inside
        node.remove(first);
        EXPECT_EQ(peer.ask(add_one, first + 7992), UTOFU_SUCCESS);
        node.remove(first);
        EXPECT_EQ(peer.ask(add_one, first), UTOFU_ERR_MRQ_RMT_STADD); // only the inner range is left
        EXPECT_EQ(peer.ask(add_one, first + 800), UTOFU_SUCCESS);
        EXPECT_EQ(peer.ask(add_one, first + 1592), UTOFU_SUCCESS);
        EXPECT_EQ(peer.ask(add_one, first + 1600), UTOFU_ERR_MRQ_RMT_STADD);
        node.remove(first + 800);
        EXPECT_EQ(peer.ask(add_one, first + 800), UTOFU_ERR_MRQ_RMT_STADD);
    });
}

// Peers compute the STADD of a reserved STag: wherever the memory lies, query and registration agree.
TEST(MemoryLife, ReservedStagsHaveTheStaddThatPeersExpect)
{
    lead([](Node& node, Leader& peer) {
        alignas(256) static uint64_t words[3000];
        for (unsigned i = 0; i < 20; ++i) {
            uint64_t* const at = words + 32 * i;
            utofu_stadd_t stadd = 0;
            utofu_stadd_t expected = 0;
            EXPECT_EQ(utofu_reg_mem_with_stag(node.vcq, at, 256 * (i + 1), i * 13, 0, &stadd), UTOFU_SUCCESS);
            EXPECT_EQ(utofu_query_stadd(node.id, i * 13, &expected), UTOFU_SUCCESS);
            EXPECT_EQ(stadd, expected);
            EXPECT_EQ(utofu_reg_mem_with_stag(node.vcq, at, 256, i * 13, 0, &stadd), UTOFU_ERR_USED);
            const uint64_t before = at[1];
            EXPECT_EQ(peer.ask(add_one, expected + 8), UTOFU_SUCCESS);
            EXPECT_EQ(at[1], before + 1);
            EXPECT_EQ(peer.ask(write_one, expected + 256 * i + 248, i), UTOFU_SUCCESS);
            EXPECT_EQ(at[32 * i + 31], i);
            EXPECT_EQ(peer.ask(add_one, expected + 256 * (i + 1)), UTOFU_ERR_MRQ_RMT_STADD);
        }
        for (unsigned i = 0; i < 20; ++i) {
            utofu_stadd_t stadd = 0;
            EXPECT_EQ(utofu_query_stadd(node.id, i * 13, &stadd), UTOFU_SUCCESS);
            node.remove(stadd);
            EXPECT_EQ(peer.ask(add_one, stadd), UTOFU_ERR_MRQ_RMT_STADD);
        }
    });
}

TEST(MemoryLife, StagsRunOutAndComeBack)
{
    expect_processes(1, [](const Rank&) {
        Node node; // has one registration
        std::vector<char> bytes(20000);
        std::vector<utofu_stadd_t> stadds(6143);
        for (size_t i = 0; i < stadds.size(); ++i)
            stadds[i] = node.add(&bytes[i], 2);
        utofu_stadd_t more = 0;
        EXPECT_EQ(utofu_reg_mem(node.vcq, &bytes[10000], 2, 0, &more), UTOFU_ERR_FULL);
        EXPECT_EQ(node.add(&bytes[17], 2), stadds[17]); // one more use of what there is
        node.remove(stadds[17]);
        node.remove(stadds[17]);
        EXPECT_EQ(utofu_reg_mem(node.vcq, &bytes[10000], 2, 0, &more), UTOFU_SUCCESS);
        stadds[17] = more;
        for (const utofu_stadd_t stadd : stadds)
            node.remove(stadd);
        std::sort(stadds.begin(), stadds.end());
        EXPECT_EQ(std::adjacent_find(stadds.begin(), stadds.end()), stadds.end());
    });
}

// realloc may move a mapping with mremap, or let it grow over its end: moved pages must follow, and the bytes
// behind them in the arena must belong to no other region.
TEST(MemoryLife, ReallocKeepsMovedPagesApart)
{
    lead([](Node& node, Leader& peer) {
        constexpr size_t words = 40000;
        std::vector<uint64_t*> blocks(8);
        for (auto& block : blocks)
            block = static_cast<uint64_t*>(std::malloc(words * 8));
        for (size_t round = 0; round < 5; ++round) {
            for (size_t b = 0; b < blocks.size(); ++b) {
                const utofu_stadd_t stadd = node.add(blocks[b], words * 8);
                for (size_t i = 0; i < words; ++i)
                    blocks[b][i] = b * words + i;
                for (size_t i = 0; i < words; i += words / 8)
                    ASSERT_EQ(peer.ask(add_one, stadd + i * 8), UTOFU_SUCCESS);
                node.remove(stadd);
            }
            for (auto& block : blocks) // all at once: each grows over what was behind it
                block = static_cast<uint64_t*>(std::realloc(block, words * 8 * (2 + round)));
            for (size_t b = 0; b < blocks.size(); ++b)
                std::memset(blocks[b] + words, int(b), words * 8 * (1 + round));
            for (size_t b = 0; b < blocks.size(); ++b)
                for (size_t i = 0; i < words; ++i)
                    ASSERT_EQ(blocks[b][i], b * words + i + (i % (words / 8) == 0)) << b << ' ' << i;
        }
        for (auto* block : blocks)
            std::free(block);
    });
}

TEST(MemoryLife, RemappedMemoryIsNeverTheOld)
{
    lead([](Node& node, Leader& peer) {
        const size_t bytes = 64 * page;
        void* at = nullptr;
        for (uint64_t i = 0; i < 50; ++i) {
            const int kind = i % 2 == 0 ? MAP_PRIVATE : MAP_SHARED;
            auto* words = static_cast<uint64_t*>(::mmap(at, bytes, PROT_READ | PROT_WRITE,
                                                        kind | MAP_ANONYMOUS | (at ? MAP_FIXED_NOREPLACE : 0), -1, 0));
            ASSERT_NE(words, MAP_FAILED);
            at = words;
            ASSERT_EQ(words[100], 0u);
            const utofu_stadd_t stadd = node.add(words, bytes);
            ASSERT_EQ(peer.ask(write_one, stadd + 800, i + 1), UTOFU_SUCCESS);
            ASSERT_EQ(peer.ask(add_one, stadd + 800), UTOFU_SUCCESS);
            ASSERT_EQ(words[100], i + 2);
            node.remove(stadd);
            ::munmap(words, bytes);
        }
    });
}

size_t open_files()
{
    size_t count = 0;
    for (int fd = 0; fd < 1024; ++fd)
        count += ::fcntl(fd, F_GETFD) >= 0;
    return count;
}

// A process may have 1024 files open, and many peers.
TEST(MemoryLife, ReachingAPeerKeepsNoFileOpen)
{
    expect_processes(2, [](const Rank& rank) {
        Node node;
        std::vector<uint64_t> words(1000);
        auto* shared =
            static_cast<uint64_t*>(::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
        rank.set(rank.number, node.id);
        rank.set(10 + rank.number, node.add(words.data(), 8000));
        rank.set(20 + rank.number, node.add(shared, page));
        EXPECT_EQ(node.put8(node.id, rank.get(10 + rank.number), 1), UTOFU_SUCCESS);
        rank.barrier();
        const size_t before = open_files();
        rank.barrier();
        EXPECT_EQ(node.put8(rank.get(1 - rank.number), rank.get(11 - rank.number), 7), UTOFU_SUCCESS);
        EXPECT_EQ(node.add8(rank.get(1 - rank.number), rank.get(21 - rank.number), 7), UTOFU_SUCCESS);
        // What hands our memory to the peer, which reaches us at the same time, has a file of its own open for that.
        EXPECT_TRUE(wait_until([&] { return open_files() <= before; }));
        rank.barrier();
        EXPECT_EQ(words[0], 7u);
        EXPECT_EQ(*shared, 7u);
    });
}

size_t shared_kib()
{
    std::ifstream status("/proc/self/status");
    std::string line;
    while (std::getline(status, line))
        if (line.rfind("RssShmem:", 0) == 0)
            return std::stoul(line.substr(9));
    return 0;
}

uint64_t moved_file_bytes() // memory of the arena, mapped or not
{
    struct stat status {};
    for (int fd = 3; fd < 64; ++fd) {
        char name[64] = {};
        const std::string path = "/proc/self/fd/" + std::to_string(fd);
        if (::readlink(path.c_str(), name, sizeof name - 1) > 0 && std::strstr(name, "tofu-sim-arena") != nullptr &&
            ::fstat(fd, &status) == 0)
            return uint64_t(status.st_blocks) * 512;
    }
    return 0;
}

// A program that maps, registers, uses and unmaps again and again does not fill memory with what it has freed.
TEST(MemoryLife, UnmappedPagesAreGivenBack)
{
    if (!memory_moves())
        GTEST_SKIP() << "no page is moved here: userfaultfd is refused";
    lead([](Node& node, Leader& peer) {
        constexpr size_t bytes = 1 << 20;
        uint64_t most = 0;
        for (uint64_t i = 0; i < 400; ++i) {
            auto* words = static_cast<uint64_t*>(
                ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
            ASSERT_NE(words, MAP_FAILED);
            std::memset(words, int(i), bytes);
            const utofu_stadd_t stadd = node.add(words, bytes);
            for (size_t at = 0; at < bytes; at += bytes / 4)
                ASSERT_EQ(peer.ask(write_one, stadd + at + 8, i), UTOFU_SUCCESS);
            ASSERT_EQ(words[1], i);
            ASSERT_EQ(words[2], i % 256 * 0x0101010101010101u);
            node.remove(stadd);
            ::munmap(words, bytes);
            most = std::max(most, moved_file_bytes());
        }
        EXPECT_GT(most, uint64_t{1} << 20);
        EXPECT_LT(most, uint64_t{160} << 20); // of 400 MiB in all
        EXPECT_LT(shared_kib(), size_t{160} << 10);
    });
}

size_t moved_mappings()
{
    std::ifstream maps("/proc/self/maps");
    std::string line;
    size_t count = 0;
    while (std::getline(maps, line))
        count += line.find("tofu-sim-arena") != std::string::npos;
    return count;
}

// Long transfers go on by copy and leave the move to the owner: more of them than it takes requests at a time.
TEST(MemoryLife, WhatIsCopiedOftenIsMovedInTheEnd)
{
    if (!memory_moves())
        GTEST_SKIP() << "no page is moved here: userfaultfd is refused";
    static constexpr unsigned buffers = 24; // of 8 requests
    constexpr size_t bytes = 64 << 10;
    expect_processes(2, [](const Rank& rank) {
        Node node;
        rank.set(rank.number, node.id);
        std::vector<char*> memory;
        for (unsigned i = 0; i < buffers && rank.number == 0; ++i) { // apart, so that each is a mapping
            memory.push_back(static_cast<char*>(
                ::mmap(nullptr, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)));
            rank.set(100 + i, node.add(memory[i], bytes));
        }
        rank.barrier();
        if (rank.number == 1) {
            const std::vector<char> many(bytes, 7);
            EXPECT_TRUE(wait_until([&] {
                for (unsigned i = 0; i < buffers; ++i)
                    EXPECT_EQ(node.put(rank.get(0), rank.get(100 + i), many.data(), bytes), UTOFU_SUCCESS);
                return rank.get(30) != 0;
            }));
        } else {
            EXPECT_TRUE(wait_until([] { return moved_mappings() == buffers; }));
            rank.set(30, 1);
        }
        rank.barrier();
        for (const char* buffer : memory)
            EXPECT_EQ(std::count(buffer, buffer + bytes, 7), std::ptrdiff_t(bytes));
    });
}

// What is fetched is moved when that is worth its price (memory/rent.h), and no sooner. The program can ask for it.
TEST(MemoryLife, WhatIsFetchedIsMovedWhenItHasCostAsMuch)
{
    if (!memory_moves())
        GTEST_SKIP() << "no page is moved here: userfaultfd is refused";
    constexpr size_t bytes = 16 << 10;
    expect_processes(2, [](const Rank& rank) {
        Node node;
        rank.set(rank.number, node.id);
        auto* const memory =
            static_cast<char*>(::mmap(nullptr, 4 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        std::memset(memory, 7, bytes);
        rank.set(10 + rank.number, node.add(memory, bytes));
        rank.barrier();
        std::vector<char> got(bytes);
        const auto fetch = [&] {
            EXPECT_EQ(node.get(rank.get(0), rank.get(10), got.data(), bytes), UTOFU_SUCCESS);
            return std::count(got.begin(), got.end(), 7) == std::ptrdiff_t(bytes);
        };
        for (int i = 0; i < 50 && rank.number == 1; ++i)
            EXPECT_TRUE(fetch());
        rank.barrier();
        if (rank.number == 0) {
            EXPECT_EQ(moved_mappings(), 0u);
            EXPECT_EQ(tofu_sim_moved(memory, bytes), 0);
        }
        rank.barrier();
        if (rank.number == 0) {
            EXPECT_TRUE(wait_until([&] { return tofu_sim_moved(memory, bytes) == 1; }));
            EXPECT_EQ(tofu_sim_moved(memory + 100, 1), 1);
            EXPECT_EQ(tofu_sim_moved(memory, bytes + 1), 0) << "the next page was not registered";
            rank.set(30, 1);
        } else {
            EXPECT_TRUE(wait_until([&] { return fetch() && rank.get(30) != 0; }));
        }
        rank.barrier();
        if (rank.number == 0) {
            ::munmap(memory, bytes);
            EXPECT_EQ(tofu_sim_moved(memory, bytes), 0);
        }
    });
}

// Far more scattered buffers than a process may have mappings: all are reached, and the program can still map.
TEST(MemoryLife, ScatteredMovesLeaveMappingsForTheProgram)
{
    if (!memory_moves())
        GTEST_SKIP() << "no page is moved here: userfaultfd is refused";
    constexpr size_t batch = 5000;
    constexpr size_t batches = 7;
    constexpr size_t most_runs = 65530 / 8;
    auto* const stadds = static_cast<utofu_stadd_t*>(
        ::mmap(nullptr, batch * 8, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(stadds, MAP_FAILED);
    expect_processes(2, [&](const Rank& rank) {
        Node node;
        rank.set(rank.number, node.id);
        rank.barrier();
        if (rank.number == 1) {
            for (size_t round = 0; round <= batches; ++round) {
                rank.barrier();
                for (size_t i = 0; i < (round == batches ? 1 : batch); ++i)
                    ASSERT_EQ(node.add8(rank.get(0), stadds[i], 1), UTOFU_SUCCESS);
                rank.barrier();
            }
            return;
        }
        const int rights = PROT_READ | PROT_WRITE;
        const size_t bytes = 2 * page * batch * batches;
        auto* const memory = static_cast<char*>(::mmap(nullptr, bytes, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        ASSERT_NE(memory, MAP_FAILED);
        for (size_t round = 0; round < batches; ++round) {
            char* const start = memory + 2 * page * batch * round;
            for (size_t i = 0; i < batch; ++i)
                stadds[i] = node.add(start + 2 * page * i, 8);
            rank.barrier();
            rank.barrier();
            for (size_t i = 0; i < batch; ++i) {
                ASSERT_EQ(*reinterpret_cast<uint64_t*>(start + 2 * page * i), 1u) << round << ' ' << i;
                node.remove(stadds[i]);
            }
        }
        EXPECT_GT(moved_mappings(), most_runs / 2);
        EXPECT_LE(moved_mappings(), most_runs);
        constexpr size_t own = 30000; // of the program
        void* const theirs = ::mmap(nullptr, own * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ASSERT_NE(theirs, MAP_FAILED);
        for (size_t i = 0; i < own; i += 2)
            ASSERT_EQ(::mprotect(static_cast<char*>(theirs) + i * page, page, PROT_READ), 0) << i;
        ::munmap(theirs, own * page);
        // What the program unmaps makes room.
        ::munmap(memory, bytes);
        auto* const fresh = static_cast<char*>(::mmap(nullptr, page, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        for (size_t i = 0; i < most_runs + 1; ++i)
            node.remove(node.add(fresh, 8));
        stadds[0] = node.add(fresh, 8);
        rank.barrier();
        rank.barrier();
        EXPECT_EQ(moved_mappings(), 1u);
        node.remove(stadds[0]);
    });
    ::munmap(stadds, batch * 8);
}

// Still registered, but gone: an error for the poster, no other effect.
TEST(MemoryLife, UnmappedUnderARegistrationIsAnError)
{
    lead([](Node& node, Leader& peer) {
        auto* words =
            static_cast<uint64_t*>(::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        const utofu_stadd_t stadd = node.add(words, page);
        ::munmap(words, page);
        EXPECT_EQ(peer.ask(add_one, stadd), UTOFU_ERR_MRQ_RMT_MEMORY);
        EXPECT_EQ(peer.ask(write_one, stadd), UTOFU_ERR_MRQ_RMT_MEMORY);
        node.remove(stadd);
    });
}

// Taken from the program's own reach, while peers use it: an error for the poster or the access itself, and no signal
// for the owner, whichever of its threads meets the change.
TEST(MemoryLife, ProtectedUnderARegistrationIsNoSignal)
{
    lead([](Node& node, Leader& peer) {
        constexpr size_t pages = 16;
        const int file = ::memfd_create("private", MFD_CLOEXEC);
        ASSERT_EQ(::ftruncate(file, off_t(pages * page)), 0);
        int reached = 0;
        for (int round = 0; round < 150; ++round) {
            // The first of them peers map in the end; the second is reached by its owner alone.
            const bool movable = round % 3 != 0;
            auto* const words =
                static_cast<uint64_t*>(::mmap(nullptr, pages * page, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | (movable ? MAP_ANONYMOUS : 0), movable ? -1 : file, 0));
            ASSERT_NE(words, MAP_FAILED);
            std::fill_n(words, pages * page / 8, 1);
            const utofu_stadd_t stadd = node.add(words, pages * page);
            std::atomic<bool> done{false};
            std::thread protector([&] {
                while (!done.load())
                    for (const int rights : {PROT_NONE, PROT_READ | PROT_WRITE, PROT_READ, PROT_READ | PROT_WRITE})
                        ::mprotect(words, pages * page, rights);
            });
            for (size_t i = 0; i < pages; ++i) {
                const int rc = peer.ask(write_one, stadd + i * page, 1);
                ASSERT_TRUE(rc == UTOFU_SUCCESS || rc == UTOFU_ERR_MRQ_RMT_MEMORY) << rc;
                reached += rc == UTOFU_SUCCESS;
            }
            done = true;
            protector.join();
            for (const int rights : {PROT_NONE, PROT_READ}) {
                ::mprotect(words, pages * page, rights);
                const int rc = peer.ask(add_one, stadd);
                EXPECT_TRUE(rc == UTOFU_ERR_MRQ_RMT_MEMORY || (movable && rc == UTOFU_SUCCESS)) << rc;
            }
            node.remove(stadd);
            ::munmap(words, pages * page);
        }
        ::close(file);
        EXPECT_GT(reached, 0);
    });
}

size_t locked_kib()
{
    std::ifstream status("/proc/self/status");
    std::string line;
    while (std::getline(status, line))
        if (line.rfind("VmLck:", 0) == 0)
            return std::stoul(line.substr(6));
    return 0;
}

// Guide 4.3.2.5. A mebibyte is within any RLIMIT_MEMLOCK that systems come with today.
TEST(MemoryLife, SwapProtectionLocksWhatIsRegistered)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the sanitizers make mlock do nothing";
#endif
    expect_processes(2, [](const Rank& rank) {
        ::setenv("UTOFU_SWAP_PROTECT", rank.number == 0 ? "1" : "0", 1);
        utofu_vcq_hdl_t vcq = 0;
        ASSERT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_SUCCESS);
        std::vector<char> bytes(1 << 20);
        utofu_stadd_t stadd = 0;
        const size_t before = locked_kib();
        ASSERT_EQ(utofu_reg_mem(vcq, bytes.data(), bytes.size(), 0, &stadd), UTOFU_SUCCESS);
        EXPECT_EQ(locked_kib() >= before + 1024, rank.number == 0);
    });
}

// What is locked counts against RLIMIT_MEMLOCK, which is for "the memory region used for communication".
TEST(MemoryLife, SwapProtectionEndsWithTheLastRegistrationOfAPage)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the sanitizers make mlock do nothing";
#endif
    expect_processes(1, [](const Rank&) {
        ::setenv("UTOFU_SWAP_PROTECT", "1", 1);
        utofu_vcq_hdl_t vcq = 0;
        ASSERT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_SUCCESS);
        const size_t size = 64 * page;
        void* const pages = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ASSERT_NE(pages, MAP_FAILED);
        char* const bytes = static_cast<char*>(pages);
        const size_t before = locked_kib(), kib = page / 1024; // of a page
        const auto reg = [&](size_t at, size_t length) {
            utofu_stadd_t stadd = 0;
            EXPECT_EQ(utofu_reg_mem(vcq, bytes + at, length, 0, &stadd), UTOFU_SUCCESS);
            return stadd;
        };
        const auto dereg = [&](utofu_stadd_t stadd) { EXPECT_EQ(utofu_dereg_mem(vcq, stadd, 0), UTOFU_SUCCESS); };
        const utofu_stadd_t whole = reg(0, 32 * page);
        const utofu_stadd_t again = reg(0, 32 * page);
        const utofu_stadd_t inside = reg(2 * page, 2 * page);
        const utofu_stadd_t beyond = reg(25 * page + 1, 15 * page);
        EXPECT_EQ(locked_kib(), before + 41 * kib);
        dereg(whole);
        EXPECT_EQ(locked_kib(), before + 41 * kib);
        dereg(again);
        EXPECT_EQ(locked_kib(), before + (2 + 16) * kib);
        dereg(inside);
        EXPECT_EQ(locked_kib(), before + 16 * kib);
        dereg(beyond);
        EXPECT_EQ(locked_kib(), before);
        // The program's own lock is the program's.
        ASSERT_EQ(::mlock(bytes, page), 0);
        dereg(reg(0, 4 * page));
        EXPECT_GE(locked_kib(), before + kib);
        ASSERT_EQ(::munlock(bytes, 4 * page), 0);
        (void)reg(0, 32 * page);
        ASSERT_EQ(utofu_free_vcq(vcq), UTOFU_SUCCESS);
        EXPECT_EQ(locked_kib(), before);
        EXPECT_EQ(::munmap(pages, size), 0);
    });
}

// The file behind shared memory is looked for among the descriptors, which other threads open and close meanwhile.
TEST(MemoryLife, AFileIsFoundThoughDescriptorsChange)
{
    lead([](Node& node, Leader& peer) {
        const auto make = [] {
            const int fd = ::memfd_create("life", MFD_CLOEXEC | MFD_ALLOW_SEALING);
            EXPECT_EQ(::ftruncate(fd, page), 0);
            EXPECT_EQ(::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
            return fd;
        };
        const auto map = [](int fd) {
            return static_cast<uint64_t*>(::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
        };
        const int seen_first = ::dup(0);
        const int wrong = make();
        std::mutex using_right; // the thread that closes it must know that no other one duplicates it any more
        int right = wrong;
        std::atomic<bool> over{false};
        std::thread changer([&] {
            while (!over) {
                {
                    std::lock_guard guard(using_right);
                    ::dup2(right, seen_first);
                }
                ::dup2(wrong, seen_first);
            }
        });
        uint64_t* const elsewhere = map(wrong);
        for (uint64_t i = 1; i <= 400 && !::testing::Test::HasFailure(); ++i) {
            const int fd = make();
            uint64_t* const word = map(fd);
            int before = fd;
            {
                std::lock_guard guard(using_right);
                std::swap(before, right);
            }
            const utofu_stadd_t stadd = node.add(word, page);
            EXPECT_EQ(peer.ask(write_one, stadd, i), UTOFU_SUCCESS);
            EXPECT_EQ(*word, i);
            EXPECT_EQ(*elsewhere, 0u);
            node.remove(stadd);
            ::munmap(word, page);
            if (before != wrong)
                ::close(before);
        }
        over = true;
        changer.join();
    });
}

} // namespace
} // namespace tofu::sim::test
