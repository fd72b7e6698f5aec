// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The sending side of an endpoint's rings (Outbound): channels to its peers, room for packets in them, and what happens
// when a peer is lost. The protocol decides what goes into a slot; it fills the slots in order and counts them (sent).
// Under the endpoint's lock.
//
//   msg/channel.h  the channels;  msg/anon_slots.h  packets without a ring
//   msg/ring_lease.h  how rings are obtained and given back
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fi_errno.h>
#include <sys/types.h>

#include "msg/anon_slots.h"
#include "msg/channel.h"
#include "msg/ring_lease.h"

namespace tofu::proto {

inline constexpr std::size_t inline_limit = 32; // caps().max_piggyback_size, checked by Rings::open()

class Outbound {
  public:
    Outbound(Port& port, int context_bits) noexcept
        : channels(context_bits), anon_tx(port), leases(port, channels, anon_tx), port_(port)
    {
    }
    Channels channels;
    AnonTx anon_tx;
    RingLeases leases;

    /// Whether there is room for `slots` slots. If not, the channel may have failed.
    [[nodiscard]] bool room(Channel& ch, std::uint32_t slots) noexcept
    {
        return ch.free_slots() >= slots || look_for_room(ch, slots);
    }

    // --- channels
    /// Finds or makes the channel of an address. 0, -FI_EINVAL (no such context), -FI_ENOMEM, -FI_EAGAIN (all channels
    /// are in use).
    [[nodiscard]] int channel_to(const Destination& destination, Channel*& channel) noexcept;
    /// Takes the next step towards sending a packet. 0: there is a ring or an anonymous slot; -FI_EAGAIN; or the error
    /// of a failed channel.
    [[nodiscard]] int approach(Channel& ch) noexcept;
    /// Marks the channel as failed and notifies the protocol.
    void fail(Channel& ch, int err, int prov_errno) noexcept;

    // --- packets. The channel is open, with nothing deferred and with room. sent() and post_failed() also serve a
    // channel with an anonymous slot.
    /// Counts a packet that has been posted.
    void sent(Channel& ch) noexcept
    {
        if (ch.state != ChannelState::open) [[unlikely]]
            leases.sent_anonymously(ch);
        ch.next_seq++;
    }
    /// Puts a packet of at most inline_limit bytes into the next slot. `delivered`, if not null, is notified when it
    /// has arrived.
    [[nodiscard]] vcq::Post put(Channel& ch, const PacketWriter& packet, vcq::CompletionHandler* delivered) noexcept
    {
        return put(ch, ch.next_seq, packet.data(), packet.size(), delivered);
    }
    /// Keeps a packet for the next slot that the TNI has no room for and that cannot be withdrawn.
    void defer(Channel& ch, const PacketWriter& packet, vcq::CompletionHandler* delivered) noexcept;
    /// Posts the deferred packet. True if none is left.
    [[nodiscard]] bool flush(Channel& ch) noexcept;
    [[nodiscard]] bool deferred() const noexcept { return deferred_ != 0; }
    /// Handles a failed post. -FI_EAGAIN (the TNI was busy), or the error with which the channel has failed now.
    [[nodiscard]] int post_failed(Channel& ch, vcq::Post post) noexcept;

    // --- from Rings
    void flush_all() noexcept;
    /// Probes peers that something waits for, at most `at_once` of them.
    void watch(unsigned at_once) noexcept;
    /// A post to this VCQ has failed: probes the peers that have it.
    void peer_failed(utofu_vcq_id_t home) noexcept;
    /// Says BYE to all; nothing is posted afterwards.
    void say_byes() noexcept;

  private:
    [[nodiscard]] int make_channel(const Destination& destination, Channel*& channel) noexcept;
    [[nodiscard]] vcq::Post put(Channel& ch, std::uint32_t seq, const void* packet, std::size_t size,
                                vcq::CompletionHandler* delivered) noexcept
    {
        return port_.self.vcq.put_inline(ch.peer.home, packet, ch.slot(seq) + slot_size - size, size,
                                         {.when = delivered != nullptr ? vcq::When::delivered : vcq::When::never,
                                          .strong_order = true,
                                          .handler = delivered,
                                          .cache = vcq::whole_line});
    }
    [[nodiscard]] bool look_for_room(Channel& ch, std::uint32_t slots) noexcept;
    void start_probe(Channel& ch) noexcept;
    static void on_life(vcq::CompletionHandler* handler, const vcq::Notice& notice) noexcept;

    Port& port_;
    unsigned deferred_ = 0;      ///< channels with a deferred packet
    std::size_t next_asked_ = 0; ///< index of the channel that watch() looks at next
};

} // namespace tofu::proto
