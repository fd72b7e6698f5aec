// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Exact mode: settling. See settle.h.
#include "clock/settle.h"

#include "clock/helper.h"
#include "clock/patrol.h"
#include "clock/quiet.h"
#include "job/real_time.h"

#include <algorithm>

namespace tofu::sim {
namespace {

constexpr uint64_t longest_settling_ns = 30'000 * millisecond;
constexpr uint64_t settle_ns = 60 * millisecond; ///< used if /proc does not show when it is quiet
/// In a row. A program that starts up, or a thread of the kernel, uses the processors for one or two looks.
constexpr unsigned crowds_before_warning = 8;

/// Longer on a machine with much to do.
bool is_too_long_since(uint64_t began) noexcept
{
    const uint64_t passed = real_time_ns() - began;
    return passed > longest_settling_ns && passed > longest_settling_ns * crowding();
}

void pause_instead() noexcept
{
    ScheduleHead& head = *own_state.head;
    if (head.settle_until.load_relaxed() == 0)
        head.settle_until.store_relaxed(real_time_ns() + settle_ns * crowding());
}

void end_settling() noexcept
{
    ScheduleHead& head = *own_state.head;
    const uint32_t used = head.used.load_relaxed();
    for (uint32_t process = 0; process < used; process++) {
        actor(process).outside.store_relaxed(0);
        actor(process).visits.store_relaxed(0);
    }
    head.stalled.store_relaxed(0);
    head.settling.store_release(static_cast<uint32_t>(Settling::no));
}

Sending sending_of(const Actor& a) noexcept
{
    return static_cast<Sending>(a.sending.load_acquire());
}

/// Returns whether there are any.
bool release_those_that(Sending what) noexcept
{
    bool any = false;
    const uint32_t used = own_state.head->used.load_relaxed();
    for (uint32_t process = 0; process < used; process++) {
        Actor& a = actor(process);
        if (sending_of(a) == what) {
            a.sending.store_release(static_cast<uint32_t>(Sending::no)); // partner: wait_as
            any = true;
        }
        forget_sample(a);
    }
    return any;
}

/// Releases the processes that hold back a send, all at once. If there are none, the answers to all sends are there,
/// and the processes that have sent something are released.
void release_senders() noexcept
{
    ScheduleHead& head = *own_state.head;
    if (!release_those_that(Sending::holds)) {
        (void)release_those_that(Sending::sent);
        head.sending.store_relaxed(0);
    }
    head.quiet.store_relaxed(0);
    head.releases.store_release(head.releases.load_relaxed() + 1); // partner: wait_as
    futex_wake(head.releases);
}

void give_up_quiet(Warning why) noexcept
{
    ScheduleHead& head = *own_state.head;
    warn_once(head, why);
    head.restless = 1;
    end_settling();
    (void)release_those_that(Sending::holds);
    release_senders();
}

bool all_have_visited() noexcept
{
    const uint32_t used = own_state.head->used.load_relaxed();
    for (uint32_t process = 0; process < used; process++)
        if (actor(process).visits.load_relaxed() != 0)
            return false;
    return true;
}

/// Makes all waiting polls return. False: there is none.
bool begin_round() noexcept
{
    bool any = false;
    const uint32_t used = own_state.head->used.load_relaxed();
    for (uint32_t process = 0; process < used; process++) {
        Actor& a = actor(process);
        const ActorState s = state_of(a);
        if ((s == ActorState::ready || s == ActorState::idle) && a.looking.load_relaxed() != 0) {
            a.visits.store_release(1); // partner: await
            any = true;
        }
    }
    if (any) {
        own_state.head->settling_since = real_time_ns();
        own_state.head->settling.store_release(static_cast<uint32_t>(Settling::visiting));
    }
    return any;
}

/// Polls are about to return. If a thread outside uTofu has run since the last such round, and no process has sent
/// anything, it was woken by a timer or by another machine.
void look_for_timers() noexcept
{
    ScheduleHead& head = *own_state.head;
    const uint64_t sends = 1 + head.joined + head.sends.load_relaxed();
    const bool by_itself = head.round_sends == sends && head.round_others != head.quiet_others;
    head.by_itself.store_relaxed(by_itself ? 1 : 0);
    head.round_sends = sends;
    head.round_others = head.quiet_others;
}

/// Acts on the result of look_outside(). True: some polls have to return.
bool settle_by(Outside outside, SharedWord<uint32_t>*& wakes) noexcept
{
    ScheduleHead& head = *own_state.head;
    if (head.open == 0 || head.restless != 0)
        return false;
    if (outside == Outside::quiet) {
        if (settling() != Settling::no)
            end_settling();
        wakes = choose();
        if (head.running.load_relaxed() != 0)
            return false;
        look_for_timers();
        return begin_round();
    }
    if (outside == Outside::unknown || (settling() != Settling::no && is_too_long_since(head.settling_since))) {
        give_up_quiet(outside == Outside::unknown ? Warning::unknown : Warning::restless);
        pause_instead();
    }
    return false;
}

/// True if a process waits for something outside, or if the process that has the turn has been in the program for some
/// time.
bool must_look_outside() noexcept
{
    const ScheduleHead& head = *own_state.head;
    if (head.restless != 0)
        return false;
    const uint32_t running = head.running.load_relaxed();
    if (head.settling.load_relaxed() != 0 || head.sending.load_relaxed() != 0 || running == 0)
        return true;
    const Actor& a = actor(running - 1);
    return state_of(a) == ActorState::running && a.seen_cpu != 0 && a.seen_calls == a.calls.load_relaxed();
}

Outside look_outside_alone() noexcept
{
    ScheduleHead& head = *own_state.head;
    uint32_t none = 0;
    if (!head.looker.compare_exchange(none, own_state.self + 1)) {
        const bool ended = none - 1 < max_processes && has_ended(actor(none - 1), none - 1);
        if (!ended || !head.looker.compare_exchange(none, own_state.self + 1))
            return Outside::busy;
    }
    const uint64_t began = real_time_ns();
    const Outside found = look_outside(head, own_state.actors);
    head.look_ns = real_time_ns() - began;
    head.looker.store_release(0); // partner: the next one's compare_exchange
    return found;
}

/// True if a patrol is due. The caller has to make it.
bool takes_patrol() noexcept
{
    ScheduleHead& head = *own_state.head;
    const uint64_t now = real_time_ns();
    uint64_t last = head.patrolled.load_relaxed();
    const uint32_t running = head.running.load_relaxed();
    const bool soon = running != 0 && actor(running - 1).confirmed.load_relaxed() != 0;
    const bool in_program = running != 0 && head.sending.load_relaxed() == 0;
    const uint64_t pause = soon ? millisecond / 4 : std::max(millisecond, (in_program ? 8 : 2) * head.look_ns);
    return now - last >= pause && head.patrolled.compare_exchange(last, now);
}

/// True for the thread that calls uTofu, while it is in the program.
bool sends_outside() noexcept
{
    if (own_state.me == nullptr || own_state.me->tid.load_relaxed() != thread_id())
        return false;
    const ActorState s = state_of(*own_state.me);
    return s == ActorState::running || s == ActorState::out;
}

/// All other processes wait in a call of uTofu.
bool others_wait() noexcept
{
    const ScheduleHead& head = *own_state.head;
    if (head.open == 0)
        return false;
    const uint32_t used = head.used.load_acquire();
    for (uint32_t process = 0; process < used; process++) {
        const Actor& a = actor(process);
        const ActorState s = state_of(a);
        const bool waits = (s == ActorState::ready || s == ActorState::idle) && a.visits.load_acquire() == 0;
        if (process != own_state.self && s != ActorState::absent && !waits)
            return false;
    }
    return true;
}

/// Until that is over.
void wait_as(Sending what) noexcept
{
    ScheduleHead& head = *own_state.head;
    Actor& me = *own_state.me;
    const uint64_t began = real_time_ns();
    me.sending.store_release(static_cast<uint32_t>(what));
    head.quiet.store_release(0);
    for (;;) {
        head.sending.store_release(1);
        const uint32_t releases = head.releases.load_acquire();
        if (sending_of(me) == Sending::no)
            return;
        futex_wait(head.releases, releases, millisecond);
        patrol_in_turn();
        if (is_too_long_since(began)) {
            const Lock lock;
            give_up_quiet(Warning::restless);
        }
    }
}

} // namespace

void begin_settling() noexcept
{
    ScheduleHead& head = *own_state.head;
    if (head.restless != 0) {
        pause_instead();
    } else if (settling() == Settling::no) {
        head.settling.store_release(static_cast<uint32_t>(Settling::quieting));
        head.settling_since = real_time_ns();
        head.quiet_sum = 0;
    }
}

void wake_all_looks() noexcept
{
    const uint32_t used = own_state.head->used.load_relaxed();
    for (uint32_t process = 0; process < used; process++) {
        const ActorState s = state_of(actor(process));
        if ((s == ActorState::ready || s == ActorState::idle) && actor(process).looking.load_relaxed() != 0)
            futex_wake(actor(process).turn);
    }
}

void patrol_in_turn() noexcept
{
    ScheduleHead& head = *own_state.head;
    if (!takes_patrol())
        return;
    Outside outside = must_look_outside() ? look_outside_alone() : Outside::busy;
    bool wakes = false;
    SharedWord<uint32_t>* chosen = nullptr;
    {
        const Lock lock;
        // Some polls that have to return have not got a processor yet.
        const bool leaves = settling() == Settling::visiting && !all_have_visited();
        if (outside == Outside::quiet && (leaves || !is_as_seen(head, own_state.actors))) {
            outside = Outside::busy;
            wakes = leaves;
        }
        if (outside == Outside::quiet && head.launched != 0) {
            head.crowds = is_crowded_by_others() ? head.crowds + 1 : 0;
            if (head.crowds == crowds_before_warning)
                warn_once(head, Warning::crowded);
        }
        if (outside == Outside::quiet && head.sending.load_relaxed() != 0) {
            release_senders();
            return;
        }
        head.quiet.store_release(outside == Outside::quiet ? 1 : 0);
        patrol(head, own_state.actors);
        wakes = settle_by(outside, chosen) || wakes;
    }
    if (chosen != nullptr)
        futex_wake(*chosen);
    if (wakes)
        wake_all_looks();
}

void send_outside() noexcept
{
    if (sends_outside()) {
        if (own_state.head->restless == 0 && !others_wait())
            wait_as(Sending::holds);
        (void)own_state.head->sends.fetch_add(1);
        own_state.me->outside.store_release(1); // partner: take_turn
    }
}

void sent_outside() noexcept
{
    if (!sends_outside() || own_state.head->restless != 0)
        return;
    wait_as(Sending::sent);
}

} // namespace tofu::sim
