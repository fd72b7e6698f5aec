// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// When a TNI or a link is busy, in memory that all processes of a job share.
#include "clock/calendar.h"

#include "clock/robust_spin_lock.h"

#include <algorithm>

namespace tofu::sim {
namespace {

/// What a killed holder left, or a peer wrote that knows no better.
void put_in_order(Calendar& c) noexcept
{
    bool good = c.count <= Calendar::most;
    for (uint32_t i = 0; good && i < c.count; i++)
        good = c.busy[i].begin < c.busy[i].end && (i == 0 || c.busy[i - 1].end < c.busy[i].begin);
    if (!good)
        c.count = 0;
}

bool is_crowded(const Calendar& c, Picoseconds from, int feeder) noexcept
{
    for (uint32_t i = 0; i < c.count; i++) {
        const Interval& busy = c.busy[i];
        if (busy.begin <= from && from <= busy.end) {
            return c.fed[feeder] < busy.begin && std::count_if(c.fed, c.fed + Calendar::feeders, [&](Picoseconds fed) {
                                                     return fed >= busy.begin;
                                                 }) >= figures::crowd;
        }
    }
    return false;
}

/// The intervals between `first` and `end` of `busy` become one with `added`.
void merge(Calendar& c, Interval added) noexcept
{
    Interval result[Calendar::most + 1];
    uint32_t count = 0;
    bool done = false;
    for (uint32_t i = 0; i < c.count; i++) {
        const Interval& old = c.busy[i];
        if (old.end < added.begin) {
            result[count++] = old;
        } else if (old.begin > added.end) {
            if (!done) {
                result[count++] = added;
                done = true;
            }
            result[count++] = old;
        } else {
            added.begin = std::min(added.begin, old.begin);
            added.end = std::max(added.end, old.end);
        }
    }
    if (!done)
        result[count++] = added;
    const uint32_t dropped = count > Calendar::most ? count - Calendar::most : 0;
    std::copy(result + dropped, result + count, c.busy);
    c.count = count - dropped;
}

} // namespace

namespace {

/// All that it was busy with has ended before.
bool is_free_since(const Calendar& c, Picoseconds from) noexcept
{
    return c.count != 0 && c.count <= Calendar::most && c.busy[c.count - 1].begin < c.busy[c.count - 1].end &&
           c.busy[c.count - 1].end < from;
}

void append(Calendar& c, Interval added) noexcept
{
    if (c.count == Calendar::most) {
        std::copy(c.busy + 1, c.busy + Calendar::most, c.busy);
        c.count--;
    }
    c.busy[c.count++] = added;
}

} // namespace

Interval enter(Calendar& c, Picoseconds from, Picoseconds work, int feeder) noexcept
{
    const RobustSpinLock lock(c.lock);
    if (work != 0 && is_free_since(c, from)) {
        const Interval taken{from, from + work};
        append(c, taken);
        c.used += work;
        if (feeder != no_feeder)
            c.fed[feeder] = std::max(c.fed[feeder], taken.end);
        return taken;
    }
    put_in_order(c);
    if (feeder != no_feeder && is_crowded(c, from, feeder))
        work += figures::crowd_pause;
    bool begun = false;
    Interval taken{from, from};
    Picoseconds at = from;
    Picoseconds left = work;
    const auto take = [&](Picoseconds part) {
        taken.begin = begun ? taken.begin : at;
        begun = true;
        at += part;
        left -= part;
    };
    for (uint32_t i = 0; i < c.count && left != 0; i++) {
        const Interval& next = c.busy[i];
        if (next.begin > at)
            take(std::min(left, next.begin - at));
        if (left != 0)
            at = std::max(at, next.end);
    }
    if (left != 0)
        take(left);
    taken.end = at;
    merge(c, taken);
    c.used += work;
    if (feeder != no_feeder)
        c.fed[feeder] = std::max(c.fed[feeder], taken.end);
    return taken;
}

} // namespace tofu::sim
