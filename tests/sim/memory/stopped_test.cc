// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A process that is stopped, at any step of an access, blocks only processes that need it. These wait for it, however
// long.
#include "harness.h"
#include "job/liveness.h"
#include "job/process.h"
#include "memory/service.h"
#include "memory/vm_copy.h"
#include "topology/ids.h"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace {
std::atomic<int64_t> hours_later{0}; // on this process's clock
} // namespace

// The library's clock is ours: no test waits for as long as a process may be stopped.
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept
{
    const long rc = ::syscall(SYS_clock_gettime, clock, time);
    time->tv_sec += hours_later.load(std::memory_order_relaxed) * 3600;
    return int(rc);
}

namespace tofu::sim::test {
namespace {

bool is_stopped(uint64_t pid)
{
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(file, text);
    const size_t name_end = text.rfind(')');
    return name_end != std::string::npos && text[name_end + 2] == 'T';
}

uint64_t initialised[512] = {1}; // only its owner can change it atomically

constexpr size_t buffers = 64;
constexpr size_t region_bytes = 64 << 10;

// Rank 0 prepares, stops, and looks afterwards at what rank 1 did meanwhile.
void while_stopped(const std::function<utofu_stadd_t(Node&, const Rank&)>& prepare,
                   const std::function<void(Node&, const Rank&, const std::function<void()>& go_on)>& meanwhile,
                   const std::function<void()>& afterwards, const std::function<void()>& check)
{
    expect_processes(2, [&](const Rank& rank) {
        Node node;
        rank.set(rank.number, node.id);
        if (rank.number == 0) {
            rank.set(10, prepare(node, rank));
            rank.set(11, uint64_t(::getpid()));
            rank.barrier();
            (void)::raise(SIGSTOP);
            afterwards();
            rank.barrier();
            check();
            rank.barrier();
            return;
        }
        rank.barrier();
        ASSERT_TRUE(wait_until([&] { return is_stopped(rank.get(11)); }));
        bool goes_on = false;
        const auto go_on = [&] {
            goes_on = true;
            (void)::kill(pid_t(rank.get(11)), SIGCONT);
        };
        meanwhile(node, rank, go_on);
        if (!goes_on)
            go_on();
        rank.barrier();
        rank.barrier();
    });
}

// `access` does not end before its peer goes on, though hours pass, and then it succeeds.
void waits(const std::function<int()>& access, const std::function<void()>& go_on, int moments = 1)
{
    std::atomic<bool> over{false};
    int rc = -1;
    std::thread poster([&] {
        rc = access();
        over = true;
    });
    constexpr timespec moment{0, 100'000'000}; // too short or too long, it passes
    (void)::nanosleep(&moment, nullptr);
    hours_later = 5;
    for (int i = 0; i < moments; ++i)
        (void)::nanosleep(&moment, nullptr);
    EXPECT_FALSE(over);
    hours_later = 0;
    go_on();
    poster.join();
    EXPECT_EQ(rc, UTOFU_SUCCESS);
}

const auto nothing = [] {};

TEST(MemoryStopped, PutAndGetDoNotWaitForAStoppedOwner)
{
    std::byte from{};
    std::byte to{};
    if (!memory_moves() &&
        vm_copy(::getpid(), reinterpret_cast<uint64_t>(&from), &to, 1, Towards::here, CopyOrder::relaxed) < 0)
        GTEST_SKIP() << "only its owner reaches memory here: userfaultfd and process_vm_readv are refused";
    static std::vector<uint64_t*> memory;
    while_stopped(
        [](Node& node, const Rank& rank) {
            for (size_t i = 0; i < buffers; ++i) {
                memory.push_back(static_cast<uint64_t*>(
                    ::mmap(nullptr, region_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)));
                memory[i][1] = i;
                rank.set(100 + unsigned(i), node.add(memory[i], region_bytes));
            }
            return rank.get(100);
        },
        [](Node& node, const Rank& rank, const auto&) {
            std::vector<char> many(region_bytes / 2, 7);
            for (unsigned i = 0; i < buffers; ++i) {
                uint64_t value = 0;
                ASSERT_EQ(node.put8(rank.get(0), rank.get(100 + i), i + 5), UTOFU_SUCCESS);
                ASSERT_EQ(node.get8(rank.get(0), rank.get(100 + i) + 8, &value), UTOFU_SUCCESS);
                EXPECT_EQ(value, i);
                ASSERT_EQ(node.put(rank.get(0), rank.get(100 + i) + region_bytes / 2, many.data(), many.size()),
                          UTOFU_SUCCESS);
            }
            EXPECT_TRUE(is_stopped(rank.get(11)));
        },
        nothing,
        [] {
            for (size_t i = 0; i < buffers; ++i) {
                EXPECT_EQ(memory[i][0], i + 5);
                EXPECT_EQ(memory[i][region_bytes / 8 - 1], 0x0707070707070707u);
            }
        });
}

TEST(MemoryStopped, AnArmwWaitsWhileItsOwnerLives)
{
    static uint64_t* moved = nullptr;
    while_stopped(
        [](Node& node, const Rank& rank) {
            moved = static_cast<uint64_t*>(
                ::mmap(nullptr, region_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
            rank.set(12, node.add(moved, region_bytes));
            return node.add(initialised, sizeof initialised);
        },
        [](Node& node, const Rank& rank, const auto& go_on) {
            waits([&] { return node.add8(rank.get(0), rank.get(10), 1) | node.add8(rank.get(0), rank.get(12), 1); },
                  go_on);
        },
        nothing,
        [] {
            EXPECT_EQ(initialised[0], 2u);
            EXPECT_EQ(moved[0], 1u);
        });
}

// As if stopped between protecting the pages and putting others in their place: what is copied now would be lost.
TEST(MemoryStopped, ACopyWaitsForAMoveThatStandsStill)
{
    static ServiceArea* area = nullptr;
    static uint64_t* memory = nullptr;
    while_stopped(
        [](Node& node, const Rank&) {
            area = reinterpret_cast<ServiceArea*>(segment_service_area(Process::self().segment().base));
            memory = static_cast<uint64_t*>(
                ::mmap(nullptr, region_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
            area->move_start.store_release(reinterpret_cast<uint64_t>(memory));
            area->move_end.store_release(reinterpret_cast<uint64_t>(memory) + region_bytes);
            return node.add(memory, region_bytes);
        },
        [](Node& node, const Rank& rank, const auto& go_on) {
            const std::vector<char> many(region_bytes, 7);
            waits([&] { return node.put(rank.get(0), rank.get(10), many.data(), region_bytes); }, go_on);
        },
        [] { area->move_end.store_release(0); }, [] { EXPECT_EQ(memory[region_bytes / 8 - 1], 0x0707070707070707u); });
}

StagEntry* entry_being_written = nullptr;

utofu_stadd_t begin_to_write_an_entry(Node& node)
{
    const utofu_stadd_t stadd = node.add(initialised, sizeof initialised);
    const VcqAddress a = decode_vcq_id(node.id);
    OwnSegment& segment = Process::self().segment();
    StagTable* const table = stag_table(segment.base, vcq_index(a.tni, a.cq, a.component), segment.mrq_entries);
    entry_being_written = &table->entries[slot_of_stag(uint32_t(stadd >> stadd_offset_bits))];
    (void)entry_being_written->sequence.fetch_add(1);
    return stadd;
}

// As if stopped while it publishes the registration.
TEST(MemoryStopped, AnEntryThatIsBeingWrittenIsWaitedFor)
{
    while_stopped([](Node& node, const Rank&) { return begin_to_write_an_entry(node); },
                  [](Node& node, const Rank& rank, const auto& go_on) {
                      // What counts here are looks, not hours.
                      waits([&] { return node.put8(rank.get(0), rank.get(10), 1234); }, go_on, 8);
                  },
                  [] { (void)entry_being_written->sequence.fetch_add(1); }, [] { EXPECT_EQ(initialised[0], 1234u); });
}

// As if many others had its processor before it goes on.
TEST(MemoryStopped, AnEntryIsWaitedForWhoseWriterHasNoProcessor)
{
    while_stopped([](Node& node, const Rank&) { return begin_to_write_an_entry(node); },
                  [](Node& node, const Rank& rank, const auto& go_on) {
                      go_on();
                      EXPECT_EQ(node.put8(rank.get(0), rank.get(10), 1234), UTOFU_SUCCESS);
                  },
                  [] {
                      constexpr timespec a_while{0, 600'000'000};
                      (void)::nanosleep(&a_while, nullptr);
                      (void)entry_being_written->sequence.fetch_add(1);
                  },
                  [] { EXPECT_EQ(initialised[0], 1234u); });
}

// All places of the mailbox belong to a peer that is stopped, at each step of its own request.
class MemoryStoppedRequester : public ::testing::TestWithParam<SlotPhase> {};

TEST_P(MemoryStoppedRequester, OthersWaitForAPlace)
{
    const SlotPhase phase = GetParam();
    expect_processes(3, [&](const Rank& rank) {
        Node node;
        rank.set(rank.number, node.id);
        rank.set(20 + rank.number, uint64_t(::getpid()));
        rank.barrier();
        if (rank.number == 2) {
            rank.set(30, process_start_time(::getpid()));
            (void)::raise(SIGSTOP);
        } else if (rank.number == 1) {
            ASSERT_TRUE(wait_until([&] { return rank.get(31) != 0; }));
            waits([&] { return node.add8(rank.get(0), rank.get(10), 1); }, [&] { rank.set(32, 1); });
            ASSERT_EQ(::kill(pid_t(rank.get(22)), SIGCONT), 0);
        } else {
            ServiceArea& area = *reinterpret_cast<ServiceArea*>(segment_service_area(Process::self().segment().base));
            ASSERT_TRUE(wait_until([&] { return is_stopped(rank.get(22)); }));
            for (MailboxSlot& slot : area.slots)
                slot.state.store_release(with_phase(claim_of(0, int(rank.get(22)), rank.get(30)), phase));
            rank.set(10, node.add(initialised, sizeof initialised));
            rank.set(31, 1);
            ASSERT_TRUE(wait_until([&] { return rank.get(32) != 0; }));
            for (MailboxSlot& slot : area.slots) // as the other would when it goes on
                slot.state.store_release(with_phase(slot.state.load_acquire(), SlotPhase::free));
        }
        rank.barrier();
        if (rank.number == 0)
            EXPECT_EQ(initialised[0], 2u);
    });
}

INSTANTIATE_TEST_SUITE_P(AtEachStep, MemoryStoppedRequester,
                         ::testing::Values(SlotPhase::claimed, SlotPhase::done, SlotPhase::abandoned));

} // namespace
} // namespace tofu::sim::test
