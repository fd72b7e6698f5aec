// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Exact mode: the calls of this process take turns with those of the other processes. See schedule.h.
#include "clock/schedule.h"

#include "clock/helper.h"
#include "clock/patrol.h"
#include "clock/processor.h"
#include "clock/settle.h"
#include "job/process.h"
#include "job/real_time.h"
#include "job/report.h"
#include "job/short_slices.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>
#include <utofu.h>

namespace tofu::sim {
namespace {

constexpr unsigned longest_visit = 64; ///< polls
constexpr unsigned most_spins = 4000;  ///< some microseconds
constexpr unsigned sleeps_between_spins = 64;
constexpr unsigned most_yields = 2;
constexpr unsigned most_vain_yields = 14; ///< after these it tries again every 16384 waits

// ---- Waiting for the turn ----

void take_granted_turn(Picoseconds& now) noexcept
{
    Actor& me = *own_state.me;
    me.grant.store_relaxed(static_cast<uint32_t>(Grant::none));
    now = std::max(now, me.granted);
    own_state.bound = me.bound;
    own_state.own_due = 0; // other processes may have added arrivals
    me.clock.store_relaxed(now);
    set_state(me, ActorState::inside);
}

/// True if no process continues, so that a poll must return: a timer or another machine may have changed something. The
/// process that has the turn may also be blocked until this one does something outside uTofu.
bool stands_still(uint64_t grants) noexcept
{
    ScheduleHead& head = *own_state.head;
    if (head.restless == 0 || head.grants.load_acquire() != grants)
        return false; // without `restless`, all polls return together: begin_round
    const uint32_t running = head.running.load_acquire();
    if (running == 0)
        return true;
    const Actor& other = actor(running - 1);
    return state_of(other) == ActorState::running && other.blocked_since != 0;
}

enum class ReturnFor : uint8_t { visit, standstill };

/// True: the poll returns without a turn. False: a process can continue.
bool may_return(Picoseconds now, ReturnFor why, SharedWord<uint32_t>*& wakes) noexcept
{
    const Lock lock;
    ScheduleHead& head = *own_state.head;
    Actor& me = *own_state.me;
    if (why == ReturnFor::standstill && head.running.load_relaxed() == 0) {
        wakes = choose();
        if (head.running.load_relaxed() != 0)
            return false;
    }
    if (grant_of(me) != Grant::none)
        return false;
    me.clock.store_relaxed(now);
    me.excuse.store_relaxed(0);
    me.hit = 0;
    forget_sample(me);
    set_state(me, ActorState::out);
    me.visits.store_relaxed(0);
    head.stalled.store_relaxed(1);
    head.quiet.store_relaxed(0);
    own_state.was_without = true;
    own_state.visit_left = longest_visit;
    return true;
}

bool returns_without(Picoseconds now, ReturnFor why) noexcept
{
    SharedWord<uint32_t>* wakes = nullptr;
    const bool returns = may_return(now, why, wakes);
    if (wakes != nullptr)
        futex_wake(*wakes);
    return returns;
}

/// Spins for the next turn, if each process has a processor: it often comes before this thread would be asleep.
bool comes_soon(const Actor& me, uint32_t turn) noexcept
{
    if (own_state.spins == 0 && (own_state.sleeps++ % sleeps_between_spins != 0 || !own_state.may_spin))
        return false;
    const unsigned spins = std::max(own_state.spins, most_spins / 8);
    for (unsigned i = 0; i < spins; i++) {
        if (me.turn.load_acquire() != turn) {
            own_state.spins = std::min(most_spins, spins * 2);
            return true;
        }
    }
    own_state.spins = spins <= most_spins / 8 ? 0 : spins / 2;
    return false;
}

/// On the processor that all threads share, the thread with the turn runs while this one yields. If it then gives the
/// turn to this one, no thread has slept. With more than two threads another waiter may run instead.
bool comes_by_yielding(const Actor& me, uint32_t turn) noexcept
{
    if (own_state.rests != 0) {
        own_state.rests--;
        return false;
    }
    if (own_state.head->crowded.load_relaxed() != 0)
        return false;
    for (unsigned i = 0; i < most_yields; i++) {
        (void)::syscall(SYS_sched_yield);
        if (me.turn.load_acquire() != turn) {
            own_state.vain_yields = 0;
            return true;
        }
    }
    own_state.vain_yields = std::min(own_state.vain_yields + 1, most_vain_yields);
    own_state.rests = 1u << own_state.vain_yields;
    return false;
}

void sleep_on_turn(Actor& me, uint32_t turn) noexcept
{
    me.asleep.store_relaxed(1);
    __atomic_thread_fence(__ATOMIC_SEQ_CST); // partner: hand_over
    futex_wait(me.turn, turn, 0);
    me.asleep.store_relaxed(0);
}

Turn await(Picoseconds& now, bool looks) noexcept
{
    Actor& me = *own_state.me;
    const ScheduleHead& head = *own_state.head;
    uint64_t grants = head.grants.load_acquire();
    for (;;) {
        const uint32_t turn = me.turn.load_acquire();
        const Grant grant = grant_of(me);
        const bool ours = head.running.load_acquire() == own_state.self + 1;
        if (ours && grant == Grant::turn) {
            take_granted_turn(now);
            return Turn::ours;
        }
        if (ours && grant == Grant::events) {
            carry_out_granted();
            continue;
        }
        if (looks && me.visits.load_acquire() != 0 && // partner: begin_round
            returns_without(now, ReturnFor::visit))
            return Turn::without;
        if (looks && (stands_still(grants) || me.nudged.load_acquire() != 0) &&
            returns_without(now, ReturnFor::standstill)) {
            me.nudged.store_relaxed(0);
            return Turn::without;
        }
        grants = head.grants.load_acquire();
        if (me.turn.load_acquire() == turn && !(is_bound() ? comes_by_yielding(me, turn) : comes_soon(me, turn)))
            sleep_on_turn(me, turn);
    }
}

/// True if other processes might also act because of something outside uTofu.
bool others_may_follow() noexcept
{
    const uint32_t used = own_state.head->used.load_relaxed();
    for (uint32_t process = 0; process < used; process++) {
        const Actor& a = actor(process);
        const ActorState s = state_of(a);
        const bool looks = s == ActorState::idle || s == ActorState::ready;
        if (process != own_state.self && (looks || (s == ActorState::out && a.excuse.load_relaxed() != 0)))
            return true;
    }
    return false;
}

/// True if an excused process continues by itself, or was not blocked: it was no matter of the order that the others
/// went on without it. One that was woken by a send is not, nor one that polled memory and found something.
bool was_excused_by_mistake() noexcept
{
    const Actor& me = *own_state.me;
    return me.excuse.load_relaxed() == static_cast<uint32_t>(Excuse::blocked)
               ? me.excused_sends == own_state.head->sends.load_relaxed()
               : me.excuse.load_relaxed() != 0 && me.hit == 0;
}

/// Updates the state of a process that calls from the program without the turn.
void come_back(Picoseconds& now, bool looks) noexcept
{
    ScheduleHead& head = *own_state.head;
    Actor& me = *own_state.me;
    const bool excused = me.excuse.load_relaxed() != 0;
    if (was_excused_by_mistake())
        warn_once(head, Warning::late_return);
    me.excuse.store_relaxed(0);
    me.hit = 0;
    me.confirmed.store_relaxed(0);
    const bool settles = settling() != Settling::no || me.outside.load_acquire() != 0;
    const bool stood_still = settles || head.settle_until.load_relaxed() != 0 || head.sending.load_relaxed() != 0 ||
                             (head.running.load_relaxed() == 0 && !has_candidate());
    if ((!looks && std::exchange(own_state.was_without, false)) || excused) {
        if (head.by_itself.load_relaxed() != 0)
            warn_once(head, Warning::by_itself);
        if (now < head.frontier && !stood_still)
            warn_once(head, Warning::late_return);
        now = std::max(now, head.frontier);
    }
}

/// True for the first acting call of a process, and for the first one after polls returned without a turn.
bool may_come_from_outside() noexcept
{
    return !own_state.acted || own_state.head->stalled.load_relaxed() != 0;
}

struct Wait {
    ActorState as = ActorState::ready;
    Picoseconds wake = never;  ///< the latest time
    Picoseconds looks = never; ///< the latest time, if another event of the job follows
};

/// Called under the lock.
void enter_queue(Picoseconds& now, const Wait& wait, CallKind kind, bool has_turn) noexcept
{
    ScheduleHead& head = *own_state.head;
    Actor& me = *own_state.me;
    const bool looks = kind == CallKind::looks;
    const bool acts = kind == CallKind::acts;
    if (!has_turn)
        come_back(now, looks);
    const bool from_outside = acts && may_come_from_outside() && (others_may_follow() || settling() != Settling::no);
    own_state.acted = own_state.acted || acts;
    if (acts && !from_outside)
        head.stalled.store_relaxed(0); // no other process may follow
    if (from_outside || (kind != CallKind::sets_up && me.outside.load_acquire() != 0)) {
        me.outside.store_relaxed(0);
        begin_settling();
    }
    head.quiet.store_relaxed(0);
    own_state.visit_left = 0;
    me.entries.store_relaxed(me.entries.load_relaxed() + 1);
    me.looking.store_relaxed(looks ? 1 : 0);
    me.clock.store_relaxed(now);
    me.wake = wait.wake;
    me.looks = wait.looks;
    if (wait.as == ActorState::idle) {
        const Picoseconds arrival = own_state.host.next_arrival != nullptr ? own_state.host.next_arrival() : never;
        me.wake = std::min({me.wake, std::exchange(me.early, never), arrival});
    }
    set_state(me, wait.as);
    if (has_turn) {
        head.frontier = std::max<Picoseconds>(head.frontier, now);
        head.running.store_release(0);
    }
}

/// Executes the arrivals up to now. Called with the turn.
void receive(Picoseconds now, bool waited) noexcept
{
    if (now >= own_state.own_due && own_state.host.receive != nullptr)
        own_state.own_due = own_state.host.receive(now, waited);
}

/// What ranks do in windows of MPI that they share in memory (Open MPI, osc rdma) has the order of this machine. Each
/// process of MPI looks for one now and then. In real time that takes as long as some ten turns.
void look_for_shared_window() noexcept
{
    constexpr unsigned seldom = 32;
    if (!own_state.uses_mpi)
        own_state.uses_mpi = maps_file("/libmpi.so");
    if (!*own_state.uses_mpi || ++own_state.waits % seldom != 0 || has_warned(*own_state.head, Warning::shares))
        return;
    if (maps_file("/osc_rdma.")) {
        const Lock lock;
        warn_once(*own_state.head, Warning::shares);
    }
}

Turn queue_up(Picoseconds& now, const Wait& wait, CallKind kind, bool has_turn) noexcept
{
    SharedWord<uint32_t>* wakes = nullptr;
    {
        const Lock lock;
        enter_queue(now, wait, kind, has_turn);
        wakes = choose();
    }
    wake_chosen(wakes);
    const Turn turn = await(now, kind == CallKind::looks);
    look_for_shared_window();
    if (turn == Turn::ours)
        receive(now, wait.as == ActorState::idle);
    return turn;
}

void bind_own_thread() noexcept
{
    if (Process::self().environment().one_processor)
        (void)bind_to_processor(own_state.head->processor);
    own_state.may_spin = !is_bound() && own_state.may_spin;
}

bool is_other_thread() noexcept
{
    const uint32_t mine = thread_id();
    if (own_state.owner == mine) [[likely]]
        return false;
    // After the end of the owner, the calling thread becomes the owner.
    if (own_state.owner == 0 || (::syscall(SYS_tgkill, ::getpid(), own_state.owner, 0) != 0 && errno == ESRCH)) {
        own_state.owner = mine;
        own_state.me->tid.store_release(mine);
        bind_own_thread();
        return false;
    }
    if (!own_state.refused) {
        own_state.refused = true;
        report(
            "TOFU_SIM_CLOCK=exact: a second thread calls uTofu while the first one lives; the order of the two is not "
            "determined by the clock, so it is refused; use one thread for uTofu, or TOFU_SIM_CLOCK=tofud");
    }
    return true;
}

/// Accounts for the hit of a process that polled memory. Called with the turn.
void begin_inside(Picoseconds& now) noexcept
{
    Actor& me = *own_state.me;
    if (me.hit == 2) {
        now = std::max<Picoseconds>(now, me.clock.load_relaxed());
        own_state.bound = me.bound;
        own_state.own_due = 0;
        me.hit = 0;
        me.confirmed.store_relaxed(1);
    }
}

/// True if `now` is beyond the bound, or beyond an event of this process.
bool is_ahead(Picoseconds now) noexcept
{
    return now >= own_state.bound || own_state.me->next.load_relaxed() <= now;
}

bool polls_memory(const Actor& a) noexcept
{
    return state_of(a) == ActorState::out && a.excuse.load_relaxed() >= static_cast<uint32_t>(Excuse::looks) &&
           a.hit == 0;
}

void bound_by(uint32_t process, Picoseconds when) noexcept
{
    if (process != own_state.self)
        own_state.bound = std::min(own_state.bound, when + lookahead);
}

unsigned count_processors() noexcept
{
    cpu_set_t mask;
    return ::sched_getaffinity(0, sizeof mask, &mask) == 0 ? static_cast<unsigned>(CPU_COUNT(&mask)) : 1;
}

/// What the process that had this slot before held when it was killed, or when its program was replaced: no other
/// process can tell that from what this one holds.
void free_leftovers() noexcept
{
    ScheduleHead& head = *own_state.head;
    for (SharedWord<uint32_t>* const word : {&head.lock, &head.running, &head.looker}) {
        uint32_t mine = own_state.self + 1;
        (void)word->compare_exchange(mine, 0);
    }
}

void take_slot(Process& process, uint32_t expected) noexcept
{
    free_leftovers();
    const Lock lock;
    Job& job = process.job();
    ScheduleHead& head = *own_state.head;
    Actor& me = *own_state.me;
    me = Actor{};
    me.rank = job.placement().rank;
    me.pid = ::getpid();
    me.incarnation = job.incarnation();
    me.tid.store_relaxed(thread_id());
    me.parent = ::getppid();
    me.helper.store_relaxed(own_state.helper.load_relaxed());
    me.service.store_relaxed(process.service_tid());
    me.next.store_relaxed(never);
    me.due.store_relaxed(never);
    me.wake = never;
    me.looks = never;
    me.early = never;
    head.expected = std::max(head.expected, expected);
    head.joined++;
    if (head.open != 0 || head.joined > head.expected) {
        me.clock.store_relaxed(head.frontier);
        warn_once(head, Warning::joined_late);
    }
    set_state(me, ActorState::out);
    head.used.store_release(std::max(head.used.load_relaxed(), own_state.self + 1));
}

} // namespace

int join_schedule(Process& process, uint32_t expected) noexcept
{
    Job& job = process.job();
    if (const int rc = job.back_schedule(job.process()); rc != UTOFU_SUCCESS)
        return rc;
    std::byte* const area = job.schedule_area();
    own_state.head = reinterpret_cast<ScheduleHead*>(area);
    own_state.actors = area + layout_unit;
    own_state.self = job.process();
    own_state.me = &actor(own_state.self);
    own_state.owner = 0;
    own_state.joined_ns = real_time_ns();
    own_state.leaves.store_relaxed(0);
    own_state.may_spin = count_processors() >= expected;
    ask_for_short_slices(); // since each turn begins with a wake-up
    take_slot(process, expected);
    if (!own_state.helps && !start_helper()) {
        report("cannot start the thread of exact mode: raise the limit (ulimit -u)");
        leave_schedule();
        return UTOFU_ERR_OUT_OF_RESOURCE;
    }
    own_state.helps = true;
    return UTOFU_SUCCESS;
}

void warn_of(const Surroundings& surroundings) noexcept
{
    ScheduleHead& head = *own_state.head;
    head.launched |= surroundings.launched ? 1 : 0;
    if (surroundings.computes)
        warn_once(head, Warning::computes);
    head.unseen |= surroundings.unseen ? 1 : 0;
    if (surroundings.unseen && surroundings.launched)
        warn_once(head, Warning::unseen);
    if (surroundings.addresses)
        warn_once(head, Warning::addresses);
}

void set_schedule_host(const ScheduleHost& host) noexcept
{
    own_state.host = host;
}

void leave_schedule() noexcept
{
    if (own_state.me == nullptr)
        return;
    restore_processors();
    stop_helper(); // it would be killed with the lock when the process ends
    SharedWord<uint32_t>* wakes = nullptr;
    {
        const Lock lock;
        own_state.me->next.store_relaxed(never);
        own_state.me->due.store_relaxed(never);
        set_state(*own_state.me, ActorState::absent);
        if (own_state.head->running.load_relaxed() == own_state.self + 1)
            own_state.head->running.store_release(0);
        wakes = choose();
    }
    wake_chosen(wakes);
}

bool has_left() noexcept
{
    return state_of(*own_state.me) == ActorState::absent;
}

void reset_schedule_in_child() noexcept
{
    restore_processors_in_child();
    own_state = ScheduleState{};
}

Turn take_turn(Picoseconds& now, CallKind kind) noexcept
{
    const bool looks = kind == CallKind::looks;
    if (is_other_thread()) [[unlikely]]
        return Turn::refused;
    if (has_left()) [[unlikely]]
        return looks ? Turn::without : Turn::ours;
    if (looks && own_state.visit_left != 0) {
        own_state.visit_left--;
        return Turn::without;
    }
    if (!change_state(*own_state.me, ActorState::running, ActorState::inside))
        return queue_up(now, {}, kind, false);
    begin_inside(now);
    if (is_ahead(now) || (kind == CallKind::acts && may_come_from_outside()) ||
        (kind != CallKind::sets_up && own_state.me->outside.load_acquire() != 0))
        return queue_up(now, {}, kind, true);
    receive(now, false);
    return Turn::ours;
}

Turn wait_for_event(Picoseconds& now, Picoseconds until, Picoseconds looks) noexcept
{
    return queue_up(now, {ActorState::idle, until, looks}, CallKind::looks, true);
}

bool visit_begins() noexcept
{
    if (own_state.visit_left != longest_visit)
        return false;
    own_state.visit_left--;
    return true;
}

bool is_visiting() noexcept
{
    return own_state.visit_left != 0;
}

void end_visit() noexcept
{
    own_state.visit_left = 0;
}

void end_turn(Picoseconds now) noexcept
{
    Actor& me = *own_state.me;
    me.clock.store_relaxed(now);
    me.calls.store_release(me.calls.load_relaxed() + 1);
    (void)change_state(me, ActorState::inside, ActorState::running);
    if (me.confirmed.load_relaxed() != 0)
        ring_watchman(); // since it may poll memory again
}

void touch_actor(uint32_t process, Picoseconds when) noexcept
{
    if (process >= max_processes || !polls_memory(actor(process)))
        return;
    const Lock lock;
    Actor& a = actor(process);
    if (polls_memory(a)) {
        a.hit = 1;
        a.clock.store_relaxed(std::max<Picoseconds>(a.clock.load_relaxed(), when) + figures::found);
    }
    bound_by(process, when);
}

void wake_actor(uint32_t process, Picoseconds when) noexcept
{
    if (process >= max_processes)
        return;
    touch_actor(process, when);
    Actor& a = actor(process);
    Picoseconds& time = state_of(a) == ActorState::idle ? a.wake : a.early;
    time = std::min(time, when);
    bound_by(process, when);
}

void expect_arrival(uint32_t process, Picoseconds wake, Picoseconds due) noexcept
{
    if (process >= max_processes)
        return;
    Actor& a = actor(process);
    a.due.store_relaxed(due);
    if (state_of(a) == ActorState::idle)
        a.wake = std::min(a.wake, wake);
    if (process == own_state.self)
        expect_own(due);
    bound_by(process, wake);
}

void set_due(uint32_t process, Picoseconds due) noexcept
{
    if (process < max_processes)
        actor(process).due.store_relaxed(due);
}

void set_next_event(Picoseconds when) noexcept
{
    own_state.me->next.store_relaxed(when);
}

void expect_own(Picoseconds when) noexcept
{
    own_state.own_due = std::min(own_state.own_due, when);
}

bool has_departed(uint32_t process, uint32_t incarnation) noexcept
{
    return process >= max_processes || state_of(actor(process)) == ActorState::absent ||
           actor(process).incarnation != incarnation;
}

void nudge_self() noexcept
{
    if (own_state.me != nullptr) {
        own_state.me->nudged.store_release(1);
        (void)own_state.me->turn.fetch_add(1); // partner: await
        futex_wake(own_state.me->turn);
    }
}

} // namespace tofu::sim
