// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a barrier and a reduction cost by number of nodes, on gates and by Puts: gates of a node, Puts, bytes, trips
// that wait for each other, and the time that would be on Tofu-D. Nothing is run: the circuit and the rounds are those
// that the provider lays and goes through (coll/barrier_circuit, coll/plan). Run by bench/run and by hand.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "coll/barrier_circuit.h"
#include "coll/plan.h"

namespace {

using namespace tofu;
using namespace tofu::coll;

struct Box {
    unsigned x, y, z; ///< units of 2x3x2 nodes, rings of them
    [[nodiscard]] unsigned nodes() const { return x * y * z * 12; }
};
constexpr unsigned processes = 4; ///< of a node

using Place = std::array<unsigned, 6>;
Place place_of(const Box& box, unsigned node)
{
    Place place{};
    const unsigned sizes[] = {box.x, box.y, box.z, 2, 3, 2};
    for (unsigned axis = 0; axis < 6; node /= sizes[axis++])
        place[axis] = node % sizes[axis];
    return place;
}
unsigned hops(const Box& box, unsigned a, unsigned b)
{
    const Place p = place_of(box, a), q = place_of(box, b);
    const unsigned sizes[] = {box.x, box.y, box.z, 2, 3, 2};
    unsigned sum = 0;
    for (unsigned axis = 0; axis < 6; axis++) {
        const unsigned d = p[axis] > q[axis] ? p[axis] - q[axis] : q[axis] - p[axis];
        sum += std::min(d, sizes[axis] - d);
    }
    return sum;
}

struct OnGates {
    unsigned relays = 0; ///< of the node that has most
    unsigned trips = 0;  ///< gates that wait for each other
    double us = 0;       ///< of a barrier (docs/time-model.md)
};

/// The circuit of all processes of all nodes: the gates of each, one process after the other.
struct Gates {
    std::vector<unsigned> first; ///< gate of each member
    std::vector<GatePlan> gates;
    std::vector<unsigned> owner; ///< of each gate
    unsigned relays = 0;         ///< most relay gates of a node
};

Gates lay(const Box& box)
{
    const unsigned n = box.nodes() * processes;
    Circuit circuit;
    bool good = circuit.reserve(n);
    for (unsigned m = 0; good && m < n; m++) {
        vcq::Coords coords;
        const Place place = place_of(box, m / processes);
        std::copy(place.begin(), place.end(), coords);
        circuit.add(coords);
    }
    if (!good || !circuit.lay_out())
        std::exit(1);
    Gates all;
    all.first.resize(n + 1);
    for (unsigned m = 0, of_node = 0; m < n; m++) {
        Circuit::Wires wires;
        circuit.wires_of(m, wires);
        all.gates.insert(all.gates.end(), wires.gate, wires.gate + wires.count);
        all.owner.insert(all.owner.end(), wires.count, m);
        all.first[m + 1] = static_cast<unsigned>(all.gates.size());
        of_node = (m % processes == 0 ? 0 : of_node) + wires.count - 1;
        all.relays = std::max(all.relays, of_node);
    }
    return all;
}

/// A round on that circuit.
OnGates on_gates(const Box& box)
{
    const Gates all = lay(box);
    const std::vector<GatePlan>& gates = all.gates;
    OnGates result;
    result.relays = all.relays;
    struct Event {
        double us = 0;
        unsigned trips = 0, missing = 0;
    };
    std::vector<Event> waits(gates.size());
    for (std::size_t g = 0; g < gates.size(); g++)
        waits[g].missing = (gates[g].packet_from.member != GateAt::none) + (gates[g].signal_from != GateAt::none);
    struct Sent {
        unsigned gate;
        double us;
        unsigned trips;
    };
    std::vector<Sent> ready;
    for (unsigned m = 0; m + 1 < all.first.size(); m++)
        ready.push_back({all.first[m], 0.69, 0});
    while (!ready.empty()) {
        const Sent out = ready.back();
        ready.pop_back();
        const unsigned m = all.owner[out.gate];
        const auto arrive = [&](unsigned member, unsigned gate, double later, unsigned trip) {
            const unsigned g = all.first[member] + gate;
            waits[g].us = std::max(waits[g].us, out.us + later);
            waits[g].trips = std::max(waits[g].trips, out.trips + trip);
            if (--waits[g].missing != 0)
                return;
            if (gate != 0) {
                ready.push_back({g, waits[g].us + 0.17, waits[g].trips});
                return;
            }
            result.us = std::max(result.us, waits[g].us + 0.06);
            result.trips = std::max(result.trips, waits[g].trips);
        };
        const GatePlan& gate = gates[out.gate];
        if (gate.packet_to.member != GateAt::none)
            arrive(gate.packet_to.member, gate.packet_to.gate,
                   0.155 * hops(box, m / processes, gate.packet_to.member / processes), 1);
        if (gate.signal_to != GateAt::none)
            arrive(m, gate.signal_to, 0, 0);
    }
    return result;
}

struct ByPuts {
    unsigned trips = 0;
    std::size_t puts = 0, bytes = 0; ///< of the member that sends most
    double us = 0;
};

/// Each round waits for the one before: a trip of a short Put or of a payload, its hops, and the calls. What comes down
/// a tree to the last leaf, in a round of its own, has made a trip for each level.
ByPuts by_puts(const Box& box, const Shape& shape)
{
    const unsigned n = box.nodes() * processes;
    ByPuts result;
    std::vector<std::byte> in(shape.count * 8), out(shape.count * 8);
    for (const unsigned rank : {0u, n - 1}) {
        Plan plan;
        if (plan.open(shape, rank, n, in.data(), out.data()) != 0)
            std::exit(1);
        Round round;
        ByPuts one;
        while (plan.next(round)) {
            const bool leaf = shape.coll == FI_BROADCAST && one.trips == 0 && rank != 0;
            const unsigned trips = leaf ? bits_of(n) : 1;
            one.trips += trips;
            one.us += (0.23 + 0.98) * trips;
            for (unsigned i = 0; i < round.receives && !leaf; i++) {
                const unsigned peer = member_at(round.receive[i].lane, rank, n);
                one.us += 0.08 * std::max(1u, hops(box, rank / processes, peer / processes)) - 0.08;
            }
            for (unsigned i = 0; i < round.sends; i++) {
                const std::size_t size = round.send[i].view.bytes();
                one.puts += size > 16 ? 2 : 1; // payload; tail of 32 bytes
                one.bytes += 32 + (size > 16 ? size : 0);
                one.us += size > 16 ? 0.23 + static_cast<double>(size) / 6360 : 0;
            }
        }
        if (one.us > result.us)
            result = one;
    }
    return result;
}

} // namespace

