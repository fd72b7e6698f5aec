// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Packets of those who have no ring (ring/visit, ring/visitors): the numbered cases of visitors.h, over a network inside
// the process. The test plays the peer.
#include <vector>

#include <gtest/gtest.h>

#include "prov/ring/rings_of_one.h"

namespace tofu::proto {
namespace {

struct VisitorsTest : RingsTest {
    // --- we send
    int approach(Channel& ch, bool may_visit = true, unsigned rounds = 8)
    {
        int ret = -FI_EAGAIN;
        for (unsigned i = 0; i < rounds && ret == -FI_EAGAIN; i++) {
            ret = rings->out.approach(ch, may_visit);
            poll();
        }
        return ret;
    }
    void visit(Channel& ch, std::uint64_t body)
    {
        alignas(8) std::byte image[slot_size];
        PacketWriter packet(image + slot_size - Outbound::envelope_size(ch));
        packet.control(Type::eager, 0, 8, Outbound::seq(ch));
        packet.put64(body);
        rings->out.seal(ch, image + slot_size - sizeof(Envelope));
        const std::size_t size = packet.size() + sizeof(Envelope);
        ASSERT_EQ(vcq.put(peer_home, reinterpret_cast<std::uintptr_t>(image + slot_size - size),
                          Outbound::slot_end(ch) - size, size, {.strong_order = true}),
                  vcq::Post::done);
        rings->out.sent(ch);
        poll();
    }
    Envelope left_at_peer(unsigned slot)
    {
        return get<Envelope>(visits_offset + (slot + 1) * slot_size - sizeof(Envelope));
    }
    std::uint32_t taken_at_peer() { return gate_next(get<std::uint64_t>(gate_offset)); }
    void take_all_rings()
    {
        for (unsigned i = 0; i < ring_count; i++)
            put(geometry.claim(i), std::uint64_t{4711});
    }

