// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: exact mode: whose turn it is among the processes of a job, by their virtual clocks. See schedule.h.
// Called by: clock/clock, tni/exact, barrier/, api/, job/process. Calls: job/, the kernel.
#include "clock/schedule.h"

#include "clock/patrol.h"
#include "job/process.h"
#include "job/real_time.h"
#include "job/report.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <ctime>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>
#include <utofu.h>

namespace tofu::sim {
namespace {

// The soonest that what a process posts can change anything for another one.
constexpr Picoseconds lookahead = figures::post_call + figures::fetch + figures::wire;

constexpr uint64_t millisecond = 1'000'000;
constexpr uint64_t longest_start_ns = 60'000 * millisecond;
constexpr uint64_t settle_ns = 60 * millisecond;
constexpr unsigned spins = 2000; // some microseconds

struct ScheduleState {
    ScheduleHead* head = nullptr;
    std::byte* actors = nullptr;
    Actor* me = nullptr;
    uint32_t self = 0; // our place
    Picoseconds bound = 0;
    ScheduleHost host;
    uint32_t owner = 0;  // the thread that calls
    bool refused = false; // and another was told
    bool spins = false;
    uint64_t joined_ns = 0;
    bool helps = false; // the helper thread runs
    bool acted = false;
};
ScheduleState own_state;

Actor& actor(uint32_t process) noexcept
{
    return *reinterpret_cast<Actor*>(own_state.actors + size_t{process} * schedule_actor_bytes);
}

ActorState state_of(const Actor& a) noexcept
{
    return static_cast<ActorState>(a.state.load_acquire());
}
void set_state(Actor& a, ActorState to) noexcept
{
    a.state.store_release(static_cast<uint32_t>(to));
}
bool change_state(Actor& a, ActorState from, ActorState to) noexcept
{
    auto expected = static_cast<uint32_t>(from);
    return a.state.compare_exchange(expected, static_cast<uint32_t>(to));
}

uint32_t thread_id() noexcept
{
    thread_local uint32_t id = 0;
    if (id == 0) [[unlikely]] {
        id = static_cast<uint32_t>(::syscall(SYS_gettid));
    }
    return id;
}

void futex_wake(SharedWord<uint32_t>& word) noexcept
{
    (void)::syscall(SYS_futex, &word.raw, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}
void futex_wait(SharedWord<uint32_t>& word, uint32_t seen, uint64_t ns) noexcept
{
    const timespec longest{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
    (void)::syscall(SYS_futex, &word.raw, FUTEX_WAIT, seen, &longest, nullptr, 0);
}

// Held for some hundred instructions. A holder that was killed is found by its place: nobody else takes it away.
class Lock {
  public:
    Lock() noexcept
    {
        const uint32_t mine = own_state.self + 1;
        for (uint64_t attempt = 1;; attempt++) {
            uint32_t free = 0;
            if (own_state.head->lock.compare_exchange(free, mine)) {
                return;
            }
            if (attempt % 64 == 0) {
                (void)::sched_yield();
            }
            if (attempt % 65536 == 0 && free != mine && free - 1 < max_processes && is_gone(actor(free - 1))) {
                (void)own_state.head->lock.compare_exchange(free, 0);
            }
        }
    }
    ~Lock() { own_state.head->lock.store_release(0); } // partner: the next one's compare_exchange
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
};

// ---- The choice: all under the lock ----

struct Candidate {
    Picoseconds time = never;
    Grant what = Grant::none;
    uint32_t rank = 0;
    uint32_t process = 0;

    // Events come before what looks for them.
    [[nodiscard]] bool before(const Candidate& other) const noexcept
    {
        if (time != other.time) {
            return time < other.time;
        }
        if (what != other.what) {
            return what == Grant::events;
        }
        return rank != other.rank ? rank < other.rank : process < other.process;
    }
};

// Looks that are due give way to time alone where something else will happen afterwards: who waits for something outside
// must not move the clock by waiting for long.
Candidate best_candidate() noexcept
{
    Candidate best;
    Candidate look;
    const uint32_t used = own_state.head->used.load_relaxed();
    for (uint32_t process = 0; process < used; process++) {
        const Actor& a = actor(process);
        const ActorState s = state_of(a);
        if (s == ActorState::absent) {
            continue;
        }
        const auto offer = [&](Candidate& to, Picoseconds time, Grant what) {
            const Candidate candidate{time, what, a.rank, process};
            if (time != never && candidate.before(to)) {
                to = candidate;
            }
        };
        offer(best, a.next.load_relaxed(), Grant::events);
        if (s == ActorState::ready || (s == ActorState::out && a.hit != 0)) {
            offer(best, a.clock.load_relaxed(), Grant::turn);
        } else if (s == ActorState::idle) {
            offer(best, a.wake, Grant::turn);
            offer(look, a.looks, Grant::turn);
        }
    }
    return best.what != Grant::none && look.before(best) ? look : best;
}

// Somebody in the program may still do something earlier.
bool is_held_up(const Candidate& best) noexcept
{
    const uint32_t used = own_state.head->used.load_relaxed();
    for (uint32_t process = 0; process < used; process++) {
        const Actor& a = actor(process);
        if (process == best.process && best.what == Grant::turn) {
            continue;
        }
        if (state_of(a) != ActorState::out || a.excuse != static_cast<uint32_t>(Excuse::none)) {
            continue;
        }
        const Picoseconds clock = a.clock.load_relaxed();
        if (clock < best.time || (clock == best.time && best.what == Grant::turn && a.rank < best.rank)) {
            return true;
        }
    }
    return false;
}

// Until when who gets the turn need not fear that anybody could change what it sees.
Picoseconds bound_for(uint32_t chosen) noexcept
{
    Picoseconds bound = never;
    const uint32_t used = own_state.head->used.load_relaxed();
    for (uint32_t process = 0; process < used; process++) {
        const Actor& a = actor(process);
        const ActorState s = state_of(a);
        if (process == chosen || s == ActorState::absent) {
            continue;
        }
        bound = std::min<Picoseconds>(bound, a.next.load_relaxed());
        Picoseconds goes_on = never;
        if (s == ActorState::ready || (s == ActorState::out && (a.excuse == 0 || a.hit != 0))) {
            goes_on = a.clock.load_relaxed();
        } else if (s == ActorState::idle) {
            goes_on = std::min(a.wake, a.looks);
        }
        bound = std::min(bound, goes_on == never ? never : goes_on + lookahead);
    }
    return bound;
}

bool may_begin() noexcept
{
    ScheduleHead& head = *own_state.head;
    if (head.open == 0) {
        if (head.joined < head.expected && real_time_ns() - own_state.joined_ns < longest_start_ns) {
            return false;
        }
        if (head.joined < head.expected) {
            say_once(head, Told::missing);
        }
        head.open = 1;
    }
    const uint64_t settles = head.settle_until.load_relaxed();
    if (settles != 0) {
        if (real_time_ns() < settles) {
            return false;
        }
        head.settle_until.store_relaxed(0);
        head.stalled.store_relaxed(0);
    }
    return true;
}

// Gives the turn to the next, if nobody has it and there is one. What has to be woken up afterwards, or null.
[[nodiscard]] SharedWord<uint32_t>* choose() noexcept
{
    ScheduleHead& head = *own_state.head;
    if (head.running.load_relaxed() != 0 || !may_begin()) {
        return nullptr;
    }
    const Candidate best = best_candidate();
    if (best.what == Grant::none || is_held_up(best)) {
        return nullptr;
    }
    Actor& a = actor(best.process);
    head.running.store_release(best.process + 1);
    head.grants.store_release(head.grants.load_relaxed() + 1);
    head.frontier = std::max(head.frontier, best.time);
    a.granted = best.time;
    a.bound = best.what == Grant::turn ? bound_for(best.process) : 0;
    // Last: whoever finds it finds the rest (partner: await).
    const bool is_out = state_of(a) == ActorState::out;
    const Grant grant = is_out && best.what == Grant::events ? Grant::help : best.what;
    __atomic_store_n(&a.grant, static_cast<uint32_t>(grant), __ATOMIC_RELEASE);
    if (is_out) {
        if (best.what == Grant::turn) { // looks at memory, and may have seen what has arrived: it goes on
            a.grant = static_cast<uint32_t>(Grant::none);
            a.hit = 2;
            a.excuse = 0;
            forget_sample(a);
            set_state(a, ActorState::running);
            return nullptr;
        }
        a.helped.store_release(a.helped.load_relaxed() + 1);
        return &a.helped;
    }
    a.turn.store_release(a.turn.load_relaxed() + 1);
    return best.process == own_state.self ? nullptr : &a.turn;
}

void choose_and_wake() noexcept
{
    SharedWord<uint32_t>* wakes = nullptr;
    {
        const Lock lock;
        wakes = choose();
    }
    if (wakes != nullptr) {
        futex_wake(*wakes);
    }
}

// ---- Waiting for the turn ----

void carry_out_granted() noexcept
{
    Actor& me = *own_state.me;
    const Picoseconds next = own_state.host.carry_out != nullptr ? own_state.host.carry_out(me.granted) : never;
    SharedWord<uint32_t>* wakes = nullptr;
    {
        const Lock lock;
        me.next.store_relaxed(next);
        me.grant = static_cast<uint32_t>(Grant::none);
        own_state.head->running.store_release(0);
        wakes = choose();
    }
    if (wakes != nullptr) {
        futex_wake(*wakes);
    }
}

void take_granted_turn(Picoseconds& now) noexcept
{
    Actor& me = *own_state.me;
    me.grant = static_cast<uint32_t>(Grant::none);
    now = std::max(now, me.granted);
    own_state.bound = me.bound;
    me.clock.store_relaxed(now);
    set_state(me, ActorState::inside);
}

// Of a look: is nothing going on, so that it must come from outside?
bool stands_still(uint64_t grants) noexcept
{
    ScheduleHead& head = *own_state.head;
    if (head.grants.load_acquire() != grants) {
        return false;
    }
    const uint32_t running = head.running.load_acquire();
    if (running == 0) {
        return true;
    }
    const Actor& other = actor(running - 1);
    return state_of(other) == ActorState::running && other.blocked_since != 0;
}

// False: it goes home.
bool may_go_home(Picoseconds now) noexcept
{
    const Lock lock;
    Actor& me = *own_state.me;
    if (me.grant != static_cast<uint32_t>(Grant::none)) {
        return false;
    }
    me.clock.store_relaxed(now);
    me.excuse = 0;
    me.hit = 0;
    forget_sample(me);
    set_state(me, ActorState::out);
    own_state.head->stalled.store_relaxed(1);
    return true;
}

void patrol_in_turn() noexcept
{
    ScheduleHead& head = *own_state.head;
    const uint64_t now = real_time_ns();
    uint64_t last = head.patrolled.load_relaxed();
    const uint32_t running = head.running.load_relaxed();
    const bool soon = running != 0 && actor(running - 1).confirmed != 0;
    if (now - last < (soon ? millisecond / 4 : millisecond) || !head.patrolled.compare_exchange(last, now)) {
        return;
    }
    const Lock lock;
    patrol(head, own_state.actors, own_state.self);
}

Turn await(Picoseconds& now, bool looks) noexcept
{
    Actor& me = *own_state.me;
    uint32_t turn = me.turn.load_acquire();
    uint64_t tick = millisecond / 4;
    uint64_t grants = own_state.head->grants.load_acquire();
    for (;;) {
        // Acquire: what belongs to it (partner: choose).
        const auto grant = static_cast<Grant>(__atomic_load_n(&me.grant, __ATOMIC_ACQUIRE));
        if (grant == Grant::events && own_state.head->running.load_acquire() == own_state.self + 1) {
            carry_out_granted();
            turn = me.turn.load_acquire();
            continue;
        }
        if (grant == Grant::turn && own_state.head->running.load_acquire() == own_state.self + 1) {
            take_granted_turn(now);
            return Turn::ours;
        }
        bool changed = false;
        for (unsigned i = 0; own_state.spins && i < spins && !changed; i++) {
            changed = me.turn.load_acquire() != turn;
            __asm__ __volatile__("" ::: "memory");
        }
        if (!changed) {
            futex_wait(me.turn, turn, tick);
            changed = me.turn.load_acquire() != turn;
        }
        if (changed) {
            turn = me.turn.load_acquire();
            continue;
        }
        patrol_in_turn();
        choose_and_wake();
        if (me.turn.load_acquire() != turn) {
            turn = me.turn.load_acquire();
            continue;
        }
        if (looks && (stands_still(grants) || me.nudged.load_acquire() != 0) && may_go_home(now)) {
            me.nudged.store_relaxed(0);
            return Turn::home;
        }
        grants = own_state.head->grants.load_acquire();
        tick = std::min(tick * 2, (looks ? 16 : 8) * millisecond);
    }
}

// Is anybody else about who might come back from outside as well?
bool others_may_follow() noexcept
{
    const uint32_t used = own_state.head->used.load_relaxed();
    for (uint32_t process = 0; process < used; process++) {
        const Actor& a = actor(process);
        const ActorState s = state_of(a);
        const bool looks = s == ActorState::idle || s == ActorState::ready;
        if (process != own_state.self && (looks || (s == ActorState::out && a.excuse != 0))) {
            return true;
        }
    }
    return false;
}

// What sends one process on from outside uTofu (the launcher's barrier) sends others, too, within an instant that means
// nothing: they all go on together, by their clocks.
void settle() noexcept
{
    ScheduleHead& head = *own_state.head;
    if (head.settle_until.load_relaxed() == 0 && others_may_follow()) {
        head.settle_until.store_relaxed(real_time_ns() + settle_ns * crowding());
    }
}

// From the program without the turn, into the queue again.
void come_back(Picoseconds& now, bool looks) noexcept
{
    ScheduleHead& head = *own_state.head;
    Actor& me = *own_state.me;
    const bool excused = me.excuse != 0;
    me.excuse = 0;
    me.hit = 0;
    me.confirmed = 0;
    const bool stood_still = head.settle_until.load_relaxed() != 0 ||
                             (head.running.load_relaxed() == 0 && best_candidate().what == Grant::none);
    if (!looks || excused) {
        if (now < head.frontier && !stood_still) {
            say_once(head, Told::late_return);
        }
        now = std::max(now, head.frontier);
    }
}

// The first that a process does, or after somebody was sent home.
bool may_come_from_outside() noexcept
{
    return !own_state.acted || own_state.head->stalled.load_relaxed() != 0;
}

struct Wait {
    ActorState as = ActorState::ready;
    Picoseconds wake = never;  // at the latest
    Picoseconds looks = never; // at the latest, unless nothing else happens
};

Turn queue_up(Picoseconds& now, const Wait& wait, bool looks, bool has_turn) noexcept
{
    Actor& me = *own_state.me;
    SharedWord<uint32_t>* wakes = nullptr;
    {
        const Lock lock;
        if (!has_turn) {
            come_back(now, looks);
        }
        if (!looks && may_come_from_outside()) {
            own_state.acted = true;
            settle();
        }
        me.clock.store_relaxed(now);
        me.wake = wait.wake;
        me.looks = wait.looks;
        if (wait.as == ActorState::idle) {
            me.wake = std::min(me.wake, std::exchange(me.early, never));
        }
        set_state(me, wait.as);
        if (has_turn) {
            own_state.head->running.store_release(0);
        }
        wakes = choose();
    }
    if (wakes != nullptr) {
        futex_wake(*wakes);
    }
    return await(now, looks);
}

bool is_other_thread() noexcept
{
    const uint32_t mine = thread_id();
    if (own_state.owner == mine) [[likely]] {
        return false;
    }
    // One that has ended hands over.
    if (own_state.owner == 0 || (::syscall(SYS_tgkill, ::getpid(), own_state.owner, 0) != 0 && errno == ESRCH)) {
        own_state.owner = mine;
        own_state.me->tid.store_release(mine);
        return false;
    }
    if (!own_state.refused) {
        own_state.refused = true;
        report("TOFU_SIM_CLOCK=exact: a second thread calls uTofu while the first one lives; which of them comes first is "
               "not for the clock to say, so it is refused; use one thread for uTofu, or TOFU_SIM_CLOCK=tofud");
    }
    return true;
}

// With the turn: takes the hit of who looks at memory, and carries out what is due here.
void begin_inside(Picoseconds& now) noexcept
{
    Actor& me = *own_state.me;
    if (me.hit == 2) {
        now = std::max<Picoseconds>(now, me.clock.load_relaxed());
        own_state.bound = me.bound;
        me.hit = 0;
        me.confirmed = 1;
    }
}

// Of others, or of events of its own.
bool is_ahead(Picoseconds now) noexcept
{
    return now >= own_state.bound || own_state.me->next.load_relaxed() <= now;
}

// ---- The helper: carries out events while the thread that calls uTofu is in the program, excused ----

void* help(void*) noexcept
{
    (void)::pthread_setname_np(::pthread_self(), "tofu-exact");
    uint32_t seen = 0;
    for (;;) {
        const uint32_t now = own_state.me->helped.load_acquire();
        if (now == seen) {
            // Excused: no thread of this process waits in the library, and there may be none in the others.
            const bool excused = state_of(*own_state.me) == ActorState::out && own_state.me->excuse != 0;
            futex_wait(own_state.me->helped, seen, (excused ? 1 : 200) * millisecond / 4);
            if (excused && own_state.me->helped.load_acquire() == seen) {
                patrol_in_turn();
                choose_and_wake();
            }
            continue;
        }
        seen = now;
        if (own_state.head->running.load_acquire() == own_state.self + 1 &&
            own_state.me->grant == static_cast<uint32_t>(Grant::help)) {
            carry_out_granted();
        }
    }
    return nullptr;
}

bool start_helper() noexcept
{
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    (void)::pthread_sigmask(SIG_SETMASK, &all, &before); // inherited: signals are the program's
    pthread_t thread;
    const bool started = ::pthread_create(&thread, nullptr, &help, nullptr) == 0;
    (void)::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (started) {
        (void)::pthread_detach(thread);
    }
    return started;
}

} // namespace

int join_schedule(Process& process, uint32_t expected) noexcept
{
    Job& job = process.job();
    if (const int rc = job.back_schedule(job.process()); rc != UTOFU_SUCCESS) {
        return rc;
    }
    std::byte* const area = job.schedule_area();
    own_state.head = reinterpret_cast<ScheduleHead*>(area);
    own_state.actors = area + layout_unit;
    own_state.self = job.process();
    own_state.me = &actor(own_state.self);
    own_state.owner = 0;
    own_state.joined_ns = real_time_ns();
    own_state.spins = ::sysconf(_SC_NPROCESSORS_ONLN) >= static_cast<long>(expected);
    {
        const Lock lock;
        ScheduleHead& head = *own_state.head;
        Actor& me = *own_state.me;
        me = Actor{};
        me.rank = job.placement().rank;
        me.pid = ::getpid();
        me.start_time = job.start_time();
        me.incarnation = job.incarnation();
        me.tid.store_relaxed(thread_id());
        me.next.store_relaxed(never);
        me.wake = never;
        me.looks = never;
        me.early = never;
        head.expected = std::max(head.expected, expected);
        head.joined++;
        if (head.open != 0 || head.joined > head.expected) {
            me.clock.store_relaxed(head.frontier);
            say_once(head, Told::joined_late);
        }
        set_state(me, ActorState::out);
        head.used.store_release(std::max(head.used.load_relaxed(), own_state.self + 1));
    }
    if (!own_state.helps && !start_helper()) {
        report("can't start the thread of exact mode: raise the limit (ulimit -u)");
        leave_schedule();
        return UTOFU_ERR_OUT_OF_RESOURCE;
    }
    own_state.helps = true;
    return UTOFU_SUCCESS;
}

void set_schedule_host(const ScheduleHost& host) noexcept
{
    own_state.host = host;
}

void leave_schedule() noexcept
{
    if (own_state.me == nullptr) {
        return;
    }
    SharedWord<uint32_t>* wakes = nullptr;
    {
        const Lock lock;
        own_state.me->next.store_relaxed(never);
        set_state(*own_state.me, ActorState::absent);
        if (own_state.head->running.load_relaxed() == own_state.self + 1) {
            own_state.head->running.store_release(0);
        }
        wakes = choose();
    }
    if (wakes != nullptr) {
        futex_wake(*wakes);
    }
}

void reset_schedule_in_child() noexcept
{
    own_state = ScheduleState{};
}

Turn take_turn(Picoseconds& now, bool looks) noexcept
{
    if (is_other_thread()) [[unlikely]] {
        return Turn::refused;
    }
    if (!change_state(*own_state.me, ActorState::running, ActorState::inside)) {
        return queue_up(now, {}, looks, false);
    }
    begin_inside(now);
    const bool waits = is_ahead(now) || (!looks && may_come_from_outside());
    return waits ? queue_up(now, {}, looks, true) : Turn::ours;
}

Turn wait_for_event(Picoseconds& now, Picoseconds until, Picoseconds looks) noexcept
{
    return queue_up(now, {ActorState::idle, until, looks}, true, true);
}

void end_turn(Picoseconds now) noexcept
{
    Actor& me = *own_state.me;
    me.clock.store_relaxed(now);
    me.calls.store_release(me.calls.load_relaxed() + 1);
    (void)change_state(me, ActorState::inside, ActorState::running);
}

Turn set_up(Picoseconds& now) noexcept
{
    if (is_other_thread()) [[unlikely]] {
        return Turn::refused;
    }
    Actor& me = *own_state.me;
    if (!change_state(me, ActorState::running, ActorState::inside)) {
        return Turn::home; // what is not ahead of anybody needs no turn
    }
    begin_inside(now);
    return is_ahead(now) ? queue_up(now, {}, true, true) : Turn::ours;
}

void publish_clock(Picoseconds now) noexcept
{
    if (own_state.me != nullptr) {
        own_state.me->clock.store_relaxed(now);
    }
}

void wake_actor(uint32_t process, Picoseconds when) noexcept
{
    if (process >= max_processes) {
        return;
    }
    const Lock lock;
    Actor& a = actor(process);
    const ActorState s = state_of(a);
    if (s == ActorState::idle) {
        a.wake = std::min(a.wake, when);
    } else {
        a.early = std::min(a.early, when);
    }
    if (s == ActorState::out && a.excuse == static_cast<uint32_t>(Excuse::looks) && a.hit == 0) {
        a.hit = 1;
        a.clock.store_relaxed(std::max<Picoseconds>(a.clock.load_relaxed(), when) + figures::found);
    }
    if (process != own_state.self) {
        own_state.bound = std::min(own_state.bound, when + lookahead);
    }
}

void set_next_event(Picoseconds when) noexcept
{
    own_state.me->next.store_relaxed(when);
}

void nudge_self() noexcept
{
    if (own_state.me != nullptr) {
        own_state.me->nudged.store_release(1);
        (void)::syscall(SYS_futex, &own_state.me->turn.raw, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
}

} // namespace tofu::sim
