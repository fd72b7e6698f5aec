// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Waking a process that sleeps until something arrives (tofu_sim_wait). Uses: futex, membarrier, on the slow side only.
#include "job/doorbell.h"

#include "job/real_time.h"

#include <algorithm>
#include <climits>
#include <ctime>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tofu::sim {
namespace {

constexpr int64_t look_again_ns = 500'000'000; ///< for a ringer that was killed meanwhile
constexpr int64_t unsure_ns = 1'000'000;       ///< without a barrier

SharedWord<uint32_t> no_barrier{0};

/// The calling thread's announcement, without and with the barrier, and the bell's count when it was made.
enum class Announced : uint8_t { no, briefly, to_all };
thread_local Announced announced = Announced::no;
thread_local uint32_t announced_count = 0;

int64_t now_ns() noexcept
{
    return static_cast<int64_t>(real_time_ns());
}

int64_t in_ns(int timeout_ms) noexcept
{
    return timeout_ms < 0 ? -1 : int64_t{timeout_ms} * 1'000'000;
}

/// Negative: no limit.
bool sleep_for(SegmentHeader& own, uint32_t announced, int64_t timeout_ns) noexcept
{
    int64_t now = now_ns();
    const int64_t end = timeout_ns < 0 ? INT64_MAX : now + timeout_ns;
    // Cleared: rung, if only half. Also the case of a child of fork whose parent had announced itself.
    while (own.doorbell.load_acquire() == announced && own.sleepers.load_acquire() != 0) {
        if (now >= end)
            return false;
        const bool trusted = no_barrier.load_relaxed() == 0;
        const int64_t look_again = std::min(end, now + (trusted ? look_again_ns : unsure_ns));
        const timespec until{look_again / 1'000'000'000, look_again % 1'000'000'000};
        // An absolute end, so that a signal does not prolong the sleep.
        (void)::syscall(SYS_futex, &own.doorbell.raw, FUTEX_WAIT_BITSET, announced, &until, nullptr,
                        FUTEX_BITSET_MATCH_ANY);
        now = now_ns();
        if (!trusted && now < end)
            return true; // a poster may have missed the announcement: look around
    }
    return true;
}

} // namespace

void wake_sleepers(SegmentHeader& header) noexcept
{
    // One poster wins and wakes; a thread that sleeps again announces itself again.
    if (header.sleepers.exchange(0) != 0) {
        (void)header.doorbell.fetch_add(1);
        (void)::syscall(SYS_futex, &header.doorbell.raw, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
}

void register_poster() noexcept
{
    (void)::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0);
}

namespace {

uint32_t announce(SegmentHeader& own) noexcept
{
    const uint32_t count = own.doorbell.load_acquire();
    return own.sleepers.exchange(1) == 0 ? own.doorbell.fetch_add(1) + 1 : count;
}

void have_posters_pass_barrier() noexcept
{
    const bool passed = ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0;
    no_barrier.store_relaxed(passed ? 0 : 1);
}

} // namespace

uint32_t announce_sleeper(SegmentHeader& own) noexcept
{
    const uint32_t count = announce(own);
    have_posters_pass_barrier();
    return count;
}

bool sleep_until_rung(SegmentHeader& own, uint32_t announced, int timeout_ms) noexcept
{
    return sleep_for(own, announced, in_ns(timeout_ms));
}

namespace {

/// False: this call has announced the thread, or renewed that, and it is to look around first.
bool is_announced(SegmentHeader& own) noexcept
{
    if (announced != Announced::no && own.doorbell.load_acquire() == announced_count)
        return true;
    announced_count = announce(own);
    announced = Announced::briefly;
    return false;
}

Doze sleep_announced(SegmentHeader& own, int64_t timeout_ns) noexcept
{
    const bool more = announced == Announced::briefly && (timeout_ns < 0 || timeout_ns > unsure_ns);
    announced = Announced::no;
    if (sleep_for(own, announced_count, more ? unsure_ns : timeout_ns))
        return Doze::rung;
    if (!more)
        return Doze::timed_out;
    have_posters_pass_barrier();
    announced = Announced::to_all;
    return Doze::announced;
}

} // namespace

Doze doze_for(SegmentHeader& own, int64_t timeout_ns) noexcept
{
    if (!is_announced(own))
        return Doze::announced;
    return sleep_announced(own, timeout_ns);
}

bool doze(SegmentHeader& own, int timeout_ms, void (*asleep)() noexcept) noexcept
{
    if (!is_announced(own))
        return true;
    if (asleep != nullptr)
        asleep();
    const Doze ended = sleep_announced(own, in_ns(timeout_ms));
    if (asleep != nullptr)
        asleep();
    return ended != Doze::timed_out;
}

} // namespace tofu::sim
