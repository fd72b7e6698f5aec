// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Exact mode: treats processes that have the turn, or delay other processes, and do not call uTofu. Uses: /proc.
//
// - A process that computes, or waits for a processor: the others wait for it.
// - One that sleeps while nothing is under way outside: it is excused, and the others continue. If it goes on without a
//   send of another process, a line says that the run may not repeat.
// - One that computes very long: it may poll memory that others will write. It is excused, and bytes that arrive there
//   are taken for the bytes that it polls.
// - One that is stopped (by a debugger): the others wait for it.
// - One that has ended: its slot is freed.
#pragma once

#include "clock/actors.h"

namespace tofu::sim {

/// True if the process of the slot `process` has ended or has left the job, or if its program was replaced (execve).
[[nodiscard]] bool has_ended(const Actor& actor, uint32_t process) noexcept;

/// Both are called under the schedule's lock. patrol() checks each process for which others wait. forget_sample()
/// discards earlier observations of a process.
void patrol(ScheduleHead& head, std::byte* actors) noexcept;
void forget_sample(Actor& actor) noexcept;

/// How many times slower than an idle machine this one is; 1 at least.
[[nodiscard]] uint64_t crowding() noexcept;
/// Other programs use all processors. Called while all threads of the job sleep but the caller.
[[nodiscard]] bool is_crowded_by_others() noexcept;
/// Other programs want a processor that two threads of this job share. Called while these run.
[[nodiscard]] bool is_wanted_by_others() noexcept;

/// Reasons why the run may not repeat; the bits of ScheduleHead::warned. Each is reported by one line of the job.
enum class Warning : uint32_t {
    late_return = 1,
    joined_late = 2,
    missing = 4,
    restless = 8,
    unknown = 16,
    by_itself = 32,
    computes = 64,
    unseen = 128,
    addresses = 256,
    crowded = 512,
    shares = 1024
};
[[nodiscard]] bool has_warned(const ScheduleHead& head, Warning what) noexcept;
void warn_once(ScheduleHead& head, Warning what) noexcept;

} // namespace tofu::sim
