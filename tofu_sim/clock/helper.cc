// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Exact mode: the helper thread. See helper.h.
#include "clock/helper.h"

#include "clock/patrol.h"
#include "clock/processor.h"
#include "clock/settle.h"
#include "job/real_time.h"

#include <algorithm>
#include <csignal>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

namespace tofu::sim {
namespace {

constexpr uint64_t shortest_tick_ns = millisecond / 4;
constexpr uint64_t longest_tick_ns = 16 * millisecond;
constexpr uint64_t other_tick_ns = 250 * millisecond; ///< of helpers that are not the watchman

/// State of the watchman between two ticks.
struct Seen {
    uint64_t grants = 0;
    uint64_t tick = shortest_tick_ns;
};

/// True for the helper of the first living process, and for any helper if the watchman has not ticked for two periods.
bool is_watchman(uint64_t now) noexcept
{
    ScheduleHead& head = *own_state.head;
    const uint32_t used = head.used.load_acquire();
    for (uint32_t process = 0; process < used; process++)
        if (state_of(actor(process)) != ActorState::absent)
            return process == own_state.self || now - head.watched.load_relaxed() > 2 * other_tick_ns;
    return false;
}

/// Repeats the wake-up of the process that has the turn: the process that chose it may have been killed before the
/// wake-up.
void wake_again() noexcept
{
    const uint32_t running = own_state.head->running.load_acquire();
    if (running != 0) {
        Actor& a = actor(running - 1);
        const Grant grant = grant_of(a);
        if (grant == Grant::turn || grant == Grant::events)
            futex_wake(a.turn);
    }
}

/// The time until the next tick: short if a process has to be observed, long while turns are taken.
uint64_t next_tick(Seen& seen) noexcept
{
    const ScheduleHead& head = *own_state.head;
    const uint32_t running = head.running.load_acquire();
    const uint64_t grants = head.grants.load_acquire();
    if (running != 0 && actor(running - 1).confirmed.load_relaxed() != 0) {
        seen.tick = shortest_tick_ns;
    } else if (running == 0 || head.settling.load_relaxed() != 0 || head.sending.load_relaxed() != 0) {
        seen.tick = millisecond;
    } else if (grants != seen.grants) {
        seen.tick = longest_tick_ns;
        own_state.head->crowded.store_relaxed(is_bound() && is_wanted_by_others() ? 1 : 0);
    } else {
        seen.tick = seen.tick >= longest_tick_ns ? millisecond : std::min(seen.tick * 2, longest_tick_ns / 2);
    }
    seen.grants = grants;
    return seen.tick;
}

void watch(uint64_t now) noexcept
{
    ScheduleHead& head = *own_state.head;
    head.watchman.store_relaxed(own_state.self + 1);
    head.watched.store_relaxed(now);
    patrol_in_turn();
    choose_and_wake();
    wake_again();
    if (head.restless != 0)
        wake_all_looks();
}

void* help(void*) noexcept
{
    (void)::pthread_setname_np(::pthread_self(), "tofu-exact");
    own_state.helper.store_relaxed(thread_id());
    own_state.me->helper.store_relaxed(thread_id());
    uint32_t seen = 0;
    Seen job;
    for (;;) {
        Actor& me = *own_state.me;
        const uint32_t helped = me.helped.load_acquire();
        (void)own_state.helps_now.exchange(1); // partner: stop_helper
        if (own_state.leaves.load_acquire() != 0) {
            own_state.helps_now.store_release(0);
            return nullptr;
        }
        if (helped != std::exchange(seen, helped) && own_state.head->running.load_acquire() == own_state.self + 1 &&
            grant_of(me) == Grant::help)
            carry_out_granted();
        const uint64_t now = real_time_ns();
        uint64_t tick = other_tick_ns;
        if (is_watchman(now)) {
            watch(now);
            tick = next_tick(job);
            own_state.head->dozes.store_release(tick > millisecond ? 1 : 0); // partner: ring_watchman
        }
        own_state.helps_now.store_release(0);
        futex_wait(me.helped, seen, tick);
    }
}

} // namespace

bool start_helper() noexcept
{
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    (void)::pthread_sigmask(SIG_SETMASK, &all, &before); // inherited: signals go to threads of the program
    pthread_t thread;
    const bool started = ::pthread_create(&thread, nullptr, &help, nullptr) == 0;
    (void)::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (started)
        (void)::pthread_detach(thread);
    return started;
}

void stop_helper() noexcept
{
    constexpr uint64_t longest_ns = 1'000 * millisecond; // it waits for the lock of a process that is stopped
    const uint64_t began = real_time_ns();
    (void)own_state.leaves.exchange(1); // partner: help
    while (own_state.helps_now.load_acquire() != 0 && real_time_ns() - began < longest_ns)
        (void)::syscall(SYS_sched_yield);
    own_state.helps = false;
}

void ring_watchman() noexcept
{
    ScheduleHead& head = *own_state.head;
    const uint32_t watchman = head.watchman.load_relaxed();
    if (head.dozes.load_relaxed() != 0 && watchman != 0) {
        head.dozes.store_relaxed(0);
        (void)actor(watchman - 1).helped.fetch_add(1);
        futex_wake(actor(watchman - 1).helped);
    }
}

} // namespace tofu::sim
