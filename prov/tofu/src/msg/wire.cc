// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Reading the header of a peer's area, and what an anonymous sender left in ours. Called by Outbound and Inbound; calls
// nothing.
#include "msg/wire.h"

namespace tofu::proto {

Heading read_header(const AreaHeader& header, std::uint64_t nonce, std::uint32_t index) noexcept
{
    if (header.magic != area_magic || header.version != wire_version)
        return Heading::other_version;
    return header.nonce != nonce || header.index != index ? Heading::other_process : Heading::usable;
}

bool read_anonymous(const std::byte* end, std::uint64_t nonce, Envelope& envelope, std::byte (&packet)[slot_size]) noexcept
{
    Control control;
    std::memcpy(&control, end - sizeof control, sizeof control);
    std::memcpy(&envelope, end - sizeof control - sizeof envelope, sizeof envelope);
    std::memset(packet, 0, sizeof envelope);
    std::memcpy(packet + sizeof envelope, end - slot_size, slot_size - sizeof envelope - sizeof control);
    std::memcpy(packet + slot_size - sizeof control, &control, sizeof control);
    const auto type = static_cast<Type>(control.type);
    return (envelope.speaks & 127) == wire_version && known_address(envelope).sound() && envelope.target_nonce == nonce && envelope.index < max_endpoints &&
           (envelope.credit_index < credit_block_count || envelope.credit_index == no_credit_block) &&
           (type == Type::eager || type == Type::eager_by_get || type == Type::rts || type == Type::write_data ||
            type == Type::fence);
}

} // namespace tofu::proto
