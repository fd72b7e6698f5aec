// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Exact mode (TOFU_SIM_CLOCK=exact): the calls of this process take turns with those of the other processes.
//
// docs/time-model.md ("Exact mode") has the argument and its cases. In short: one process at a time has the turn, the
// one with the smallest clock; ranks decide between equal clocks. It keeps the turn while its clock is below a bound,
// the earliest time at which another process could change anything that it sees.
#pragma once

#include "clock/actors.h"

namespace tofu::sim {

class Process;

/// Functions of tni/ that the schedule calls.
struct ScheduleHost {
    /// Executes the events that only this process can execute, in order, up to `until`. Returns the next one's time.
    Picoseconds (*carry_out)(Picoseconds until) noexcept = nullptr;
    /// Executes the arrivals here up to `until`. `waited`: this thread has been idle. Returns when the next one is due.
    Picoseconds (*receive)(Picoseconds until, bool waited) noexcept = nullptr;
    /// The time at which an idle thread of this process must continue.
    Picoseconds (*next_arrival)() noexcept = nullptr;
    /// Executes the entries of this process's inbox up to `until`. Called by the helper thread.
    void (*empty_inbox)(Picoseconds until) noexcept = nullptr;
};

/// Called while the process joins its job, or leaves it. UTOFU_SUCCESS or UTOFU_ERR_*.
[[nodiscard]] int join_schedule(Process& process, uint32_t expected) noexcept;
/// What is known from the beginning to have no order: a line on stderr for each.
struct Surroundings {
    bool launched;  ///< a launcher takes part
    bool computes;  ///< computing takes time
    bool unseen;    ///< what is sent outside uTofu is not seen
    bool addresses; ///< a launcher's program has other addresses in each run
};
void warn_of(const Surroundings& surroundings) noexcept;
void set_schedule_host(const ScheduleHost& host) noexcept;
void leave_schedule() noexcept;
/// True if this process has left the job.
[[nodiscard]] bool has_left() noexcept;
void reset_schedule_in_child() noexcept;

// ---- Calls of the program. `now` is the clock of the process; they move it forward ----

enum class Turn : uint8_t {
    ours,
    without, ///< A poll: no process continues before something outside uTofu happens, and the program may have to do
             ///< it. Further polls also return without a turn (a visit), until a call that acts, or end_visit.
    refused, ///< A second thread calls.
};
/// acts: other processes may see its effects. looks: a poll. sets_up: it acts, too, but it never comes from something
/// outside uTofu.
enum class CallKind : uint8_t { acts, looks, sets_up };
[[nodiscard]] Turn take_turn(Picoseconds& now, CallKind kind) noexcept;
/// Called by a poll that has found nothing. Waits for an arrival here, at most until `until`; or until `looks`, if
/// another event of the job follows.
[[nodiscard]] Turn wait_for_event(Picoseconds& now, Picoseconds until, Picoseconds looks) noexcept;
/// visit_begins() is true once, for the first poll of a visit. end_visit() ends a visit: the program has polled all
/// objects.
[[nodiscard]] bool visit_begins() noexcept;
[[nodiscard]] bool is_visiting() noexcept;
void end_visit() noexcept;
/// Called when a call returns.
void end_turn(Picoseconds now) noexcept;

// ---- Called with the turn ----

/// Something has arrived at the process at `when`: an idle process continues, and one that polls memory may see it.
void wake_actor(uint32_t process, Picoseconds when) noexcept;
/// Likewise, but an idle process waits for a notice that follows.
void touch_actor(uint32_t process, Picoseconds when) noexcept;
/// Something will arrive at the process: if idle, it continues at `wake`; its inbox is due at `due`.
void expect_arrival(uint32_t process, Picoseconds wake, Picoseconds due) noexcept;
/// Sets the time at which the inbox of a process is due.
void set_due(uint32_t process, Picoseconds due) noexcept;
/// Sets the time of this process's next event, after one was added.
void set_next_event(Picoseconds when) noexcept;
/// Something is due in this process at `when`.
void expect_own(Picoseconds when) noexcept;
/// True if the process has left the job, or another one has its slot.
[[nodiscard]] bool has_departed(uint32_t process, uint32_t incarnation) noexcept;
/// Makes a waiting poll of this process return. Called by its other threads (tofu_sim_wake).
void nudge_self() noexcept;

} // namespace tofu::sim
