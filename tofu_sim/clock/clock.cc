// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: the virtual clock of this process (TOFU_SIM_CLOCK, docs/time-model.md).
// Called by: tni/watch, barrier/, api/, job/process (start). Calls: clock/network, job/.
#include "clock/clock.h"

#include "clock/arrivals.h"
#include "job/process.h"
#include "trace/recorder.h"

#include <algorithm>
#include <atomic>
#include <bitset>
#include <ctime>
#include <dlfcn.h>
#include <new>
#include <sys/resource.h>
#include <utility>
#include <utofu.h>

namespace tofu::sim {
namespace {

// A thread that looks in vain and takes longer than this until it looks again has computed in between, unless it was
// switched away: that costs it processor time, too.
constexpr uint64_t longest_look_ns = 50'000;

constexpr uint32_t looks_at_once = 4096;

struct State {
    std::atomic<uint64_t> now{0};
    std::atomic<bool> tells_what_it_sees{false};
    uint32_t cpu_permille = 0;
    uint64_t reading_ns = 0; // what of a thread's time between two readings is theirs
    Arrivals* arrivals = nullptr;
    std::atomic<uint8_t> backed[max_nodes]; // nodes whose calendars exist
};
State state;

alignas(Network) std::byte network_storage[sizeof(Network)];

struct Thread {
    uint64_t computed_ns = 0; // its processor time at the end of its last call
    uint64_t switches = 0; // of the processor, by then
    uint32_t looks = 0; // at the clock, since it waits
    bool has_called = false;
    bool in_vain = false;
    unsigned depth = 0; // of calls, for one may make another
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

// Between two calls: nothing while the thread waits.
bool has_computed(uint64_t ns) noexcept
{
    if (!thread.in_vain) {
        return true;
    }
    if (ns <= longest_look_ns) {
        return false;
    }
    const uint64_t before = std::exchange(thread.switches, count_switches());
    return thread.switches == before;
}

void move_to(Picoseconds when) noexcept
{
    uint64_t now = state.now.load(std::memory_order_relaxed);
    while (now < when && !state.now.compare_exchange_weak(now, when, std::memory_order_relaxed)) {
    }
}

// For bytes that no notice tells of.
void wait_in_memory(Picoseconds when) noexcept
{
    const Picoseconds before = clock_now();
    if ((instruments & instrument_trace) != 0 && when > before) {
        trace::add_wait(before / 1000, when / 1000);
    }
    move_to(when);
}

bool back(void* context, uint32_t node) noexcept
{
    std::atomic<uint8_t>& backed = state.backed[node];
    if (backed.load(std::memory_order_acquire) == 0) {
        if (static_cast<Process*>(context)->job().back_clock(node) != UTOFU_SUCCESS) {
            return false;
        }
        backed.store(1, std::memory_order_release); // partner: this load
    }
    return true;
}

// What the preloaded library asks (clock/preload.cc). Only threads that call uTofu live in virtual time.
int read_for_program(uint64_t* picoseconds) noexcept
{
    if (!has_clock() || !thread.has_called || thread.depth != 0) {
        return 0;
    }
    const bool waits = thread.in_vain;
    ClockedCall call;
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

} // namespace

void start_clock(Process& process, uint32_t cpu_permille, uint32_t buffer) noexcept
{
    state.cpu_permille = cpu_permille;
    state.reading_ns = cpu_permille != 0 ? time_of_a_reading() : 0;
    state.arrivals = &segment_arrivals(process.segment().base);
    new (network_storage) Network(process.topology(), process.job().clock_area(), back, &process, buffer);
    instruments |= instrument_clock;
    thread.has_called = true;
    thread.computed_ns = processor_time_ns();
    using Attach = void (*)(int (*)(uint64_t*) noexcept);
    if (const auto attach = reinterpret_cast<Attach>(::dlsym(RTLD_DEFAULT, "tofu_sim_attach_clock"))) {
        attach(read_for_program);
    }
}

void reset_clock_in_child() noexcept
{
    state.now.store(0, std::memory_order_relaxed);
    state.tells_what_it_sees.store(false, std::memory_order_relaxed);
    for (auto& backed : state.backed) {
        if (backed.load(std::memory_order_relaxed) != 0) {
            backed.store(0, std::memory_order_relaxed);
        }
    }
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
    if (thread.depth++ != 0) {
        return;
    }
    const bool looks = memory == Memory::seen && !state.tells_what_it_sees.load(std::memory_order_relaxed);
    const Picoseconds last = looks ? state.arrivals->last() : 0;
    if (last > clock_now()) {
        // What it did since its last call was to look for this.
        wait_in_memory(last);
        spend(figures::found);
    } else if (state.cpu_permille != 0 && thread.has_called) {
        const uint64_t passed = processor_time_ns() - thread.computed_ns;
        const uint64_t computed = passed - std::min(passed, state.reading_ns);
        if (has_computed(computed)) {
            spend(computed * state.cpu_permille); // nanoseconds by thousandths are picoseconds
        }
    }
    thread.has_called = true;
}

ClockedCall::~ClockedCall()
{
    if (--thread.depth == 0) {
        thread.in_vain = in_vain_;
        if (state.cpu_permille != 0) {
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

void clock_seen(const void* address, size_t length) noexcept
{
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
