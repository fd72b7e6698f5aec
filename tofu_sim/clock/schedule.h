// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: exact mode (TOFU_SIM_CLOCK=exact): whose turn it is among the processes of a job, by their virtual clocks.
//
// The argument, with its cases, is in docs/time-model.md ("Exact mode"). In short: one process at a time has the turn,
// the one with the smallest clock, ranks decide between equal ones. It keeps the turn while its clock is below a bound,
// which is what others could still send it. What processes have posted waits with them as events until its time is the
// smallest; then the poster carries it out.
//
// A place in the job's file for each process, its actor. `state` says where its thread is:
//
//     out --(call)--> ready or idle --(turn)--> inside --(return)--> running --(call)--> inside ...
//      ^                  |                        |                    |
//      |                  | (a look, and nothing   | (its clock is at    | (blocked, or looks at memory:
//      +------------------+ goes on elsewhere)     v  the bound) ready   v  excused) out
//
// out      in the program, without the turn: before the first call, after a look that was sent home, or excused.
//          Holds up whatever is later than its clock, unless it is excused.
// running  in the program, with the turn.
// inside   in the library, with the turn.
// ready    waits for its turn at its clock.
// idle     has found nothing: waits for an event of its own at `wake`, or for one that somebody else will post.
// Only the actor's own thread changes its state, but for running -> out (patrol), by compare-and-swap.
//
// The job settles when a process may have started something outside uTofu: nobody has the turn until nothing is under
// way there any more (clock/quiet). If nothing can go on then, all that look go home together (visiting), as one of
// them may find something outside.
#pragma once

#include "clock/figures.h"
#include "job/layout.h"

#include <cstddef>

