// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Moves of pages and copies into them keep apart, and no peer's death, sleep or malice blocks the owner for long.
#include "memory/announce.h"

#include "job/liveness.h"
#include "memory/service.h"

#include "lib/harness.h"

#include <gtest/gtest.h>

#include <csignal>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace tofu::sim {
namespace {

constexpr uint64_t pages = 0x7000000;
constexpr size_t bytes = 0x40000;

// As in a segment: shared with children of fork, valid when zero.
class MemoryAnnounce : public ::testing::Test {
  protected:
    ServiceArea& area = *static_cast<ServiceArea*>(
        ::mmap(nullptr, sizeof(ServiceArea), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ~MemoryAnnounce() override { ::munmap(&area, sizeof area); }

    [[nodiscard]] bool may_move(int* tries, uint64_t start = pages)
    {
        return AnnouncedMove(area, start, start + bytes, tries).may_begin();
    }
    [[nodiscard]] bool may_copy(uint64_t there = pages) { return AnnouncedCopy(area, there, bytes).may_begin(); }
    [[nodiscard]] unsigned taken() const
    {
        unsigned count = 0;
        for (const CopySlot& slot : area.copies)
            count += phase_of(slot.state.load_acquire()) != SlotPhase::free;
        return count;
    }
};

TEST_F(MemoryAnnounce, AMoveDoesNotBeginUnderACopy)
{
    int tries = 5;
    {
        const AnnouncedCopy copy(area, pages, bytes);
        ASSERT_TRUE(copy.may_begin());
        EXPECT_TRUE(may_move(&tries, pages + bytes));
        EXPECT_TRUE(may_move(&tries, pages - bytes));
        EXPECT_EQ(tries, 5);
        EXPECT_FALSE(may_move(&tries, pages + bytes - 1));
        EXPECT_EQ(tries, 0);
    }
    EXPECT_EQ(taken(), 0u);
    EXPECT_TRUE(may_move(&tries));
}

TEST_F(MemoryAnnounce, ACopyDoesNotBeginUnderAMove)
{
    int tries = 5;
    {
        const AnnouncedMove move(area, pages, pages + bytes, &tries);
        ASSERT_TRUE(move.may_begin());
        EXPECT_FALSE(may_copy(pages + bytes - 1));
        EXPECT_FALSE(may_copy(pages - bytes + 1));
        EXPECT_TRUE(may_copy(pages + bytes));
        EXPECT_TRUE(may_copy(pages - bytes));
    }
    EXPECT_TRUE(may_copy());
    EXPECT_EQ(taken(), 0u);
}

// What the two do to the pages must not overlap in time.
TEST_F(MemoryAnnounce, NeverBothAtOnce)
{
    constexpr uint32_t enough = 3000;
    SharedWord<uint32_t> copying{0};
    SharedWord<uint32_t> copied{0};
    SharedWord<uint32_t> stop{0};
    std::thread poster([&] {
        while (stop.load_relaxed() == 0) {
            const AnnouncedCopy copy(area, pages, bytes);
            if (!copy.may_begin())
                continue;
            copying.store_relaxed(1);
            copied.fetch_add(1);
            copying.store_relaxed(0);
        }
    });
    uint32_t moved = 0;
    uint32_t met = 0;
    EXPECT_TRUE(test::wait_until([&] {
        for (int i = 0; i < 100; ++i) {
            int tries = looks_for_copies;
            const AnnouncedMove move(area, pages, pages + bytes, &tries);
            moved += move.may_begin() ? 1 : 0;
            for (int look = 0; look < 20 && move.may_begin(); ++look)
                met += copying.load_relaxed();
        }
        return moved >= enough && copied.load_relaxed() >= enough;
    }));
    stop.store_relaxed(1);
    poster.join();
    EXPECT_EQ(met, 0u);
}

TEST_F(MemoryAnnounce, AStoppedProcessDelaysMovesAndADeadOneDoesNot)
{
    const pid_t child = ::fork();
    if (child == 0) {
        const AnnouncedCopy copy(area, pages, bytes);
        (void)::raise(SIGSTOP);
        ::_exit(1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
    ASSERT_TRUE(WIFSTOPPED(status));
    ASSERT_EQ(taken(), 1u);
    int tries = looks_for_copies;
    EXPECT_FALSE(may_move(&tries));
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    tries = looks_for_copies;
    EXPECT_TRUE(may_move(&tries));
    EXPECT_GT(tries, 0);
    EXPECT_EQ(taken(), 0u);
}

TEST_F(MemoryAnnounce, SlotsOfTheDeadAreTakenAndThoseOfTheLivingAreNot)
{
    const pid_t nobody = 0x3fffff;
    for (CopySlot& slot : area.copies)
        slot.state.raw = claim_by_this_process(0);
    EXPECT_FALSE(may_copy());
    EXPECT_EQ(taken(), copy_slots);
    for (CopySlot& slot : area.copies)
        slot.state.raw = with_phase(claim_of(0, nobody, 1), SlotPhase::posted);
    EXPECT_TRUE(may_copy());
    for (uint32_t phase = 1; phase < 8; ++phase) { // whatever a hostile peer leaves there
        for (CopySlot& slot : area.copies)
            slot = {{~uint64_t{7} | phase}, {0}, {~uint64_t{0}}};
        EXPECT_TRUE(may_copy()) << phase;
        int tries = looks_for_copies;
        (void)may_move(&tries);
        EXPECT_GE(tries, 0);
    }
}

TEST_F(MemoryAnnounce, AProcessWithoutDescriptorsTakesNoOtherForDead)
{
    const uint64_t claim = claim_by_this_process(0);
    struct rlimit limit;
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    const struct rlimit none {
        0, limit.rlim_max
    };
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    const bool asked = process_start_time(::getpid()) != 0;
    const bool gone = claimant_is_gone(claim);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    EXPECT_FALSE(asked);
    EXPECT_FALSE(gone);
    EXPECT_FALSE(claimant_is_gone(claim_of(0, ::getpid(), 0)));
    EXPECT_TRUE(claimant_is_gone(claim_of(0, ::getpid(), claimant_start(claim) + 1)));
}

} // namespace
} // namespace tofu::sim
