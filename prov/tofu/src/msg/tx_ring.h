// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The sending side of an endpoint's rings. A peer and our ring in its area (TxChannel); the channels of an endpoint by
// address (Destination, TxChannels). Room for packets, packets to a peer at which we have no ring, how a ring is
// requested and released, and what happens when a peer is lost (TxRings). The protocol decides what goes into a slot;
// it fills the slots in order and counts them (sent). docs/wire-protocol.md numbers the cases of both sides
// ("Ring leases"). Under the endpoint's lock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <rdma/fi_errno.h>

#include "av/peer_table.h"
#include "core/containers.h"
#include "core/pool.h"
#include "msg/rx_area.h"
#include "msg/wire.h"
#include "utofu/vcq.h"

namespace tofu::proto {

inline constexpr std::size_t inline_limit = 32; // caps().max_piggyback_size, checked by RingSet::open()

// --- TxChannel

class TxRings;

enum class ChannelState : std::uint8_t {
    idle,           ///< packets go anonymously. -> open: a ring was granted; else why there is no slot counter
    reading_header, ///< we read the header of the area to learn why. -> failed
    backing_off,    ///< the peer has no area yet. -> idle, a little later; -> failed, much later
    open,           ///< we have a ring. -> releasing: we have released it; -> failed: a post failed
    releasing, ///< we wait for the answer to the release, the last word of the peer about this ring. -> idle; -> failed
    failed     ///< for good: this process of the peer is gone
};

/// A peer that we send to, and our ring in its area while we have one. A channel and its credit block have the same
/// number. A pair of endpoints has at most one ring in each direction at any time, which keeps its messages in order.
struct TxChannel {
    TxRings* owner = nullptr;
    Peer peer{};
    utofu_stadd_t ring = 0;
    std::uint32_t next_seq = 1;     ///< sequence number of the next slot
    std::uint32_t credit_limit = 1; ///< of the first slot that may not be written yet, as far as we know
    std::uint32_t slots = 0;
    ChannelState state = ChannelState::idle;
    bool release_requested =
        false;              ///< the ring has to be released: the peer, or another peer of this endpoint, needs it
    bool peer_seen = false; ///< its area has been seen; until then a missing area does not show that it is gone
    std::uint16_t number = 0;
    std::uint16_t serial = 0; ///< of the last request for a ring
    int err = 0;              ///< why it has failed: FI_E*
    int prov_errno = 0;
    std::uint32_t outstanding = 0;   ///< requests of the protocol: the peer is watched, the channel is not reused
    std::uint32_t waiting = 0;       ///< sends of the protocol that wait for room; later ones wait behind them
    std::uint32_t credit_stalls = 0; ///< refusals for want of credit since the last probe
    std::uint32_t seen_seq = 0; ///< next_seq when a ring to give up was last looked for; if unchanged, this one is idle
    /// Two values of next_seq that the protocol has noted. One that equals next_seq (nothing was sent since) does so
    /// after a change of rings, too.
    std::uint32_t confirmed_seq[2] = {1, 1};
    utofu_stadd_t area = 0;
    TxChannel* next = nullptr; ///< another one in the same bucket (TxChannels)

    /// A packet without a ring. `under_way`: we ask the slot counter for a slot, or read it or the
    /// header.
    struct Anonymous : PeerRead<TxChannel> {
        utofu_stadd_t slot = 0;        ///< ours, for one packet; 0: none
        std::uint32_t seq = 0;         ///< sequence number of the packet in it
        bool reads = false;            ///< what is under way is a Get, not an ADD
        bool full = false;             ///< the slot counter had none: read it before asking again
        bool idle_since_pass = false;  ///< the slot was unused at the last pass over the channels
        bool carries_request = false;  ///< the packet that is being built asks for a ring
        bool asked = false;            ///< a packet has asked for a ring, and no answer has come
        std::uint32_t pause = 0;       ///< rounds to wait before the slot counter is read again,
        std::uint32_t rounds = 0;      ///< and how many of them are left
        std::uint32_t count = 0;       ///< packets since a ring was last asked for,
        std::uint32_t enough = 0;      ///< and how many it takes until the next request; 0: `least`
        std::uint64_t pause_until = 0; ///< milliseconds; the peer has no area
        std::uint64_t first_try = 0;   ///< milliseconds: when the missing area was first asked for; 0: it was not

