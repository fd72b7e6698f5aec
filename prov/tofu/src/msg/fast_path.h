// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What all sends share, and the two short ways: a packet that goes out in one Put, to a peer that was sent to lately,
// and is complete when the call returns. Included by call_checks.h, so that the compiler sees the constants of each
// call of fi_msg and fi_tagged here, and by the sender's parts; calls vcq, cq and cntr.
#pragma once

#include <algorithm>

#include "core/limits.h"
#include "cq/counter.h"
#include "cq/cq.h"
#include "mem/local_buffer.h"
#include "msg/sender.h"

namespace tofu::proto {

/// Completion levels at which a send is not over when its packet is posted.
inline constexpr std::uint64_t levels = FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE;

/// Writes the fields between the payload and the head: data, tag, ack.
inline void write_fields(PacketWriter& packet, const SendCall& call, const Ack* ack, std::uint8_t flags) noexcept
{
    if (flags & flag_data)
        packet.put64(call.data);
    if (flags & flag_tag)
        packet.put64(call.tag);
    if (ack != nullptr)
        packet.put(*ack);
}

/// Writes the head, with which a packet ends; without a ring the sender's envelope stands behind it.
inline void write_head(PacketWriter& packet, Outbound& out, Channel& to, Type type, std::uint8_t flags,
                       std::size_t length) noexcept
{
    packet.control(type, flags, length, to.seq());
    if (to.state != ChannelState::open) [[unlikely]]
        packet.put(out.leases.envelope(to));
}

/// The last `n` bytes of a payload, 1 to 7, as a word that is filled up with zeros.
[[nodiscard]] inline std::uint64_t load_tail(const std::byte* from, std::size_t n) noexcept
{
    if (n >= 4) {
        std::uint32_t first, last; // the two overlap
        std::memcpy(&first, from, sizeof first);
        std::memcpy(&last, from + n - sizeof last, sizeof last);
        return first | std::uint64_t{last} << (8 * (n - sizeof last));
    }
    std::uint64_t word = std::to_integer<std::uint64_t>(from[0]);
    if (n >= 2)
        word |= std::to_integer<std::uint64_t>(from[1]) << 8 |
                std::to_integer<std::uint64_t>(from[n - 1]) << (8 * (n - 1));
    return word;
}

/// Reports a send whose bytes are on their way and whose buffer is the user's again (FI_INJECT_COMPLETE).
[[gnu::always_inline]] inline void report_sent(const TxContext& context, const SendCall& call) noexcept
{
    const Reports& reports = context.reports();
    if (!call.silent && reports.binding.reports(call.flags))
        reports.binding.cq->write({.context = call.context, .flags = call.entry_flags()});
    if (Counter* counter = reports.counters.send)
        counter->count();
}

/// The channel to the peer, if it was used lately and one packet may go out now and complete the send. Else null.
[[gnu::always_inline]] inline Channel* Sender::open_channel(const SendCall& call) const noexcept
{
    if ((call.flags & (levels | FI_FENCE | FI_TRIGGER)) != 0) [[unlikely]]
        return nullptr;
    auto* const to = out_.channels.recent(call.dest);
    if (to == nullptr || to->state != ChannelState::open || to->deferred.size != 0 ||
        backlog_.waiting().may_hold(to->peer.home) || to->free_slots() == 0) [[unlikely]]
        return nullptr;
    return to;
}

[[gnu::always_inline]] inline bool Sender::send_short(const SendCall& call, const void* data,
                                                      std::size_t length) noexcept
{
    if (length > inline_limit - overhead(call.packet_flags) || is_nowhere(data, length))
        return false;
    Channel* const ch = open_channel(call);
    if (ch == nullptr) [[unlikely]]
        return false;
    alignas(8) std::byte image[inline_limit]; // the end of a slot
    PacketWriter packet(image + inline_limit);
    packet.control(Type::eager, call.packet_flags, length, ch->next_seq);
    write_fields(packet, call, nullptr, call.packet_flags);
    std::byte* const to = packet.reserve(length);
    const auto* const from = static_cast<const std::byte*>(data);
    const std::size_t words = length & ~std::size_t{7};
    for (std::size_t at = 0; at != words; at += 8)
        std::memcpy(to + at, from + at, 8);
    if (length != words) {
        const std::uint64_t word = load_tail(from + words, length - words);
        std::memcpy(to + words, &word, sizeof word);
    }
    const vcq::Post post = vcq_.put_inline(
        ch->peer.home, packet.data(), ch->slot(ch->next_seq) + slot_size - packet.size(), packet.size(),
        vcq::Silent{vcq::Unsignaled::message, vcq::flags_of(true, false) | vcq::whole_line});
    if (post != vcq::Post::done) [[unlikely]]
        return false;
    vcq_.statistics().count(Stat::send_short);
    ch->next_seq++;
    report_sent(tx_, call);
    return true;
}

/// Builds the packet in a registered block and puts it by one Put.
[[gnu::always_inline]] inline bool Sender::send_slot(const SendCall& call, const void* data,
                                                      std::size_t length) noexcept
{
    constexpr std::size_t always = std::min(inline_room(flag_data | flag_tag), limits::inject_size);
    const bool injected = call.silent || (call.flags & FI_INJECT) != 0;
    if ((length > always && (injected || length > inline_room(call.packet_flags))) || is_nowhere(data, length))
        return false;
    Channel* const ch = open_channel(call);
    PacketBuffer* const block = ch != nullptr ? buffers_.alloc(slot_size) : nullptr;
    if (block == nullptr) [[unlikely]]
        return false;
    PacketWriter packet(block->block.data + slot_size);
    packet.control(Type::eager, call.packet_flags, length, ch->next_seq);
    write_fields(packet, call, nullptr, call.packet_flags);
    if (length != 0) {
        std::byte* const to = packet.reserve(length);
        std::memset(to + (length + 7) / 8 * 8 - 8, 0, 8); // the padding shows nothing of our memory
        std::memcpy(to, data, length);
    }
    const vcq::Post post = vcq_.put(
        ch->peer.home, block->block.stadd + slot_size - packet.size(),
        ch->slot(ch->next_seq) + slot_size - packet.size(), packet.size(),
        vcq::How{.when = vcq::When::sent, .strong_order = true, .waiter = block});
    if (post != vcq::Post::done) [[unlikely]] {
        buffers_.release(*block);
        return false;
    }
    vcq_.statistics().count(Stat::send_slot);
    ch->next_seq++;
    report_sent(tx_, call);
    return true;
}

} // namespace tofu::proto
