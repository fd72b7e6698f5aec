// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The virtual clock of this process (TOFU_SIM_CLOCK, docs/time-model.md).
#include "clock/clock.h"

#include "clock/arrivals.h"
#include "clock/processor.h"
#include "clock/settle.h"
#include "job/process.h"
#include "trace/recorder.h"

#include <algorithm>
#include <atomic>
#include <bitset>
#include <ctime>
#include <dlfcn.h>
#include <new>
#include <sys/personality.h>
#include <sys/resource.h>
#include <utility>
#include <utofu.h>

namespace tofu::sim {
namespace {

/// A thread whose poll found nothing and that uses more processor time than this until its next poll has computed in
/// between. A switch to another thread uses some, too: at most as much again.
constexpr uint64_t longest_look_ns = 50'000;

constexpr uint32_t looks_at_once = 4096;
constexpr uint32_t free_looks = 256; ///< exact mode
constexpr uint32_t free_looks_before_acts = 100'000;

/// Exact mode: the interval between two polls of a waiter, as a part of its wait so far. Each poll takes this machine
/// two switches between processes. A waiter for a time must not be much too late.
constexpr Picoseconds shortest_pause = 5'000'000;
constexpr uint32_t waits_after_hidden = 64; ///< a program may wait elsewhere for some times before it polls there again
constexpr Picoseconds longest_pause = 200'000'000;
constexpr Picoseconds shortest_pause_for_a_time = 100'000;

struct State {
    std::atomic<uint64_t> now{0};
    std::atomic<bool> tells_what_it_sees{false};
    bool exact = false;
    /// Exact mode: counts events; objects that were polled without success since then have the same number.
    uint64_t happened = 1;
    Picoseconds waits_since = 0;
    bool waits = false;
    bool waits_for_a_time = false; ///< has read the clock, too
    uint32_t acts = 0;
    uint32_t short_waits = 0; ///< number of waits that end after the shortest pause
    uint32_t looks = 0;       ///< at the clock, since something happened
    uint32_t cpu_permille = 0;
    uint64_t reading_ns = 0; ///< what of a thread's time between two readings is theirs
    Arrivals* arrivals = nullptr;
    std::atomic<uint8_t> backed[max_nodes]; ///< nodes whose calendars exist
};
State state;

alignas(Network) std::byte network_storage[sizeof(Network)];

struct Thread {
    uint64_t computed_ns = 0; ///< its processor time at the end of its last call
    uint64_t switches = 0;    ///< of the processor, by the end of a call that found nothing
    uint32_t looks = 0;       ///< at the clock, since it waits
    bool has_called = false;
    bool in_vain = false;
    unsigned depth = 0; ///< of calls, for one may make another
    unsigned turns = 0; ///< the same, of those that take turns
};
thread_local Thread thread;

uint64_t processor_time_ns() noexcept
{
    timespec now{};
    (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return uint64_t(now.tv_sec) * 1'000'000'000 + uint64_t(now.tv_nsec);
}

uint64_t time_of_a_reading() noexcept
{
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < 64; i++) {
        const uint64_t before = processor_time_ns();
        least = std::min(least, processor_time_ns() - before);
    }
    return least;
}

uint64_t count_switches() noexcept
{
    rusage usage{};
    (void)::getrusage(RUSAGE_THREAD, &usage);
    return static_cast<uint64_t>(usage.ru_nivcsw) + static_cast<uint64_t>(usage.ru_nvcsw);
}

/// Between two calls: nothing while the thread waits.
bool has_computed(uint64_t ns) noexcept
{
    if (!thread.in_vain)
        return true;
    if (ns <= longest_look_ns)
        return false;
    return ns / longest_look_ns > count_switches() - thread.switches;
}

void move_to(Picoseconds when) noexcept
{
    uint64_t now = state.now.load(std::memory_order_relaxed);
    while (now < when && !state.now.compare_exchange_weak(now, when, std::memory_order_relaxed)) {
    }
}

/// For bytes without a notice.
void wait_in_memory(Picoseconds when) noexcept
{
    const Picoseconds before = clock_now();
    if ((instruments & instrument_trace) != 0 && when > before)
        trace::add_wait(before / 1000, when / 1000);
    move_to(when);
}

bool back(void* context, uint32_t node) noexcept
{
    std::atomic<uint8_t>& backed = state.backed[node];
    if (backed.load(std::memory_order_acquire) == 0) {
        if (static_cast<Process*>(context)->job().back_clock(node) != UTOFU_SUCCESS)
            return false;
        backed.store(1, std::memory_order_release); // partner: this load
    }
    return true;
}

/// How often a program and its libraries look is in part a matter of counts that start-up leaves behind, and of how
/// often a waiter polls. So a poll takes no time, unless very many follow each other: then they wait for it to pass.
void read_in_exact_mode(ClockedCall& call, bool quiet) noexcept
{
    const uint32_t in_a_row = ++state.looks;
    state.waits_for_a_time = state.waits_for_a_time || (state.acts != 0 && (!quiet || in_a_row > free_looks));
    if (in_a_row > (state.acts == 0 ? free_looks_before_acts : free_looks))
        (void)call.spend(figures::look_at_clock);
}

/// What the preloaded library asks (clock/preload.cc). Only threads that call uTofu live in virtual time.
int read_for_program(uint64_t* picoseconds, int quiet) noexcept
{
    if (!has_clock() || !thread.has_called || thread.depth != 0)
        return 0;
    const bool waits = thread.in_vain;
    ClockedCall call;
    if (state.exact) {
        read_in_exact_mode(call, quiet != 0);
        *picoseconds = clock_now();
        return 1;
    }
    if (!waits) {
        thread.looks = 0;
        *picoseconds = call.spend(figures::look_at_clock);
        return 1;
    }
    // How often it looks while it waits is a matter of this machine. But it may wait for a time, which must come.
    call.found_nothing();
    *picoseconds = call.spend(++thread.looks % looks_at_once == 0 ? looks_at_once * figures::look_at_clock : 0);
    return 1;
}

/// For sched_yield and sleep: a thread that yields has polled something without success, perhaps memory. Not the
/// simulator's own yields.
int look_for_program() noexcept
{
    static uint64_t looked = 0;
    if (!is_exact() || has_left() || !thread.has_called || thread.depth != 0 || thread.turns != 0)
        return 0; // the last sleeps of a process wait for the lock of its job's directory
    TurnedCall call(TurnedCall::Kind::looks);
    (void)call.wait(looked);
    return 1;
}

} // namespace

int start_clock(Process& process) noexcept
{
    const Environment& environment = process.environment();
    state.cpu_permille = environment.cpu_permille;
    state.reading_ns = state.cpu_permille != 0 ? time_of_a_reading() : 0;
    state.exact = environment.clock == ClockMode::exact;
    if (state.exact) {
        if (const int rc = join_schedule(process, environment.size.value_or(1)); rc != UTOFU_SUCCESS)
            return rc;
        instruments.add(instrument_exact);
    }
    state.arrivals = &segment_arrivals(process.segment().base);
    new (network_storage)
        Network(process.topology(), process.job().clock_area(), back, &process, environment.channel_buffer);
    instruments.add(instrument_clock);
    thread.has_called = true;
    thread.computed_ns = processor_time_ns();
    using AttachLook = void (*)(int (*)() noexcept);
    if (const auto attach = reinterpret_cast<AttachLook>(::dlsym(RTLD_DEFAULT, "tofu_sim_attach_look"));
        attach != nullptr && state.exact)
        attach(look_for_program); // first: it says that wall clocks begin at a fixed time
    using AttachThreads = void (*)(void (*)() noexcept, int (*)(cpu_set_t*) noexcept);
    if (const auto attach = reinterpret_cast<AttachThreads>(::dlsym(RTLD_DEFAULT, "tofu_sim_attach_threads"));
        attach != nullptr && state.exact)
        attach(restore_inherited_processors, tell_processors);
    using AttachSend = void (*)(void (*)() noexcept, void (*)() noexcept);
    if (const auto attach = reinterpret_cast<AttachSend>(::dlsym(RTLD_DEFAULT, "tofu_sim_attach_send"));
        attach != nullptr && state.exact)
        attach(send_outside, sent_outside);
    if (state.exact) {
        const bool sees = ::dlsym(RTLD_DEFAULT, "tofu_sim_attach_send") != nullptr;
        const bool fixed = (::personality(0xffffffff) & ADDR_NO_RANDOMIZE) != 0;
        warn_of({environment.launched, state.cpu_permille != 0, !sees, environment.launched && !fixed});
    }
    using Attach = void (*)(int (*)(uint64_t*, int) noexcept);
    if (const auto attach = reinterpret_cast<Attach>(::dlsym(RTLD_DEFAULT, "tofu_sim_attach_clock")))
        attach(read_for_program);
    return UTOFU_SUCCESS;
}

void reset_clock_in_child() noexcept
{
    state.now.store(0, std::memory_order_relaxed);
    state.tells_what_it_sees.store(false, std::memory_order_relaxed);
    state.exact = false;
    state.happened = 1;
    state.waits = state.waits_for_a_time = false;
    state.acts = state.looks = 0;
    reset_schedule_in_child();
    for (auto& backed : state.backed)
        if (backed.load(std::memory_order_relaxed) != 0)
            backed.store(0, std::memory_order_relaxed);
    thread = {};
}

Picoseconds clock_now() noexcept
{
    return state.now.load(std::memory_order_relaxed);
}

Network& clock_network() noexcept
{
    return *std::launder(reinterpret_cast<Network*>(network_storage));
}

ClockedCall::ClockedCall(Memory memory) noexcept
{
    if (thread.depth++ != 0)
        return;
    const bool looks =
        memory == Memory::seen && !state.exact && !state.tells_what_it_sees.load(std::memory_order_relaxed);
    const Picoseconds last = looks ? state.arrivals->last() : 0;
    if (last > clock_now()) {
        // What it did since its last call was to look for this.
        wait_in_memory(last);
        spend(figures::found);
    } else if (state.cpu_permille != 0 && thread.has_called) {
        const uint64_t passed = processor_time_ns() - thread.computed_ns;
        const uint64_t computed = passed - std::min(passed, state.reading_ns);
        if (has_computed(computed))
            spend(computed * state.cpu_permille); // nanoseconds by thousandths are picoseconds
    }
    thread.has_called = true;
}

ClockedCall::~ClockedCall()
{
    if (--thread.depth == 0) {
        thread.in_vain = in_vain_;
        if (state.cpu_permille != 0) {
            thread.switches = in_vain_ ? count_switches() : 0;
            thread.computed_ns = processor_time_ns();
        }
    }
}

Picoseconds ClockedCall::spend(Picoseconds cost) noexcept
{
    return state.now.fetch_add(cost, std::memory_order_relaxed) + cost;
}

void ClockedCall::wait_until(Picoseconds when) noexcept
{
    move_to(when);
}

namespace {

/// After a yield: each object is worth a poll again, except the one that was polled. The number of events.
uint64_t begin_visit() noexcept
{
    state.happened += visit_begins() ? 1 : 0;
    return state.happened;
}

} // namespace

TurnedCall::TurnedCall(Kind kind) noexcept
{
    if (!state.exact)
        return;
    thread.turns++;
    Picoseconds now = clock_now();
    turn_ = take_turn(now, kind);
    move_to(now);
    if (kind == Kind::looks && turn_ == Turn::without)
        (void)begin_visit();
    if (kind != Kind::looks && turn_ == Turn::ours) {
        found();
        state.acts += kind == Kind::acts ? 1 : 0;
    }
}

TurnedCall::~TurnedCall()
{
    if (!state.exact)
        return;
    thread.turns--;
    if (turn_ == Turn::ours)
        end_turn(clock_now());
}

void TurnedCall::found() noexcept
{
    state.happened++;
    state.looks = 0;
    state.waits = state.waits_for_a_time = false;
}

void TurnedCall::hid() noexcept
{
    found();
    state.short_waits = waits_after_hidden;
}

namespace {

/// Only waits that take time are recorded: the number of polls of a waiter depends on counts that start-up
/// leaves behind.
void trace_wait(Picoseconds since, Picoseconds until) noexcept
{
    if ((instruments & instrument_trace) != 0 && until > since) {
        trace::begin_wait(since / 1000);
        trace::poll_in_vain();
    }
}

} // namespace

/// On a visit, a look at each place finds nothing at once. A second one at the same place says that the program has
/// looked around: it waits for its turn.
bool TurnedCall::visit(uint64_t& seen) noexcept
{
    if (seen != state.happened) {
        seen = state.happened;
        return false;
    }
    end_visit();
    Picoseconds now = clock_now();
    turn_ = take_turn(now, Kind::looks);
    move_to(now);
    if (turn_ == Turn::without)
        seen = begin_visit();
    return turn_ == Turn::ours;
}

bool TurnedCall::wait(uint64_t& seen, Picoseconds known) noexcept
{
    if (!state.exact)
        return false;
    if (turn_ == Turn::without && is_visiting())
        return visit(seen);
    if (turn_ != Turn::ours)
        return false;
    const Picoseconds before = clock_now();
    if (!state.waits) {
        state.waits = true;
        state.waits_since = before;
    }
    if (seen != state.happened) {
        seen = state.happened;
        return false;
    }
    const Picoseconds waited = before - state.waits_since;
    const Picoseconds pause = std::clamp(waited / 2, shortest_pause, longest_pause);
    const Picoseconds soon = before + std::max(shortest_pause_for_a_time, waited / 8);
    Picoseconds now = before;
    const Picoseconds looks = before + pause;
    const bool is_short = state.short_waits != 0;
    state.short_waits -= is_short ? 1 : 0;
    const Picoseconds until = std::min(known, is_short                 ? before + shortest_pause
                                              : state.waits_for_a_time ? soon
                                                                       : never);
    turn_ = wait_for_event(now, until, looks);
    move_to(now);
    trace_wait(before, now);
    if (turn_ != Turn::ours) {
        seen = begin_visit();
        return false;
    }
    if (now < std::min(until, looks) || now == known) { // something has come
        state.happened++;
        seen = state.happened;
    }
    return true;
}

bool TurnedCall::wait_until(Picoseconds until) noexcept
{
    if (!state.exact || turn_ != Turn::ours)
        return false;
    const Picoseconds before = clock_now();
    Picoseconds now = before;
    turn_ = wait_for_event(now, until, never);
    move_to(now);
    trace_wait(before, now);
    state.happened++;
    return turn_ == Turn::ours && now < until;
}

void clock_seen(const void* address, size_t length) noexcept
{
    if (state.exact) { // it could be seen, so the clock has reached it already
        state.tells_what_it_sees.store(true, std::memory_order_relaxed);
        TurnedCall turn(TurnedCall::Kind::sets_up);
        ClockedCall call;
        (void)call.spend(length != 0 ? figures::found : 0);
        return;
    }
    state.tells_what_it_sees.store(true, std::memory_order_relaxed);
    ClockedCall call(ClockedCall::Memory::as_told);
    wait_in_memory(state.arrivals->when(reinterpret_cast<uint64_t>(address), length));
    (void)call.spend(figures::found);
}

void clock_registration(size_t bytes) noexcept
{
    ClockedCall call;
    const uint64_t pages = (bytes + figures::page_bytes - 1) / figures::page_bytes;
    (void)call.spend(figures::registration + pages * figures::registration_page);
}

} // namespace tofu::sim