        static constexpr std::uint32_t least = 4, most = 64; ///< packets before a ring is asked for, and again
        /// The peer had no ring for us: doubles the number of packets before the next request.
        void retry_later() noexcept
        {
            enough = std::clamp(2 * enough, 2 * least, most);
            count = 0;
        }
    } anonymous{};
    PeerRead<TxChannel> life{}; ///< is the peer alive?
    /// A packet that found no room in the queue of the TNI and must go out before any other.
    struct Deferred {
        std::uint8_t size = 0; ///< 0: there is none
        std::uint32_t seq = 0;
        vcq::CompletionHandler* handler = nullptr;
        alignas(8) std::byte image[32];
    } deferred{};

    /// The next packet, in a ring or an anonymous slot: its sequence number, the bytes of its envelope, the end of its
    /// slot.
    [[nodiscard]] std::uint32_t seq() const noexcept { return state == ChannelState::open ? next_seq : anonymous.seq; }
    [[nodiscard]] std::size_t envelope_size() const noexcept
    {
        return state == ChannelState::open ? 0 : sizeof(Envelope);
    }
    [[nodiscard]] utofu_stadd_t slot_end() const noexcept
    {
        return (state == ChannelState::open ? slot(next_seq) : anonymous.slot) + slot_size;
    }
    /// Why nothing can be sent now: -FI_EAGAIN, or the error of a failed channel.
    [[nodiscard]] int refusal() const noexcept { return state == ChannelState::failed ? -err : -FI_EAGAIN; }
    /// After -FI_EAGAIN: is it a matter of one or two round trips, which may be worth waiting for?
    [[nodiscard]] bool retry_soon() const noexcept { return anonymous.under_way || state == ChannelState::releasing; }
    [[nodiscard]] bool is_to(const Peer& other, unsigned index) const noexcept
    {
        return peer.target_vcq == other.target_vcq && peer.nonce == other.nonce && peer.index == index;
    }
    [[nodiscard]] bool has_ring() const noexcept
    {
        return state == ChannelState::open || state == ChannelState::releasing;
    }
    [[nodiscard]] std::uint32_t free_slots() const noexcept { return credit_limit - next_seq; }
    /// Slots that the peer has taken, as far as we know (low 32 bits).
    [[nodiscard]] std::uint32_t consumed() const noexcept { return credit_limit - 1 - slots; }
    void set_consumed(std::uint32_t count) noexcept { credit_limit = count + slots + 1; }
    [[nodiscard]] utofu_stadd_t slot(std::uint32_t seq) const noexcept
    {
        return ring + std::uint64_t{(seq - 1) & (slots - 1)} * slot_size;
    }
};

// --- TxChannels: the channels of an endpoint, and the lookup of a channel by address

/// What the address vector says of an address: where a channel has to lead.
struct Destination {
    std::uint64_t address; ///< the address itself; all bits set: none
    const Peer& peer;
    unsigned context = 0; ///< receive context (fi_rx_addr)
};

class TxChannels {
  public:
    /// The channel that an earlier find() or enter() of this address gave, if the address still leads there. Null: call
    /// find().
    [[nodiscard, gnu::always_inline]] TxChannel* recent(std::uint64_t address) const noexcept
    {
        const Found& found = recent_.at(address);
        if (found.address != address || found.generation != found.peer->generation) [[unlikely]]
            return nullptr;
        if (found.channel == nullptr)
            __builtin_unreachable(); // spares the caller a second test
        return found.channel;
    }
    /// The channel to this endpoint, whatever address it was entered for, or null.
    [[nodiscard]] TxChannel* find(const Destination& destination) noexcept
    {
        const unsigned index = destination.peer.index + destination.context;
        TxChannel* found = *bucket_of(destination.peer, index);
        while (found != nullptr && !found->is_to(destination.peer, index))
            found = found->next;
        if (found != nullptr)
            note(destination, *found);
        return found;
    }
    /// Makes room for one more channel. False: no memory.
    [[nodiscard]] bool reserve() noexcept { return all_.reserve(all_.size() + 1); }
    void add(TxChannel& channel) noexcept { all_.push_reserved(&channel); }
    /// From now on find() gives the channel to this endpoint.
    void enter(const Destination& destination, TxChannel& channel) noexcept
    {
        TxChannel** const bucket = bucket_of(channel.peer, channel.peer.index);
        channel.next = *bucket;
        *bucket = &channel;
        note(destination, channel);
    }
    /// Removes the channel from all lookups.
    void unlink(TxChannel& channel) noexcept
    {
        recent_.forget_if([&](const Found& found) { return found.channel == &channel; });
        TxChannel** at = bucket_of(channel.peer, channel.peer.index);
        while (*at != &channel)
            at = &(*at)->next;
        *at = channel.next;
    }
    [[nodiscard]] std::size_t size() const noexcept { return all_.size(); }
    [[nodiscard]] TxChannel& operator[](std::size_t number) const noexcept { return *all_[number]; }
    [[nodiscard]] auto begin() const noexcept { return all_.begin(); }
    [[nodiscard]] auto end() const noexcept { return all_.end(); }

