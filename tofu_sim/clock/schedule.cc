// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: exact mode: whose turn it is among the processes of a job, by their virtual clocks. See schedule.h.
#include "clock/schedule.h"

#include "clock/patrol.h"
#include "clock/quiet.h"
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
constexpr uint64_t longest_settling_ns = 30'000 * millisecond;
constexpr uint64_t settle_ns = 60 * millisecond; // where it can't be known when all is quiet
constexpr unsigned longest_visit = 64;           // looks
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
    bool was_home = false;
    unsigned visit_left = 0; // looks at home that return at once
    SharedWord<uint32_t> helper{0};
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
    if (head.settling.load_relaxed() != 0) {
        return false;
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
    head.quiet.store_relaxed(0);
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

// Of a look: is nothing going on, so that it must come from a timer or another machine? Who has the turn and is blocked
// may wait for what this process does outside.
bool stands_still(uint64_t grants) noexcept
{
    ScheduleHead& head = *own_state.head;
    if (head.restless == 0 || head.grants.load_acquire() != grants) {
        return false; // else all that look go home together: begin_round
    }
    const uint32_t running = head.running.load_acquire();
    if (running == 0) {
        return true;
    }
    const Actor& other = actor(running - 1);
    return state_of(other) == ActorState::running && other.blocked_since != 0;
}

enum class HomeFor : uint8_t { visit, standstill };

// True: it goes home. Not if somebody can go on.
bool may_go_home(Picoseconds now, HomeFor why, SharedWord<uint32_t>*& wakes) noexcept
{
    const Lock lock;
    ScheduleHead& head = *own_state.head;
    Actor& me = *own_state.me;
    if (why == HomeFor::standstill && head.running.load_relaxed() == 0) {
        wakes = choose();
        if (head.running.load_relaxed() != 0) {
            return false;
        }
    }
    if (me.grant != static_cast<uint32_t>(Grant::none)) {
        return false;
    }
    me.clock.store_relaxed(now);
    me.excuse = 0;
    me.hit = 0;
    forget_sample(me);
    set_state(me, ActorState::out);
    me.visits.store_relaxed(0);
    own_state.head->stalled.store_relaxed(1);
    own_state.head->quiet.store_relaxed(0);
    own_state.was_home = true;
    own_state.visit_left = longest_visit;
    return true;
}

bool goes_home(Picoseconds now, HomeFor why) noexcept
{
    SharedWord<uint32_t>* wakes = nullptr;
    const bool home = may_go_home(now, why, wakes);
    if (wakes != nullptr) {
        futex_wake(*wakes);
    }
    return home;
}

// ---- Settling ----

Settling settling() noexcept
{
    return static_cast<Settling>(own_state.head->settling.load_acquire());
}

void pause_instead() noexcept
{
    ScheduleHead& head = *own_state.head;
    if (head.settle_until.load_relaxed() == 0) {
        head.settle_until.store_relaxed(real_time_ns() + settle_ns * crowding());
    }
}

// Under the lock, as what follows.
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

// Those that have sent something go on, all at once.
void release_senders() noexcept
{
    ScheduleHead& head = *own_state.head;
    const uint32_t used = head.used.load_relaxed();
    for (uint32_t process = 0; process < used; process++) {
        actor(process).sending.store_relaxed(0);
        forget_sample(actor(process));
    }
    head.sending.store_relaxed(0);
    head.quiet.store_relaxed(0);
    head.releases.store_release(head.releases.load_relaxed() + 1); // partner: sent_outside
    futex_wake(head.releases);
}

void give_up_quiet(Told why) noexcept
{
    ScheduleHead& head = *own_state.head;
    say_once(head, why);
    head.restless = 1;
    end_settling();
    release_senders();
}

bool all_have_visited() noexcept
{
    const uint32_t used = own_state.head->used.load_relaxed();
    for (uint32_t process = 0; process < used; process++) {
        if (actor(process).visits.load_relaxed() != 0) {
            return false;
        }
    }
    return true;
}

// All that look go home. False: there is none.
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
        own_state.head->settling.store_release(static_cast<uint32_t>(Settling::visiting));
    }
    return any;
}

// It is quiet outside, or not. True: some have to go home.
bool settle_by(Outside outside, SharedWord<uint32_t>*& wakes) noexcept
{
    ScheduleHead& head = *own_state.head;
    if (head.open == 0 || head.restless != 0) {
        return false;
    }
    if (outside == Outside::quiet) {
        if (settling() != Settling::no) {
            end_settling();
        }
        wakes = choose();
        return head.running.load_relaxed() == 0 && begin_round();
    }
    if (outside == Outside::unknown ||
        (settling() != Settling::no && real_time_ns() - head.settling_since > longest_settling_ns)) {
        give_up_quiet(outside == Outside::unknown ? Told::unknown : Told::restless);
        pause_instead();
    }
    return false;
}

