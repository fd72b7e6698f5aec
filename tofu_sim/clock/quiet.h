// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Exact mode: finds out whether anything is under way outside uTofu, between the processes of a job and their launcher.
// Uses: /proc.
//
// A message on a socket or a pipe, or a signal to another thread, wakes its receiver before the sender's call returns.
// So if anything is under way, some thread can run. If all threads sleep at one instant, nothing is under way, and only
// a timer or another machine can start anything (docs/time-model.md, "Exact mode").
//
// Two samples find such an instant: all threads sleep in both, and no thread has run between them. A thread that is
// stopped, or waits for a processor or a disk, does not sleep. One that polls memory (Excuse::looks) counts as asleep.
#pragma once

#include "clock/actors.h"

namespace tofu::sim {

enum class Outside : uint8_t {
    busy,
    quiet,
    unknown, ///< the kernel does not say
};

/// Takes one sample. Called without the schedule's lock, by one process at a time. The head keeps the last sample.
[[nodiscard]] Outside look_outside(ScheduleHead& head, std::byte* actors) noexcept;
/// True if no actor has changed since that sample. Called under the lock.
[[nodiscard]] bool is_as_seen(const ScheduleHead& head, const std::byte* actors) noexcept;

/// True if this process maps a file whose path contains `name`.
[[nodiscard]] bool maps_file(const char* name) noexcept;

// ---- State of one thread ----

struct ThreadSeen {
    char letter = 0; ///< the kernel's letter for its state; 0: there is no such thread
    int parent = 0;
    uint64_t faults = 0; ///< number of page faults
};
[[nodiscard]] ThreadSeen see_thread(int pid, uint32_t tid) noexcept;
/// True if it sleeps until a time (nanosleep), so that it continues without another thread.
[[nodiscard]] bool sleeps_until_a_time(int pid, uint32_t tid) noexcept;
/// Its processor time; of a thread that runs, as of some milliseconds ago.
[[nodiscard]] uint64_t thread_time_ns(int pid, uint32_t tid) noexcept;
/// The number of its voluntary context switches.
[[nodiscard]] uint64_t count_sleeps(int pid, uint32_t tid) noexcept;

} // namespace tofu::sim
