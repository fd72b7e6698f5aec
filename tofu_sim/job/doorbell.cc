// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: waking a process that sleeps until something arrives (tofu_sim_wait).
// Called by: tni/engine (rings), api/wait (sleeps). Calls: futex, membarrier, on the slow side only.
#include "job/doorbell.h"

#include <climits>
#include <ctime>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tofu::sim {

void wake_sleepers(SegmentHeader& header) noexcept
{
    // One poster wins and wakes; who wants to sleep again announces himself again.
    if (header.sleepers.exchange(0) != 0) {
        (void)header.doorbell.fetch_add(1);
        (void)::syscall(SYS_futex, &header.doorbell.raw, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
}

void register_poster() noexcept
{
    (void)::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0);
}

uint32_t announce_sleeper(SegmentHeader& own) noexcept
{
    const uint32_t count = own.doorbell.load_acquire();
    own.sleepers.store_seq(1);
    (void)::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
    return count;
}

bool sleep_until_rung(SegmentHeader& own, uint32_t announced, int timeout_ms) noexcept
{
    timespec end{};
    (void)::clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += timeout_ms / 1000;
    end.tv_nsec += timeout_ms % 1000 * 1'000'000L;
    if (end.tv_nsec >= 1'000'000'000L) {
        end.tv_sec++;
        end.tv_nsec -= 1'000'000'000L;
    }
    while (own.doorbell.load_acquire() == announced) {
        timespec now{};
        (void)::clock_gettime(CLOCK_MONOTONIC, &now);
        if (timeout_ms >= 0 &&
            (now.tv_sec > end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec >= end.tv_nsec))) {
            return false;
        }
        // An absolute end, so that a signal does not prolong the sleep.
        (void)::syscall(SYS_futex, &own.doorbell.raw, FUTEX_WAIT_BITSET, announced,
                        timeout_ms < 0 ? nullptr : &end, nullptr, FUTEX_BITSET_MATCH_ANY);
    }
    return true;
}

} // namespace tofu::sim