void wake_all_that_look() noexcept
{
    const uint32_t used = own_state.head->used.load_relaxed();
    for (uint32_t process = 0; process < used; process++) {
        if (process != own_state.self && actor(process).looking.load_relaxed() != 0) {
            futex_wake(actor(process).turn);
        }
    }
}

// Somebody waits for what is outside, or who has the turn has been in the program for some time.
bool must_look_outside() noexcept
{
    const ScheduleHead& head = *own_state.head;
    if (head.restless != 0) {
        return false;
    }
    const uint32_t running = head.running.load_relaxed();
    if (head.settling.load_relaxed() != 0 || head.sending.load_relaxed() != 0 || running == 0) {
        return true;
    }
    const Actor& a = actor(running - 1);
    return state_of(a) == ActorState::running && a.seen_cpu != 0 && a.seen_calls == a.calls.load_relaxed();
}

Outside look_outside_alone() noexcept
{
    ScheduleHead& head = *own_state.head;
    uint32_t nobody = 0;
    if (!head.looker.compare_exchange(nobody, own_state.self + 1)) {
        return Outside::busy;
    }
    const uint64_t began = real_time_ns();
    const Outside found = look_outside(head, own_state.actors);
    head.look_ns = real_time_ns() - began;
    head.looker.store_release(0); // partner: the next one's compare_exchange
    return found;
}

