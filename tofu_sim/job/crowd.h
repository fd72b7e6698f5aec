// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: more processes than processors: who looks in vain gives way to those who could run.
// Called by: job/process (enter_crowd, leave_crowd), tni/engine, api/wait (give_way). Calls: job/doorbell, the kernel.
#pragma once

#include "job/layout.h"

namespace tofu::sim {

// Counts a process of the job with the processors it may run on; under the job's lock.
void enter_crowd(Crowd& crowd) noexcept;
void leave_crowd(Crowd& crowd) noexcept;

// Has the job more processes than the processors they may run on? Of those that were killed until somebody takes their
// place, too. Two loads.
[[nodiscard]] inline bool is_crowded(const Crowd& crowd) noexcept
{
    return crowd.processes.load_relaxed() > crowd.processors.load_relaxed();
}

// The calling thread has looked around in vain, for the `times`-th time in a row: yields or, when that has not helped for
// long and the thread does nothing but look, sleeps until the bell of `own` rings, some milliseconds at most, unless
// `awaits_more` than what rings it. False, and nothing is done, where each process can have a processor.
bool give_way(const Crowd& crowd, SegmentHeader& own, unsigned times, bool (*awaits_more)() noexcept = nullptr) noexcept;

} // namespace tofu::sim
