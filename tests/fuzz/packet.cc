// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: fuzz target: a slot of a ring holds anything, and may change while it is read; what decode() lets through lies
// within the slot. Called by: tests/fuzz. Calls: message/packet.
#include "fuzz.h"
#include "scribbler.h"

#include "message/packet.h"

namespace tofu::sim::fuzz {
namespace {

using namespace tofu::proto;

void check(const std::byte* slot)
{
    Packet p{};
    if (!decode(slot, p))
        return;
    const std::byte* const end = slot + slot_size - sizeof(Control);
    const auto holds = [&](std::size_t bytes) {
        return p.body != nullptr && p.body >= slot && p.body <= end && bytes <= std::size_t(end - p.body);
    };
    require(p.type != Type::none && p.type == static_cast<Type>(p.control.type), "a type that is one");
    require((p.control.flags & flag_ack) == 0 || p.ack.fin < fin_count, "a FIN word of ours");
    switch (p.type) {
    case Type::eager: require(holds(p.control.length), "a payload in the slot"); break;
    case Type::rts:
        require(p.control.length >= 1 && p.control.length <= max_segments, "segments that a request has room for");
        require(holds(sizeof(Rts) + p.control.length * sizeof(Segment)), "segments in the slot");
        break;
    case Type::write_data: require(holds(8), "a word in the slot"); break;
    case Type::long_eager:
        for (std::uint32_t slots = min_ring_slots; slots <= max_ring_slots; slots *= 2) {
            const Geometry geometry{1, slots};
            if (p.control.length > geometry.eager_limit())
                continue; // refused by who receives it
            const LongSlots where = long_slots(p.control.seq, p.control.length, slots);
            require(where.first + where.count <= slots, "a payload in the ring");
            require(where.total <= slots / 2 + 1, "a message in half of the ring");
        }
        break;
    case Type::fence: require((p.control.flags & flag_ack) != 0, "somebody to answer"); break;
    case Type::hello:
    case Type::bye: require(false, "no packet of the rings' own"); break;
    case Type::none: break;
    }
}

} // namespace

void packet(Input input)
{
    alignas(slot_size) static std::byte slot[slot_size];
    while (!input.empty()) {
        // The control word first, where it lies last: mostly of a known type.
        Control control{};
        control.type = input.below(8) != 0 ? std::uint8_t(input.below(8)) : input.take<std::uint8_t>();
        control.flags = input.below(4) != 0 ? std::uint8_t(input.below(16)) : input.take<std::uint8_t>();
        control.length = std::uint16_t(input.number(slot_size));
        control.seq = input.take<std::uint32_t>();
        input.fill(slot, slot_size - sizeof control);
        std::memcpy(slot + slot_size - sizeof control, &control, sizeof control);
        check(slot);
        if (input.below(64) == 0) { // and while somebody writes on
            const Scribbler scribbler(slot, slot_size, input.take<std::uint32_t>());
            for (unsigned i = 0; i < 200; i++)
                check(slot);
        }
    }
}

} // namespace tofu::sim::fuzz
