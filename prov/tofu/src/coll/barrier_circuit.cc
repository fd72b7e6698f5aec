// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See barrier_circuit.h. Gates for each process cost log2 n relay gates each, of the 192 of a node; a tree within the node costs two
// for each process but the first, which alone takes part in the butterfly: at 27,648 nodes of four processes 24 relay gates
// of a node instead of 64, for two more relays on the way (0.3 us of 12).
#include "coll/barrier_circuit.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace tofu::coll {

namespace {

/// Lowest first: A, C, X, Y, Z, B.
constexpr unsigned axis_of[] = {3, 5, 0, 1, 2, 4};

/// The order of nodes: what differs little in its place is near.
std::uint64_t key_of(const vcq::Coords& c) noexcept
{
    std::uint64_t key = 0;
    for (unsigned i = 0; i < std::size(axis_of); i++)
        key |= std::uint64_t{c[axis_of[i]]} << 8 * i;
    return key;
}

} // namespace

bool Circuit::reserve(std::size_t members) noexcept { return seats_.reserve(members) && place_.reserve(members); }

void Circuit::add(const vcq::Coords& coords) noexcept
{
    seats_.push_reserved({key_of(coords), static_cast<std::uint32_t>(seats_.size()), 0, 0});
}

bool Circuit::lay() noexcept
{
    std::sort(seats_.begin(), seats_.end(), [](const Seat& a, const Seat& b) {
        return a.key != b.key ? a.key < b.key : a.rank < b.rank;
    });
    for (std::uint32_t i = 0; i < seats_.size(); i++) {
        if (i == 0 || seats_[i].key != seats_[i - 1].key)
            if (!first_.push(i))
                return false;
        seats_[i].node = static_cast<std::uint32_t>(first_.size() - 1);
        seats_[i].index = i - first_.back();
        place_.push_reserved(0);
    }
    for (std::uint32_t i = 0; i < seats_.size(); i++)
        place_[seats_[i].rank] = i;
    if (!first_.push(static_cast<std::uint32_t>(seats_.size())))
        return false;
    measure_box();
    return true;
}

/// Nodes that fill a box, whatever lies between its planes, are numbered along its axes; others by one number.
void Circuit::measure_box() noexcept
{
    std::uint64_t box = 1;
    for (unsigned i = 0; i < axes; i++) {
        bool there[256] = {};
        for (std::uint32_t node = 0; node < nodes(); node++)
            there[seats_[first_[node]].key >> 8 * i & 0xff] = true;
        digits_[i] = static_cast<std::uint32_t>(std::count(there, there + 256, true));
        box *= digits_[i]; // below 2^48
    }
    if (box == nodes())
        return;
    std::fill(digits_, digits_ + axes, 1);
    digits_[0] = nodes();
}

/// A butterfly along each axis, among as many as a power of two has; each beyond that is a guest (guide, figure 2.17): it
/// gives what it has to one of these, before, and gets the result from it, behind. A node is a guest along one axis, and
/// takes in those of its own along the axes before.
void Circuit::between_nodes(std::uint32_t node, Program& program) const noexcept
{
    std::uint32_t guests[axes];
    unsigned has = 0;
    std::uint32_t stride = 1;
    bool guest = false;
    for (unsigned i = 0; i < axes && !guest; stride *= digits_[i++]) {
        const std::uint32_t at = node / stride % digits_[i];
        const std::uint32_t core = std::bit_floor(digits_[i]);
        guest = at >= core;
        if (guest) {
            program.add(Does::send, leader(node - core * stride));
            program.add(Does::replace, leader(node - core * stride));
        } else if (at + core < digits_[i]) {
            guests[has++] = leader(node + core * stride);
            program.add(Does::join, guests[has - 1]);
        }
    }
    stride = 1;
    for (unsigned i = 0; i < axes && !guest; stride *= digits_[i++]) {
        const std::uint32_t at = node / stride % digits_[i];
        for (std::uint32_t bit = 1; bit < std::bit_floor(digits_[i]); bit *= 2) {
            const std::uint32_t other = leader(node - at * stride + (at ^ bit) * stride);
            program.add(Does::send, other);
            program.add(Does::join, other);
        }
    }
    while (has != 0)
        program.add(Does::send, guests[--has]);
}

/// Up the tree of the node, from node to node, down the tree.
void Circuit::program_of(unsigned rank, Program& program) const noexcept
{
    const Seat& seat = seats_[place_[rank]];
    const std::uint32_t first = first_[seat.node];
    const std::uint32_t here = first_[seat.node + 1] - first; // members on this node
    const auto local = [&](std::uint32_t index) { return seats_[first + index].rank; };
    std::uint32_t reach = 1; // distance of the next child
    for (; (seat.index & reach) == 0 && seat.index + reach < here; reach *= 2)
        program.add(Does::join, local(seat.index + reach));
    if (seat.index != 0) {
        const std::uint32_t parent = local(seat.index & (seat.index - 1));
        program.add(Does::send, parent);
        program.add(Does::replace, parent);
    } else {
        between_nodes(seat.node, program);
    }
    while (reach > 1) {
        reach /= 2;
        program.add(Does::send, local(seat.index + reach));
    }
}

/// The gates that carry out a program: visit(action, gate that it is done by, new gate). What a gate waits for comes before
/// what it sends; the last thing waited for is the end half of gate 0, unless its signal would come from gate 0 itself:
/// signals come from another gate (guide 3.4.2.1). Returns the number of gates.
template <class Visit>
unsigned Circuit::walk(const Program& program, Visit&& visit) noexcept
{
    unsigned gates = 1;
    unsigned at = 0;
    bool sent = false;
    for (unsigned i = 0; i < program.count; i++) {
        const Action& action = program.action[i];
        const bool send = action.does == Does::send;
        const bool last = i + 1 == program.count;
        const bool fresh = send ? sent : !last || (at == 0 && action.does == Does::join);
        const unsigned before = at;
        if (fresh)
            at = gates++;
        else if (!send)
            at = 0;
        sent = send;
        visit(action, before, at);
    }
    return gates;
}

unsigned Circuit::gate_of(const Program& program, unsigned peer, bool sends) noexcept
{
    unsigned found = 0;
    (void)walk(program, [&](const Action& action, unsigned, unsigned gate) {
        if (action.peer == peer && (action.does == Does::send) == sends)
            found = gate;
    });
    return found;
}

void Circuit::wires_of(unsigned rank, Wires& wires) const noexcept
{
    Program program;
    program_of(rank, program);
    wires = {};
    bool closed = false;
    unsigned end = 0;
    wires.count = walk(program, [&](const Action& action, unsigned before, unsigned gate) {
        Program theirs;
        program_of(action.peer, theirs);
        const bool send = action.does == Does::send;
        const GateAt other{action.peer, gate_of(theirs, rank, !send)};
        GatePlan& plan = wires.gate[gate];
        (send ? plan.packet_to : plan.packet_from) = other;
        closed = !send && gate == 0;
        if ((gate != before || closed) && action.does != Does::replace) {
            wires.gate[before].signal_to = gate;
            plan.signal_from = before;
        }
        end = gate;
    });
    if (!closed) {
        wires.gate[end].signal_to = 0;
        wires.gate[0].signal_from = end;
    }
}

unsigned Circuit::most_gates() const noexcept
{
    unsigned most = 0;
    for (const Seat& seat : seats_) {
        Program program;
        program_of(seat.rank, program);
        most = std::max(most, walk(program, [](const Action&, unsigned, unsigned) {}));
    }
    return most;
}

} // namespace tofu::coll