namespace tofu::sim {

inline constexpr Picoseconds never = UINT64_MAX;

enum class ActorState : uint32_t { absent = 0, out = 1, running = 2, inside = 3, ready = 4, idle = 5 };
enum class Excuse : uint32_t { none = 0, blocked = 1, looks = 2, naps = 3 }; // naps: looks now and then
enum class Settling : uint32_t { no = 0, quieting = 1, visiting = 2 };
enum class Grant : uint32_t { none = 0, turn = 1, events = 2, help = 3 }; // help: events, for the helper thread

struct alignas(apart) Actor {
    SharedWord<uint32_t> state;  // ActorState
    SharedWord<uint32_t> turn;   // a futex: changes with each grant
    SharedWord<uint32_t> helped; // the same for the helper thread
    SharedWord<uint32_t> calls;  // that have returned
    uint32_t excuse;
    uint32_t grant;
    uint32_t rank;
    uint32_t incarnation;
    int32_t pid;
    SharedWord<uint32_t> tid; // of the thread that calls uTofu
    SharedWord<uint64_t> clock;
    SharedWord<uint64_t> next; // when the first event of its own is due
    uint64_t wake;  // idle: when it goes on at the latest,
    uint64_t looks; // or if anything else happens later
    uint64_t early; // something has arrived, or will, since it was idle last: it must not be idle beyond that
    uint64_t granted; // the time of the grant
    uint64_t bound;   // until when it may keep the turn
    uint64_t start_time;
    int32_t parent;                // has started it
    SharedWord<uint32_t> helper;   // thread, of the simulator's own
    SharedWord<uint32_t> entries;  // into the queue, so far
    SharedWord<uint32_t> outside;  // has sent something outside since its last call
    SharedWord<uint32_t> sends;    // so far
    SharedWord<uint32_t> sending;  // waits for what that starts to come to rest
    SharedWord<uint32_t> looking;  // what waits is a look
    SharedWord<uint32_t> visits;   // goes home when it finds this
    uint32_t hit;       // looks at memory, where something has arrived since
    uint32_t confirmed; // and was right to be taken for that
    SharedWord<uint32_t> nudged; // tofu_sim_wake
    // What patrols have seen.
    uint32_t seen_calls;
    uint64_t seen_cpu;
    uint64_t seen_faults;
    uint64_t seen_sleeps;
    uint64_t last_cpu;
    uint64_t blocked_since;
    // What looks outside have seen.
    uint64_t nap_key;
    uint64_t nap_sleeps;
};
static_assert(sizeof(Actor) <= schedule_actor_bytes);

struct ScheduleHead {
    SharedWord<uint32_t> lock;     // slot + 1 of who holds it
    SharedWord<uint32_t> running;  // slot + 1 of who has the turn
    SharedWord<uint32_t> used;     // places that have ever been taken
    uint32_t expected;             // processes that the job begins with
    uint32_t joined;
    uint32_t open;                 // all have come, or are not waited for any more
    SharedWord<uint64_t> grants;   // so far
    uint64_t frontier;             // the latest time that was granted
    SharedWord<uint64_t> settle_until; // by this machine's clock
    SharedWord<uint64_t> patrolled;    // likewise: when last
    SharedWord<uint32_t> stalled;      // looks were sent home: what comes next may come from outside
    SharedWord<uint32_t> told;     // lines on stderr that one process of the job writes for all
    SharedWord<uint32_t> settling; // Settling
    SharedWord<uint32_t> looker;   // slot + 1 of who looks outside
    SharedWord<uint32_t> sending;  // an actor does
    SharedWord<uint32_t> releases; // a futex: how often those that have sent something went on
    SharedWord<uint32_t> quiet;    // nothing was under way outside, and nobody has moved since
    uint32_t restless;             // never quiet, or nothing can be found out: pauses are all there is
    uint64_t settling_since;       // by this machine's clock
    uint64_t look_ns;              // what the last look outside took
    // What the last look outside has seen.
    uint64_t quiet_sum;
    uint64_t quiet_since;
    uint64_t quiet_actors;
};
static_assert(sizeof(ScheduleHead) <= layout_unit);

class Process;

// The lines that a run which may not repeat says once, by bit of ScheduleHead::told.
enum class Told : uint32_t { late_return = 1, joined_late = 2, missing = 4, restless = 8, unknown = 16 };

// What the schedule wants of tni/.
struct ScheduleHost {
    // Carries out our events until then, in order; returns when the next one is due.
    Picoseconds (*carry_out)(Picoseconds until) noexcept = nullptr;
};

// While the process joins its job, or leaves it. UTOFU_SUCCESS or why not.
[[nodiscard]] int join_schedule(Process& process, uint32_t expected) noexcept;
void set_schedule_host(const ScheduleHost& host) noexcept;
void leave_schedule() noexcept;
void reset_schedule_in_child() noexcept;

// ---- Calls of the program: `now` is the clock of the process, which they move ----

enum class Turn : uint8_t {
    ours,
    home,    // a look: nothing goes on until something outside uTofu does; the program may have to see to that. It
             // stays at home for further looks (a visit) until a call that acts, or end_visit
    refused, // a second thread
};
// A call that does something begins, or one that looks (`looks`).
[[nodiscard]] Turn take_turn(Picoseconds& now, bool looks) noexcept;
// It has looked in vain: until something arrives here, at the latest `until`; and at `looks`, if anything else goes on
// in the job by then.
[[nodiscard]] Turn wait_for_event(Picoseconds& now, Picoseconds until, Picoseconds looks) noexcept;
// The first look of a visit, once; and a visit is over: the program has looked around.
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

// Something arrives there at `when`: wakes who is idle.
void wake_actor(uint32_t process, Picoseconds when) noexcept;
// When our next event is due, after one was added.
void set_next_event(Picoseconds when) noexcept;
// The thread that calls uTofu sends something to another thread or process, outside uTofu; and has done so: it waits
// until nothing that this may have started is under way.
void send_outside() noexcept;
void sent_outside() noexcept;
// Somebody else in this process wants the thread that looks to come home (tofu_sim_wake).
void nudge_self() noexcept;

} // namespace tofu::sim
