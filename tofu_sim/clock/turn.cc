// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Exact mode: the choice of the process that gets the next turn. See turn.h.
#include "clock/turn.h"

#include "clock/helper.h"
#include "clock/patrol.h"
#include "job/real_time.h"

#include <algorithm>
#include <climits>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tofu::sim {

ScheduleState own_state;

uint32_t thread_id() noexcept
{
    thread_local uint32_t id = 0;
    if (id == 0) [[unlikely]]
        id = static_cast<uint32_t>(::syscall(SYS_gettid));
    return id;
}

void futex_wake(SharedWord<uint32_t>& word) noexcept
{
    (void)::syscall(SYS_futex, &word.raw, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void futex_wait(SharedWord<uint32_t>& word, uint32_t seen, uint64_t ns) noexcept
{
    const timespec longest{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
    (void)::syscall(SYS_futex, &word.raw, FUTEX_WAIT, seen, ns != 0 ? &longest : nullptr, nullptr, 0);
}

Lock::Lock() noexcept
{
    const uint32_t mine = own_state.self + 1;
    for (uint64_t attempt = 1;; attempt++) {
        uint32_t free = 0;
        if (own_state.head->lock.compare_exchange(free, mine))
            return;
        if (attempt % 64 == 0)
            (void)::syscall(SYS_sched_yield); // the library's would count as a poll of the program (clock/preload.cc)
        if (attempt % 65536 == 0 && free != mine && free - 1 < max_processes && has_ended(actor(free - 1), free - 1))
            (void)own_state.head->lock.compare_exchange(free, 0);
    }
}

namespace {

constexpr uint64_t longest_start_ns = 60'000 * millisecond;

struct Candidate {
    Picoseconds time = never;
    Grant what = Grant::none;
    uint32_t rank = 0;
    uint32_t process = 0;

    /// At equal times events come before the polls that may find them.
    [[nodiscard]] bool before(const Candidate& other) const noexcept
    {
        if (time != other.time)
            return time < other.time;
        if (what != other.what)
            return what == Grant::events;
        return rank != other.rank ? rank < other.rank : process < other.process;
    }
};

/// The candidates and bounds of the choice, found by one pass over the actors.
class Survey {
  public:
    Survey() noexcept
    {
        const uint32_t used = own_state.head->used.load_relaxed();
        for (uint32_t process = 0; process < used; process++) {
            const Actor& a = actor(process);
            const ActorState s = state_of(a);
            if (s != ActorState::absent)
                add(a, s, process);
        }
    }
    /// The candidate with the earliest time. The `looks` time of an idle process counts only if something else happens
    /// later: a process that waits for something outside uTofu must not move the clock by a long wait.
    [[nodiscard]] const Candidate& best() const noexcept
    {
        return best_.what != Grant::none && look_.before(best_) ? look_ : best_;
    }
    /// True if a process in the program may still act at an earlier time.
    [[nodiscard]] bool is_held_up() const noexcept
    {
        const Candidate& best = this->best();
        return held_.what != Grant::none &&
               (held_.time < best.time ||
                (held_.time == best.time && best.what == Grant::turn && held_.rank < best.rank));
    }
    /// The time until which no other process can change anything that this one sees.
    [[nodiscard]] Picoseconds bound_for(uint32_t process) const noexcept
    {
        return process == first_process_ ? second_limit_ : first_limit_;
    }

  private:
    void add(const Actor& a, ActorState s, uint32_t process) noexcept
    {
        const bool excused = s == ActorState::out && a.excuse.load_relaxed() != 0;
        const Picoseconds clock = a.clock.load_relaxed();
        const Picoseconds events = std::min(a.next.load_relaxed(), excused ? a.due.load_relaxed() : never);
        Picoseconds continues = never;
        offer(best_, {events, Grant::events, a.rank, process});
        if (s == ActorState::ready || (s == ActorState::out && a.hit != 0)) {
            continues = clock;
            offer(best_, {clock, Grant::turn, a.rank, process});
        } else if (s == ActorState::out && !excused) {
            continues = clock;
            offer(held_, {clock, Grant::turn, a.rank, process});
        } else if (s == ActorState::idle) {
            continues = std::min(a.wake, a.looks);
            offer(best_, {a.wake, Grant::turn, a.rank, process});
            offer(look_, {a.looks, Grant::turn, a.rank, process});
        }
        limit(std::min(events, continues == never ? never : continues + lookahead), process);
    }
    static void offer(Candidate& to, const Candidate& candidate) noexcept
    {
        if (candidate.time != never && candidate.before(to))
            to = candidate;
    }
    void limit(Picoseconds time, uint32_t process) noexcept
    {
        if (time < first_limit_) {
            second_limit_ = first_limit_;
            first_limit_ = time;
            first_process_ = process;
        } else {
            second_limit_ = std::min(second_limit_, time);
        }
    }

    Candidate best_;
    Candidate look_;
    Candidate held_;
    Picoseconds first_limit_ = never;
    Picoseconds second_limit_ = never;
    uint32_t first_process_ = max_processes;
};

[[nodiscard]] bool may_begin() noexcept
{
    ScheduleHead& head = *own_state.head;
    if (head.open == 0) {
        if (head.joined < head.expected && real_time_ns() - own_state.joined_ns < longest_start_ns)
            return false;
        if (head.joined < head.expected)
            warn_once(head, Warning::missing);
        head.open = 1;
    }
    if (head.settling.load_relaxed() != 0)
        return false;
    const uint64_t settles = head.settle_until.load_relaxed();
    if (settles != 0) {
        if (real_time_ns() < settles)
            return false;
        head.settle_until.store_relaxed(0);
        head.stalled.store_relaxed(0);
    }
    return true;
}

/// Writes the grant to the actor. Returns the futex to wake, or null.
[[nodiscard]] SharedWord<uint32_t>* hand_over(Actor& a, const Candidate& best) noexcept
{
    // Written last: a process that sees the grant sees the members that belong to it (partner: grant_of).
    const bool is_out = state_of(a) == ActorState::out;
    const Grant grant = is_out && best.what == Grant::events ? Grant::help : best.what;
    a.grant.store_release(static_cast<uint32_t>(grant));
    if (!is_out) {
        (void)a.turn.fetch_add(1);
        __atomic_thread_fence(__ATOMIC_SEQ_CST); // partner: sleep_on_turn
        return best.process == own_state.self || a.asleep.load_relaxed() == 0 ? nullptr : &a.turn;
    }
    if (grant == Grant::help) {
        (void)a.helped.fetch_add(1);
        return &a.helped;
    }
    // It polls memory, and may already have seen the bytes that arrived, so it is running again.
    a.grant.store_relaxed(static_cast<uint32_t>(Grant::none));
    a.hit = 2;
    a.excuse.store_relaxed(0);
    forget_sample(a);
    set_state(a, ActorState::running);
    return nullptr;
}

} // namespace

bool has_candidate() noexcept
{
    return Survey().best().what != Grant::none;
}

SharedWord<uint32_t>* choose() noexcept
{
    ScheduleHead& head = *own_state.head;
    if (head.running.load_relaxed() != 0 || !may_begin())
        return nullptr;
    const Survey survey;
    const Candidate& best = survey.best();
    if (best.what == Grant::none || survey.is_held_up())
        return nullptr;
    Actor& a = actor(best.process);
    head.quiet.store_relaxed(0);
    head.running.store_release(best.process + 1);
    head.grants.store_release(head.grants.load_relaxed() + 1);
    head.frontier = std::max(head.frontier, best.time);
    a.granted = best.time;
    a.bound = best.what == Grant::turn ? survey.bound_for(best.process) : 0;
    return hand_over(a, best);
}

void wake_chosen(SharedWord<uint32_t>* wakes) noexcept
{
    if (wakes != nullptr)
        futex_wake(*wakes);
    else if (own_state.head->running.load_acquire() == 0)
        ring_watchman();
}

void choose_and_wake() noexcept
{
    SharedWord<uint32_t>* wakes = nullptr;
    {
        const Lock lock;
        wakes = choose();
    }
    if (wakes != nullptr)
        futex_wake(*wakes);
}

void carry_out_granted() noexcept
{
    Actor& me = *own_state.me;
    const ScheduleHost& host = own_state.host;
    const bool helps = grant_of(me) == Grant::help;
    const Picoseconds next = host.carry_out != nullptr ? host.carry_out(me.granted) : never;
    if (helps && host.empty_inbox != nullptr)
        host.empty_inbox(me.granted);
    SharedWord<uint32_t>* wakes = nullptr;
    {
        const Lock lock;
        me.next.store_relaxed(next);
        me.grant.store_relaxed(static_cast<uint32_t>(Grant::none));
        own_state.head->running.store_release(0);
        wakes = choose();
    }
    wake_chosen(wakes);
}

} // namespace tofu::sim
