// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a child of fork has of registrations and moved pages, and that its parent keeps its own.
#include "leader.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <pthread.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <tofu_sim.h>
#include <unistd.h>
#include <utility>

namespace tofu::sim::test {
namespace {

// Forks a child that does this and nothing else: did it find all well? Allocates nothing itself.
template <typename Body>
bool child_is_well(Body&& body)
{
    const pid_t child = ::fork();
    if (child == 0)
        ::_exit(body() ? 0 : 1);
    int status = -1;
    return ::waitpid(child, &status, 0) == child && status == 0;
}

TEST(MemoryFork, ChildOfForkHasItsOwnCopy)
{
    lead([](Node& node, Leader& peer) {
        std::vector<uint64_t> words(100000, 5);
        const utofu_stadd_t stadd = node.add(words.data(), words.size() * 8);
        for (size_t i = 0; i < words.size(); i += 1000)
            ASSERT_EQ(peer.ask(add_one, stadd + i * 8), UTOFU_SUCCESS);
        for (int round = 0; round < 3; ++round) {
            const pid_t child = ::fork();
            ASSERT_GE(child, 0);
            if (child == 0) {
                uint64_t good = 0;
                for (size_t i = 0; i < words.size(); ++i)
                    good += words[i] == 5u + (i % 1000 == 0) + (i == 0 ? round : 0);
                std::fill(words.begin(), words.end(), 99);
                utofu_stadd_t more = 0;
                const bool refused = utofu_reg_mem(node.vcq, words.data(), 8, 0, &more) != UTOFU_SUCCESS;
                ::_exit(good == words.size() && refused ? 0 : 1);
            }
            EXPECT_EQ(peer.ask(add_one, stadd), UTOFU_SUCCESS); // while the child writes
            int status = -1;
            EXPECT_EQ(::waitpid(child, &status, 0), child);
            EXPECT_EQ(status, 0);
            EXPECT_EQ(words[0], 7u + round);
            EXPECT_EQ(words[1], 5u);
        }
        node.remove(stadd);
    });
}

// The bytes of [heap], where the C library's allocator keeps its notes beside what it has given out.
std::pair<char*, size_t> heap()
{
    std::ifstream maps("/proc/self/maps");
    std::string line;
    uint64_t start = 0;
    uint64_t end = 0;
    while (std::getline(maps, line)) {
        uint64_t from = 0;
        uint64_t to = 0;
        if (line.find("[heap]") == std::string::npos && (end == 0 || line.find(" rw-s ") == std::string::npos))
            continue;
        if (std::sscanf(line.c_str(), "%lx-%lx", &from, &to) == 2 && (end == 0 || from == end)) {
            start = end == 0 ? from : start;
            end = to;
        }
    }
    return {reinterpret_cast<char*>(start), size_t(end - start)};
}

// Moved pages are shared with a child until it has copied them: what the simulator itself allocates there must come
// later, or the parent's allocator finds data of another owner.
TEST(MemoryFork, AChildOfForkTouchesNothingOfItsParentsHeap)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the sanitizers bring an allocator of their own";
#endif
    lead([](Node& node, Leader& peer) {
        std::vector<uint64_t*> blocks(16);
        for (auto& block : blocks)
            block = static_cast<uint64_t*>(std::malloc(30000));
        const auto [start, bytes] = heap();
        ASSERT_GT(bytes, size_t{256} << 10);
        const utofu_stadd_t stadd = node.add(start, bytes);
        for (auto* block : blocks)
            ASSERT_EQ(peer.ask(add_one, stadd + uint64_t(reinterpret_cast<char*>(block) - start)), UTOFU_SUCCESS);
        auto* before =
            static_cast<char*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        ASSERT_NE(before, MAP_FAILED);
        for (int round = 0; round < 3; ++round) { // the first one lets the parent's side allocate what it needs
            std::memcpy(before, start, bytes);
            const bool ended = child_is_well([] { return true; });
            const bool same = std::memcmp(before, start, bytes) == 0;
            EXPECT_TRUE(ended);
            EXPECT_TRUE(same || round == 0);
        }
        ::munmap(before, bytes);
        node.remove(stadd);
        for (auto* block : blocks)
            std::free(block);
    });
}

// A child that uses uTofu is a process like any other: what it frees is gone.
TEST(MemoryFork, AChildThatUsesUTofuItselfCanFreeItsVcqs)
{
    expect_processes(1, [](const Rank&) {
        Node node;
        const pid_t child = ::fork();
        if (child == 0) {
            alignas(256) static uint64_t words[32];
            utofu_vcq_hdl_t vcq = 0;
            utofu_stadd_t stadd = 0;
            EXPECT_EQ(utofu_create_vcq(0, UTOFU_VCQ_FLAG_EXCLUSIVE, &vcq), UTOFU_SUCCESS);
            EXPECT_EQ(utofu_reg_mem_with_stag(vcq, words, sizeof words, 5, 0, &stadd), UTOFU_SUCCESS);
            const utofu_vcq_hdl_t first = vcq;
            EXPECT_EQ(utofu_free_vcq(vcq), UTOFU_SUCCESS);
            EXPECT_EQ(utofu_create_vcq(0, UTOFU_VCQ_FLAG_EXCLUSIVE, &vcq), UTOFU_SUCCESS);
            EXPECT_EQ(vcq, first); // the same place
            utofu_vcq_id_t id = 0;
            EXPECT_EQ(utofu_query_vcq_id(vcq, &id), UTOFU_SUCCESS);
            EXPECT_EQ(posted([&] {
                          return utofu_put_piggyback8(vcq, id, 77, stadd, 8, 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE,
                                                      nullptr);
                      }),
                      UTOFU_SUCCESS);
            utofu_mrq_notice notice;
            EXPECT_EQ(wait_mrq(vcq, &notice), UTOFU_ERR_MRQ_RMT_STADD);
            EXPECT_EQ(words[0], 0u);
            std::exit(::testing::Test::HasFailure() ? 1 : 0);
        }
        int status = -1;
        EXPECT_EQ(::waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
    });
}

TEST(MemoryFork, ForkFromAStackThatWasMoved)
{
    lead([](Node& node, Leader& peer) {
        on_coroutine_stack([&] {
            volatile uint64_t words[2048];
            for (auto& word : words)
                word = 3;
            const utofu_stadd_t stadd = node.add(const_cast<uint64_t*>(words), sizeof words);
            for (size_t i = 0; i < 2048; i += 512)
                EXPECT_EQ(peer.ask(add_one, stadd + i * 8), UTOFU_SUCCESS);
            EXPECT_TRUE(child_is_well([&] {
                for (auto& word : words)
                    word = word * 2;
                return words[0] == 8 && words[1] == 6;
            }));
            EXPECT_EQ(words[0], 4u);
            EXPECT_EQ(peer.ask(add_one, stadd), UTOFU_SUCCESS); // still works after
            EXPECT_EQ(words[0], 5u);
            // What is collected later is not what the stack still shows.
            for (int i = 0; i < 600; ++i) {
                void* const memory = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                ASSERT_NE(memory, MAP_FAILED);
                const utofu_stadd_t other = node.add(memory, page);
                EXPECT_EQ(peer.ask(add_one, other), UTOFU_SUCCESS);
                node.remove(other);
                ::munmap(memory, page);
            }
            for (size_t i = 512; i < 2048; i += 512) {
                EXPECT_EQ(words[i], 4u);
                EXPECT_EQ(words[i + 1], 3u);
            }
            node.remove(stadd);
        });
    });
}

// Another thread of the parent may move a mapping (mremap, of which realloc makes use) at any moment before the fork.
TEST(MemoryFork, AChildOfForkHasItsOwnCopyOfPagesOnTheirWay)
{
    if (!memory_moves())
        GTEST_SKIP() << "no page is moved here: userfaultfd is refused";
    lead([](Node& node, Leader& peer) {
        auto* const places = static_cast<std::byte*>(
            ::mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        ASSERT_NE(places, MAP_FAILED);
        std::byte* const place[] = {places, places + 2 * page};
        const utofu_stadd_t stadd = node.add(place[0], page);
        ASSERT_EQ(peer.ask(write_one, stadd, 4711), UTOFU_SUCCESS);
        node.remove(stadd);
        ASSERT_EQ(tofu_sim_moved(place[0], page), 1);
        ::munmap(place[1], page);
        std::atomic<bool> ends{false};
        std::atomic<unsigned> moves{0};
        std::atomic<unsigned> wrong{0};
        std::thread mover([&] {
            for (unsigned at = 0; !ends; at = 1 - at) {
                if (::mremap(place[at], page, page, MREMAP_MAYMOVE | MREMAP_FIXED, place[1 - at]) == MAP_FAILED)
                    return;
                wrong += __atomic_load_n(reinterpret_cast<uint64_t*>(place[1 - at]), __ATOMIC_RELAXED) != 4711;
                moves++;
            }
        });
        for (unsigned i = 0; i < 40 && wrong == 0; ++i) {
            EXPECT_TRUE(child_is_well([&] {
                unsigned found = 0;
                unsigned char resident = 0;
                for (std::byte* const at : place)
                    if (::mincore(at, page, &resident) == 0) { // else there is nothing
                        uint64_t content = 0;
                        std::memcpy(&content, at, sizeof content);
                        found += content == 4711;
                        std::memset(at, 1, page);
                    }
                return found == 1;
            })) << i;
            const unsigned before = moves;
            EXPECT_TRUE(wait_until([&] { return moves != before; }));
        }
        ends = true;
        mover.join();
        EXPECT_GT(moves, 40u);
        EXPECT_EQ(wrong, 0u);
        ::munmap(places, 3 * page);
    });
}

// In a child the C library writes to what it keeps of the other threads, before any handler runs: on their
// stacks, which are moved pages where the program gave such to a thread ...
TEST(MemoryFork, AChildOfForkDoesNotEndItsParentsThreads)
{
    lead([](Node& node, Leader& peer) {
        constexpr size_t bytes = 1 << 20; // and enough for what TSan keeps there
        void* const stack = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ASSERT_NE(stack, MAP_FAILED);
        const utofu_stadd_t stadd = node.add(stack, bytes);
        for (size_t at = 0; at < bytes; at += page)
            ASSERT_EQ(peer.ask(add_one, stadd + at), UTOFU_SUCCESS);
        static std::atomic<bool> over{false};
        pthread_attr_t attributes;
        pthread_t other{};
        ASSERT_EQ(::pthread_attr_init(&attributes), 0);
        ASSERT_EQ(::pthread_attr_setstack(&attributes, stack, bytes), 0);
        ASSERT_EQ(::pthread_create(
                      &other, &attributes,
                      [](void*) -> void* {
                          EXPECT_TRUE(wait_until([] { return over.load(); }));
                          return nullptr;
                      },
                      nullptr),
                  0);
        ::pthread_attr_destroy(&attributes);
        EXPECT_TRUE(child_is_well([] { return true; }));
        if (::pthread_tryjoin_np(other, nullptr) != EBUSY) {
            ADD_FAILURE() << "a thread that runs is taken for one that has ended";
            ::_exit(1);
        }
        over = true;
        EXPECT_EQ(::pthread_join(other, nullptr), 0);
        node.remove(stadd);
        ::munmap(stack, bytes);
    });
}

// ... and in the allocator's arenas.
TEST(MemoryFork, AChildOfForkLeavesTheArenasOfItsParentsThreadsAlone)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the sanitizers bring an allocator of their own";
#endif
    lead([](Node& node, Leader& peer) {
        std::atomic<uint64_t> stadd{0};
        std::atomic<bool> over{false};
        std::thread other([&] {
            // The first thing that the thread allocates lies behind the arena's own notes.
            auto* const word = static_cast<uint64_t*>(std::calloc(1, 64));
            stadd = node.add(word, 64);
            EXPECT_TRUE(wait_until([&] { return over.load(); }));
            EXPECT_EQ(*word, 3u);
        });
        ASSERT_TRUE(wait_until([&] { return stadd.load() != 0; }));
        for (int i = 0; i < 3; ++i)
            ASSERT_EQ(peer.ask(add_one, stadd), UTOFU_SUCCESS);
        EXPECT_TRUE(child_is_well([] { return true; }));
        over = true;
        other.join();
    });
}

// The flags of the mapping that holds `at`, as /proc/self/smaps has them.
std::string flags_at(const void* at)
{
    std::ifstream smaps("/proc/self/smaps");
    bool here = false;
    for (std::string line; std::getline(smaps, line);) {
        uint64_t from = 0;
        uint64_t to = 0;
        if (std::sscanf(line.c_str(), "%lx-%lx ", &from, &to) == 2)
            here = from <= reinterpret_cast<uint64_t>(at) && reinterpret_cast<uint64_t>(at) < to;
        else if (here && line.rfind("VmFlags:", 0) == 0)
            return line + " ";
    }
    return "";
}

bool is_mapped(void* at)
{
    unsigned char resident = 0;
    return ::mincore(at, page, &resident) == 0;
}

// What a program says of its pages holds after they were moved: of some pages of a mapping, and of one that has no
// other.
TEST(MemoryFork, WhatIsAdvisedOfPagesHoldsAfterTheyWereMoved)
{
    struct Case {
        const char* flag;
        int advice;
    };
    static constexpr Case cases[] = {{" lo ", 0}, {" dc ", MADV_DONTFORK}, {" dd ", MADV_DONTDUMP}};
    lead([](Node& node, Leader& peer) {
        for (const Case& advised : cases)
            for (const size_t pages : {size_t{1}, size_t{16}}) {
                const char* const flag = advised.flag; // clang++ 14 does not capture a binding
                const int advice = advised.advice;
                auto* const around = static_cast<std::byte*>(
                    ::mmap(nullptr, (pages + 2) * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
                ASSERT_NE(around, MAP_FAILED);
                std::byte* const memory = around + page;
                ASSERT_EQ(::mprotect(around, page, PROT_NONE), 0);
                ASSERT_EQ(::mprotect(memory + pages * page, page, PROT_NONE), 0);
                ASSERT_EQ(advice == 0 ? ::mlock(memory, pages * page) : ::madvise(memory, pages * page, advice), 0);
                ASSERT_NE(flags_at(memory).find(flag), std::string::npos);
                const utofu_stadd_t stadd = node.add(memory, pages * page);
                for (size_t i = 0; i < pages; ++i)
                    ASSERT_EQ(peer.ask(add_one, stadd + i * page), UTOFU_SUCCESS);
                EXPECT_EQ(flags_at(memory).find(" sh ") != std::string::npos, memory_moves());
                for (const Case& other : cases)
                    EXPECT_EQ(flags_at(memory).find(other.flag) != std::string::npos, other.flag == flag)
                        << flag << other.flag << pages << flags_at(memory);
                EXPECT_TRUE(child_is_well([&] {
                    return is_mapped(memory) == (advice != MADV_DONTFORK) &&
                           (advice != MADV_DONTDUMP || pages == 1 || flags_at(memory).find(flag) != std::string::npos);
                })) << flag
                    << pages;
                EXPECT_EQ(peer.ask(add_one, stadd), UTOFU_SUCCESS);
                node.remove(stadd);
                ::munmap(around, (pages + 2) * page);
            }
    });
}

// A shared mapping cannot be wiped: such pages stay where they are.
TEST(MemoryFork, PagesThatAreWipedInAChildAreNotMoved)
{
    lead([](Node& node, Leader& peer) {
        auto* const words = static_cast<uint64_t*>(
            ::mmap(nullptr, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        ASSERT_NE(words, MAP_FAILED);
        ASSERT_EQ(::madvise(words, 4 * page, MADV_WIPEONFORK), 0);
        const utofu_stadd_t stadd = node.add(words, 4 * page);
        for (int i = 0; i < 3; ++i)
            ASSERT_EQ(peer.ask(add_one, stadd), UTOFU_SUCCESS);
        EXPECT_EQ(words[0], 3u);
        EXPECT_TRUE(child_is_well([&] { return words[0] == 0; }));
        EXPECT_EQ(peer.ask(add_one, stadd), UTOFU_SUCCESS);
        EXPECT_EQ(words[0], 4u);
        node.remove(stadd);
        ::munmap(words, 4 * page);
    });
}

// Handlers that were registered before the first call of uTofu are as safe as others.
TEST(MemoryFork, HandlersOfOthersRunWithTheChildsOwnPages)
{
    static std::vector<uint64_t> words;
    lead(
        [](Node& node, Leader& peer) {
            words.assign(10000, 5);
            const utofu_stadd_t stadd = node.add(words.data(), words.size() * 8);
            ASSERT_EQ(peer.ask(add_one, stadd), UTOFU_SUCCESS);
            EXPECT_TRUE(child_is_well([] { return words[1] == 99; }));
            EXPECT_EQ(words[0], 6u);
            EXPECT_EQ(words[1], 5u);
            node.remove(stadd);
        },
        As::is,
        [] { ASSERT_EQ(::pthread_atfork(nullptr, nullptr, [] { std::fill(words.begin(), words.end(), 99); }), 0); });
}

} // namespace
} // namespace tofu::sim::test
