// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What an endpoint sends: channels to its peers. Packets without a ring, how one is won, the room in it, how it is given
// back, and how it is lost with the peer. What goes into a ring is the protocol's business, which fills slots in their order and
// counts them (sent). Under the endpoint's lock; calls vcq.
//
//   outbound.cc  channels, packets;  visit.cc  packets without a ring, how one is won;  turnover.cc  how it is given back
//   life.cc  the watch
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <rdma/fi_errno.h>
#include <sys/types.h>

#include "provider/array.h"
#include "ring/channel.h"
#include "ring/channel_table.h"
#include "ring/port.h"

namespace tofu::proto {

inline constexpr std::size_t inline_limit = 32; // caps().max_piggyback_size, checked by Rings::open()

/// Where a channel leads: what the address vector says of an address.
struct Target {
    std::uint64_t address; ///< tells it from others; all bits: none
    const Peer& peer;
    std::uint64_t place;   ///< of the address vector,
    unsigned context;      ///< and the receive context
};

class Outbound {
  public:
    Outbound(Port& port, int context_bits) noexcept : port_(port), channel_of_(context_bits) {}

    // --- hot
    /// The channel of the last channel_to(), where that address leads to it still; else null.
    [[nodiscard, gnu::always_inline]] Channel* last(std::uint64_t address) const noexcept
    {
        if (address != last_address_ || last_ == nullptr ||
            last_->peer.generation != last_peer_->generation) [[unlikely]]
            return nullptr;
        return last_;
    }
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
    /// Where that says -FI_EAGAIN: one or two round trips, which it may be worth waiting for.
    [[nodiscard]] static bool soon(const Channel& ch) noexcept
    {
        return ch.visit.under_way || ch.state == ChannelState::leaving;
    }
    /// Why nothing can be sent: -FI_EAGAIN, or the error of a channel that has failed.
    [[nodiscard]] static int refusal(const Channel& ch) noexcept
    {
        return ch.state == ChannelState::failed ? -ch.err : -FI_EAGAIN;
    }
    [[nodiscard]] const Array<Channel*>& channels() const noexcept { return channels_; }
    /// The channel is of no use any more.
    void fail(Channel& ch, int err, int prov_errno) noexcept;

    // --- packets. Of an open channel with nothing deferred and with room; or of one with a visitor's slot, to which
    // only what is said to be for both applies.
    /// For both: the sequence number of the next packet, and how much of its slot the envelope takes.
    [[nodiscard]] static std::uint32_t seq(const Channel& ch) noexcept
    {
        return ch.state == ChannelState::open ? ch.next_seq : ch.visit.seq;
    }
    [[nodiscard]] static std::size_t envelope_size(const Channel& ch) noexcept
    {
        return ch.state == ChannelState::open ? 0 : sizeof(Envelope);
    }
    /// Where the slot ends.
    [[nodiscard]] static utofu_stadd_t slot_end(const Channel& ch) noexcept
    {
        return (ch.state == ChannelState::open ? ch.slot(ch.next_seq) : ch.visit.slot) + slot_size;
    }
    /// Of a packet without a ring: who sends it, and whether a ring is asked for.
    [[nodiscard]] Envelope envelope(Channel& ch) noexcept;
    /// A packet has gone out.
    void sent(Channel& ch) noexcept
    {
        if (ch.state != ChannelState::open) [[unlikely]]
            visited(ch);
        ch.next_seq++;
    }
    /// A packet of at most inline_limit bytes into the next slot. `delivered`, if any, is told when it has arrived.
    [[nodiscard]] vcq::Post put(Channel& ch, const PacketWriter& packet, vcq::Waiter* delivered) noexcept
    {
        return port_.self.vcq.put_inline(ch.peer.home, packet.data(), ch.slot(ch.next_seq) + slot_size - packet.size(),
                                         packet.size(),
                                         {.when = delivered != nullptr ? vcq::When::delivered : vcq::When::never,
                                          .strong_order = true,
                                          .waiter = delivered,
                                          .cache = vcq::whole_line});
    }
    /// A packet for the next slot that the TNI has no room for and that can't be taken back.
    void defer(Channel& ch, const PacketWriter& packet, vcq::Waiter* delivered) noexcept;
    /// Sends the packet that had to wait. True when none is waiting any more.
    [[nodiscard]] bool flush(Channel& ch) noexcept;
    [[nodiscard]] bool deferred() const noexcept { return deferred_ != 0; }
    /// Is a slot of a visitor's asked for?
    [[nodiscard]] bool asks() const noexcept { return asking_ != 0; }
    /// What a failed post means for the channel: -FI_EAGAIN, or why it has failed now.
    [[nodiscard]] int post_failed(Channel& ch, vcq::Post post) noexcept;

    // --- from Rings
    void flush_all() noexcept;
    /// What peers wrote to us without being asked, of so many channels.
    void look_at_returns(std::size_t most) noexcept;
    /// Asks for a sign of life where something waits for a peer.
    void watch(unsigned at_once) noexcept;
    void peer_failed(utofu_vcq_id_t home, int utofu_code) noexcept;
    /// Says BYE to all; nothing is posted afterwards.
    void leave() noexcept;

  private:
    // outbound.cc
    [[nodiscard]] int make_channel(const Target& target, Channel*& channel) noexcept;
    [[nodiscard]] bool look_for_room(Channel& ch, std::uint32_t slots) noexcept;
    [[nodiscard]] vcq::Post put_bye(Channel& ch, std::uint16_t kind) noexcept;
    // visit.cc
    [[nodiscard]] int visit(Channel& ch) noexcept;
    void on_gate(Channel& ch, std::uint64_t word) noexcept;
    void on_absence(Channel& ch, int code) noexcept;
    void read_heading(Channel& ch) noexcept;
    void on_heading(Channel& ch, const AreaHeader& header) noexcept;
    [[nodiscard]] bool wants_ring(Channel& ch) noexcept;
    void visited(Channel& ch) noexcept;
    static void ask_later(Channel& ch) noexcept;
    void dismiss(Channel& ch) noexcept;
    [[nodiscard]] vcq::Post put_empty(Channel& ch, utofu_stadd_t slot, std::uint32_t seq) noexcept;
    void on_grant(Channel& ch, const Grant& grant) noexcept;
    static void on_visit(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;
    // turnover.cc
    void check_return(Channel& ch) noexcept;
    [[nodiscard]] bool say_bye(Channel& ch) noexcept;
    [[nodiscard]] Channel* reuse_channel() noexcept;
    void give_up_rings() noexcept;
    [[nodiscard]] static bool reusable(const Channel& ch) noexcept;
    void unlink(Channel& ch) noexcept;
    // life.cc
    void start_probe(Channel& ch) noexcept;
    static void on_life(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;

    Port& port_;
    // The channel used last, or null, and the place of the address vector that led to it.
    std::uint64_t last_address_ = ~std::uint64_t{0};
    const Peer* last_peer_ = nullptr;
    Channel* last_ = nullptr;
    ChannelTable channel_of_; ///< by address
    Array<Channel*> channels_;
    unsigned deferred_ = 0;       ///< channels with a deferred packet
    unsigned asking_ = 0;         ///< channels that wait for a visitor's slot
    unsigned held_ = 0;           ///< channels with a ring, or that have asked for one
    std::size_t next_return_ = 0; ///< the return block looked at next
    std::size_t reuse_hand_ = 0;  ///< where a channel to reuse is looked for next
    std::size_t next_asked_ = 0;  ///< of the watch
};

} // namespace tofu::proto
