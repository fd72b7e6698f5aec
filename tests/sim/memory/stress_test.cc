// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Pages move under threads that write them, and processes are killed at the worst moments.
#include "harness.h"

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <sched.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace tofu::sim::test {
namespace {

constexpr unsigned threads = 8;

uint64_t next_random(uint64_t& state)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}

unsigned number_of_rounds()
{
    const char* const text = std::getenv("TOFU_TEST_MOVES");
    return text != nullptr ? static_cast<unsigned>(std::atoi(text)) : 60;
}

// What was added to each word, kept in memory that is registered nowhere.
class Ledger {
  public:
    explicit Ledger(size_t words) : counts_(words) {}
    void add(size_t word) { __atomic_fetch_add(&counts_[word], 1, __ATOMIC_RELAXED); }
    // Each word by itself: whether many adds were made twice, one word has something else, or a page is old.
    void compare(const uint64_t* memory) const
    {
        unsigned wrong = 0;
        for (size_t i = 0; i < counts_.size(); ++i)
            if (memory[i] != counts_[i] && ++wrong <= 20)
                ADD_FAILURE() << "word " << i << " (byte " << (reinterpret_cast<uintptr_t>(&memory[i]) & 0xfff)
                              << " of its page): " << memory[i] << ", and " << counts_[i] << " were counted";
        EXPECT_EQ(wrong, 0u) << "of " << counts_.size() << " words at " << memory;
    }

  private:
    std::vector<uint32_t> counts_;
};

// The words that a peer adds to in a round: one in each piece of memory that is moved at once, so that each add has
// its word moved, and then some more.
template <typename Visit>
void visit_words_of_peer(unsigned peer, unsigned round, size_t words, Visit&& visit)
{
    constexpr size_t piece = 32768 / 8; // what moves at once where no privilege helps
    constexpr unsigned passes = 4;
    uint64_t state = peer * 1000 + round;
    for (unsigned pass = 0; pass < passes; ++pass)
        for (size_t at = 0; at < words; at += piece)
            visit(at + next_random(state) % piece);
}

// Eight threads of the owner write to memory that two peers cause to move by their adds: fresh memory in each round, so
// that nearly all adds meet a move. No update is lost, none is made twice, nothing else is written.
// `write(memory, state, t)`: a write of thread t, returns its word. `of_peers(word)`: the word that a peer adds to.
template <typename Write, typename OfPeers>
void expect_nothing_lost(const Rank& rank, size_t words, Write write, OfPeers of_peers)
{
    const unsigned rounds = memory_moves() ? number_of_rounds() : 2;
    Node node;
    rank.set(rank.number, node.id);
    for (unsigned round = 0; round < rounds; ++round) {
        if (rank.number != 0) {
            rank.barrier();
            visit_words_of_peer(rank.number, round, words, [&](size_t word) {
                ASSERT_EQ(node.add8(rank.get(0), rank.get(10) + of_peers(word) * 8, 1), UTOFU_SUCCESS);
            });
            rank.barrier();
            continue;
        }
        auto* const memory = static_cast<uint64_t*>(std::calloc(words, 8));
        const utofu_stadd_t stadd = node.add(memory, words * 8);
        rank.set(10, stadd);
        Ledger ledger(words);
        std::atomic<bool> done{false};
        std::vector<std::thread> writers;
        for (unsigned t = 0; t < threads; ++t)
            writers.emplace_back([&, t] {
                uint64_t state = round * threads + t + 1;
                while (!done.load(std::memory_order_relaxed))
                    ledger.add(write(memory, state, t));
            });
        rank.barrier();
        rank.barrier(); // peers are done
        done = true;
        for (auto& writer : writers)
            writer.join();
        for (unsigned peer = 1; peer < rank.size; ++peer)
            visit_words_of_peer(peer, round, words, [&](size_t word) { ledger.add(of_peers(word)); });
        ledger.compare(memory);
        node.remove(stadd);
        std::free(memory);
    }
}

TEST(MemoryStress, MovingUnderAtomicWritersLosesNothing)
{
    expect_processes(3, [](const Rank& rank) {
        constexpr size_t words = 1 << 17; // 1 MiB
        const auto add = [](uint64_t* memory, uint64_t& state, unsigned) {
            const size_t word = next_random(state) % words;
            __atomic_fetch_add(&memory[word], 1, __ATOMIC_RELAXED);
            return word;
        };
        expect_nothing_lost(rank, words, add, [](size_t word) { return word; });
    });
}

// Plain stores of the owner beside the words that peers add to: each thread has every 64th word for itself.
TEST(MemoryStress, MovingUnderPlainWritersLosesNothing)
{
    expect_processes(3, [](const Rank& rank) {
        constexpr size_t words = 1 << 16; // 512 KiB
        constexpr size_t shares = 64;     // the last one is the peers'
        const auto store = [](uint64_t* memory, uint64_t& state, unsigned t) {
            const size_t word = next_random(state) % words / shares * shares + t;
            volatile uint64_t& own = memory[word];
            own = own + 1;
            return word;
        };
        expect_nothing_lost(rank, words, store, [](size_t word) { return word - word % shares + shares - 1; });
    });
}

// A thread reads from a pipe into memory that moves meanwhile. Where the kernel allows the full mode of
// userfaultfd no call fails; elsewhere EFAULT is possible and documented.
TEST(MemoryStress, SystemCallsIntoMovingMemory)
{
    expect_processes(2, [](const Rank& rank) {
        Node node;
        rank.set(rank.number, node.id);
        constexpr size_t words = 1 << 16;
        if (rank.number == 0) {
            auto* memory = static_cast<uint64_t*>(std::calloc(words, 8));
            rank.set(10, node.add(memory, words * 8));
            std::atomic<bool> done{false};
            uint64_t failures = 0;
            std::thread caller([&] {
                uint64_t state = 5;
                while (!done.load()) {
                    timespec* time = reinterpret_cast<timespec*>(&memory[next_random(state) % (words - 2) & ~1ul]);
                    failures += ::syscall(SYS_clock_gettime, CLOCK_MONOTONIC, time) != 0;
                }
            });
            rank.barrier();
            rank.barrier();
            done = true;
            caller.join();
            if (::geteuid() == 0)
                EXPECT_EQ(failures, 0u);
        } else {
            rank.barrier();
            for (size_t i = 0; i < words; i += 512) {
                uint64_t value = 0;
                ASSERT_EQ(node.get8(rank.get(0), rank.get(10) + i * 8, &value), UTOFU_SUCCESS);
            }
            rank.barrier();
        }
    });
}

// A peer wanders through 128 MiB, of which most pages have never been touched.
TEST(MemoryStress, RandomAccessToALargeRegion)
{
    expect_processes(2, [](const Rank& rank) {
        constexpr size_t words = size_t{128 << 20} / 8;
        constexpr uint64_t adds = 5000;
        Node node;
        rank.set(rank.number, node.id);
        if (rank.number == 0) {
            auto* memory = static_cast<uint64_t*>(std::calloc(words, 8));
            rank.set(10, node.add(memory, words * 8));
            rank.barrier();
            rank.barrier();
            uint64_t state = 7;
            uint64_t sum = 0;
            for (uint64_t i = 0; i < adds; ++i) {
                uint64_t& word = memory[next_random(state) % words];
                sum += word;
                word = 0;
            }
            EXPECT_EQ(sum, adds);
        } else {
            rank.barrier();
            uint64_t state = 7;
            for (uint64_t i = 0; i < adds; ++i)
                ASSERT_EQ(node.add8(rank.get(0), rank.get(10) + next_random(state) % words * 8, 1), UTOFU_SUCCESS);
            rank.barrier();
        }
    });
}

// Large puts and gets go through the kernel while another peer has the same pages moved: none fails, none is lost.
TEST(MemoryStress, CopiesThroughTheKernelMeetMoves)
{
    expect_processes(3, [](const Rank& rank) {
        constexpr size_t piece = 40000; // of each 64 KiB; above what is moved at once
        constexpr size_t pieces = 128;
        Node node;
        rank.set(rank.number, node.id);
        if (rank.number == 0) {
            auto* memory = static_cast<char*>(std::calloc(pieces, 65536));
            rank.set(10, node.add(memory, pieces * 65536));
            rank.barrier();
            rank.barrier();
            for (size_t i = 0; i < pieces; ++i) {
                for (size_t at = 0; at < piece; ++at)
                    ASSERT_EQ(uint8_t(memory[i * 65536 + at]), uint8_t(i + 1)) << i << ' ' << at;
                uint64_t count = 0;
                std::memcpy(&count, &memory[i * 65536 + 65528], 8);
                ASSERT_EQ(count, 50u);
            }
        } else if (rank.number == 1) {
            rank.barrier();
            std::vector<uint8_t> data(piece);
            std::vector<uint8_t> back(piece);
            for (size_t i = 0; i < pieces; ++i) {
                std::fill(data.begin(), data.end(), uint8_t(i + 1));
                ASSERT_EQ(node.put(rank.get(0), rank.get(10) + i * 65536, data.data(), piece), UTOFU_SUCCESS);
                ASSERT_EQ(node.get(rank.get(0), rank.get(10) + i * 65536, back.data(), piece), UTOFU_SUCCESS);
                ASSERT_EQ(data, back) << i;
            }
            rank.barrier();
        } else {
            rank.barrier();
            for (size_t i = 0; i < pieces; ++i)
                for (int n = 0; n < 50; ++n)
                    ASSERT_EQ(node.add8(rank.get(0), rank.get(10) + i * 65536 + 65528, 1), UTOFU_SUCCESS);
            rank.barrier();
        }
    });
}

// As wait_until, without its naps: for races that only a reader at full speed can lose.
template <typename Done>
[[nodiscard]] bool spin_until(Done&& done)
{
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(40);
    while (std::chrono::steady_clock::now() < deadline) {
        for (int polls = 0; polls < 500; polls++)
            if (done())
                return true;
        ::sched_yield();
    }
    return false;
}

// Lines that lie in another core's cache are stored late: both processes move from core to core.
void go_to_core(uint64_t n)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(n % 2, &cpus);
    (void)::sched_setaffinity(0, sizeof cpus, &cpus); // where there is one core only, it stays
}

