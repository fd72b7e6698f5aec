// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: virtual time for programs that were not changed: clock_gettime and gettimeofday, and what is made of them; in
// exact mode sched_yield, too.
// Called by: programs that tofu-sim run --clock starts (LD_PRELOAD). Calls: clock/clock, which looks it up by name.
//
// Until the process has joined a job with a clock, for threads that do not call uTofu, for libraries of timers, and for
// clocks of processor time, nothing changes. From then on the wall clocks go on from where they stood.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <initializer_list>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

namespace {

// `quiet`: for a library's own purposes.
using Read = int (*)(uint64_t* picoseconds, int quiet) noexcept;
using Gettime = int (*)(clockid_t, timespec*);

constexpr time_t exact_start = 1'577'836'800; // the beginning of 2020
constexpr clockid_t clocks = 12; // numbers of the kernel's own

using Look = int (*)() noexcept;

std::atomic<Read> read_clock{nullptr};
std::atomic<Look> look{nullptr};
timespec started[clocks]; // what the wall clocks said when the virtual one began

Gettime real_gettime() noexcept
{
    static const auto found = reinterpret_cast<Gettime>(::dlsym(RTLD_NEXT, "clock_gettime"));
    return found;
}

bool is_wall_clock(clockid_t clock) noexcept
{
    switch (clock) {
    case CLOCK_REALTIME: case CLOCK_MONOTONIC: case CLOCK_MONOTONIC_RAW: case CLOCK_REALTIME_COARSE:
    case CLOCK_MONOTONIC_COARSE: case CLOCK_BOOTTIME: case CLOCK_TAI: return true;
    default: return false;
    }
}

enum class Caller : uintptr_t { program = 0, library = 1, timers = 2 };

bool begins_with(const char* file, std::initializer_list<const char*> names) noexcept
{
    const char* const slash = std::strrchr(file, '/');
    const char* const name = slash != nullptr ? slash + 1 : file;
    for (const char* const begin : names) {
        if (std::strncmp(name, begin, std::strlen(begin)) == 0) {
            return true;
        }
    }
    return false;
}

// Libraries whose timers other threads and processes wait for, by this machine's time: an event added by a thread in
// virtual time would be due at once. UCX compares its clocks with each other. Other libraries look at the clock for
// themselves, except for MPI_Wtime.
Caller caller_in(const char* file) noexcept
{
    if (begins_with(file, {"libevent", "libpmix", "libprrte", "libopen-rte", "libopen-pal", "libucs", "libuv"})) {
        return Caller::timers;
    }
    return begins_with(file, {"libmpi"}) ? Caller::program : Caller::library;
}

// Calls come from few places: the answer for each is kept in a word, its lowest bits.
Caller caller_at(const void* caller) noexcept
{
    static std::atomic<uintptr_t> known[256];
    const auto at = reinterpret_cast<uintptr_t>(caller);
    std::atomic<uintptr_t>& place = known[at / 2 % 256];
    const uintptr_t seen = place.load(std::memory_order_relaxed);
    if (seen / 4 == at) {
        return static_cast<Caller>(seen & 3);
    }
    Dl_info where{};
    const bool found = ::dladdr(caller, &where) != 0 && where.dli_fname != nullptr;
    Dl_info program{};
    (void)::dladdr(reinterpret_cast<void*>(::getauxval(AT_ENTRY)), &program);
    const Caller answer = !found || where.dli_fbase == program.dli_fbase ? Caller::program : caller_in(where.dli_fname);
    place.store(at * 4 | static_cast<uintptr_t>(answer), std::memory_order_relaxed);
    return answer;
}

int read_time(clockid_t clock, timespec* time, const void* caller) noexcept
{
    const Read read = read_clock.load(std::memory_order_acquire); // partner: tofu_sim_attach_clock
    uint64_t picoseconds = 0;
    if (read == nullptr || !is_wall_clock(clock)) {
        return real_gettime()(clock, time);
    }
    const Caller who = caller_at(caller);
    if (who == Caller::timers || read(&picoseconds, who == Caller::library ? 1 : 0) == 0) {
        return real_gettime()(clock, time);
    }
    const uint64_t ns = picoseconds / 1000 + static_cast<uint64_t>(started[clock].tv_nsec);
    time->tv_sec = started[clock].tv_sec + static_cast<time_t>(ns / 1'000'000'000);
    time->tv_nsec = static_cast<long>(ns % 1'000'000'000);
    return 0;
}

} // namespace

extern "C" {

__attribute__((visibility("default"))) void tofu_sim_attach_clock(Read read)
{
    for (clockid_t clock = 0; clock < clocks; clock++) {
        if (is_wall_clock(clock)) {
            (void)real_gettime()(clock, &started[clock]);
            if (look.load(std::memory_order_relaxed) != nullptr) { // exact mode: the same digits in each run
                started[clock] = {clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE ? exact_start : 0, 0};
            }
        }
    }
    read_clock.store(read, std::memory_order_release); // partner: read_time
}

__attribute__((visibility("default"))) void tofu_sim_attach_look(Look function)
{
    look.store(function, std::memory_order_release); // partner: sched_yield
}

// In exact mode who yields between looks at its memory waits for what arrives there.
__attribute__((visibility("default"))) int sched_yield(void) noexcept
{
    const Look now = look.load(std::memory_order_acquire); // partner: tofu_sim_attach_look
    return now != nullptr && now() != 0 ? 0 : static_cast<int>(::syscall(SYS_sched_yield));
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, timespec* time) noexcept
{
    return read_time(clock, time, __builtin_return_address(0));
}

// By another name, since the type of `zone` is not the same in all C libraries (glibc 2.31: void*).
__attribute__((visibility("default"))) int tofu_sim_gettimeofday(timeval* time, void* zone) noexcept __asm__("gettimeofday");

int tofu_sim_gettimeofday(timeval* time, void* zone) noexcept
{
    if (zone != nullptr) {
        *static_cast<struct timezone*>(zone) = {};
    }
    timespec now{};
    const int rc = read_time(CLOCK_REALTIME, &now, __builtin_return_address(0));
    *time = {now.tv_sec, now.tv_nsec / 1000};
    return rc;
}

} // extern "C"
