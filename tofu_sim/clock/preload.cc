// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: virtual time for programs that were not changed: clock_gettime and gettimeofday, and what is made of them.
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
#include <sys/time.h>

namespace {

using Read = int (*)(uint64_t* picoseconds) noexcept;
using Gettime = int (*)(clockid_t, timespec*);

constexpr clockid_t clocks = 12; // numbers of the kernel's own

std::atomic<Read> read_clock{nullptr};
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

// Libraries whose timers other threads and processes wait for, by this machine's time: an event added by a thread in
// virtual time would be due at once.
bool keeps_timers(const char* file) noexcept
{
    const char* const slash = std::strrchr(file, '/');
    const char* const name = slash != nullptr ? slash + 1 : file;
    for (const char* const begin : {"libevent", "libpmix", "libprrte", "libopen-rte", "libuv"}) {
        if (std::strncmp(name, begin, std::strlen(begin)) == 0) {
            return true;
        }
    }
    return false;
}

// Calls come from few places: the answer for each is kept in a word, its lowest bit.
bool is_for_timers(const void* caller) noexcept
{
    static std::atomic<uintptr_t> known[256];
    const auto at = reinterpret_cast<uintptr_t>(caller);
    std::atomic<uintptr_t>& place = known[at / 2 % 256];
    const uintptr_t seen = place.load(std::memory_order_relaxed);
    if (seen / 2 == at) {
        return (seen & 1) != 0;
    }
    Dl_info where{};
    const bool timers = ::dladdr(caller, &where) != 0 && where.dli_fname != nullptr && keeps_timers(where.dli_fname);
    place.store(at * 2 | (timers ? 1 : 0), std::memory_order_relaxed);
    return timers;
}

int read_time(clockid_t clock, timespec* time, const void* caller) noexcept
{
    const Read read = read_clock.load(std::memory_order_acquire); // partner: tofu_sim_attach_clock
    uint64_t picoseconds = 0;
    if (read == nullptr || !is_wall_clock(clock) || is_for_timers(caller) || read(&picoseconds) == 0) {
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
        }
    }
    read_clock.store(read, std::memory_order_release); // partner: read_time
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
