// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// More processes than processors: a thread whose polls find nothing yields.
#include "job/oversubscription.h"

#include "job/doorbell.h"
#include "job/quota.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <ctime>
#include <sched.h>

namespace tofu::sim {
namespace {

/// A yield costs a microsecond, during which other processes of the job run. To sleep and to be woken
/// costs the sleeper and the poster that wakes it some five: worth it once many yields have shown that the others have
/// nothing for us.
constexpr unsigned yields_before_nap = 64;
/// The caller may poll other things beside this one, which ring no bell: a nap delays them by no more.
constexpr int64_t longest_nap_ns = 100'000;
/// A nap that ended without a wake-up may have delayed an event. This number of yields comes before the next nap, and
/// twice as many after the next such nap.
constexpr unsigned first_penalty = 64;
constexpr unsigned most_penalty = 1u << 16;
/// Of the thread's own time between two calls: more, and it does something else but look.
constexpr int64_t busy_ns = 100'000;

/// Another process that ran meanwhile took longer: two switches and its own look.
constexpr int64_t alone_ns = 1'500;
constexpr unsigned most_left_out = 63;

int64_t time_ns(clockid_t clock) noexcept
{
    timespec now{};
    (void)::clock_gettime(clock, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// Many processes may sleep, and this one have its processor alone: yields that returned at once are followed by fewer,
/// until one lets another process run.
void yield_to_somebody() noexcept
{
    thread_local unsigned interval = 0;
    thread_local unsigned left_out = 0;
    if (left_out < interval) {
        ++left_out;
        return;
    }
    const int64_t before = time_ns(CLOCK_MONOTONIC);
    (void)::sched_yield();
    interval = time_ns(CLOCK_MONOTONIC) - before < alone_ns ? std::min(2 * interval + 1, most_left_out) : 0;
    left_out = 0;
}

/// Of a thread: whether what it waits for rings its bell. That is not known but learned.
class Naps {
  public:
    [[nodiscard]] bool are_worth_it() noexcept
    {
        if (barred_ != 0)
            --barred_;
        return barred_ == 0;
    }
    void learn(Doze nap) noexcept
    {
        switch (nap) {
        case Doze::announced: break;
        case Doze::rung: penalty_ /= 2; break;
        case Doze::timed_out:
            penalty_ = std::clamp(2 * penalty_, first_penalty, most_penalty);
            barred_ = penalty_;
            break;
        }
    }

  private:
    unsigned penalty_ = 0;
    unsigned barred_ = 0; ///< yields before the next nap
};

} // namespace

void add_process(Oversubscription& load) noexcept
{
    cpu_set_t own;
    static_assert(sizeof own == sizeof load.mask);
    if (::sched_getaffinity(0, sizeof own, &own) != 0)
        std::memset(&own, 0xff, sizeof own); // more processors than the mask has bits
    uint64_t words[sizeof load.mask / sizeof load.mask[0]];
    std::memcpy(words, &own, sizeof words);
    uint32_t processors = 0;
    for (uint64_t& word : words) {
        word |= load.mask[&word - words];
        processors += static_cast<uint32_t>(std::popcount(word));
    }
    std::memcpy(load.mask, words, sizeof words);
    if (const uint32_t quota = quota_processors(); quota != 0 && (load.quota == 0 || quota < load.quota))
        load.quota = quota;
    load.processors.store_relaxed(load.quota != 0 ? std::min(processors, load.quota) : processors);
    (void)load.processes.fetch_add(1);
    (void)load.changes.fetch_add(1);
}

void remove_process(Oversubscription& load) noexcept
{
    (void)load.processes.fetch_add(~uint32_t{0}); // also by a process that could not get the lock
    (void)load.changes.fetch_add(1);
}

bool yield_processor(const Oversubscription& load, SegmentHeader& own, unsigned times,
                     bool (*awaits_more)() noexcept) noexcept
{
    if (!is_oversubscribed(load))
        return false;
    thread_local int64_t left_at = 0;
    thread_local Naps naps;
    if (times < yields_before_nap || time_ns(CLOCK_THREAD_CPUTIME_ID) - left_at > busy_ns ||
        (awaits_more != nullptr && awaits_more()) || !naps.are_worth_it())
        yield_to_somebody();
    else
        naps.learn(doze_for(own, longest_nap_ns));
    if (times + 1 >= yields_before_nap)
        left_at = time_ns(CLOCK_THREAD_CPUTIME_ID);
    return true;
}

} // namespace tofu::sim