  private:
    static constexpr Peer nobody{};
    /// Where an address led, as long as the place of the address vector is what it was.
    struct Found {
        std::uint64_t address = FI_ADDR_NOTAVAIL;
        std::uint32_t generation = ~0u; // not the generation of an unset peer
        const Peer* peer = &nobody;
        TxChannel* channel = nullptr;
    };
    [[nodiscard]] TxChannel** bucket_of(const Peer& peer, unsigned index) noexcept
    {
        return &buckets_[peer_key(peer.target_vcq, peer.nonce, index) % credit_block_count];
    }
    void note(const Destination& destination, TxChannel& channel) noexcept
    {
        recent_.note({destination.address, destination.peer.generation, &destination.peer, &channel});
    }

    Recent<Found> recent_;
    TxChannel* buckets_[credit_block_count] = {}; ///< by endpoint, linked by TxChannel::next
    Array<TxChannel*> all_;                       ///< by number
};

// --- TxRings

class TxRings {
  public:
    /// How long we wait for a peer to enable its endpoint. Tests set it lower.
    static inline std::uint64_t absent_limit_ms = 10000;

    explicit TxRings(RingContext& own) noexcept : own_(own) {}

    TxChannels channels;

    /// Whether there is room for `slots` slots. If not, the channel may have failed.
    [[nodiscard]] bool room(TxChannel& ch, std::uint32_t slots) noexcept
    {
        return ch.free_slots() >= slots || refresh_credits(ch, slots);
    }

    // --- channels
    /// Finds or makes the channel of an address. 0, -FI_EINVAL (no such context), -FI_ENOMEM, -FI_EAGAIN (all channels
    /// are in use).
    [[nodiscard]] int channel_to(const Destination& destination, TxChannel*& channel) noexcept;
    /// Takes the next step towards sending a packet. 0: there is a ring or an anonymous slot; -FI_EAGAIN; or the error
    /// of a failed channel.
    [[nodiscard]] int prepare_to_send(TxChannel& ch) noexcept;
    /// Marks the channel as failed and notifies the protocol.
    void fail(TxChannel& ch, int err, int prov_errno) noexcept;

    // --- packets. The channel is open, with nothing deferred and with room. sent() and post_failed() also serve a
    // channel with an anonymous slot.
    /// The envelope of the next packet without a ring: its sender, and whether it asks for a ring.
    [[nodiscard]] Envelope envelope(TxChannel& ch) noexcept;
    /// Counts a packet that has been posted.
    void sent(TxChannel& ch) noexcept
    {
        if (ch.state != ChannelState::open) [[unlikely]]
            sent_anonymously(ch);
        ch.next_seq++;
    }
    /// Puts a packet of at most inline_limit bytes into the next slot. `delivered`, if not null, is notified when it
    /// has arrived.
    [[nodiscard]] vcq::Post put(TxChannel& ch, const PacketWriter& packet, vcq::CompletionHandler* delivered) noexcept
    {
        return put(ch, ch.next_seq, packet.data(), packet.size(), delivered);
    }
    /// Keeps a packet for the next slot that the TNI has no room for and that cannot be withdrawn.
    void defer(TxChannel& ch, const PacketWriter& packet, vcq::CompletionHandler* delivered) noexcept;
    /// Posts the deferred packet. True if none is left.
    [[nodiscard]] bool flush(TxChannel& ch) noexcept;
    [[nodiscard]] bool deferred() const noexcept { return deferred_ != 0; }
    /// Handles a failed post. -FI_EAGAIN (the TNI was busy), or the error with which the channel has failed now.
    [[nodiscard]] int post_failed(TxChannel& ch, vcq::Post post) noexcept;

