// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Reading the header of a peer's area, and what a visitor left in ours. Called by Outbound and Inbound; calls nothing.
#include "area/wire.h"

namespace tofu::proto {

Heading read_header(const AreaHeader& header, std::uint64_t nonce, std::uint32_t index, Geometry& geometry,
                    std::uint32_t& ring) noexcept
{
    if (header.magic != area_magic || header.version != wire_version)
        return Heading::other_version;
    if (header.nonce != nonce || header.index != index)
        return Heading::other_process;
    if (header.visit_slots > max_visit_slots)
        return Heading::impossible;
    const Geometry claimed{header.ring_count, header.ring_slots, static_cast<std::uint32_t>(header.visit_slots)};
    if (!claimed.valid())
        return Heading::impossible;
    geometry = claimed;
    ring = header.hint - 1 < claimed.ring_count ? header.hint - 1 : claimed.ring_count;
    return Heading::usable;
}

bool read_visit(const std::byte* end, std::uint64_t nonce, Envelope& envelope, std::byte (&packet)[slot_size]) noexcept
{
    std::memcpy(&envelope, end - sizeof envelope, sizeof envelope);
    std::memset(packet, 0, sizeof envelope);
    std::memcpy(packet + sizeof envelope, end - slot_size, slot_size - sizeof envelope);
    Control control;
    std::memcpy(&control, packet + slot_size - sizeof control, sizeof control);
    const auto type = static_cast<Type>(control.type);
    return envelope.control.type == static_cast<std::uint8_t>(Type::visit) && envelope.who.version == wire_version &&
           envelope.who.target_nonce == nonce && envelope.who.index < max_endpoints &&
           (type == Type::eager || type == Type::rts || type == Type::write_data);
}

} // namespace tofu::proto
