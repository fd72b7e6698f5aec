// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What stands in the slots of a ring (msg/wire.h): messages, answers that are asked for, data of RMA writes. The words
// and tables are in docs/wire-protocol.md. Used by send and message; calls nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "msg/wire.h"

namespace tofu::proto {

inline constexpr std::uint8_t flag_tag = 1;  ///< a tagged message; the tag is in the packet
inline constexpr std::uint8_t flag_data = 2; ///< remote CQ data is in the packet
inline constexpr std::uint8_t flag_ack = 4;  ///< an Ack is in the packet: write the completion word when taken
inline constexpr std::uint8_t flag_match = 8;///< with flag_ack: only when matched (FI_MATCH_COMPLETE)

struct Ack {
    std::uint32_t fin;
    std::uint32_t seq;
};
static_assert(sizeof(Ack) == 8);

/// A piece of the payload of a rendezvous in the sender's memory.
struct Segment {
    std::uint64_t stadd;
    std::uint64_t length;
};
inline constexpr unsigned max_segments = 4;

/// Body of an RTS or of an eager-by-get message, before its segments.
struct Rts {
    std::uint64_t vcq; ///< the STADDs belong to it
};

/// Bytes of a packet before its payload is added.
constexpr std::size_t overhead(std::uint8_t flags)
{
    return sizeof(Control) + ((flags & flag_tag) ? 8 : 0) + ((flags & flag_data) ? 8 : 0) +
           ((flags & flag_ack) ? sizeof(Ack) : 0);
}
constexpr std::size_t inline_room(std::uint8_t flags) { return slot_size - overhead(flags); }

/// A packet as read out of a slot, its lengths checked against the slot.
struct Packet {
    Control control;
    Type type = Type::none;
    std::uint64_t tag = 0;
    std::uint64_t data = 0;
    Ack ack{};
    const std::byte* body = nullptr; ///< eager: payload; others: their structures
};

/// False for bytes that are no packet of a message. `slot` is read as it lies in the area: its owner never writes it
/// while the receiver has not reported it, but a hostile one might, so that everything is copied or bounded.
[[nodiscard]] bool decode(const std::byte* slot, Packet& packet) noexcept;

} // namespace tofu::proto
