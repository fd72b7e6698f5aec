// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Waking a process that sleeps until something arrives (tofu_sim_wait). Uses: futex, membarrier, on the slow side only.
//
// A poster stores data or a notice, then looks at `sleepers`: one plain load, no fence. The sleeper sets the
// word and then makes every running thread of the machine that registered pass a barrier (membarrier), so
// that either the poster sees the word or the sleeper, looking once more, sees what was posted. The barrier interrupts
// all these threads. So a thread first sleeps for a millisecond without it, in which most sleeps end: in the rare case
// that a poster has not seen the word, it looks again after that time.
//
// A ringer clears `sleepers`, adds to `doorbell` and wakes. If it is killed after the first step, the sleeper finds the
// word cleared; after the second: the count changed; in both cases when it looks again by itself. A thread that
// announces itself and finds the word cleared adds to the count, so that another, for which it was cleared, does not
// miss that.
#pragma once

#include "job/layout.h"

namespace tofu::sim {

/// Wakes all; out of line.
void wake_sleepers(SegmentHeader& header) noexcept;

inline void ring_doorbell(SegmentHeader& header) noexcept
{
    // Keeps the compiler from moving the stores before it down; the CPU is kept by the sleeper's membarrier.
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (header.sleepers.load_relaxed() != 0) [[unlikely]]
        wake_sleepers(header);
}

/// Every process that posts registers once, so that sleepers' barriers reach it.
void register_poster() noexcept;

/// The two halves of sleeping: announce it and learn the bell's count; then, if looking around found nothing,
/// sleep until the count changes. Returns false on timeout (milliseconds, negative: none), true also for no reason.
[[nodiscard]] uint32_t announce_sleeper(SegmentHeader& own) noexcept;
[[nodiscard]] bool sleep_until_rung(SegmentHeader& own, uint32_t announced, int timeout_ms) noexcept;

/// Both in turn, of the calling thread: the first call announces, for the thread to look around; the next sleeps. A
/// sleep of more than a millisecond is announced again after that time, with the barrier.
enum class Doze : uint8_t { announced, rung, timed_out };
[[nodiscard]] Doze doze_for(SegmentHeader& own, int64_t timeout_ns) noexcept;

/// The same in milliseconds; true unless it has timed out. `asleep` is called before and after the sleep, where there
/// is one.
[[nodiscard]] bool doze(SegmentHeader& own, int timeout_ms, void (*asleep)() noexcept = nullptr) noexcept;

} // namespace tofu::sim
