// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Fuzz targets: a slot of a ring, or of an anonymous sender, holds anything, and may change while it is read; what
// decode() lets through lies within the slot, and of an anonymous slot the copy.
#include "fuzz.h"
#include "scribbler.h"

#include "msg/wire.h"

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
    require(p.type != Type::none && p.type == p.control.type, "a type that is one");
    require((p.control.flags & flag_ack) == 0 || p.ack.word < completion_count, "a completion word of ours");
    switch (p.type) {
    case Type::eager: require(holds(p.control.length), "a payload in the slot"); break;
    case Type::rts:
    case Type::eager_by_get:
        require(p.control.length >= 1 && p.control.length <= max_segments, "segments that a request has room for");
        require(holds(sizeof(Rts) + p.control.length * sizeof(Segment)), "segments in the slot");
        break;
    case Type::write_data: require(holds(8), "a word in the slot"); break;
    case Type::long_eager:
        for (std::uint32_t slots = min_ring_slots; slots <= max_ring_slots; slots *= 2) {
            const Geometry geometry{1, slots};
            if (p.control.length > geometry.eager_limit())
                continue; // rejected by the receiver
            const LongSlots where = long_slots(p.control.seq, p.control.length, slots);
            require(where.first + where.count <= slots, "a payload in the ring");
            require(where.total <= slots / 2 + 1, "a message in half of the ring");
        }
        break;
    case Type::fence: require((p.control.flags & flag_ack) != 0, "a sender that waits for an answer"); break;
    case Type::release: require(false, "no packet of the rings' own"); break;
    case Type::none: break;
    }
}

/// Mostly of a known type.
Control control(Input& input)
{
    Control control{};
    control.type = Type(input.below(8) != 0 ? std::uint8_t(input.below(9)) : input.take<std::uint8_t>());
    control.flags = input.below(4) != 0 ? std::uint8_t(input.below(16)) : input.take<std::uint8_t>();
    control.length = std::uint16_t(input.number(slot_size));
    control.seq = input.take<std::uint32_t>();
    return control;
}

constexpr std::uint64_t own_nonce = 0xfeedface;

void check_anonymous(const std::byte* slot)
{
    Envelope envelope{};
    alignas(8) std::byte packet[slot_size];
    if (!read_anonymous(slot + slot_size, own_nonce, envelope, packet))
        return;
    require(envelope.target_nonce == own_nonce && (envelope.version_flags & 127) == wire_version, "one that means us");
    require(envelope.index < max_endpoints, "an endpoint that can be");
    require(known_address(envelope).is_valid(), "an address that can be");
    require(envelope.credit_index < credit_block_count || envelope.credit_index == no_credit_block,
            "a credit block that can be");
    check(packet);
    Packet p{};
    if (!decode(packet, p))
        return;
    require(p.type == Type::eager || p.type == Type::eager_by_get || p.type == Type::rts ||
                p.type == Type::write_data || p.type == Type::fence,
            "what can be an anonymous packet");
    require(p.body == nullptr || p.body >= packet, "a body in the copy");
}

/// A slot of any content, also while another process writes it.
template <class Check>
void look(Input& input, std::byte* slot, Check&& check)
{
    check(slot);
    if (input.below(64) != 0)
        return;
    const Scribbler scribbler(slot, slot_size, input.take<std::uint32_t>());
    for (unsigned i = 0; i < 200; i++)
        check(slot);
}

} // namespace

void packet(Input input)
{
    alignas(slot_size) static std::byte slot[slot_size];
    while (!input.empty()) {
        const Control last = control(input); // it is drawn first
        input.fill(slot, slot_size - sizeof last);
        std::memcpy(slot + slot_size - sizeof last, &last, sizeof last);
        look(input, slot, check);
    }
}

void visit(Input input)
{
    alignas(slot_size) static std::byte slot[slot_size];
    while (!input.empty()) {
        const Control last = control(input);
        Envelope envelope = input.take<Envelope>();
        const std::uint8_t lies = input.take<std::uint8_t>();
        if ((lies & 1) == 0)
            envelope.target_nonce = own_nonce;
        if ((lies & 2) == 0)
            envelope.version_flags = wire_version;
        if ((lies & 4) == 0)
            envelope.credit_index = (lies & 8) == 0 ? no_credit_block : 5;
        input.fill(slot, slot_size);
        std::memcpy(slot + slot_size - sizeof last, &last, sizeof last);
        std::memcpy(slot + slot_size - sizeof last - sizeof envelope, &envelope, sizeof envelope);
        look(input, slot, check_anonymous);
    }
}

} // namespace tofu::sim::fuzz
