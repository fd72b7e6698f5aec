// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: exact mode: the part of the job's file that the processes of a job share to take turns.
//
// Each process has a slot there, its actor. `state` is the state of the thread that calls uTofu:
//
//     out --(call)--> ready or idle --(turn)--> inside --(return)--> running --(call)--> inside ...
//      ^                  |                        |                    |
//      |                  | (a look that returns   | (its clock is at   | (blocked, or polls memory:
//      +------------------+ without a turn)        v  the bound) ready  v  excused) out
//
// out      in the program, without the turn: before the first call, after a look that returned without a turn, or
//          excused. Holds up everything later than its clock, unless it is excused.
// running  in the program, with the turn.
// inside   in the library, with the turn.
// ready    waits for its turn at its clock.
// idle     has found nothing: waits until `wake`, which others move forward.
// Only the actor's own thread changes its state, except for running -> out (patrol), by compare-and-swap.
#pragma once

#include "clock/figures.h"
#include "job/layout.h"

#include <cstddef>

namespace tofu::sim {

inline constexpr Picoseconds never = UINT64_MAX;

enum class ActorState : uint32_t { absent = 0, out = 1, running = 2, inside = 3, ready = 4, idle = 5 };
enum class Excuse : uint32_t { none = 0, blocked = 1, looks = 2, naps = 3 }; // naps: a loop of looks and sleep
enum class Settling : uint32_t { no = 0, quieting = 1, visiting = 2 };
enum class Grant : uint32_t { none = 0, turn = 1, events = 2, help = 3 }; // help: events, for the helper thread

struct alignas(apart) Actor {
    // One line: all that the choice of the next turn reads.
    SharedWord<uint32_t> state; // ActorState
    SharedWord<uint32_t> turn;  // a futex: changes with each grant
    uint32_t grant;
    uint32_t excuse;
    uint32_t rank;
    uint32_t hit; // polls memory, and bytes have arrived there since
    SharedWord<uint64_t> clock;
    SharedWord<uint64_t> next; // when the first event that it has to carry out itself is due
    SharedWord<uint64_t> due;  // when the first entry of its inbox is due
    uint64_t wake;             // idle: when it continues at the latest,
    uint64_t looks;            // or if anything else happens later

    SharedWord<uint32_t> helped; // as `turn`, for the helper thread
    SharedWord<uint32_t> calls;  // that have returned
    uint32_t incarnation;
    int32_t pid;
    SharedWord<uint32_t> tid; // of the thread that calls uTofu
    int32_t parent;           // the process that has started it
    SharedWord<uint32_t> helper;  // thread, of the simulator's own
    SharedWord<uint32_t> entries; // into the queue, so far
    uint64_t early;   // something has arrived since it was idle last: it must not be idle beyond that
    uint64_t granted; // the time of the grant
    uint64_t bound;   // until when it may keep the turn
    uint64_t start_time;

    SharedWord<uint32_t> outside; // has sent something outside since its last call
    SharedWord<uint32_t> sends;   // so far
    SharedWord<uint32_t> sending; // waits until what that starts has come to rest
    SharedWord<uint32_t> looking; // what waits is a look
    SharedWord<uint32_t> visits;  // the look is to return without a turn
    SharedWord<uint32_t> nudged;  // tofu_sim_wake
    uint32_t confirmed;           // a hit, and it has called since
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
static_assert(offsetof(Actor, helped) == apart);

struct ScheduleHead {
    SharedWord<uint32_t> lock;    // slot + 1 of its holder
    SharedWord<uint32_t> running; // slot + 1 of the process that has the turn
    SharedWord<uint32_t> used;    // slots that have ever been taken
    uint32_t expected;            // processes that the job begins with
    uint32_t joined;
    uint32_t open;                // all have joined, or are not waited for any more
    SharedWord<uint64_t> grants;  // so far
    uint64_t frontier;            // the latest time that was granted
    SharedWord<uint64_t> settle_until; // by this machine's clock
    SharedWord<uint64_t> patrolled;    // likewise: the last time
    SharedWord<uint32_t> stalled; // looks returned without a turn: what comes next may come from outside
    SharedWord<uint32_t> warned;  // lines on stderr that one process of the job writes for all (Warning)
    SharedWord<uint32_t> settling;    // Settling
    SharedWord<uint32_t> looker;      // slot + 1 of the process that looks outside
    SharedWord<uint32_t> sending;     // an actor does
    SharedWord<uint32_t> releases;    // a futex: how often those that have sent something continued
    SharedWord<uint32_t> quiet;       // nothing was under way outside, and no process has moved since
    SharedWord<uint32_t> watchman;    // slot + 1 of the process whose helper thread patrols
    SharedWord<uint32_t> dozes;       // the watchman sleeps for more than a millisecond
    SharedWord<uint64_t> watched;     // by this machine's clock: its last tick
    uint32_t restless;       // never quiet, or nothing can be found out: pauses are all there is
    uint64_t settling_since; // by this machine's clock
    uint64_t look_ns;        // what the last look outside took
    // What the last look outside has seen.
    uint64_t quiet_sum;
    uint64_t quiet_since;
    uint64_t quiet_actors;
};
static_assert(sizeof(ScheduleHead) <= layout_unit);

} // namespace tofu::sim
