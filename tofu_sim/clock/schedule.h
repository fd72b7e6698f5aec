// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: exact mode (TOFU_SIM_CLOCK=exact): the calls of this process take turns with those of the other processes.
//
// The argument, with its cases, is in docs/time-model.md ("Exact mode"). In short: one process at a time has the turn,
// the one with the smallest clock; ranks decide between equal clocks. It keeps the turn while its clock is below a
// bound, the earliest time at which another process could change what it sees.
#pragma once

#include "clock/actors.h"

namespace tofu::sim {

class Process;

// What the schedule asks of tni/.
struct ScheduleHost {
    // Carries out the events that only this process can, until then, in order. Returns when the next one is due.
    Picoseconds (*carry_out)(Picoseconds until) noexcept = nullptr;
    // Carries out what has arrived here until then; `waited`: this thread has been idle since. Returns when more is due.
    Picoseconds (*receive)(Picoseconds until, bool waited) noexcept = nullptr;
    // When an idle thread of this process must continue.
    Picoseconds (*next_arrival)() noexcept = nullptr;
    // Carries out the entries of this process's inbox until then; the helper thread.
    void (*empty_inbox)(Picoseconds until) noexcept = nullptr;
};

// While the process joins its job, or leaves it. UTOFU_SUCCESS or why not.
[[nodiscard]] int join_schedule(Process& process, uint32_t expected) noexcept;
void set_schedule_host(const ScheduleHost& host) noexcept;
void leave_schedule() noexcept;
void reset_schedule_in_child() noexcept;

// ---- Calls of the program: `now` is the clock of the process, which they move ----

enum class Turn : uint8_t {
    ours,
    without, // a look: nothing continues until something outside uTofu happens, which the program may have to attend to.
             // Further looks return without a turn as well (a visit), until a call that acts, or end_visit
    refused, // a second thread
};
// A call that does something begins, or one that looks (`looks`).
[[nodiscard]] Turn take_turn(Picoseconds& now, bool looks) noexcept;
// It has found nothing: waits until something arrives here, at the latest `until`; or until `looks`, if anything else
// happens in the job by then.
[[nodiscard]] Turn wait_for_event(Picoseconds& now, Picoseconds until, Picoseconds looks) noexcept;
// The first look of a visit, once; and a visit is over: the program has looked at everything.
[[nodiscard]] bool visit_begins() noexcept;
[[nodiscard]] bool is_visiting() noexcept;
void end_visit() noexcept;
// It returns.
void end_turn(Picoseconds now) noexcept;
// What only this process sees (registering memory): without the turn, unless others may see it too early.
[[nodiscard]] Turn set_up(Picoseconds& now) noexcept;
// What it did then took until `now`.
void publish_clock(Picoseconds now) noexcept;

// ---- With the turn ----

// Something has arrived there at `when`: an idle process continues, and one that polls memory may have seen it.
void wake_actor(uint32_t process, Picoseconds when) noexcept;
// Likewise, but an idle process waits for a notice that follows.
void touch_actor(uint32_t process, Picoseconds when) noexcept;
// Something will arrive there: an idle process continues at `wake`, and the inbox is due at `due`.
void expect_arrival(uint32_t process, Picoseconds wake, Picoseconds due) noexcept;
// The inbox of a process is due then.
void set_due(uint32_t process, Picoseconds due) noexcept;
// When our next event is due, after one was added.
void set_next_event(Picoseconds when) noexcept;
// Something will be due here at `when`.
void expect_own(Picoseconds when) noexcept;
// That process has left the job, or another one has its slot; *clock: its last one.
[[nodiscard]] bool has_departed(uint32_t process, uint32_t incarnation, Picoseconds* clock) noexcept;
// Another thread of this process wants the thread that looks to return (tofu_sim_wake).
void nudge_self() noexcept;

} // namespace tofu::sim
