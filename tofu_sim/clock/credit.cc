// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How long a port has had no credit, by virtual channel. See credit.h.
#include "clock/credit.h"

#include "clock/robust_spin_lock.h"

#include <algorithm>

namespace tofu::sim {
namespace {

constexpr unsigned axis_of_port[ports_per_node] = {0, 0, 1, 1, 2, 2, 3, 4, 4, 5}; ///< X, Y, Z, A, B, C

/// What a killed holder left, or a peer wrote that knows no better.
void put_in_order(Credit& c) noexcept
{
    bool good = c.count <= Credit::most;
    for (uint32_t i = 1; good && i < c.count; i++)
        good = c.left[i - 1].passed <= c.left[i].passed && c.left[i - 1].when <= c.left[i].when;
    c.count = good ? c.count : 0;
}

/// Points that lie close together become one, so that few reach back as far as the buffer does.
void add(Credit& c, Credit::Departure departure, Picoseconds room) noexcept
{
    if (c.count >= 2 && departure.passed - c.left[c.count - 2].passed < room / 8) {
        c.count--;
    } else if (c.count == Credit::most) {
        std::copy(c.left + 1, c.left + Credit::most, c.left);
        c.count--;
    }
    c.left[c.count++] = departure;
}

Picoseconds time_of(const Credit& c, Picoseconds passed) noexcept
{
    uint32_t i = 0;
    while (i + 1 < c.count && c.left[i].passed < passed)
        i++;
    if (i == 0 || c.left[i].passed <= passed)
        return c.left[i].when;
    const auto& before = c.left[i - 1];
    const double part =
        static_cast<double>(passed - before.passed) / static_cast<double>(c.left[i].passed - before.passed);
    return before.when + static_cast<Picoseconds>(part * static_cast<double>(c.left[i].when - before.when));
}

bool goes_around(const Topology& topology, const Link& link) noexcept
{
    const unsigned axis = axis_of_port[static_cast<unsigned>(link.port)];
    if (axis >= 3)
        return false; // at most one hop along each of A, B and C: no cyclic wait there
    const bool upwards = static_cast<unsigned>(link.port) % 2 == 0;
    return topology.coords_of(link.node)[axis] == (upwards ? topology.units()[axis] - 1u : 0u);
}

} // namespace

void account(Credit& c, const Standing& s, Picoseconds work, Picoseconds room) noexcept
{
    const RobustSpinLock lock(c.lock);
    put_in_order(c);
    if (c.count != 0 && s.left.end <= c.left[c.count - 1].when)
        return; // by the virtual clock it was earlier than the message that came first in real time
    if (c.count == 0 || c.left[c.count - 1].when <= s.came.begin) { // the buffer is empty
        c.count = 0;
        c.sent = 0;
        add(c, {0, s.left.begin}, room);
    } else if (c.left[c.count - 1].when < s.left.begin) {
        add(c, {c.left[c.count - 1].passed, s.left.begin}, room);
    }
    const Picoseconds passed = c.left[c.count - 1].passed + work;
    add(c, {passed, s.left.end}, room);
    // Its last byte can be sent when all but as much as the buffer holds has left that.
    const Picoseconds unhindered = std::max(s.came.end, c.sent + work);
    c.sent = std::max(unhindered, passed > room ? time_of(c, passed - room) : 0);
    c.without += c.sent - unhindered;
}

unsigned channel_of(const Topology& topology, const std::vector<Link>& links, size_t index, bool answer) noexcept
{
    bool high = false;
    bool has_left = false; // its unit, or gone along X, Y or Z within it
    unsigned last = 0;
    for (size_t i = 0; i <= index && i < links.size(); i++) {
        const unsigned axis = axis_of_port[static_cast<unsigned>(links[i].port)];
        if (axis >= 3) {
            // A second time along A, B and C, also where nothing lies between; answers take the axes backwards.
            high = has_left || high || (i != 0 && last >= 3 && (answer ? axis >= last : axis <= last));
        } else {
            high = (high && axis == last) || goes_around(topology, links[i]);
            has_left = true;
        }
        last = axis;
    }
    return (answer ? 2 : 0) + (high ? 1 : 0);
}

} // namespace tofu::sim