// What a peer polls comes in order, also where the kernel copies (guide 6.1.3.1): the mark in the last word must find
// the rest there. To and fro between two processes.
TEST(MemoryStress, TheMarkComesLastInFixedMemory)
{
    expect_processes(2, [](const Rank& rank) {
        using Box = std::array<uint64_t, 128>;
        alignas(sizeof(Box)) static Box box = {1}; // initialised: fixed
        constexpr uint64_t rounds = 300000;
        constexpr uint64_t last = uint64_t{1} << 63;
        // Adversarial mode takes its time, and so do emulated and crowded machines: fewer rounds are as right.
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
        Node node;
        const unsigned peer = 1 - rank.number;
        rank.set(rank.number, node.id);
        rank.set(10 + rank.number, node.add(box.data(), sizeof box));
        rank.barrier();
        Box message{};
        bool over = false;
        for (uint64_t round = 2; !over; round++) {
            if (round % 32 == 0)
                go_to_core(rank.number + round / 32);
            if (round % 2 == rank.number) {
                over = round >= rounds || std::chrono::steady_clock::now() > end;
                message.fill(over ? round | last : round);
                ASSERT_EQ(node.put(rank.get(peer), rank.get(10 + peer), message.data(), sizeof message,
                                   UTOFU_ONESIDED_FLAG_STRONG_ORDER),
                          UTOFU_SUCCESS);
                continue;
            }
            uint64_t mark = 0;
            ASSERT_TRUE(
                spin_until([&] { return ((mark = __atomic_load_n(&box.back(), __ATOMIC_ACQUIRE)) & ~last) == round; }));
            for (const uint64_t& word : box)
                ASSERT_EQ(__atomic_load_n(&word, __ATOMIC_RELAXED), mark) << &word - box.data();
            over = (mark & last) != 0;
        }
        rank.barrier();
    });
}

