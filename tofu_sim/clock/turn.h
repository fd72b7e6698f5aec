// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: exact mode: the choice of the process that has the next turn, and the state of this process for it.
#pragma once

#include "clock/schedule.h"

namespace tofu::sim {

inline constexpr uint64_t millisecond = 1'000'000;

// The soonest that what a process posts can change anything for another one.
inline constexpr Picoseconds lookahead = figures::post_call + figures::fetch + figures::wire;

struct ScheduleState {
    ScheduleHead* head = nullptr;
    std::byte* actors = nullptr;
    Actor* me = nullptr;
    uint32_t self = 0; // our slot
    Picoseconds bound = 0;
    Picoseconds own_due = never; // when something is due here: nothing before that
    ScheduleHost host;
    uint32_t owner = 0;     // the thread that calls
    bool refused = false;   // and another one was refused
    bool may_spin = false;  // there is a processor for each process
    unsigned spins = 0;     // before it sleeps while it waits for a turn; 0: they were of no use the last times
    unsigned sleeps = 0;    // without spins, so far
    uint64_t joined_ns = 0;
    bool helps = false; // the helper thread runs
    bool acted = false;
    bool was_without = false; // its last look returned without a turn
    unsigned visit_left = 0;  // looks that return so at once
    SharedWord<uint32_t> helper{0};
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
// Acquire: what belongs to the grant (partner: choose).
[[nodiscard]] inline Grant grant_of(const Actor& a) noexcept
{
    return static_cast<Grant>(__atomic_load_n(&a.grant, __ATOMIC_ACQUIRE));
}
[[nodiscard]] inline Settling settling() noexcept
{
    return static_cast<Settling>(own_state.head->settling.load_acquire());
}

// Held for some hundred instructions. A holder that was killed is found by its slot: no other process takes it away.
class Lock {
  public:
    Lock() noexcept;
    ~Lock() { own_state.head->lock.store_release(0); } // partner: the next one's compare_exchange
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
};

// Of the calling thread, as the kernel numbers it.
[[nodiscard]] uint32_t thread_id() noexcept;
void futex_wake(SharedWord<uint32_t>& word) noexcept;
// ns: 0 means without a bound.
void futex_wait(SharedWord<uint32_t>& word, uint32_t seen, uint64_t ns) noexcept;

// ---- Under the lock ----

// Something is to be done, now or later.
[[nodiscard]] bool has_candidate() noexcept;
// Gives the turn to the next process, if none has it and one may have it. The futex to wake afterwards, or null.
[[nodiscard]] SharedWord<uint32_t>* choose() noexcept;

// ---- Without it ----

// What choose() has returned. If no process can have the turn, the watchman looks after that.
void wake_chosen(SharedWord<uint32_t>* wakes) noexcept;
void choose_and_wake() noexcept;
// This process was granted events: carries them out, and gives the turn to the next.
void carry_out_granted() noexcept;

} // namespace tofu::sim
