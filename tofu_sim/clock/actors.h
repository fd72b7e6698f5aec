// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Exact mode: the shared memory by which the processes of a job take turns, a part of the job's file.
//
// Each process has a slot there, its actor. `state` is the state of the thread that calls uTofu:
//
//     out --(call)--> ready or idle --(turn)--> inside --(return)--> running --(call)--> inside ...
//      ^                  |                        |                    |
//      |                  | (a look that returns   | (its clock is at   | (blocked, or polls memory:
//      +------------------+ without a turn)        v  the bound) ready  v  excused) out
//
// out      in the program, without the turn: before the first call, after a poll that returned without a turn, or
//          excused. Unless it is excused, no other process gets a turn later than its clock.
// running  in the program, with the turn.
// inside   in the library, with the turn.
// ready    waits for its turn at its clock.
// idle     has found nothing: waits until `wake`, which other processes move to an earlier time.
// Only the actor's own thread changes its state, except for running -> out (patrol), by compare-and-swap.
#pragma once

#include "clock/figures.h"
#include "job/layout.h"

#include <cstddef>

namespace tofu::sim {

inline constexpr Picoseconds never = UINT64_MAX;

enum class ActorState : uint32_t { absent = 0, out = 1, running = 2, inside = 3, ready = 4, idle = 5 };
/// blocked: it sleeps, and nothing is under way outside. The others are guesses. looks: a loop that polls memory. naps:
/// a loop of polls and sleep, or it is blocked for long while something is under way.
enum class Excuse : uint32_t { none = 0, blocked = 1, looks = 2, naps = 3 };
/// Of a thread in the program that sends something outside uTofu. holds: it waits before the send until all others
/// wait. sent: it waits until everything that its send has started is quiet.
enum class Sending : uint32_t { no = 0, holds = 1, sent = 2 };
enum class Settling : uint32_t { no = 0, quieting = 1, visiting = 2 };
enum class Grant : uint32_t { none = 0, turn = 1, events = 2, help = 3 }; ///< help: events, for the helper thread

struct alignas(apart) Actor {
    /// One cache line: all members that the choice of the next turn reads.
    SharedWord<uint32_t> state; ///< ActorState
    SharedWord<uint32_t> turn;  ///< a futex: incremented with each grant
    SharedWord<uint32_t> grant;
    SharedWord<uint32_t> excuse; ///< Excuse
    uint32_t rank;
    uint32_t hit; ///< 1: it polls memory, and bytes have arrived there; 2: it has the turn for that
    SharedWord<uint64_t> clock;
    SharedWord<uint64_t> next; ///< time of the first event that only this process can execute
    SharedWord<uint64_t> due;  ///< time of the first entry of its inbox
    uint64_t wake;             ///< idle: it continues at this time at the latest
    uint64_t looks;            ///< idle: likewise, if another event of the job follows

    SharedWord<uint32_t> helped; ///< like `turn`, for the helper thread
    SharedWord<uint32_t> calls;  ///< calls that have returned
    uint32_t incarnation;
    int32_t pid;
    SharedWord<uint32_t> tid;     ///< of the thread that calls uTofu
    int32_t parent;               ///< process ID of its parent
    SharedWord<uint32_t> helper;  ///< thread ID of the helper thread
    SharedWord<uint32_t> service; ///< thread ID of the service thread (memory/)
    SharedWord<uint32_t> asleep;  ///< 1: it sleeps on `turn`, or is about to
    SharedWord<uint32_t> entries; ///< number of times it has entered the queue
    uint64_t early;               ///< time of the first arrival since it was idle last; it is not idle beyond that time
    uint64_t granted;             ///< virtual time of the grant
    uint64_t bound;               ///< it may keep the turn until this time

    SharedWord<uint32_t> outside;   ///< 1: it has sent outside uTofu since its last call
    SharedWord<uint32_t> sending;   ///< Sending
    SharedWord<uint32_t> looking;   ///< 1: the waiting call is a poll
    SharedWord<uint32_t> visits;    ///< 1: the waiting poll has to return without a turn
    SharedWord<uint32_t> nudged;    ///< 1: tofu_sim_wake was called
    SharedWord<uint32_t> confirmed; ///< 1: it has called after a hit
    /// Written by patrols.
    uint32_t seen_calls;
    uint64_t seen_cpu;
    uint64_t seen_pauses; ///< page faults and voluntary switches
    uint64_t last_cpu;
    uint64_t blocked_since;
    uint64_t excused_sends; ///< ScheduleHead::sends when it was excused
};
static_assert(sizeof(Actor) <= schedule_actor_bytes);
static_assert(offsetof(Actor, helped) == apart);

struct ScheduleHead {
    SharedWord<uint32_t> lock;    ///< slot + 1 of the holder
    SharedWord<uint32_t> running; ///< slot + 1 of the process that has the turn
    SharedWord<uint32_t> used;    ///< number of slots that have ever been used
    uint32_t expected;            ///< number of processes at the start of the job
    uint32_t joined;
    uint32_t launched;                 ///< 1: a launcher takes part
    uint32_t unseen;                   ///< 1: `sends` does not count the sends of some process
    uint32_t open;                     ///< 1: all processes have joined, or the wait for them has ended
    SharedWord<uint64_t> grants;       ///< number of grants
    uint64_t frontier;                 ///< the latest granted time
    SharedWord<uint64_t> settle_until; ///< real time until which no process gets the turn; 0: none
    SharedWord<uint64_t> patrolled;    ///< real time of the last patrol
    SharedWord<uint32_t> stalled;      ///< 1: polls returned without a turn, so the next call may have a cause outside
                                       ///< uTofu
    SharedWord<uint32_t> warned;       ///< bits of Warning: lines that one process of the job has written for all
    SharedWord<uint32_t> settling;     ///< Settling
    SharedWord<uint32_t> looker;       ///< slot + 1 of the process in look_outside()
    SharedWord<uint32_t> sending;      ///< 1: an actor's `sending` is not Sending::no
    SharedWord<uint64_t> sends;        ///< number of sends outside uTofu
    SharedWord<uint32_t> releases;     ///< a futex: how often such actors have been released
    SharedWord<uint32_t> quiet;        ///< 1: nothing was under way outside, and no process has changed since
    SharedWord<uint32_t> watchman;     ///< slot + 1 of the process whose helper thread patrols
    SharedWord<uint32_t> dozes;        ///< 1: the watchman sleeps for more than a millisecond
    SharedWord<uint64_t> watched;      ///< real time of the watchman's last tick
    SharedWord<uint32_t> crowded;   ///< 1: other programs want that processor, so a waiter sleeps instead of yielding
    SharedWord<uint32_t> processor; ///< number + 1 of the processor of all threads that call uTofu (clock/processor.h)
    uint32_t crowds;                ///< looks outside in a row that found all processors used by other programs
    uint32_t restless;              ///< 1: never quiet, or /proc does not show it; fixed pauses are used instead
    uint64_t settling_since;        ///< real time
    uint64_t look_ns;               ///< duration of the last look_outside()
    /// Results of the last look_outside().
    uint64_t quiet_sum;
    uint64_t quiet_since;
    uint64_t quiet_actors;
    uint64_t quiet_others; ///< threads that do not call uTofu
    /// At the last round of looks that returned without a turn.
    uint64_t round_sends;
    uint64_t round_others;
    SharedWord<uint32_t> by_itself; ///< something outside had started by itself before it
};
static_assert(sizeof(ScheduleHead) <= layout_unit);

} // namespace tofu::sim