// Puts go through the kernel while another peer has the same pages moved. What the owner has taken by then, its mark
// cleared, must not be written a second time.
TEST(MemoryStress, AMarkThatWasTakenDoesNotComeBackThoughItsPagesMove)
{
    expect_processes(3, [](const Rank& rank) {
        constexpr size_t message_words = 2500; // more than is moved at once
        constexpr size_t messages = 13;
        constexpr size_t bytes = 256 << 10; // one chunk
        Node node;
        rank.set(rank.number, node.id);
        uint64_t state = rank.number;
        for (int round = 1; round <= 800; ++round) {
            uint64_t* memory = nullptr;
            if (rank.number == 0) {
                memory = static_cast<uint64_t*>(
                    ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
                ASSERT_NE(memory, MAP_FAILED);
                rank.set(10, node.add(memory, bytes));
            }
            rank.barrier();
            const uint64_t stadd = rank.get(10);
            if (rank.number == 0) {
                const auto mark = [&](size_t i) -> uint64_t& { return memory[(i + 1) * message_words - 1]; };
                for (size_t i = 0; i < messages; ++i) {
                    ASSERT_TRUE(spin_until([&] { return __atomic_load_n(&mark(i), __ATOMIC_ACQUIRE) != 0; }));
                    __atomic_store_n(&mark(i), 0, __ATOMIC_RELAXED);
                }
                rank.barrier();
                for (size_t i = 0; i < messages; ++i)
                    ASSERT_EQ(mark(i), 0u) << "round " << round << ", message " << i;
                node.remove(stadd);
                ::munmap(memory, bytes);
            } else if (rank.number == 1) {
                const std::vector<uint64_t> message(message_words, round);
                for (size_t i = 0; i < messages; ++i)
                    ASSERT_EQ(node.put(rank.get(0), stadd + i * message_words * 8, message.data(), message_words * 8,
                                       UTOFU_ONESIDED_FLAG_STRONG_ORDER),
                              UTOFU_SUCCESS);
                rank.barrier();
            } else {
                for (uint64_t pause = next_random(state) % 100000; pause != 0; --pause)
                    asm volatile("" : : : "memory");
                ASSERT_EQ(node.add8(rank.get(0), stadd + bytes - 8, 1), UTOFU_SUCCESS);
                rank.barrier();
            }
        }
    });
}

// Killed while its pages move and its service thread works: the poster gets MRQ_PEER and lives.
TEST(MemoryStress, OwnerKilledWhileMoving)
{
    for (int round = 0; round < 8; ++round) {
        const auto exits = run_processes(2, [round](const Rank& rank) {
            Node node;
            rank.set(rank.number, node.id);
            constexpr size_t bytes = 64 << 20;
            if (rank.number == 0) {
                auto* memory = static_cast<char*>(std::malloc(bytes));
                rank.set(10, node.add(memory, bytes));
                rank.barrier();
                timespec pause{0, 1000000 + 3700000 * round};
                ::nanosleep(&pause, nullptr); // the moment of death, not a synchronisation
                ::kill(::getpid(), SIGKILL);
            } else {
                rank.barrier();
                int rc = UTOFU_SUCCESS;
                uint64_t state = 1;
                while (rc == UTOFU_SUCCESS)
                    rc = node.add8(rank.get(0), rank.get(10) + next_random(state) % (bytes / 8) * 8, 1);
                EXPECT_EQ(rc, UTOFU_ERR_MRQ_PEER);
            }
        });
        EXPECT_TRUE(exits[1].success()) << exits[1].errors;
    }
}

uint64_t fixed_word[1024] = {1}; // of .data: ARMW goes through the mailbox

// More requesters than one, killed while they wait: their slots are taken back and the others go on.
TEST(MemoryStress, RequestersKilledWhileWaiting)
{
    constexpr unsigned victims = 10; // more than the mailbox has slots
    const auto exits = run_processes(victims + 2, [](const Rank& rank) {
        Node node;
        rank.set(rank.number, node.id);
        if (rank.number == 0) {
            rank.set(100, node.add(fixed_word, sizeof fixed_word));
            rank.barrier();
            EXPECT_TRUE(wait_until([&] { return rank.get(101) == 1; }));
        } else if (rank.number == 1) {
            rank.barrier();
            for (int i = 0; i < 4000; ++i)
                ASSERT_EQ(node.add8(rank.get(0), rank.get(100), 1), UTOFU_SUCCESS);
            rank.set(101, 1);
        } else {
            rank.barrier();
            std::thread([&] {
                timespec pause{0, 1000000 + 700000 * int(rank.number)};
                ::nanosleep(&pause, nullptr);
                ::kill(::getpid(), SIGKILL);
            }).detach();
            while (node.add8(rank.get(0), rank.get(100) + 8, 1) == UTOFU_SUCCESS) {
            }
        }
    });
    EXPECT_TRUE(exits[0].success()) << exits[0].errors;
    EXPECT_TRUE(exits[1].success()) << exits[1].errors;
}

} // namespace
} // namespace tofu::sim::test
