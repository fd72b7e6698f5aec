// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What an endpoint sends: packets in channels to its peers, the room for them, and how it is lost with the peer. What
// goes into a slot is the protocol's business, which fills them in their order and counts them (sent). Under the
// endpoint's lock; calls vcq.
//
//   channels.h  who is talked to;  visits.h  packets without a ring;  turnover.h  how rings are won and given back
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fi_errno.h>
#include <sys/types.h>

#include "ring/channels.h"
#include "ring/port.h"
#include "ring/turnover.h"
#include "ring/visits.h"

namespace tofu::proto {

inline constexpr std::size_t inline_limit = 32; // caps().max_piggyback_size, checked by Rings::open()

class Outbound {
  public:
    Outbound(Port& port, int context_bits) noexcept
        : channels(context_bits), visits(port), turnover(port, channels, visits), port_(port)
    {
    }
    Channels channels;
    Visits visits;
    Turnover turnover;

    /// Is there room for that many slots? Where there is none the channel may have failed meanwhile.
    [[nodiscard]] bool room(Channel& ch, std::uint32_t slots) noexcept
    {
        return ch.free_slots() >= slots || look_for_room(ch, slots);
    }

    // --- channels
    /// 0, -FI_EINVAL (no such context), -FI_ENOMEM, -FI_EAGAIN (all channels are in use).
    [[nodiscard]] int channel_to(const Target& target, Channel*& channel) noexcept;
    /// Goes on with what stands between us and the next packet. 0: there is a ring, or a visitor's slot; -FI_EAGAIN; why
    /// the channel has failed.
    [[nodiscard]] int approach(Channel& ch) noexcept;
    /// The channel is of no use any more.
    void fail(Channel& ch, int err, int prov_errno) noexcept;

    // --- packets. Of an open channel with nothing deferred and with room; or of one with a visitor's slot, to which
    // only what is said to be for both applies.
    /// A packet has gone out.
    void sent(Channel& ch) noexcept
    {
        if (ch.state != ChannelState::open) [[unlikely]]
            turnover.visited(ch);
        ch.next_seq++;
    }
    /// A packet of at most inline_limit bytes into the next slot. `delivered`, if any, is told when it has arrived.
    [[nodiscard]] vcq::Post put(Channel& ch, const PacketWriter& packet, vcq::Waiter* delivered) noexcept
    {
        return put(ch, ch.next_seq, packet.data(), packet.size(), delivered);
    }
    /// A packet for the next slot that the TNI has no room for and that can't be taken back.
    void defer(Channel& ch, const PacketWriter& packet, vcq::Waiter* delivered) noexcept;
    /// Sends the packet that had to wait. True when none is waiting any more.
    [[nodiscard]] bool flush(Channel& ch) noexcept;
    [[nodiscard]] bool deferred() const noexcept { return deferred_ != 0; }
    /// What a failed post means for the channel: -FI_EAGAIN, or why it has failed now.
    [[nodiscard]] int post_failed(Channel& ch, vcq::Post post) noexcept;

    // --- from Rings
    void flush_all() noexcept;
    /// Asks for a sign of life where something waits for a peer.
    void watch(unsigned at_once) noexcept;
    void peer_failed(utofu_vcq_id_t home, int utofu_code) noexcept;
    /// Says BYE to all; nothing is posted afterwards.
    void leave() noexcept;

  private:
    [[nodiscard]] int make_channel(const Target& target, Channel*& channel) noexcept;
    [[nodiscard]] vcq::Post put(Channel& ch, std::uint32_t seq, const void* packet, std::size_t size,
                                vcq::Waiter* delivered) noexcept
    {
        return port_.self.vcq.put_inline(ch.peer.home, packet, ch.slot(seq) + slot_size - size, size,
                                         {.when = delivered != nullptr ? vcq::When::delivered : vcq::When::never,
                                          .strong_order = true,
                                          .waiter = delivered,
                                          .cache = vcq::whole_line});
    }
    [[nodiscard]] bool look_for_room(Channel& ch, std::uint32_t slots) noexcept;
    void start_probe(Channel& ch) noexcept;
    static void on_life(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;

    Port& port_;
    unsigned deferred_ = 0;      ///< channels with a deferred packet
    std::size_t next_asked_ = 0; ///< of the watch
};

} // namespace tofu::proto