void patrol_in_turn() noexcept
{
    ScheduleHead& head = *own_state.head;
    const uint64_t now = real_time_ns();
    uint64_t last = head.patrolled.load_relaxed();
    const uint32_t running = head.running.load_relaxed();
    const bool soon = running != 0 && actor(running - 1).confirmed != 0;
    const bool in_program = running != 0 && head.sending.load_relaxed() == 0;
    const uint64_t pause = soon ? millisecond / 4 : std::max(millisecond, (in_program ? 8 : 2) * head.look_ns);
    if (now - last < pause || !head.patrolled.compare_exchange(last, now)) {
        return;
    }
    Outside outside = must_look_outside() ? look_outside_alone() : Outside::busy;
    bool wakes = false;
    SharedWord<uint32_t>* chosen = nullptr;
    {
        const Lock lock;
        // Not all have got the processor yet.
        const bool leaves = settling() == Settling::visiting && !all_have_visited();
        if (outside == Outside::quiet && (leaves || !is_as_seen(head, own_state.actors))) {
            outside = Outside::busy;
            wakes = leaves;
        }
        if (outside == Outside::quiet && head.sending.load_relaxed() != 0) {
            release_senders();
            return;
        }
        head.quiet.store_release(outside == Outside::quiet ? 1 : 0);
        patrol(head, own_state.actors, own_state.self);
        wakes = settle_by(outside, chosen) || wakes;
    }
    if (chosen != nullptr) {
        futex_wake(*chosen);
    }
    if (wakes) {
        wake_all_that_look();
    }
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
        if (looks && me.visits.load_acquire() != 0 && // partner: begin_round
            goes_home(now, HomeFor::visit)) {
            return Turn::home;
        }
        bool changed = false;
        for (unsigned i = 0; own_state.spins && i < spins && !changed; i++) {
            changed = me.turn.load_acquire() != turn;
            __asm__ __volatile__("" ::: "memory");
        }
        if (!changed) {
            futex_wait(me.turn, turn, settling() != Settling::no ? std::min(tick, millisecond) : tick);
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
        if (looks && (stands_still(grants) || me.nudged.load_acquire() != 0) && goes_home(now, HomeFor::standstill)) {
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

// From the program without the turn, into the queue again.
void come_back(Picoseconds& now, bool looks) noexcept
{
    ScheduleHead& head = *own_state.head;
    Actor& me = *own_state.me;
    const bool excused = me.excuse != 0;
    me.excuse = 0;
    me.hit = 0;
    me.confirmed = 0;
    const bool settles = settling() != Settling::no || me.outside.load_acquire() != 0;
    const bool stood_still = settles || head.settle_until.load_relaxed() != 0 ||
                             (head.running.load_relaxed() == 0 && best_candidate().what == Grant::none);
    if ((!looks && std::exchange(own_state.was_home, false)) || excused) {
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

enum class For : uint8_t { acts, looks, sets_up };

Turn queue_up(Picoseconds& now, const Wait& wait, For what, bool has_turn) noexcept
{
    const bool looks = what == For::looks;
    const bool acts = what == For::acts;
    Actor& me = *own_state.me;
    SharedWord<uint32_t>* wakes = nullptr;
    {
        const Lock lock;
        if (!has_turn) {
            come_back(now, looks);
        }
        const bool from_outside =
            acts && may_come_from_outside() && (others_may_follow() || settling() != Settling::no);
        own_state.acted = own_state.acted || acts;
        if (acts && !from_outside) {
            own_state.head->stalled.store_relaxed(0); // there is nobody else
        }
        if (from_outside || (what != For::sets_up && me.outside.load_acquire() != 0)) {
            me.outside.store_relaxed(0);
            begin_settling();
        }
        own_state.head->quiet.store_relaxed(0);
        own_state.visit_left = 0;
        me.entries.store_relaxed(me.entries.load_relaxed() + 1);
        me.looking.store_relaxed(looks ? 1 : 0);
        me.clock.store_relaxed(now);
        me.wake = wait.wake;
        me.looks = wait.looks;
        if (wait.as == ActorState::idle) {
            me.wake = std::min(me.wake, std::exchange(me.early, never));
        }
        set_state(me, wait.as);
        if (has_turn) {
            own_state.head->frontier = std::max<Picoseconds>(own_state.head->frontier, now);
            own_state.head->running.store_release(0);
        }
        wakes = choose();
    }
    if (wakes != nullptr) {
        futex_wake(*wakes);
    }
    return await(now, looks);
}

bool has_left() noexcept
{
    return state_of(*own_state.me) == ActorState::absent;
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

// In the program, the thread that calls uTofu.
bool sends_outside() noexcept
{
    if (own_state.me == nullptr || own_state.me->tid.load_relaxed() != thread_id()) {
        return false;
    }
    const ActorState s = state_of(*own_state.me);
    return s == ActorState::running || s == ActorState::out;
}

// ---- The helper: carries out events while the thread that calls uTofu is in the program, excused ----

void* help(void*) noexcept
{
    (void)::pthread_setname_np(::pthread_self(), "tofu-exact");
    own_state.helper.store_relaxed(thread_id());
    own_state.me->helper.store_relaxed(thread_id());
    uint32_t seen = 0;
    for (;;) {
        const uint32_t now = own_state.me->helped.load_acquire();
        if (now == seen) {
            // Excused: no thread of this process waits in the library, and there may be none in the others.
            const bool is_out = state_of(*own_state.me) == ActorState::out;
            const bool excused = is_out && (own_state.me->excuse != 0 || settling() != Settling::no);
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
        me.parent = ::getppid();
        me.helper.store_relaxed(own_state.helper.load_relaxed());
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
    if (has_left()) [[unlikely]] {
        return looks ? Turn::home : Turn::ours;
    }
    if (looks && own_state.visit_left != 0) {
        own_state.visit_left--;
        return Turn::home;
    }
    if (!change_state(*own_state.me, ActorState::running, ActorState::inside)) {
        return queue_up(now, {}, looks ? For::looks : For::acts, false);
    }
    begin_inside(now);
    const bool waits =
        is_ahead(now) || (!looks && may_come_from_outside()) || own_state.me->outside.load_acquire() != 0;
    return waits ? queue_up(now, {}, looks ? For::looks : For::acts, true) : Turn::ours;
}

Turn wait_for_event(Picoseconds& now, Picoseconds until, Picoseconds looks) noexcept
{
    return queue_up(now, {ActorState::idle, until, looks}, For::looks, true);
}

bool visit_begins() noexcept
{
    if (own_state.visit_left != longest_visit) {
        return false;
    }
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
    return is_ahead(now) ? queue_up(now, {}, For::sets_up, true) : Turn::ours;
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
    if (s == ActorState::out && a.excuse >= static_cast<uint32_t>(Excuse::looks) && a.hit == 0) {
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

void send_outside() noexcept
{
    if (sends_outside()) {
        own_state.me->sends.fetch_add(1);
        own_state.me->outside.store_release(1); // partner: take_turn
    }
}

void sent_outside() noexcept
{
    if (!sends_outside() || own_state.head->restless != 0) {
        return;
    }
    ScheduleHead& head = *own_state.head;
    Actor& me = *own_state.me;
    const uint64_t began = real_time_ns();
    const uint32_t releases = head.releases.load_acquire();
    me.sending.store_release(1);
    head.sending.store_release(1);
    head.quiet.store_release(0);
    while (head.releases.load_acquire() == releases) {
        futex_wait(head.releases, releases, millisecond);
        patrol_in_turn();
        if (real_time_ns() - began > longest_settling_ns) {
            const Lock lock;
            give_up_quiet(Told::restless);
        }
    }
}

void nudge_self() noexcept
{
    if (own_state.me != nullptr) {
        own_state.me->nudged.store_release(1);
        (void)::syscall(SYS_futex, &own_state.me->turn.raw, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
}

} // namespace tofu::sim
