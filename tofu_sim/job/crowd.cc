// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: more processes than processors: who looks in vain gives way to those who could run.
// Called by: job/process (enter_crowd, leave_crowd), tni/engine, api/wait (give_way). Calls: job/doorbell, the kernel.
#include "job/crowd.h"

#include "job/doorbell.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <ctime>
#include <sched.h>

namespace tofu::sim {
namespace {

// A yield costs a microsecond, and each process of the crowd that is in our way runs meanwhile. To sleep and to be woken
// costs the sleeper and whoever wakes it some five: worth it once many rounds of yields have shown that those who run
// have nothing for us.
constexpr unsigned yields_before_sleep = 64;
constexpr int longest_sleep_ms = 8;
// Of the thread's own time between two calls: more, and it does something else but look.
constexpr int64_t busy_ns = 100'000;

int64_t thread_time_ns() noexcept
{
    timespec now{};
    (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

} // namespace

void enter_crowd(Crowd& crowd) noexcept
{
    cpu_set_t own;
    static_assert(sizeof own == sizeof crowd.mask);
    if (::sched_getaffinity(0, sizeof own, &own) != 0) {
        std::memset(&own, 0xff, sizeof own); // more processors than the mask has bits
    }
    uint64_t words[sizeof crowd.mask / sizeof crowd.mask[0]];
    std::memcpy(words, &own, sizeof words);
    uint32_t processors = 0;
    for (uint64_t& word : words) {
        word |= crowd.mask[&word - words];
        processors += static_cast<uint32_t>(std::popcount(word));
    }
    std::memcpy(crowd.mask, words, sizeof words);
    crowd.processors.store_relaxed(processors);
    (void)crowd.processes.fetch_add(1);
    (void)crowd.changes.fetch_add(1);
}

void leave_crowd(Crowd& crowd) noexcept
{
    (void)crowd.processes.fetch_add(~uint32_t{0}); // also by who could not get the lock
    (void)crowd.changes.fetch_add(1);
}

bool give_way(const Crowd& crowd, SegmentHeader& own, unsigned times) noexcept
{
    if (!is_crowded(crowd)) {
        return false;
    }
    thread_local int64_t left_at = 0;
    if (times < yields_before_sleep) {
        (void)::sched_yield();
    } else if (thread_time_ns() - left_at > busy_ns) {
        (void)::sched_yield();
    } else {
        const unsigned shift = std::min((times - yields_before_sleep) / 4, 3u);
        (void)doze(own, std::min(1 << shift, longest_sleep_ms));
    }
    if (times + 1 >= yields_before_sleep) {
        left_at = thread_time_ns();
    }
    return true;
}

} // namespace tofu::sim
