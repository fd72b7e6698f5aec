// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: virtual time for programs that were not changed: clock_gettime and gettimeofday, and what is made of them.
// Called by: programs that tofu-sim run --clock starts (LD_PRELOAD). Calls: clock/clock, which looks it up by name.
//
// Until the process has joined a job with a clock, for threads that do not call uTofu, and for clocks of processor time,
// nothing changes. From then on the wall clocks go on from where they stood.
#include <atomic>
#include <cstdint>
#include <ctime>
#include <dlfcn.h>
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

} // namespace

extern "C" {

__attribute__((visibility("default"))) void tofu_sim_attach_clock(Read read)
{
    for (clockid_t clock = 0; clock < clocks; clock++) {
        if (is_wall_clock(clock)) {
            (void)real_gettime()(clock, &started[clock]);
        }
    }
    read_clock.store(read, std::memory_order_release); // partner: clock_gettime
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, timespec* time) noexcept
{
    const Read read = read_clock.load(std::memory_order_acquire);
    uint64_t picoseconds = 0;
    if (read == nullptr || !is_wall_clock(clock) || read(&picoseconds) == 0) {
        return real_gettime()(clock, time);
    }
    const uint64_t ns = picoseconds / 1000 + static_cast<uint64_t>(started[clock].tv_nsec);
    time->tv_sec = started[clock].tv_sec + static_cast<time_t>(ns / 1'000'000'000);
    time->tv_nsec = static_cast<long>(ns % 1'000'000'000);
    return 0;
}

__attribute__((visibility("default"))) int gettimeofday(timeval* __restrict time, void* __restrict zone) noexcept
{
    if (zone != nullptr) {
        *static_cast<struct timezone*>(zone) = {};
    }
    timespec now{};
    const int rc = clock_gettime(CLOCK_REALTIME, &now);
    *time = {now.tv_sec, now.tv_nsec / 1000};
    return rc;
}

} // extern "C"
