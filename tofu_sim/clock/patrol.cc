// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Exact mode: treats processes that have the turn and do not call uTofu. See patrol.h. Uses: /proc.
#include "clock/patrol.h"

#include "clock/quiet.h"
#include "job/process.h"
#include "job/real_time.h"
#include "job/report.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

namespace tofu::sim {
namespace {

constexpr uint64_t blocked_ns = 1'000'000'000;
constexpr uint64_t blocked_for_good_ns = 30 * blocked_ns; ///< even if something is under way outside uTofu all the time
/// Processor time without a call after which a process counts as polling memory; `looks_again_ns` if it did so the last
/// time.
constexpr uint64_t looks_ns = 100'000'000;
constexpr uint64_t looks_again_ns = 300'000;
constexpr uint64_t nothing_ns = 50'000; ///< processor time that a blocked thread may use

Actor& actor_at(std::byte* actors, uint32_t process) noexcept
{
    return *reinterpret_cast<Actor*>(actors + size_t{process} * schedule_actor_bytes);
}

bool change(Actor& a, ActorState from, ActorState to) noexcept
{
    auto expected = static_cast<uint32_t>(from);
    return a.state.compare_exchange(expected, static_cast<uint32_t>(to));
}

void excuse(ScheduleHead& head, Actor& a, uint32_t process, Excuse why) noexcept
{
    const auto s = static_cast<ActorState>(a.state.load_acquire());
    a.excused_sends = head.sends.load_relaxed();
    if (s == ActorState::running) {
        a.excuse.store_relaxed(static_cast<uint32_t>(why));
        if (!change(a, ActorState::running, ActorState::out)) {
            a.excuse.store_relaxed(0); // it has called in the meantime
            return;
        }
        if (head.running.load_relaxed() == process + 1)
            head.running.store_release(0);
    } else if (s == ActorState::out) {
        a.excuse.store_relaxed(static_cast<uint32_t>(why));
    }
}

void free_place(ScheduleHead& head, Actor& a, uint32_t process) noexcept
{
    a.next.store_relaxed(never);
    a.state.store_release(static_cast<uint32_t>(ActorState::absent));
    if (head.running.load_relaxed() == process + 1)
        head.running.store_release(0);
    if (head.looker.load_relaxed() == process + 1)
        head.looker.store_release(0);
}

/// Checks a process that is in the program and for which others wait.
void look_at(ScheduleHead& head, Actor& a, uint32_t process) noexcept
{
    if (head.quiet.load_relaxed() != 0) { // it sleeps until another process or another machine wakes it
        excuse(head, a, process, Excuse::blocked);
        return;
    }
    const uint32_t tid = a.tid.load_relaxed();
    const auto [letter, parent, faults] = see_thread(a.pid, tid);
    const uint64_t used = thread_time_ns(a.pid, tid);
    const uint64_t pauses = faults + count_sleeps(a.pid, tid); // a loop that polls memory has none
    const uint32_t calls = a.calls.load_acquire();
    if (calls != a.seen_calls || a.seen_cpu == 0) {
        a.seen_calls = calls;
        a.last_cpu = used;
        a.blocked_since = 0;
        a.seen_pauses = pauses;
        a.seen_cpu = std::max<uint64_t>(used, 1);
        return;
    }
    const bool worked = used > a.last_cpu + nothing_ns;
    a.last_cpu = used;
    if ((letter == 'S' || letter == 'D') && !worked) {
        const uint64_t now = real_time_ns();
        if (a.blocked_since == 0)
            a.blocked_since = now;
        else if (now - a.blocked_since > blocked_for_good_ns ||
                 (now - a.blocked_since > blocked_ns && (head.restless != 0 || sleeps_until_a_time(a.pid, tid))))
            excuse(head, a, process, Excuse::naps);
        return;
    }
    a.blocked_since = 0;
    if (std::exchange(a.seen_pauses, pauses) != pauses)
        a.seen_cpu = std::max<uint64_t>(used, 1);
    const bool has_turn = static_cast<ActorState>(a.state.load_relaxed()) == ActorState::running;
    const uint64_t longest = !has_turn ? 100 * looks_ns : a.confirmed.load_relaxed() != 0 ? looks_again_ns : looks_ns;
    if (used > a.seen_cpu + longest)
        excuse(head, a, process, Excuse::looks);
}

/// Threads of this machine that run or wait for a processor; 0: the kernel does not show it.
unsigned count_running() noexcept
{
    const int fd = ::open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    char text[64] = {};
    if (fd >= 0) {
        (void)!::read(fd, text, sizeof text - 1);
        ::close(fd);
    }
    unsigned running = 0;
    return std::sscanf(text, "%*s %*s %*s %u/", &running) == 1 ? running : 0;
}

uint64_t count_processors_online() noexcept
{
    return static_cast<uint64_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
}

} // namespace

bool has_ended(const Actor& a, uint32_t process) noexcept
{
    return !may_run(Process::self().job().life(process, a.incarnation, 31));
}

void forget_sample(Actor& a) noexcept
{
    a.seen_cpu = 0;
    a.blocked_since = 0;
}

void patrol(ScheduleHead& head, std::byte* actors) noexcept
{
    const uint32_t used = head.used.load_relaxed();
    for (uint32_t process = 0; process < used; process++) {
        Actor& a = actor_at(actors, process);
        const auto s = static_cast<ActorState>(a.state.load_acquire());
        if (s == ActorState::absent || (a.sending.load_relaxed() != 0 && !has_ended(a, process)))
            continue;
        const bool has_turn = head.running.load_relaxed() == process + 1;
        const bool waited_for = has_turn || (s == ActorState::out && a.excuse.load_relaxed() == 0);
        if (waited_for && has_ended(a, process))
            free_place(head, a, process);
        else if (waited_for && (s == ActorState::running || s == ActorState::out))
            look_at(head, a, process);
        else if (!has_turn && (head.grants.load_relaxed() + process) % 64 == 0 && has_ended(a, process))
            free_place(head, a, process); // no process waits for it yet, but later ones would
    }
}

uint64_t crowding() noexcept
{
    return std::clamp<uint64_t>(count_running() / count_processors_online(), 1, 20);
}

bool is_crowded_by_others() noexcept
{
    return count_running() > count_processors_online(); // the caller is one of them
}

bool is_wanted_by_others() noexcept
{
    constexpr unsigned own = 3; // the two threads and the caller
    return count_running() >= own + std::max<uint64_t>(1, count_processors_online() - 1);
}

bool has_warned(const ScheduleHead& head, Warning what) noexcept
{
    return (head.warned.load_relaxed() & static_cast<uint32_t>(what)) != 0;
}

void warn_once(ScheduleHead& head, Warning what) noexcept
{
    if (has_warned(head, what))
        return;
    head.warned.store_relaxed(head.warned.load_relaxed() | static_cast<uint32_t>(what));
    switch (what) {
    case Warning::late_return:
        report(
            "exact mode: a process was outside uTofu for so long that the others went on without it; this run may not "
            "repeat (tofu_sim(7), TOFU_SIM_CLOCK)");
        break;
    case Warning::joined_late:
        report(
            "exact mode: a process has joined a job that is under way; when, is a matter of this machine, so this run "
            "may not repeat");
        break;
    case Warning::restless:
        report(
            "exact mode: a thread of the job or its launcher has run for 30 seconds outside uTofu; that has no order, "
            "so this run may not repeat (tofu_sim(7), TOFU_SIM_CLOCK)");
        break;
    case Warning::unknown:
        report("exact mode: /proc does not show what the processes do outside uTofu; mount it, or this run may not "
               "repeat");
        break;
    case Warning::by_itself:
        report("exact mode: something outside uTofu has started by itself (a timer, or a message from another "
               "machine), and "
               "a process has acted upon it; this run may not repeat");
        break;
    case Warning::computes:
        report("exact mode: TOFU_SIM_CPU charges this machine's processor time, so this run may not repeat; unset it");
        break;
    case Warning::unseen:
        report(
            "exact mode: libtofu-sim-clock.so is not preloaded, so the simulator does not see what is sent through the "
            "launcher, and this run may not repeat (tofu_sim(7), TOFU_SIM_CLOCK)");
        break;
    case Warning::addresses:
        report(
            "exact mode: the system's memory layout is random, and libraries decide by addresses, so this run may not "
            "repeat; start the launcher by setarch -R");
        break;
    case Warning::crowded:
        report(
            "exact mode: a launcher takes part, and other programs use all processors of this machine; processes may "
            "see its answers in another order, so this run may not repeat");
        break;
    case Warning::shares:
        report("exact mode: there is a window of MPI in shared memory, which has no order, so this run may not repeat; "
               "take windows over uTofu (Open MPI: --mca osc pt2pt)");
        break;
    case Warning::missing:
        report(
            "exact mode: not all of TOFU_SIM_SIZE processes have come within a minute; going on without them, so this "
            "run may not repeat");
        break;
    }
}

} // namespace tofu::sim
