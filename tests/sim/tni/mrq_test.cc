// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The message receive queue: empty, full, wrap, abort, killed and late writers (cases of tni/mrq.h).
#include "tni/mrq.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <memory>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace tofu::sim {
namespace {

constexpr unsigned log2_capacity = 4;
constexpr unsigned capacity = 1u << log2_capacity;

// A ring in memory that child processes share.
struct SharedRing {
    MrqControl* control;
    MrqSlot* slots;
    uint64_t head = 0;

    SharedRing()
    {
        void* const memory = ::mmap(nullptr, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        control = static_cast<MrqControl*>(memory);
        slots = reinterpret_cast<MrqSlot*>(static_cast<std::byte*>(memory) + 4096);
    }
    ~SharedRing() { ::munmap(control, 1 << 16); }
    MrqRing ring() const { return {control, slots, log2_capacity}; }
    MrqRing::Poll poll(MrqEntry& entry) { return ring().poll(head, entry); }
};

MrqEntry numbered(uint64_t number)
{
    MrqEntry entry{};
    entry.rmt_value = number;
    entry.vcq_id = ~number;
    return entry;
}

constexpr Claimant writer(3, 1);
constexpr Claimant other(4, 9);

TEST(Mrq, ZerosAreAnEmptyRing)
{
    SharedRing shared;
    MrqEntry entry;
    EXPECT_EQ(shared.poll(entry), MrqRing::Poll::nothing);
}

TEST(Mrq, KeepsOrderAcrossManyLaps)
{
    SharedRing shared;
    MrqRing ring = shared.ring();
    uint64_t written = 0;
    uint64_t read = 0;
    for (unsigned round = 0; round < 1000; round++) {
        for (unsigned i = 0; i < round % (capacity + 1); i++)
            ASSERT_TRUE(ring.push(writer, numbered(written++)));
        MrqEntry entry;
        while (shared.poll(entry) == MrqRing::Poll::found) {
            ASSERT_EQ(entry.rmt_value, read);
            ASSERT_EQ(entry.vcq_id, ~read);
            read++;
        }
        ASSERT_EQ(read, written);
    }
}

TEST(Mrq, IsFullAtItsCapacityAndTakesMoreAfterARead)
{
    SharedRing shared;
    MrqRing ring = shared.ring();
    for (unsigned i = 0; i < capacity; i++)
        ASSERT_TRUE(ring.push(writer, numbered(i)));
    EXPECT_FALSE(ring.push(writer, numbered(99)));
    MrqEntry entry;
    EXPECT_EQ(shared.poll(entry), MrqRing::Poll::found);
    EXPECT_TRUE(ring.push(other, numbered(capacity)));
    EXPECT_FALSE(ring.push(other, numbered(99)));
}

TEST(Mrq, NonsenseInTheRingHoldsNoWriterUp)
{
    SharedRing shared;
    for (unsigned i = 0; i < capacity; i++) // laps that no writer ever reaches: tail would run after them for ever
        shared.slots[i].state.raw = MrqState::make((uint64_t{1} << 36) - 1 - i, MrqState::empty);
    EXPECT_EQ(shared.ring().claim(writer), nullptr);
    EXPECT_LE(shared.control->tail.raw, uint64_t{4 * capacity});
}

TEST(Mrq, AnAbortedClaimIsSkippedAndItsLateWriterIsHarmless)
{
    SharedRing shared;
    MrqRing ring = shared.ring();
    MrqSlot* const late = ring.claim(writer);
    ASSERT_NE(late, nullptr);
    ASSERT_TRUE(ring.push(other, numbered(1)));
    MrqEntry entry;
    EXPECT_EQ(shared.poll(entry), MrqRing::Poll::claimed);
    bool valid = false;
    const Claimant holder = ring.claimant_at(shared.head, valid);
    EXPECT_TRUE(valid);
    EXPECT_EQ(holder.process(), 3u);
    EXPECT_EQ(holder.incarnation(), 1u);
    ring.abort_claim(shared.head, holder);
    ring.publish(*late, writer); // the dying process's last instruction
    EXPECT_EQ(shared.poll(entry), MrqRing::Poll::found);
    EXPECT_EQ(entry.rmt_value, 1u);
    EXPECT_EQ(shared.poll(entry), MrqRing::Poll::nothing);
    // The slot serves the next lap.
    for (unsigned i = 0; i < capacity; i++) {
        ASSERT_TRUE(ring.push(other, numbered(i)));
        ASSERT_EQ(shared.poll(entry), MrqRing::Poll::found);
    }
}

TEST(Mrq, AWriterKilledBeforeMovingTheTailIsHelped)
{
    SharedRing shared;
    MrqRing ring = shared.ring();
    ASSERT_NE(ring.claim(writer), nullptr);
    shared.control->tail.store_relaxed(0); // as if it had died between claim and tail
    EXPECT_TRUE(ring.push(other, numbered(5)));
    EXPECT_EQ(shared.control->tail.load_relaxed(), 2u);
    shared.head = 0;
    ring.abort_claim(shared.head, writer);
    shared.control->tail.store_relaxed(0); // and the reader was faster than any helper (W3)
    EXPECT_TRUE(ring.push(other, numbered(6)));
    MrqEntry entry;
    EXPECT_EQ(shared.poll(entry), MrqRing::Poll::found);
    EXPECT_EQ(entry.rmt_value, 5u);
    EXPECT_EQ(shared.poll(entry), MrqRing::Poll::found);
    EXPECT_EQ(entry.rmt_value, 6u);
}

TEST(Mrq, AClaimOfAnotherIsNotAborted)
{
    SharedRing shared;
    MrqRing ring = shared.ring();
    MrqSlot* const slot = ring.claim(writer);
    ring.abort_claim(shared.head, other);
    EXPECT_EQ(shared.head, 0u);
    slot->entry = numbered(8);
    ring.publish(*slot, writer);
    MrqEntry entry;
    EXPECT_EQ(shared.poll(entry), MrqRing::Poll::found);
}

TEST(Mrq, NonsenseInASlotIsSkipped)
{
    SharedRing shared;
    MrqRing ring = shared.ring();
    for (uint64_t nonsense : {~uint64_t{0}, uint64_t{3}, MrqState::make(7, MrqState::full)}) {
        shared.slots[shared.head % capacity].state.store_relaxed(nonsense);
        shared.control->tail.store_relaxed(shared.head);
        MrqEntry entry;
        ASSERT_EQ(shared.poll(entry), MrqRing::Poll::claimed);
        bool valid = true;
        const Claimant holder = ring.claimant_at(shared.head, valid);
        EXPECT_FALSE(valid);
        ring.abort_claim(shared.head, holder);
        EXPECT_TRUE(ring.push(writer, numbered(1)));
        EXPECT_EQ(shared.poll(entry), MrqRing::Poll::found);
    }
}

TEST(Mrq, ManyWritersLoseNothing)
{
    SharedRing shared;
    constexpr unsigned writers = 3;
    constexpr uint64_t each = 20'000;
    std::vector<std::thread> threads;
    for (unsigned w = 0; w < writers; w++) {
        threads.emplace_back([&shared, w] {
            MrqRing ring = shared.ring();
            for (uint64_t i = 0; i < each; i++)
                while (!ring.push(Claimant(w, 0), numbered(uint64_t{w} << 32 | i)))
                    ::sched_yield();
        });
    }
    uint64_t next[writers] = {};
    for (uint64_t got = 0; got < writers * each;) {
        MrqEntry entry;
        if (shared.poll(entry) != MrqRing::Poll::found) {
            ::sched_yield();
            continue;
        }
        const auto from = static_cast<unsigned>(entry.rmt_value >> 32);
        ASSERT_LT(from, writers);
        ASSERT_EQ(entry.rmt_value & 0xffffffff, next[from]); // each writer's order is kept
        ASSERT_EQ(entry.vcq_id, ~entry.rmt_value);
        next[from]++;
        got++;
    }
    for (auto& thread : threads)
        thread.join();
}

// The count of unread notices is the distance of the two positions.
TEST(Mrq, AWriterThatIsKilledBeforeItMovesTheTailLeavesNothingUnread)
{
    SharedRing shared;
    MrqRing ring = shared.ring();
    shared.slots[0].state.store_release(MrqState::make(0, MrqState::claimed, writer.bits()));
    MrqEntry entry;
    ASSERT_EQ(shared.poll(entry), MrqRing::Poll::claimed);
    ring.abort_claim(shared.head, writer);
    EXPECT_EQ(shared.head, 1u);
    EXPECT_EQ(shared.control->tail.load_acquire(), shared.head);
    EXPECT_EQ(shared.control->head_hint.load_acquire(), shared.head);
    EXPECT_TRUE(ring.push(other, numbered(1)));
    EXPECT_EQ(shared.control->tail.load_acquire(), shared.head + 1);
}

// A process that writes as fast as it can is killed at a random instant, again and again. The reader aborts its
// claim, if it left one, and a living writer always gets through.
TEST(Mrq, SurvivesWritersKilledAnywhere)
{
    SharedRing shared;
    uint32_t seed = 12345;
    for (uint32_t life = 1; life <= 200; life++) {
        const pid_t pid = ::fork();
        if (pid == 0) {
            MrqRing ring = shared.ring();
            for (uint64_t i = 0;; i++)
                (void)ring.push(Claimant(1, life), numbered(i));
        }
        MrqEntry entry;
        while (shared.poll(entry) != MrqRing::Poll::found) {
        }
        seed = seed * 1664525 + 1013904223;
        for (uint32_t polls = seed % 5000; polls != 0; polls--)
            if (shared.poll(entry) == MrqRing::Poll::found)
                ASSERT_EQ(entry.vcq_id, ~entry.rmt_value);
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
        unsigned aborted = 0;
        for (;;) {
            const MrqRing::Poll found = shared.poll(entry);
            if (found == MrqRing::Poll::nothing)
                break;
            if (found == MrqRing::Poll::claimed) {
                shared.ring().abort_claim(shared.head, Claimant(1, life));
                aborted++;
            }
        }
        ASSERT_LE(aborted, 1u);
        ASSERT_TRUE(shared.ring().push(Claimant(2, 0), numbered(life)));
        ASSERT_EQ(shared.poll(entry), MrqRing::Poll::found);
        ASSERT_EQ(entry.rmt_value, life);
    }
}

} // namespace
} // namespace tofu::sim
