// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: exact mode: what becomes of a process that has the turn, or holds others up, and does not call uTofu.
// Uses: /proc, clocks of processor time.
//
// It computes: it is waited for. It is blocked in the kernel for a second: it is excused, the others go on. It computes
// for very long: it may look at memory that others are to write; excused, too, and what arrives there is taken for
// what it looks for. It is stopped (a debugger): it is waited for. It has ended: its place is free.
#pragma once

#include "clock/actors.h"

namespace tofu::sim {

// The process of this place has ended.
[[nodiscard]] bool is_gone(const Actor& actor) noexcept;

// Under the schedule's lock, each: looks at who is waited for; what was seen of it so far means nothing any more.
void patrol(ScheduleHead& head, std::byte* actors) noexcept;
void forget_sample(Actor& actor) noexcept;

// How many times longer than on an idle machine things take: 1 at least.
[[nodiscard]] uint64_t crowding() noexcept;

// That the run may not repeat, and why: one line for all processes of the job. The bits of ScheduleHead::warned.
enum class Warning : uint32_t { late_return = 1, joined_late = 2, missing = 4, restless = 8, unknown = 16 };
void warn_once(ScheduleHead& head, Warning what) noexcept;

} // namespace tofu::sim
