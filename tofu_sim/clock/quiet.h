// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: exact mode: is anything under way outside uTofu, between the processes of a job and their launcher?
// Uses: /proc.
//
// A message on a socket or a pipe, or a signal to another thread, wakes its receiver before the sender's call returns.
// So what is under way is a thread that can run. Where all threads sleep at one instant, nothing is under way, and only
// a timer or another machine can start anything (docs/time-model.md, "Exact mode").
//
// Two looks find such an instant: at both, all threads sleep, and no thread has run in between. A thread that waits in
// a loop of naps counts as asleep once it has napped some times while nothing else ran: it would have seen by then what
// it waits for.
#pragma once

#include "clock/actors.h"

namespace tofu::sim {

enum class Outside : uint8_t {
    busy,
    quiet,
    unknown, // the kernel does not say
};

// One look, without the schedule's lock, by one process at a time. The looks of a job leave in the head what they saw.
[[nodiscard]] Outside look_outside(ScheduleHead& head, std::byte* actors) noexcept;
// Under the lock: no actor has moved since that look.
[[nodiscard]] bool is_as_seen(const ScheduleHead& head, const std::byte* actors) noexcept;

// ---- Of one thread ----

struct ThreadSeen {
    char letter = 0; // that the kernel shows for its state; 0: there is no such thread
    int parent = 0;
    uint64_t faults = 0; // pages that it has touched for the first time
};
[[nodiscard]] ThreadSeen see_thread(int pid, uint32_t tid) noexcept;
// It sleeps until a time (nanosleep): it goes on by itself.
[[nodiscard]] bool sleeps_until_a_time(int pid, uint32_t tid) noexcept;
// How often it has gone to sleep so far.
[[nodiscard]] uint64_t count_sleeps(int pid, uint32_t tid) noexcept;

} // namespace tofu::sim
