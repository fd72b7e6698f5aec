// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: exact mode: treats processes that have the turn, or delay other processes, and do not call uTofu.
// Uses: /proc, clocks of processor time.
//
// - A process that computes: the others wait for it.
// - One that is blocked in the kernel for a second: it is excused, and the others continue.
// - One that computes very long: it may poll memory that others will write. It is excused, and bytes that arrive there
//   are taken for the bytes that it polls.
// - One that is stopped (by a debugger): the others wait for it.
// - One that has ended: its slot is freed.
#pragma once

#include "clock/actors.h"

namespace tofu::sim {

// True if the process of this slot has ended.
[[nodiscard]] bool is_gone(const Actor& actor) noexcept;

// Both are called under the schedule's lock. patrol() checks each process for which others wait. forget_sample()
// discards earlier observations of a process.
void patrol(ScheduleHead& head, std::byte* actors) noexcept;
void forget_sample(Actor& actor) noexcept;

// How many times slower than an idle machine this one is; 1 at least.
[[nodiscard]] uint64_t crowding() noexcept;

// Reasons why the run may not repeat; the bits of ScheduleHead::warned. Each is reported by one line of the job.
enum class Warning : uint32_t { late_return = 1, joined_late = 2, missing = 4, restless = 8, unknown = 16 };
void warn_once(ScheduleHead& head, Warning what) noexcept;

} // namespace tofu::sim