    // --- we receive
    std::uint64_t gate() { return std::atomic_ref(*area().gate()).load(); }
    /// The slot that the next visitor gets, or none.
    unsigned take_slot()
    {
        const std::uint64_t word = std::atomic_ref(*area().gate()).fetch_add(gate_step);
        EXPECT_TRUE(gate_is_of(word, own_nonce));
        return gate_next(word) < gate_end(word) ? gate_next(word) : none;
    }
    void come(unsigned slot, std::uint64_t body, utofu_vcq_id_t from = peer_home, Type type = Type::eager,
              Type envelope = Type::visit)
    {
        ASSERT_LT(slot, visit_slots);
        std::byte* const end = area().visits() + (slot + 1) * slot_size;
        const std::uint32_t seq = visit_seq(gate());
        const Envelope cover{from, hello(), {static_cast<std::uint8_t>(envelope), 0, 0, seq}};
        const Control control{static_cast<std::uint8_t>(type), 0, 8, seq};
        std::memcpy(end - sizeof cover - 16, &body, 8);
        std::memcpy(end - sizeof cover - 8, &control, 8);
        std::memcpy(end - sizeof cover, &cover, sizeof cover);
    }
    using Bodies = std::vector<std::uint64_t>;
    Bodies takes()
    {
        rings->in.take_visits();
        return std::exchange(above->taken, {});
    }
    static constexpr unsigned none = ~0u;
};

// --- who visits

TEST_F(VisitorsTest, APacketGoesWithoutARing)
{
    Channel& ch = *channel();
    ASSERT_EQ(approach(ch), 0);
    EXPECT_EQ(taken_at_peer(), 1u);
    visit(ch, 42);
    const Envelope envelope = left_at_peer(0);
    EXPECT_EQ(envelope.home, home.id());
    EXPECT_EQ(envelope.who.nonce, own_nonce);
    EXPECT_EQ(envelope.who.target_nonce, peer_nonce);
    EXPECT_EQ(envelope.who.index, own_index);
    EXPECT_EQ(envelope.control.seq, visit_seq(gate_word(peer_nonce, 0, 0)));
    EXPECT_EQ(get<std::uint64_t>(visits_offset + slot_size - sizeof envelope - 16), 42u);
    EXPECT_TRUE(rung(get<std::uint64_t>(doorbells_offset), Doorbell::visit));
    EXPECT_EQ(ch.state, ChannelState::idle);
    for (unsigned i = 0; i < ring_count; i++)
        EXPECT_EQ(claim_at_peer(i), 0u);
}

/// Not because of the first packets, nor where rings are rare.
TEST_F(VisitorsTest, WhoComesOftenTriesForARing)
{
    take_all_rings();
    Channel& ch = *channel();
    std::vector<unsigned> tries;
    for (unsigned n = 0; n < 40; n++) {
        put(gate_offset, gate_word(peer_nonce, 0, visit_slots));
        net().swaps = 0;
        ASSERT_EQ(approach(ch, true, 80), 0) << n;
        visit(ch, n);
        rings->port.now += 100;
        if (net().swaps != 0)
            tries.push_back(n);
    }
    ASSERT_GE(tries.size(), 2u);
    EXPECT_GE(tries.front(), 4u);
    EXPECT_LE(tries.size(), 6u);
    EXPECT_EQ(how_rung(get<std::uint64_t>(doorbells_offset), Doorbell::ring_wanted), wish);
    for (unsigned i = 0; i < ring_count; i++)
        put(geometry.claim(i), std::uint64_t{0});
    for (unsigned n = 0; n < 40 && ch.state != ChannelState::open; n++) {
        put(gate_offset, gate_word(peer_nonce, 0, visit_slots));
        ASSERT_EQ(approach(ch, true, 80), 0);
        rings->port.now += 100;
        if (ch.state != ChannelState::open)
            visit(ch, n);
    }
    EXPECT_EQ(ch.state, ChannelState::open);
}

/// Case 5: also when it was asked for before.
TEST_F(VisitorsTest, ASlotOfNoUseIsGivenBackEmpty)
{
    net().prompt = false;
    Channel& ch = *channel();
    EXPECT_EQ(rings->out.approach(ch, true), -FI_EAGAIN);
    EXPECT_TRUE(rings->out.asks()) << "closing waits for the answer";
    net().prompt = true;
    net().step_all(1);
    EXPECT_EQ(contact(ch), 0) << "and a ring";
    EXPECT_FALSE(rings->out.asks());
    EXPECT_EQ(left_at_peer(0).control.type, static_cast<std::uint8_t>(Type::none));
    EXPECT_EQ(left_at_peer(0).control.seq, visit_seq(gate_word(peer_nonce, 0, 0)));
    EXPECT_EQ(ch.visit.slot, 0u);

    put(0, header(peer_index + 1));
    Channel& other = *channel(peer_index + 1);
    ASSERT_EQ(approach(other), 0);
    rings->out.look_at_returns(2);
    EXPECT_NE(other.visit.slot, 0u) << "it may be wanted yet";
    net().busy_percent = 100;
    rings->out.look_at_returns(2);
    EXPECT_NE(other.visit.slot, 0u) << "the TNI has no room";
    net().busy_percent = 0;
    rings->out.look_at_returns(2);
    EXPECT_EQ(other.visit.slot, 0u);
    EXPECT_EQ(left_at_peer(1).control.seq, visit_seq(gate_word(peer_nonce, 0, 0)));
    ASSERT_EQ(approach(other), 0);
    rings->leave();
    EXPECT_EQ(left_at_peer(2).control.seq, visit_seq(gate_word(peer_nonce, 0, 0)));
}

/// Case 6.
TEST_F(VisitorsTest, AGateWithoutSlotsIsReadUntilItHasSome)
{
    take_all_rings();
    put(gate_offset, gate_word(peer_nonce, visit_slots, visit_slots));
    Channel& ch = *channel();
    EXPECT_EQ(approach(ch, true, 400), -FI_EAGAIN);
    EXPECT_EQ(taken_at_peer(), visit_slots + 1) << "beyond the end once";
    EXPECT_NE(net().swaps, 0u) << "a ring is tried for";
    EXPECT_EQ(how_rung(get<std::uint64_t>(doorbells_offset), Doorbell::ring_wanted), need);
    put(gate_offset, gate_word(peer_nonce, 1, 2));
    EXPECT_EQ(approach(ch, true, 400), 0);
    EXPECT_EQ(Outbound::slot_end(ch), ch.area + visits_offset + 2 * slot_size);
    EXPECT_EQ(taken_at_peer(), 2u);
}

/// Case 11.
TEST_F(VisitorsTest, ASlotOfAnotherProcessIsLeftEmptyAndTheHeaderSaysWhy)
{
    put(gate_offset, gate_word(peer_nonce + 1, 2, visit_slots));
    put(offsetof(AreaHeader, nonce), peer_nonce + 1);
    Channel& ch = *channel();
    EXPECT_EQ(approach(ch), -FI_EHOSTDOWN);
    EXPECT_EQ(left_at_peer(2).control.type, static_cast<std::uint8_t>(Type::none));
    EXPECT_EQ(left_at_peer(2).control.seq, visit_seq(gate_word(peer_nonce + 1, 0, 0)));

    AreaHeader old = header(peer_index + 1); // an area of version 5 has nothing there
    old.version = 5;
    put(0, old);
    put(gate_offset, std::uint64_t{0});
    const std::vector<unsigned char> before(net().memory.begin() + returns_offset, net().memory.end());
    EXPECT_EQ(approach(*channel(peer_index + 1)), -FI_ECONNREFUSED);
    EXPECT_TRUE(std::equal(before.begin(), before.end(), net().memory.begin() + returns_offset));
}

TEST_F(VisitorsTest, APeerThatIsNotEnabledYetIsWaitedFor)
{
    net().broken = Net::base + gate_offset;
    Channel& ch = *channel();
    EXPECT_EQ(approach(ch), 0) << "its header is there: a ring";
    EXPECT_EQ(ch.state, ChannelState::open);
    put(0, header(peer_index + 1));
    Channel& other = *channel(peer_index + 1);
    EXPECT_EQ(rings->out.approach(other, true), -FI_EAGAIN);
    net().broken = Net::base;
    EXPECT_EQ(approach(other), -FI_EAGAIN);
    rings->port.now += 20000;
    EXPECT_NE(approach(other), -FI_EAGAIN) << "not for ever";
}

/// What needs more than a slot waits for a ring; of two rings, or a ring and a slot, only one is used at a time.
TEST_F(VisitorsTest, NothingIsVisitedWhileARingIsGivenBack)
{
    Channel& ch = open_channel();
    answer(ch, ch.next_seq - 1, ReturnStatus::give_back);
    rings->out.look_at_returns(1);
    ASSERT_EQ(ch.state, ChannelState::leaving);
    EXPECT_EQ(approach(ch), -FI_EAGAIN);
    EXPECT_EQ(taken_at_peer(), 0u);
    put(geometry.claim(ch.contact.ring), std::uint64_t{0});
    answer(ch, ch.next_seq - 1, ReturnStatus::closed);
    EXPECT_EQ(approach(ch), 0);
    EXPECT_EQ(ch.state, ChannelState::idle);
    visit(ch, 1);
    EXPECT_TRUE(ch.visit.made);
    EXPECT_EQ(approach(ch, false), 0);
    EXPECT_EQ(ch.state, ChannelState::open);
}

TEST_F(VisitorsTest, ChannelsOfVisitsAreFreeForOtherPeersAtOnce)
{
    for (std::uint16_t i = 0; i < 4; i++) { // of two channels
        put(0, header(static_cast<std::uint16_t>(peer_index + i)));
        Channel* const ch = channel(static_cast<std::uint16_t>(peer_index + i));
        ASSERT_NE(ch, nullptr) << i;
        ASSERT_EQ(approach(*ch), 0);
        EXPECT_EQ(taken_at_peer(), i + 1u);
        visit(*ch, i);
    }
}

// --- who is visited

TEST_F(VisitorsTest, VisitsAreTakenInTheOrderOfTheirSlots)
{
    const unsigned first = take_slot(), second = take_slot(), third = take_slot();
    come(second, 2);
    EXPECT_EQ(takes(), Bodies{2});
    come(third, 3);
    come(first, 1);
    EXPECT_EQ(takes(), (Bodies{1, 3}));
    EXPECT_EQ(takes(), Bodies{}) << "once";
    come(take_slot(), 4, peer_home, Type::eager, Type::none);
    EXPECT_EQ(takes(), Bodies{}) << "it had no use for it";
}

/// Cases 2, 3 and 7: whatever becomes of one slot, the others go round, and what comes late is taken and harms nothing.
TEST_F(VisitorsTest, ASlotThatIsNotFilledIsSetAsideUntilItIs)
{
    const unsigned late = take_slot();
    std::uint64_t body = 100;
    for (unsigned n = 0; n < 50; n++) {
        const unsigned slot = take_slot();
        if (slot == none) { // the run is over
            (void)takes();
            continue;
        }
        ASSERT_NE(slot, late);
        come(slot, ++body);
        EXPECT_EQ(takes(), Bodies{body});
    }
    EXPECT_GT(body, 120u);
    come(late, 7);
    EXPECT_EQ(takes(), Bodies{7});
    bool again = false;
    for (unsigned n = 0; n < 12; n++) {
        const unsigned slot = take_slot();
        again |= slot == late;
        if (slot != none)
            come(slot, 1);
        (void)takes();
    }
    EXPECT_TRUE(again) << "it is one of all again";
}

/// Case 12.
TEST_F(VisitorsTest, AllSlotsOutOffersNoneAndRingsGoOn)
{
    for (unsigned n = 0; n < visit_slots; n++)
        EXPECT_NE(take_slot(), none);
    for (unsigned n = 0; n < 10; n++) {
        EXPECT_EQ(takes(), Bodies{});
        EXPECT_EQ(take_slot(), none);
    }
    claim(1);
    greet(1, hello());
    say(1, 1, 11);
    look();
    EXPECT_EQ(above->taken, Bodies{11});
    above->taken.clear();
    come(2, 22);
    EXPECT_EQ(takes(), Bodies{22});
    EXPECT_EQ(take_slot(), 2u) << "on offer again, and nothing else";
    EXPECT_EQ(take_slot(), none);
}

/// Case 9: with what comes behind it of its sender; others go on.
TEST_F(VisitorsTest, AVisitStaysWhereThereIsNoRoomForIt)
{
    above->unwanted = peer_home;
    come(take_slot(), 1);
    come(take_slot(), 2, peer_home + 1);
    come(take_slot(), 3);
    area().doorbells().store(~0ull);
    rings->catch_up();
    EXPECT_EQ(std::exchange(above->taken, {}), Bodies{2});
    EXPECT_TRUE(above->in.behind()) << "it is tried again";
    above->unwanted = 0;
    rings->catch_up();
    EXPECT_EQ(above->taken, (Bodies{1, 3}));
    EXPECT_FALSE(above->in.behind());
}

/// Case 10.
TEST_F(VisitorsTest, ARingBeginsBehindTheVisitsOfItsSender)
{
    above->unwanted = peer_home;
    come(take_slot(), 1);
    come(take_slot(), 2);
    claim(1);
    greet(1, hello());
    say(1, 1, 3);
    look();
    EXPECT_EQ(above->taken, Bodies{}) << "the HELLO waits for the visits";
    claim(2, peer_home + 1);
    Hello other = hello();
    other.return_index = 3;
    greet(2, other);
    say(2, 1, 9);
    look();
    EXPECT_EQ(std::exchange(above->taken, {}), Bodies{9}) << "that of another does not";
    above->unwanted = 0;
    look();
    EXPECT_EQ(above->taken, (Bodies{1, 2, 3}));
}

TEST_F(VisitorsTest, WhatCannotBeIsDropped)
{
    const auto bad = [&](auto&& change, Type type = Type::eager) {
        unsigned slot = take_slot();
        if (slot == none) {
            (void)takes();
            slot = take_slot();
        }
        come(slot, 1, peer_home, type);
        std::byte* const at = area().visits() + (slot + 1) * slot_size - sizeof(Envelope);
        Envelope envelope;
        std::memcpy(&envelope, at, sizeof envelope);
        change(envelope);
        std::memcpy(at, &envelope, sizeof envelope);
        EXPECT_EQ(takes(), Bodies{});
        EXPECT_FALSE(above->in.behind());
    };
    bad([](Envelope& e) { e.who.target_nonce++; });
    bad([](Envelope& e) { e.who.version++; });
    bad([](Envelope& e) { e.who.index = max_endpoints; });
    const auto nothing = [](Envelope&) {};
    for (const Type type : {Type::none, Type::hello, Type::long_eager, Type::bye, Type::fence, Type::visit})
        bad(nothing, type);
    const unsigned slot = take_slot(); // late, for an earlier process
    come(slot, 1);
    std::byte* const control = area().visits() + (slot + 1) * slot_size - 4;
    const std::uint32_t seq = visit_seq(gate());
    const std::uint32_t other = seq + 4096;
    std::memcpy(control, &other, sizeof other);
    EXPECT_EQ(takes(), Bodies{});
    come(slot, 5); // who has the slot comes as ever
    EXPECT_EQ(takes(), Bodies{5});
}

TEST(Gate, HandsOutInOrderAndNeverBeyondItsFields)
{
    const std::uint64_t nonce = 0xfedcba9876543210;
    std::uint64_t word = gate_word(nonce, max_visit_slots - 1, max_visit_slots);
    EXPECT_TRUE(gate_is_of(word, nonce));
    EXPECT_TRUE(gate_speaks(word));
    word += gate_step * ((1u << 24) - max_visit_slots); // 16 million that found none
    EXPECT_EQ(gate_next(word), (1u << 24) - 1);
    EXPECT_EQ(gate_end(word), max_visit_slots);
    EXPECT_TRUE(gate_is_of(word, nonce));
    EXPECT_EQ(visit_seq(word), seq_base(nonce) + 1) << "the first of a ring";
    EXPECT_FALSE(gate_speaks(0));
}

} // namespace
} // namespace tofu::proto
