// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Fuzz target: the records of barrier gates say anything; reading, firing and walking a circuit ends and stays inside.
#include "fuzz.h"

#include "barrier/circuit.h"

#include <sys/mman.h>
#include <unistd.h>

namespace tofu::sim::fuzz {
namespace {

constexpr uint32_t nodes = 2;
constexpr size_t area_bytes = nodes * tnis_per_node * tni_gates_bytes;

const auto page = size_t(::sysconf(_SC_PAGESIZE));

// The last byte in front of a page without access.
std::byte* make_area()
{
    auto* const all =
        static_cast<std::byte*>(::mmap(nullptr, area_bytes + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    require(all != MAP_FAILED && ::mprotect(all + page, area_bytes, PROT_READ | PROT_WRITE) == 0, "memory");
    return all + page;
}

GateRef some_gate(Input& input)
{
    // Few, so that they meet; both kinds, both nodes, the last one.
    constexpr GateRef some[] = {0, 1, 16, 17, gate_ref(1, 5, 0), gate_ref(1, 5, 16), gate_ref(1, 5, 47), null_gate};
    const uint32_t which = input.below(10);
    return which < 8 ? some[which] : input.take<uint32_t>();
}

void scribble(std::byte* area, GateRef gate, Input& input)
{
    auto& tni = *reinterpret_cast<TniGates*>(area + size_t{gate / gates_per_tni} * tni_gates_bytes);
    GateState& state = tni.gates[number_on_tni(gate)];
    state.version.raw = input.take<uint8_t>() * 2;
    state.configured.raw = 1;
    for (unsigned i = 0; i < 2; i++) {
        state.src[i].raw = some_gate(input);
        state.dst[i].raw = some_gate(input);
        state.src_owner[i].raw = input.take<uint8_t>();
        state.edge[i].raw = input.below(2) != 0 ? uint64_t{state.version.raw >> 1 & 0xff} << 56 | input.take<uint32_t>()
                                                : input.take<uint64_t>();
    }
    OutputSlot* const slots = input.below(2) != 0 && is_start_gate(gate) ? tni.ends[number_on_tni(gate)] : state.out;
    const uint64_t tag = uint64_t{Tag::of(uint32_t(state.version.raw >> 1), input.take<uint8_t>()).value} << 32;
    OutputSlot& slot = slots[input.below(slots_per_output)];
    slot.head.raw = tag | input.take<uint8_t>();
    for (SharedWord<uint64_t>& half : slot.half)
        half.raw = input.below(8) != 0 ? tag | input.take<uint32_t>() : input.take<uint64_t>();
}

} // namespace

void barrier(Input input)
{
    static std::byte* const area = make_area();
    std::memset(area, 0, area_bytes);
    const Gates gates(area, nodes);
    CircuitHost host;
    host.owner_of = [](void*, GateRef gate) noexcept { return uint64_t{gate & 0xff}; };
    host.runs = [](void*, uint64_t owner) noexcept { return (owner & 1) != 0; };
    const Circuit circuit(gates, host);
    for (unsigned step = 0; step < 24 && !input.empty(); step++) {
        const GateRef gate = some_gate(input);
        if (!gates.valid(gate))
            continue;
        GateSetting setting;
        const bool readable = gates.read(gate, setting);
        require(!readable || !setting.configured || setting.src[0] == null_gate || gates.valid(setting.src[0]),
                "a setting names gates that exist");
        const Tag tag = Tag::of(setting.epoch, input.take<uint8_t>());
        Packet packet;
        switch (input.below(6)) {
        case 0:
        case 1: scribble(area, gate, input); break;
        case 2: circuit.push(gate, tag); break;
        case 3: (void)circuit.pull(gate, tag, input.below(2) != 0); break;
        case 4:
            if (gates.fetch_output(gate, tag, packet) == Fetched::ready)
                require(packet_words(packet.op, packet.count) <= max_packet_words, "size of a packet");
            break;
        default:
            if (is_start_gate(gate))
                (void)gates.fetch_end(gate, tag, packet);
            break;
        }
    }
}

} // namespace tofu::sim::fuzz
