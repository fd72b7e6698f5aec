// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Packets of senders without a ring (TxRings, AnonSlots): cases A1 to A13 of docs/wire-protocol.md, over a network
// inside the process. The test plays the peer.
#include <vector>

#include <gtest/gtest.h>

#include "prov/msg/rings_of_one.h"

namespace tofu::proto {
namespace {

struct AnonSlotsTest : RingsTest {
    Envelope left_at_peer(unsigned slot)
    {
        return get<Envelope>(anon_slots_offset + (slot + 1) * slot_size - sizeof(Control) - sizeof(Envelope));
    }
    Control control_at_peer(unsigned slot)
    {
        return get<Control>(anon_slots_offset + (slot + 1) * slot_size - sizeof(Control));
    }
    std::uint32_t taken_at_peer() { return slot_counter_next(get<std::uint64_t>(slot_counter_offset)); }
    using Bodies = std::vector<std::uint64_t>;
    Bodies takes()
    {
        rings->in.anon_receiver.accept_all();
        return std::exchange(above->taken, {});
    }
};

// --- a sender without a ring

TEST_F(AnonSlotsTest, APacketGoesWithoutARing)
{
    TxChannel& ch = *channel();
    ASSERT_EQ(prepare_to_send(ch), 0);
    EXPECT_EQ(taken_at_peer(), 1u);
    send_anonymously(ch, 42);
    const Envelope envelope = left_at_peer(0);
    EXPECT_EQ(envelope.target_vcq, target_vcq.id());
    EXPECT_EQ(envelope.nonce, own_nonce);
    EXPECT_EQ(envelope.target_nonce, peer_nonce);
    EXPECT_EQ(envelope.index, own_index);
    EXPECT_EQ(known_address(envelope).index, own_index);
    EXPECT_EQ(envelope.credit_index, no_credit_block) << "nothing is asked for";
    EXPECT_EQ(control_at_peer(0).seq, anon_seq(slot_counter_word(peer_nonce, 0, 0)));
    EXPECT_EQ(get<std::uint64_t>(anon_slots_offset + slot_size - sizeof(Control) - sizeof envelope - 8), 42u);
    EXPECT_TRUE(rung(get<std::uint64_t>(doorbells_offset), Doorbell::anonymous));
    EXPECT_EQ(ch.state, ChannelState::idle);
}

TEST_F(AnonSlotsTest, UnfilledSlotsAreCounted)
{
    StatisticsBook book;
    book.add(vcq.statistics());
    EXPECT_NE(take_slot(), none); // and dies
    come(take_slot(), 1);
    EXPECT_EQ(takes(), Bodies{1});
    EXPECT_EQ(book.sums()[static_cast<std::size_t>(Stat::anonymous_lost)], 0u);
    rings->release_all();
    vcq.drain();
    EXPECT_FALSE(rings->close_area());
    EXPECT_EQ(book.sums()[static_cast<std::size_t>(Stat::anonymous_lost)], 1u);
    book.remove(vcq.statistics());
}

/// Case 13: not with the first packets, once, and later in growing intervals where there is none.
TEST_F(AnonSlotsTest, AFrequentSenderRequestsARing)
{
    TxChannel& ch = *channel();
    std::vector<unsigned> asked;
    for (unsigned n = 0; n < 300; n++) {
        put(slot_counter_offset, slot_counter_word(peer_nonce, 0, anon_slot_count));
        ASSERT_EQ(prepare_to_send(ch), 0) << n;
        send_anonymously(ch, n);
        if (left_at_peer(0).credit_index == no_credit_block)
            continue;
        EXPECT_EQ(left_at_peer(0).credit_index, ch.number);
        EXPECT_EQ(left_at_peer(0).serial, ch.serial);
        asked.push_back(n);
        answer(ch, 0, LeaseStatus::denied);
    }
    EXPECT_EQ(asked, (std::vector<unsigned>{4, 13, 30, 63, 128, 193, 258}));
    ask(ch);
    for (unsigned n = 0; n < 64; n++) {
        put(slot_counter_offset, slot_counter_word(peer_nonce, 0, anon_slot_count));
        ASSERT_EQ(prepare_to_send(ch), 0) << "it goes on without a ring";
        send_anonymously(ch, n);
        EXPECT_EQ(left_at_peer(0).credit_index, no_credit_block) << "once";
    }
    EXPECT_EQ(prepare_to_send(ch), -FI_EAGAIN) << "the peer takes nothing";
    EXPECT_NE(ch.credit_stalls, 0u) << "the watch asks for a sign of life";
    grant(ch, 1);
    EXPECT_EQ(prepare_to_send(ch), 0);
    EXPECT_EQ(ch.state, ChannelState::open);
}

/// Case 5: also when it was asked for before.
TEST_F(AnonSlotsTest, ASlotOfNoUseIsGivenBackEmpty)
{
    TxChannel& ch = *channel();
    ask(ch);
    put(slot_counter_offset, slot_counter_word(peer_nonce, 3, anon_slot_count));
    net().prompt = false;
    EXPECT_EQ(rings->out.prepare_to_send(ch), -FI_EAGAIN);
    EXPECT_TRUE(rings->out.awaits_anon_slot()) << "closing waits for the answer";
    grant(ch, 1);
    EXPECT_EQ(rings->out.prepare_to_send(ch), 0) << "a ring";
    net().prompt = true;
    net().step_all(1);
    poll();
    EXPECT_FALSE(rings->out.awaits_anon_slot());
    EXPECT_EQ(control_at_peer(3).type, Type::none);
    EXPECT_EQ(control_at_peer(3).seq, anon_seq(slot_counter_word(peer_nonce, 0, 0)));
    EXPECT_EQ(ch.anonymous.slot, 0u);

    put(slot_counter_offset, slot_counter_word(peer_nonce, 1, anon_slot_count));
    put(0, header(peer_index + 1));
    TxChannel& other = *channel(peer_index + 1);
    ASSERT_EQ(prepare_to_send(other), 0);
    rings->out.poll_credit_blocks(2);
    EXPECT_NE(other.anonymous.slot, 0u) << "it may be wanted yet";
    net().busy_percent = 100;
    rings->out.poll_credit_blocks(2);
    EXPECT_NE(other.anonymous.slot, 0u) << "the TNI has no room";
    net().busy_percent = 0;
    rings->out.poll_credit_blocks(2);
    EXPECT_EQ(other.anonymous.slot, 0u);
    EXPECT_EQ(control_at_peer(1).seq, anon_seq(slot_counter_word(peer_nonce, 0, 0)));
    ASSERT_EQ(prepare_to_send(other), 0);
    rings->release_all();
    EXPECT_EQ(control_at_peer(2).seq, anon_seq(slot_counter_word(peer_nonce, 0, 0)));
}

/// Case 6.
TEST_F(AnonSlotsTest, ASlotCounterWithoutSlotsIsReadUntilItHasSome)
{
    put(slot_counter_offset, slot_counter_word(peer_nonce, anon_slot_count, anon_slot_count));
    TxChannel& ch = *channel();
    EXPECT_EQ(prepare_to_send(ch, 400), -FI_EAGAIN);
    EXPECT_EQ(taken_at_peer(), anon_slot_count + 1) << "beyond the end once";
    put(slot_counter_offset, slot_counter_word(peer_nonce, 1, 2));
    EXPECT_EQ(prepare_to_send(ch, 400), 0);
    EXPECT_EQ(ch.slot_end(), ch.area + anon_slots_offset + 2 * slot_size);
    EXPECT_EQ(taken_at_peer(), 2u);
}

/// Case 11.
TEST_F(AnonSlotsTest, ASlotOfAnotherProcessIsLeftEmptyAndTheHeaderSaysWhy)
{
    put(slot_counter_offset, slot_counter_word(peer_nonce + 1, 2, anon_slot_count));
    put(offsetof(AreaHeader, nonce), peer_nonce + 1);
    TxChannel& ch = *channel();
    EXPECT_EQ(prepare_to_send(ch), -FI_EHOSTDOWN);
    EXPECT_EQ(control_at_peer(2).type, Type::none);
    EXPECT_EQ(control_at_peer(2).seq, anon_seq(slot_counter_word(peer_nonce + 1, 0, 0)));

    AreaHeader old = header(peer_index + 1); // an area of version 5 has nothing there
    old.version = 5;
    put(0, old);
    put(slot_counter_offset, std::uint64_t{0});
    const std::vector<unsigned char> before(net().memory.begin() + credits_offset, net().memory.end());
    TxChannel& other = *channel(peer_index + 1);
    net().busy_percent = 50; // also where nothing can be asked at first
    EXPECT_EQ(prepare_to_send(other, 1000), -FI_ECONNREFUSED);
    EXPECT_EQ(prepare_to_send(other), -FI_ECONNREFUSED) << "for good";
    EXPECT_TRUE(std::equal(before.begin(), before.end(), net().memory.begin() + credits_offset));
    EXPECT_EQ(above->failures, (std::vector<int>{FI_EHOSTDOWN, FI_ECONNREFUSED})) << "each is notified once";
}

TEST_F(AnonSlotsTest, ASlotCounterThatCannotBeFailsTheChannel)
{
    put(slot_counter_offset, std::uint64_t{0});
    EXPECT_EQ(prepare_to_send(*channel()), -FI_EIO);
}

TEST_F(AnonSlotsTest, APeerThatIsNotEnabledYetIsWaitedFor)
{
    net().broken = Net::base + slot_counter_offset;
    TxChannel& ch = *channel();
    EXPECT_EQ(prepare_to_send(ch), -FI_EAGAIN);
    EXPECT_EQ(ch.state, ChannelState::backing_off);
    rings->own.now += 2;
    net().broken = 0;
    EXPECT_EQ(prepare_to_send(ch), 0);

    put(0, header(peer_index + 1));
    TxChannel& other = *channel(peer_index + 1);
    net().broken = Net::base + slot_counter_offset;
    EXPECT_EQ(prepare_to_send(other), -FI_EAGAIN);
    rings->own.now += 20000;
    EXPECT_EQ(prepare_to_send(other), -FI_EADDRNOTAVAIL) << "not for ever";
}

/// Of two rings, or a ring and a slot, only one is used at a time.
TEST_F(AnonSlotsTest, NothingIsSentAnonymouslyWhileARingIsGivenBack)
{
    TxChannel& ch = open_channel();
    answer(ch, ch.next_seq - 1, LeaseStatus::revoked);
    rings->out.poll_credit_blocks(1);
    ASSERT_EQ(ch.state, ChannelState::releasing);
    put(slot_counter_offset, slot_counter_word(peer_nonce, 0, anon_slot_count));
    EXPECT_EQ(prepare_to_send(ch), -FI_EAGAIN);
    EXPECT_EQ(taken_at_peer(), 0u);
    answer(ch, ch.next_seq - 1, LeaseStatus::closed);
    EXPECT_EQ(prepare_to_send(ch), 0);
    EXPECT_EQ(ch.state, ChannelState::idle);
    send_anonymously(ch, 1);
    EXPECT_EQ(taken_at_peer(), 1u);
}

TEST_F(AnonSlotsTest, ChannelsOfAnonymousPacketsAreFreeForOtherPeersAtOnce)
{
    for (std::uint16_t i = 0; i < 4; i++) { // of two channels
        put(0, header(static_cast<std::uint16_t>(peer_index + i)));
        TxChannel* const ch = channel(static_cast<std::uint16_t>(peer_index + i));
        ASSERT_NE(ch, nullptr) << i;
        ASSERT_EQ(prepare_to_send(*ch), 0);
        EXPECT_EQ(taken_at_peer(), i + 1u);
        send_anonymously(*ch, i);
    }
}

// --- the receiver of anonymous packets

TEST_F(AnonSlotsTest, AnonymousPacketsAreTakenInTheOrderOfTheirSlots)
{
    const unsigned first = take_slot(), second = take_slot(), third = take_slot();
    come(second, 2);
    EXPECT_EQ(takes(), Bodies{2});
    come(third, 3);
    come(first, 1);
    EXPECT_EQ(takes(), (Bodies{1, 3}));
    EXPECT_EQ(takes(), Bodies{}) << "once";
    come(take_slot(), 4, envelope(), Type::none);
    EXPECT_EQ(takes(), Bodies{}) << "it had no use for it";
}

/// Cases 2, 3 and 7: whatever becomes of one slot, the others go round, and what comes late is taken and harms nothing.
TEST_F(AnonSlotsTest, ASlotThatIsNotFilledIsSetAsideUntilItIs)
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
TEST_F(AnonSlotsTest, AllSlotsOutOffersNoneAndRingsGoOn)
{
    ask(1); // there is a ring
    EXPECT_EQ(std::exchange(above->taken, {}), Bodies{1});
    for (unsigned n = 0; n < 2 * anon_slot_count; n++)
        if (take_slot() == none)
            EXPECT_EQ(takes(), Bodies{});
    for (unsigned n = 0; n < 10; n++) {
        EXPECT_EQ(takes(), Bodies{});
        EXPECT_EQ(take_slot(), none);
    }
    say(0, 0, 11);
    look();
    EXPECT_EQ(above->taken, Bodies{11});
    above->taken.clear();
    come(2, 22);
    EXPECT_EQ(takes(), Bodies{22});
    EXPECT_EQ(take_slot(), 2u) << "on offer again, and nothing else";
    EXPECT_EQ(take_slot(), none);
}

/// Case 9: with what comes behind it of its sender; others go on.
TEST_F(AnonSlotsTest, AnAnonymousPacketStaysWhereThereIsNoRoomForIt)
{
    above->unwanted = peer_home;
    come(take_slot(), 1);
    come(take_slot(), 2, envelope(peer_home + 1));
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
TEST_F(AnonSlotsTest, ARingBeginsBehindTheAnonymousPacketsOfItsSender)
{
    ask(1);
    ask(8, 3, peer_home + 1);
    EXPECT_EQ(std::exchange(above->taken, {}), (Bodies{1, 8}));
    above->unwanted = peer_home;
    come(take_slot(), 2);
    say(0, 0, 3);
    look();
    EXPECT_EQ(above->taken, Bodies{}) << "the ring waits for the anonymous packets";
    say(1, 0, 9);
    look();
    EXPECT_EQ(std::exchange(above->taken, {}), Bodies{9}) << "that of another does not";
    above->unwanted = 0;
    look();
    EXPECT_EQ(above->taken, (Bodies{2, 3}));
}

TEST_F(AnonSlotsTest, WhatCannotBeIsDropped)
{
    const auto bad = [&](auto&& change, Type type = Type::eager) {
        unsigned slot = take_slot();
        if (slot == none) {
            (void)takes();
            slot = take_slot();
        }
        Envelope who = envelope();
        change(who);
        come(slot, 1, who, type);
        EXPECT_EQ(takes(), Bodies{});
        EXPECT_FALSE(above->in.behind());
        EXPECT_EQ(count_rings(), 0u);
    };
    bad([](Envelope& e) { e.target_nonce++; });
    bad([](Envelope& e) { e.version_flags++; });
    bad([](Envelope& e) { e.further = max_endpoints; });
    bad([](Envelope& e) { e.index = max_endpoints; });
    bad([](Envelope& e) { e.credit_index = credit_block_count; });
    const auto nothing = [](Envelope&) {};
    for (const Type type : {Type::none, Type::long_eager, Type::release, static_cast<Type>(1), static_cast<Type>(200)})
        bad(nothing, type);
    unsigned slot = take_slot(); // late, for an earlier process
    if (slot == none) {
        (void)takes();
        slot = take_slot();
    }
    come(slot, 1);
    std::byte* const control = area().anon_slots() + (slot + 1) * slot_size - 4;
    const std::uint32_t seq = anon_seq(slot_counter());
    const std::uint32_t other = seq + 4096;
    std::memcpy(control, &other, sizeof other);
    EXPECT_EQ(takes(), Bodies{});
    come(slot, 5); // the owner of the slot sends as before
    EXPECT_EQ(takes(), Bodies{5});
}

TEST(SlotCounter, HandsOutInOrderAndNeverBeyondItsFields)
{
    const std::uint64_t nonce = 0xfedcba9876543210;
    std::uint64_t word = slot_counter_word(nonce, max_anon_slots - 1, max_anon_slots);
    EXPECT_TRUE(slot_counter_is_of(word, nonce));
    EXPECT_TRUE(slot_counter_version_ok(word));
    word += slot_counter_step * ((1u << 24) - max_anon_slots); // 16 million that found none
    EXPECT_EQ(slot_counter_next(word), (1u << 24) - 1);
    EXPECT_EQ(slot_counter_end(word), max_anon_slots);
    EXPECT_TRUE(slot_counter_is_of(word, nonce));
    EXPECT_EQ(anon_seq(word), seq_base(nonce) + 1) << "the first of a ring";
    EXPECT_FALSE(slot_counter_version_ok(0));
}

} // namespace
} // namespace tofu::proto