struct Row {
    const char* text;
    fi_collective_op coll;
    std::size_t doubles;
};
constexpr Row rows[] = {{"barrier", FI_BARRIER, 0},
                        {"allreduce of 1 double", FI_ALLREDUCE, 1},
                        {"allreduce of 9 doubles", FI_ALLREDUCE, 9},
                        {"broadcast of 48 bytes", FI_BROADCAST, 6},
                        {"reduction of 12 doubles", FI_REDUCE, 12}};

int main()
{
    const Box boxes[] = {{1, 1, 1}, {2, 2, 2}, {4, 4, 2}, {8, 8, 4}, {12, 12, 16}};
    for (const Box& box : boxes) {
        const unsigned n = box.nodes() * processes;
        const OnGates gates = on_gates(box);
        for (const auto& [text, coll, doubles] : rows) {
            const Shape shape{coll, FI_DOUBLE, FI_SUM, doubles, 0};
            const ByPuts puts = by_puts(box, shape);
            const GateMapping mapping = gate_mapping_of(shape, n);
            const std::string name = text + std::string(", ") + std::to_string(box.nodes()) + " nodes";
            const auto line = [&](const char* column, double value) {
                std::printf("Collectives\t%s\t0\t2\t\t%s\t%.4g\n", name.c_str(), column, value);
            };
            const double rounds = mapping.rounds;
            line("relay gates of a node", gates.relays);
            line("rounds on gates", rounds != 0 ? rounds : -1);
            line("trips on gates", rounds != 0 ? rounds * gates.trips : -1);
            line("µs on gates",
                 rounds != 0 ? rounds * (gates.us + (coll == FI_ALLREDUCE || coll == FI_REDUCE ? 0.3 : 0)) : -1);
            line("Puts of a member", static_cast<double>(puts.puts));
            line("bytes of a member", static_cast<double>(puts.bytes));
            line("trips by Puts", puts.trips);
            line("µs by Puts", puts.us);
        }
    }
    return 0;
}