    // --- packets without a ring
    /// Takes the next step towards a slot for one packet. 0: the channel has one; -FI_EAGAIN; or the error of a failed
    /// channel.
    [[nodiscard]] int claim_anon_slot(TxChannel& ch) noexcept;
    /// Releases an unneeded slot by an empty packet. If the TNI has no room, a later call does it.
    void dismiss_anon_slot(TxChannel& ch) noexcept;
    /// True if some peer has been asked for a slot and has not answered.
    [[nodiscard]] bool awaits_anon_slot() const noexcept { return slot_requests_ != 0; }

    // --- leases
    /// Reads the channel's credit block and acts on it.
    void read_credit_block(TxChannel& ch) noexcept;
    /// Does so for `most` channels, in turn, and releases the rings that are revoked.
    void poll_credit_blocks(std::size_t most) noexcept;
    /// Takes a channel from its peer, for another peer. Null: none is free now, but some are being given up.
    [[nodiscard]] TxChannel* reuse() noexcept;

    // --- from RingSet
    void flush_all() noexcept;
    /// Probes peers that something waits for, at most `at_once` of them.
    void watch(unsigned at_once) noexcept;
    /// A post to this VCQ has failed: probes the peers that have it.
    void peer_failed(utofu_vcq_id_t target_vcq) noexcept;
    /// Releases all rings as poll_credit_blocks() comes by: the endpoint closes.
    void leave_all() noexcept;
    /// True if no peer can write to our credit blocks and completion words any more: nothing is outstanding, no answer
    /// is due, and each ring was released or was at a dead peer.
    [[nodiscard]] bool writers_gone() const noexcept;
    /// Releases all rings at once; nothing is posted afterwards.
    void release_all() noexcept;

  private:
    [[nodiscard]] int make_channel(const Destination& destination, TxChannel*& channel) noexcept;
    void begin(TxChannel& ch, std::size_t number, std::uint64_t serial, std::uint32_t next_seq) noexcept;
    [[nodiscard]] vcq::Post put(TxChannel& ch, std::uint32_t seq, const void* packet, std::size_t size,
                                vcq::CompletionHandler* delivered) noexcept
    {
        return own_.vcq.put_inline(
            ch.peer.target_vcq, packet, ch.slot(seq) + slot_size - size, size,
            {.level = delivered != nullptr ? vcq::CompletionLevel::delivered : vcq::CompletionLevel::never,
             .strong_order = true,
             .handler = delivered,
             .cache = vcq::whole_line});
    }
    [[nodiscard]] bool refresh_credits(TxChannel& ch, std::uint32_t slots) noexcept;
    void start_probe(TxChannel& ch) noexcept;
    static void on_life(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept;

    [[nodiscard]] int request_slot(TxChannel& ch) noexcept;
    static void on_anon_notice(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept;
    void on_slot_counter(TxChannel& ch, std::uint64_t word) noexcept;
    void on_absence(TxChannel& ch, int code) noexcept;
    void get_header(TxChannel& ch) noexcept;
    void on_header(TxChannel& ch, const AreaHeader& header) noexcept;
    [[nodiscard]] vcq::Post put_empty(TxChannel& ch, utofu_stadd_t slot, std::uint32_t seq) noexcept;
    void sent_anonymously(TxChannel& ch) noexcept;

    [[nodiscard]] bool wants_ring(TxChannel& ch) noexcept;
    void on_grant(TxChannel& ch, const Grant& grant) noexcept;
    [[nodiscard]] bool release_ring(TxChannel& ch) noexcept;
    [[nodiscard]] vcq::Post put_release(TxChannel& ch, Release kind) noexcept;
    void release_some() noexcept;

    RingContext& own_;
    unsigned deferred_ = 0;        ///< channels with a deferred packet
    unsigned slot_requests_ = 0;   ///< channels that wait for an anonymous slot
    unsigned held_ = 0;            ///< channels that have a ring or have asked for one
    std::size_t next_watched_ = 0; ///< index of the channel that watch() looks at next
    std::size_t next_block_ = 0;   ///< index of the credit block that is polled next
    std::size_t hand_ = 0;         ///< index of the channel that reuse() and release_some() look at next
};

} // namespace tofu::proto
