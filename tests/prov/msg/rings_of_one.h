// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The rings of one endpoint (msg/rx_ring) over a network inside the process: the test plays the peer, which reads and
// writes the two message areas, and the protocol above.
#pragma once

#include <cstring>
#include <optional>
#include <vector>

#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include "msg/rx_ring.h"
#include "prov/lib/fake_net.h"

namespace tofu::proto {

using fake::Net;

inline constexpr std::uint64_t own_nonce = 0x1111222233334444, peer_nonce = 0x5555666677778888;
inline constexpr utofu_vcq_id_t peer_home = 77;
inline constexpr unsigned own_index = 3, peer_index = 5;
inline constexpr std::uint32_t ring_count = 4, ring_slots = 16, anon_slot_count = 4;
inline constexpr Geometry geometry{ring_count, ring_slots, anon_slot_count};

/// The protocol above: records its calls, and takes packets while it has room.
struct Above final : Protocol {
    struct In final : RxRings {
        explicit In(Above& above) : RxRings(above.rings.own), above(above) {}
        std::uint32_t accept_fast(RxRing&, const std::uint64_t*, std::uint64_t) noexcept { return 0; }
        void accept_packets(RingPoll& first) noexcept { accept_arrived<In>(first); }
        bool accept(RxRing& ring, std::uint32_t&) noexcept
        {
            if (above.room == 0)
                return false;
            above.room--;
            std::uint64_t body = 0;
            std::memcpy(&body, slot(ring, ring.next_seq) + slot_size - 16, sizeof body);
            above.taken.push_back(body);
            above.last = &ring;
            return true;
        }
        Above& above;
    };
    explicit Above(const LocalEndpoint& self) : rings(self, *this, in), in(*this) {}
    TxChannel* make_channel() noexcept override { return made < most_channels ? &channels[made++] : nullptr; }
    void channel_failed(TxChannel& ch, vcq::CompletionHandler* waiter) noexcept override
    {
        failures.push_back(ch.err);
        lost = waiter;
    }
    bool accept_anonymous(RxRing& anonymous) noexcept override
    {
        std::uint32_t slots = 1;
        const bool here = anonymous.known.target_vcq != unwanted && in.accept(anonymous, slots);
        last = nullptr; // it goes with the anonymous packet
        return here;
    }
    void tick() noexcept override { ticks++; }

    static constexpr std::size_t most_channels = 2;
    TxChannel channels[most_channels];
    std::size_t made = 0;
    RingSet rings;
    In in;
    std::vector<int> failures;
    vcq::CompletionHandler* lost = nullptr;
    std::vector<std::uint64_t> taken;
    RxRing* last = nullptr;
    unsigned room = 1000;
    utofu_vcq_id_t unwanted = 0; ///< whose anonymous packets there is no room for
    unsigned ticks = 0;
};

struct RingsTest : testing::Test, fake::OverVcqs {
    RingsTest() : OverVcqs(geometry.size() + 65536)
    {
        above.emplace(LocalEndpoint{vcq, target_vcq, lock, own_nonce, own_index,
                                    make_address(target_vcq.id(), own_nonce, own_index)});
        rings = &above->rings;
        EXPECT_EQ(rings->open(ring_count, ring_slots, anon_slot_count), 0);
        put(0, header());
        put(slot_counter_offset, slot_counter_word(peer_nonce, 0, anon_slot_count));
    }
    ~RingsTest() override
    {
        rings->release_all();
        vcq.drain();
        (void)rings->close_area();
        above.reset();
    }
    static AreaHeader header(std::uint16_t index = peer_index)
    {
        return {area_magic, wire_version, index, 0, peer_nonce};
    }
    ReceiveArea& area() { return rings->own.area; }
    void poll()
    {
        while (vcq.poll() != 0) {
        }
    }

