// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Exact mode: the choice of the process that gets the next turn, and this process's state for it.
#pragma once

#include "clock/schedule.h"

#include <optional>

namespace tofu::sim {

inline constexpr uint64_t millisecond = 1'000'000;

/// The shortest time from a post of one process to an effect that another one can see.
inline constexpr Picoseconds lookahead = figures::post_call + figures::fetch + figures::wire;

struct ScheduleState {
    ScheduleHead* head = nullptr;
    std::byte* actors = nullptr;
    Actor* me = nullptr;
    uint32_t self = 0; ///< slot of this process
    Picoseconds bound = 0;
    Picoseconds own_due = never;  ///< nothing is due here before this time
    unsigned waits = 0;           ///< for a turn, by this process
    std::optional<bool> uses_mpi; ///< found at the first wait
    ScheduleHost host;
    uint32_t owner = 0;       ///< ID of the thread that calls uTofu
    bool refused = false;     ///< a call of another thread was refused
    bool may_spin = false;    ///< each process of the job has a processor
    unsigned spins = 0;       ///< polls of the turn before the thread sleeps; 0: the last ones had no success
    unsigned rests = 0;       ///< waits until it yields again
    unsigned vain_yields = 0; ///< since it was of use
    unsigned sleeps = 0;      ///< number of waits without spins
    uint64_t joined_ns = 0;
    bool helps = false; ///< the helper thread runs
    bool acted = false;
    bool was_without = false; ///< its last poll returned without a turn
    unsigned visit_left = 0;  ///< number of further polls that return without a turn at once
    SharedWord<uint32_t> helper{0};
    SharedWord<uint32_t> leaves{0}; ///< the helper thread does nothing more
    SharedWord<uint32_t> helps_now{0};
};
extern ScheduleState own_state;

[[nodiscard]] inline Actor& actor(uint32_t process) noexcept
{
    return *reinterpret_cast<Actor*>(own_state.actors + size_t{process} * schedule_actor_bytes);
}
[[nodiscard]] inline ActorState state_of(const Actor& a) noexcept
{
    return static_cast<ActorState>(a.state.load_acquire());
}
inline void set_state(Actor& a, ActorState to) noexcept
{
    a.state.store_release(static_cast<uint32_t>(to));
}
[[nodiscard]] inline bool change_state(Actor& a, ActorState from, ActorState to) noexcept
{
    auto expected = static_cast<uint32_t>(from);
    return a.state.compare_exchange(expected, static_cast<uint32_t>(to));
}
/// Acquire: the members that belong to the grant (partner: choose).
[[nodiscard]] inline Grant grant_of(const Actor& a) noexcept
{
    return static_cast<Grant>(a.grant.load_acquire());
}
[[nodiscard]] inline Settling settling() noexcept
{
    return static_cast<Settling>(own_state.head->settling.load_acquire());
}

/// The lock of the schedule, held for some hundred instructions. A waiter releases it if its holder was killed, or
/// else the next process of the holder's slot does.
class Lock {
  public:
    Lock() noexcept;
    ~Lock() { own_state.head->lock.store_release(0); } ///< partner: the next one's compare_exchange
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
};

/// The kernel's ID of the calling thread.
[[nodiscard]] uint32_t thread_id() noexcept;
void futex_wake(SharedWord<uint32_t>& word) noexcept;
/// Waits for `ns` nanoseconds at most; 0: without a bound.
void futex_wait(SharedWord<uint32_t>& word, uint32_t seen, uint64_t ns) noexcept;

// ---- Called under the lock ----

/// True if a turn or events can be granted, now or later.
[[nodiscard]] bool has_candidate() noexcept;
/// Grants the turn to the next process, if no process has it and one may get it. Returns the futex to wake afterwards,
/// or null.
[[nodiscard]] SharedWord<uint32_t>* choose() noexcept;

// ---- Called without the lock ----

/// Wakes the result of choose(). If no process has got the turn, wakes the watchman, which then checks for the reason.
void wake_chosen(SharedWord<uint32_t>* wakes) noexcept;
void choose_and_wake() noexcept;
/// Executes the events that were granted to this process, and grants the next turn.
void carry_out_granted() noexcept;

} // namespace tofu::sim
