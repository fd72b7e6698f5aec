// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// More processes than processors: a thread whose polls find nothing yields.
#pragma once

#include "job/layout.h"

namespace tofu::sim {

/// Counts a process of the job with the processors it may run on; under the job's lock.
void add_process(Oversubscription& load) noexcept;
void remove_process(Oversubscription& load) noexcept;

/// Whether the job has more processes than processors to run on. Killed processes count until their slots are taken
/// again. Two loads.
[[nodiscard]] inline bool is_oversubscribed(const Oversubscription& load) noexcept
{
    return load.processes.load_relaxed() > load.processors.load_relaxed();
}

/// The calling thread has polled and found nothing, for the `times`-th time in a row: yields. When that has not helped
/// for long and the thread does nothing but poll, naps until the bell of `own` rings, some 100 us at most, unless
/// `awaits_more` than what rings it. Naps that nothing has ended become rare: the thread waits for something else.
/// False, and nothing is done, where each process can have a processor.
bool yield_processor(const Oversubscription& load, SegmentHeader& own, unsigned times,
                     bool (*awaits_more)() noexcept = nullptr) noexcept;

} // namespace tofu::sim