    // --- we send
    TxChannel* channel(std::uint16_t index = peer_index)
    {
        peer = {peer_home, peer_nonce, index, 0, false, 1};
        TxChannel* ch = nullptr;
        status = rings->out.channel_to({index, peer}, ch);
        return ch;
    }
    /// Goes on until the channel says something else than -FI_EAGAIN, so many times at most.
    int prepare_to_send(TxChannel& ch, unsigned rounds = 8)
    {
        int ret = -FI_EAGAIN;
        for (unsigned i = 0; i < rounds && ret == -FI_EAGAIN; i++) {
            ret = rings->out.prepare_to_send(ch);
            poll();
        }
        return ret;
    }
    /// One packet into the slot that prepare_to_send() has got.
    void send_anonymously(TxChannel& ch, std::uint64_t body)
    {
        alignas(8) std::byte image[slot_size];
        PacketWriter packet(image + slot_size);
        packet.control(Type::eager, 0, 8, ch.seq());
        packet.put(rings->out.envelope(ch));
        packet.put64(body);
        ASSERT_EQ(vcq.put(peer_home, reinterpret_cast<std::uintptr_t>(packet.data()), ch.slot_end() - packet.size(),
                          packet.size(), {.strong_order = true}),
                  vcq::Post::done);
        rings->out.sent(ch);
        poll();
    }
    /// Anonymous packets until one of the packets asks for a ring. The slot counter is put back, so that its slots
    /// last.
    void ask(TxChannel& ch)
    {
        for (unsigned n = 0; n < 80 && !ch.anonymous.asked; n++) {
            put(slot_counter_offset, slot_counter_word(peer_nonce, 0, anon_slot_count));
            ASSERT_EQ(prepare_to_send(ch), 0);
            send_anonymously(ch, n);
        }
        ASSERT_TRUE(ch.anonymous.asked);
    }
    /// What the peer writes: this one of its rings is ours.
    void grant(TxChannel& ch, unsigned ring, LeaseStatus status = LeaseStatus::granted)
    {
        area().consumed(ch.number).store(
            Grant{static_cast<std::uint32_t>(geometry.ring(ring) / slot_size), ring_slots}.word());
        area().status(ch.number).store(std::uint64_t{ch.serial} << 32 | static_cast<std::uint32_t>(status));
    }
    TxChannel& open_channel(std::uint16_t index = peer_index, unsigned ring = 0)
    {
        put(0, header(index));
        TxChannel& ch = *channel(index);
        ask(ch);
        grant(ch, ring);
        EXPECT_EQ(prepare_to_send(ch), 0);
        EXPECT_EQ(ch.state, ChannelState::open);
        return ch;
    }
    vcq::Post send(TxChannel& ch, std::uint64_t body = 0)
    {
        std::byte image[inline_limit];
        PacketWriter packet(image + sizeof image);
        packet.control(Type::eager, 0, 8, ch.next_seq);
        packet.put64(body);
        const vcq::Post post = rings->out.put(ch, packet, nullptr);
        ch.next_seq += post == vcq::Post::done;
        return post;
    }
    /// The control word that the peer finds in slot `n` of a ring of its own.
    Control found(unsigned ring, unsigned n)
    {
        return get<Control>(geometry.ring(ring) + (n % ring_slots + 1) * slot_size - sizeof(Control));
    }
    void answer(TxChannel& ch, std::uint32_t consumed, LeaseStatus status)
    {
        area().consumed(ch.number).store(consumed);
        area().status(ch.number).store(std::uint64_t{ch.serial} << 32 | static_cast<std::uint32_t>(status));
    }

    // --- we receive
    std::uint64_t slot_counter() { return std::atomic_ref(*area().slot_counter()).load(); }
    static constexpr unsigned none = ~0u;
    /// The slot that the next anonymous sender gets, or none.
    unsigned take_slot()
    {
        const std::uint64_t word = std::atomic_ref(*area().slot_counter()).fetch_add(slot_counter_step);
        EXPECT_TRUE(slot_counter_is_of(word, own_nonce));
        return slot_counter_next(word) < slot_counter_end(word) ? slot_counter_next(word) : none;
    }
    /// Of the peer that the test plays, which requests no ring.
    static Envelope envelope(utofu_vcq_id_t from = peer_home)
    {
        return {from, peer_nonce, own_nonce, wire_version, 0, peer_index, peer_index, no_credit_block, 9};
    }
    void come(unsigned slot, std::uint64_t body, const Envelope& who = envelope(), Type type = Type::eager)
    {
        ASSERT_LT(slot, anon_slot_count);
        alignas(8) std::byte image[slot_size];
        PacketWriter packet(image + slot_size);
        packet.control(type, 0, 8, anon_seq(slot_counter()));
        packet.put(who);
        packet.put64(body);
        std::memcpy(area().anon_slots() + (slot + 1) * slot_size - packet.size(), packet.data(), packet.size());
    }
    /// A peer sends an anonymous packet that requests a ring; the packet is taken. It names credit block `at`.
    void ask(std::uint64_t body, std::uint16_t at = 2, utofu_vcq_id_t from = peer_home)
    {
        Envelope who = envelope(from);
        who.credit_index = at;
        unsigned slot = take_slot();
        if (slot == none) {
            rings->in.anon_receiver.accept_all(); // the next run
            slot = take_slot();
        }
        come(slot, body, who);
        rings->in.anon_receiver.accept_all();
        poll();
    }
    void write(unsigned ring, std::uint32_t n, Type type, std::uint16_t length, const void* body = nullptr,
               std::size_t size = 0, std::uint8_t flags = 0)
    {
        const std::uint32_t seq = seq_base(own_nonce) + 1 + n;
        std::byte* const end = area().ring(ring) + (n % ring_slots + 1) * slot_size;
        if (size != 0)
            std::memcpy(end - sizeof(Control) - size, body, size);
        const Control control{type, flags, length, seq};
        std::memcpy(end - sizeof control, &control, sizeof control);
    }
    void say(unsigned ring, std::uint32_t n, std::uint64_t body) { write(ring, n, Type::eager, 8, &body, sizeof body); }
    void look()
    {
        above->in.poll<Above::In>();
        poll();
    }
    CreditBlock returned(unsigned at = 2) { return get<CreditBlock>(credit_offset(at)); }
    std::size_t count_rings() { return above->in.polls().size(); }

    Peer peer{};
    int status = 0;
    std::optional<Above> above;
    RingSet* rings = nullptr;
};

} // namespace tofu::proto
