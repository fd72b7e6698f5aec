// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The rings of one endpoint (msg/rx_ring) over a network inside the process: the test plays the peer, which reads and
// writes the two message areas, and the protocol above. A TNI that is full, peers that refuse, lie or die in the
// middle.
#include <vector>

#include <gtest/gtest.h>

#include "prov/msg/rings_of_one.h"

namespace tofu::proto {
namespace {

// --- rings that are granted

TEST_F(RingsTest, ASenderThatRequestedARingContinuesThere)
{
    TxChannel& ch = *channel();
    ask(ch);
    ch.confirmed_seq[1] = ch.next_seq; // nothing sent since
    grant(ch, 2);
    EXPECT_EQ(prepare_to_send(ch), 0);
    EXPECT_EQ(ch.state, ChannelState::open);
    EXPECT_EQ(ch.ring, ch.area + geometry.ring(2));
    EXPECT_EQ(ch.free_slots(), ring_slots);
    EXPECT_NE(ch.confirmed_seq[0], ch.next_seq) << "the anonymous packets have not been taken for sure";
    EXPECT_EQ(ch.confirmed_seq[1], ch.next_seq);
    ASSERT_EQ(send(ch), vcq::Post::done);
    EXPECT_EQ(found(2, 0).seq, seq_base(peer_nonce) + 1);
    EXPECT_EQ(rings->out.channels.recent(peer_index), &ch);
    EXPECT_EQ(rings->out.channels.recent(peer_index + 1), nullptr);
    rings->out.poll_credit_blocks(1);
    EXPECT_EQ(ch.free_slots(), ring_slots - 1) << "the grant that still stands there is no count";
}

TEST_F(RingsTest, AGrantThatCannotBeFailsTheChannel)
{
    for (const Grant wrong : {Grant{0, ring_slots}, Grant{5000, 17}, Grant{5000, 2 * max_ring_slots}, Grant{5000, 0},
                              Grant{Grant::further, ring_slots}}) // of an endpoint that has no further STag
        EXPECT_EQ(read_grant(wrong.word(), peer_index).slots, 0u);
    TxChannel& ch = *channel();
    ask(ch);
    answer(ch, 5, LeaseStatus::granted);
    EXPECT_EQ(prepare_to_send(ch), -FI_EIO);
    EXPECT_EQ(above->failures, std::vector<int>{FI_EIO});
}

/// Case L14.
TEST_F(RingsTest, AGrantWithoutAQuestionIsNone)
{
    TxChannel& ch = *channel();
    ASSERT_EQ(prepare_to_send(ch), 0);
    grant(ch, 0);
    rings->out.poll_credit_blocks(1);
    EXPECT_EQ(ch.state, ChannelState::idle);
    ask(ch);
    area().status(ch.number).store((std::uint64_t{ch.serial} - 1) << 32 |
                                   static_cast<std::uint32_t>(LeaseStatus::granted)); // to an earlier one
    rings->out.poll_credit_blocks(1);
    EXPECT_EQ(ch.state, ChannelState::idle);
}

// --- credits

TEST_F(RingsTest, ARingThatIsFullTakesNothingUntilThePeerReports)
{
    TxChannel& ch = open_channel();
    while (rings->out.room(ch, 1))
        ASSERT_EQ(send(ch), vcq::Post::done);
    EXPECT_EQ(ch.free_slots(), 0u);
    EXPECT_GE(ch.credit_stalls, 1u) << "the watch asks for a sign of life";
    const std::uint32_t sent = ch.next_seq - 1;
    answer(ch, sent + 1, LeaseStatus::open); // more than was sent
    EXPECT_FALSE(rings->out.room(ch, 1));
    answer(ch, sent - ring_slots - 1, LeaseStatus::open); // backwards
    EXPECT_FALSE(rings->out.room(ch, 1));
    area().status(ch.number).store((std::uint64_t{ch.serial} + 1) << 32); // of another claim
    area().consumed(ch.number).store(sent);
    EXPECT_FALSE(rings->out.room(ch, 1));
    answer(ch, sent - 3, LeaseStatus::open);
    EXPECT_TRUE(rings->out.room(ch, 13));
    EXPECT_FALSE(rings->out.room(ch, 14));
}

TEST_F(RingsTest, APacketThatIsRefusedForGoodFailsTheChannel)
{
    TxChannel& ch = open_channel();
    std::byte image[inline_limit];
    PacketWriter packet(image + sizeof image);
    packet.control(Type::eager, 0, 0, ch.next_seq);
    vcq::CompletionHandler waiter{};
    rings->out.defer(ch, packet, &waiter);
    ch.next_seq++;
    net().refused = ch.slot(ch.deferred.seq) + slot_size - packet.size();
    EXPECT_FALSE(rings->out.flush(ch));
    EXPECT_EQ(ch.state, ChannelState::failed);
    EXPECT_EQ(above->lost, &waiter) << "its packet will never leave";
    EXPECT_FALSE(rings->out.deferred());
    EXPECT_EQ(ch.refusal(), -ch.err);
}

// --- the end: which peers may still write ("Writes that outlive their endpoint" in docs/wire-protocol.md)

TEST_F(RingsTest, WithoutPeersAnEndpointIsSettled)
{
    EXPECT_TRUE(rings->stop_writers());
    rings->release_all();
    EXPECT_TRUE(rings->close_area());
}

TEST_F(RingsTest, ARingAtAPeerIsReleasedAndItsLastReportAwaited)
{
    TxChannel& ch = open_channel();
    EXPECT_FALSE(rings->stop_writers());
    EXPECT_EQ(ch.state, ChannelState::releasing);
    EXPECT_EQ(found(0, 0).type, Type::release);
    poll();
    EXPECT_FALSE(rings->stop_writers());
    answer(ch, ch.next_seq - 1, LeaseStatus::closed);
    EXPECT_TRUE(rings->stop_writers());
}

TEST_F(RingsTest, AQuestionForARingIsSettledByItsAnswer)
{
    TxChannel& ch = *channel();
    ask(ch);
    EXPECT_FALSE(rings->stop_writers());
    answer(ch, 0, LeaseStatus::denied);
    EXPECT_TRUE(rings->stop_writers());
}

TEST_F(RingsTest, ARequestThatWaitsForItsPeerIsNotSettled)
{
    put(0, header());
    TxChannel& ch = *channel();
    ASSERT_EQ(prepare_to_send(ch), 0);
    send_anonymously(ch, 1);
    ch.outstanding++;
    EXPECT_FALSE(rings->stop_writers());
    ch.outstanding--;
    EXPECT_TRUE(rings->stop_writers());
}

TEST_F(RingsTest, APeerThatIsGoneIsSettled)
{
    TxChannel& ch = open_channel();
    ch.outstanding++;
    put(0, AreaHeader{area_magic, wire_version, peer_index, 0, peer_nonce + 1});
    EXPECT_FALSE(rings->stop_writers());
    poll(); // the probe shows another nonce; the protocol above ends its requests
    ch.outstanding--;
    EXPECT_TRUE(rings->stop_writers());
    EXPECT_EQ(ch.err, FI_EHOSTDOWN);
}

TEST_F(RingsTest, ARingOfOursIsRevokedAndSettledByItsRelease)
{
    ask(1);
    ASSERT_EQ(count_rings(), 1u);
    EXPECT_FALSE(rings->stop_writers());
    poll();
    EXPECT_EQ(returned().status, LeaseStatus::revoked);
    ask(2, 5, peer_home + 1);
    EXPECT_EQ(returned(5).status, LeaseStatus::denied) << "no ring is granted any more";
    EXPECT_FALSE(rings->stop_writers());
    say(0, 0, 7);
    write(0, 1, Type::release, static_cast<std::uint16_t>(Release::of_ring));
    look();
    EXPECT_EQ(returned().status, LeaseStatus::closed);
    EXPECT_TRUE(rings->stop_writers());
}

TEST_F(RingsTest, AnUnfilledSlotIsNotSettled)
{
    const unsigned first = take_slot();
    EXPECT_TRUE(rings->stop_writers());
    rings->release_all();
    vcq.drain();
    (void)take_slot(); // before the area is hidden, behind the last look
    come(first, 11);
    EXPECT_FALSE(rings->close_area());
}

// --- ring leases and death, of receivers

TEST_F(RingsTest, ARingThatIsAskedBackIsLeft)
{
    TxChannel& ch = open_channel();
    ASSERT_EQ(send(ch), vcq::Post::done);
    const std::uint16_t serial = ch.serial;
    answer(ch, ch.next_seq - 1, LeaseStatus::revoked);
    rings->out.poll_credit_blocks(1);
    EXPECT_EQ(ch.state, ChannelState::releasing);
    EXPECT_EQ(found(0, 1).type, Type::release);
    EXPECT_EQ(found(0, 1).length, static_cast<std::uint16_t>(Release::of_ring));
    EXPECT_EQ(prepare_to_send(ch), -FI_EAGAIN) << "never a slot and a ring of one peer";
    answer(ch, ch.next_seq - 1, LeaseStatus::closed);
    EXPECT_EQ(prepare_to_send(ch), 0);
    EXPECT_EQ(ch.state, ChannelState::idle);
    EXPECT_EQ(ch.confirmed_seq[0], ch.next_seq) << "all has been taken";
    EXPECT_NE(ch.confirmed_seq[1], ch.next_seq);
    ask(ch);
    EXPECT_EQ(ch.serial, serial + 1);
}

TEST_F(RingsTest, AReleaseThatIsRefusedForGoodFailsTheChannel)
{
    TxChannel& ch = open_channel();
    answer(ch, ch.next_seq - 1, LeaseStatus::revoked);
    net().refused_from = net().posts + 1;
    rings->out.poll_credit_blocks(1);
    net().refused_from = 0;
    EXPECT_EQ(ch.state, ChannelState::failed);
    EXPECT_EQ(above->failures, std::vector<int>{FI_EINVAL});
}

/// Case L6: the wish is seen before the grant.
TEST_F(RingsTest, ARingThatIsAskedBackBeforeItWasUsedIsLeft)
{
    TxChannel& ch = *channel();
    ask(ch);
    grant(ch, 3, LeaseStatus::revoked);
    rings->out.poll_credit_blocks(1);
    EXPECT_EQ(ch.state, ChannelState::releasing);
    EXPECT_EQ(found(3, 0).type, Type::release);
}

/// Case L11.
TEST_F(RingsTest, ChannelsAreSharedByMorePeersThanThereAre)
{
    TxChannel& first = open_channel();
    TxChannel& second = open_channel(peer_index + 1, 1);
    second.outstanding++; // something waits for its peer
    EXPECT_EQ(channel(peer_index + 2), nullptr);
    EXPECT_EQ(status, -FI_EAGAIN);
    EXPECT_EQ(first.state, ChannelState::releasing) << "the one that is idle is given up";
    EXPECT_EQ(second.state, ChannelState::open);
    answer(first, first.next_seq - 1, LeaseStatus::closed);
    ASSERT_EQ(channel(peer_index + 2), &first);
    EXPECT_EQ(first.peer.index, peer_index + 2);
    ask(first);
    EXPECT_EQ(channel(peer_index + 3), nullptr) << "an answer is to come, into its credit block";
    answer(first, 0, LeaseStatus::denied);
    EXPECT_EQ(channel(peer_index + 3), &first);
}

TEST_F(RingsTest, APeerThatDiesInTheMiddleFailsWhatWaitsForIt)
{
    TxChannel& ch = open_channel();
    ASSERT_EQ(send(ch), vcq::Post::done);
    rings->out.watch(64);
    poll();
    EXPECT_EQ(ch.state, ChannelState::open) << "nothing waits";
    ch.outstanding++;
    rings->out.watch(64);
    poll();
    EXPECT_EQ(ch.state, ChannelState::open) << "it lives";
    put(offsetof(AreaHeader, nonce), peer_nonce + 1); // another process has its VCQ ID
    rings->out.watch(64);
    poll();
    EXPECT_EQ(above->failures, std::vector<int>{FI_EHOSTDOWN});
}

TEST_F(RingsTest, APeerThatDiesBeforeItsAnswerFailsTheChannel)
{
    TxChannel& ch = *channel();
    ask(ch);
    put(offsetof(AreaHeader, nonce), peer_nonce + 1);
    rings->out.watch(64);
    poll();
    EXPECT_EQ(ch.state, ChannelState::failed);
    EXPECT_NE(channel(peer_index + 1), nullptr);
    EXPECT_EQ(channel(peer_index + 2), &ch) << "no peer writes to its credit block any more";
}

// --- what we receive

TEST_F(RingsTest, ARequestForARingIsGranted)
{
    ask(1);
    EXPECT_EQ(above->taken, std::vector<std::uint64_t>{1}) << "the packet itself is one as any other";
    EXPECT_EQ(count_rings(), 1u);
    EXPECT_EQ(returned().status, LeaseStatus::granted);
    EXPECT_EQ(returned().check, 9u);
    const Grant grant = read_grant(returned().consumed, own_index);
    EXPECT_EQ(grant.first * slot_size, geometry.ring(0));
    EXPECT_EQ(grant.slots, ring_slots);
    EXPECT_TRUE(rung(get<std::uint64_t>(doorbells_offset), Doorbell::status));
    for (std::uint16_t n = 1; n < ring_count; n++)
        ask(1, static_cast<std::uint16_t>(2 + n), peer_home + n);
    EXPECT_EQ(count_rings(), ring_count);
    ask(1, 10, peer_home + 10);
    EXPECT_EQ(returned(10).status, LeaseStatus::denied);
    EXPECT_EQ(returned(10).check, 9u);
}

/// 1 MiB of rings is registered at first, the rest when these are taken.
TEST_F(RingsTest, RingsAreRegisteredWhenTheyAreNeeded)
{
    constexpr Geometry large{6, max_ring_slots / 2, anon_slot_count};
    constexpr unsigned index = growing_endpoints - 1;
    for (const bool refused : {false, true}) {
        above.emplace(
            LocalEndpoint{vcq, target_vcq, lock, own_nonce, index, make_address(target_vcq.id(), own_nonce, index)});
        rings = &above->rings;
        net().refused_stag = refused ? further_stag(index) : ~0u;
        net().registered.clear();
        ASSERT_EQ(rings->open(large.ring_count, large.ring_slots, anon_slot_count), 0);
        const std::uint16_t at = refused ? 10 : 20; // blocks that the other one has not written
        ask(1, at);
        ask(1, at + 1, peer_home + 1);
        ASSERT_EQ(net().registered.size(), 1u);
        EXPECT_EQ(net().registered[0].second, large.ring(2));
        EXPECT_FALSE(read_grant(returned(at + 1).consumed, index).is_further());
        ask(1, at + 2, peer_home + 2);
        EXPECT_EQ(returned(at + 2).status, refused ? LeaseStatus::denied : LeaseStatus::granted);
        EXPECT_EQ(area().open_rings(), refused ? 2u : 6u);
        if (!refused) {
            ASSERT_EQ(net().registered.size(), 2u);
            EXPECT_EQ(static_cast<std::byte*>(net().registered[1].first), area().ring(2));
            EXPECT_EQ(net().registered[1].second, large.size() - large.ring(2));
            EXPECT_TRUE(read_grant(returned(at + 2).consumed, index).is_further());
        }
        rings->release_all();
        ASSERT_TRUE(vcq.quiesce());
        (void)rings->close_area();
    }
}

/// Cases L10 and A9: one answer, whatever becomes of the packet.
TEST_F(RingsTest, AnAnswerThatFindsNoRoomIsGivenLaterAndOnce)
{
    for (std::uint16_t n = 0; n < ring_count; n++)
        ask(1, static_cast<std::uint16_t>(2 + n), peer_home + n);
    above->taken.clear();
    net().busy_percent = 100;
    ask(7, 10, peer_home + 10);
    EXPECT_TRUE(above->taken.empty()) << "the anonymous packet stays: its sender has to be notified";
    EXPECT_TRUE(above->in.behind());
    above->unwanted = peer_home + 10;
    net().busy_percent = 0;
    rings->catch_up();
    EXPECT_EQ(returned(10).status, LeaseStatus::denied);
    put(credit_offset(10), CreditBlock{});
    above->unwanted = 0;
    rings->catch_up();
    EXPECT_EQ(above->taken, std::vector<std::uint64_t>{7});
    EXPECT_EQ(returned(10).check, 0u) << "not again";
}

TEST_F(RingsTest, AGrantThatFindsNoRoomIsMadeUpFor)
{
    net().busy_percent = 100;
    ask(1);
    EXPECT_EQ(returned().check, 0u);
    EXPECT_TRUE(above->in.behind());
    net().busy_percent = 0;
    rings->catch_up();
    EXPECT_EQ(returned().status, LeaseStatus::granted);
}

/// Case L15: its endpoint was closed, and opened again.
TEST_F(RingsTest, ASenderThatRequestsAgainHasNoRingAnyMore)
{
    ask(1);
    say(0, 0, 2);
    ask(3);
    EXPECT_EQ(count_rings(), 2u);
    look();
    EXPECT_EQ(above->taken, (std::vector<std::uint64_t>{1, 3, 2})) << "what was sent is taken";
    rings->in.close_dead();
    EXPECT_EQ(count_rings(), 1u);
    say(1, 0, 4);
    look();
    EXPECT_EQ(above->taken.back(), 4u);
}

TEST_F(RingsTest, PacketsComeInTheirOrderAndSlotsGoBack)
{
    ask(99);
    for (std::uint32_t n = 0; n < 4; n++)
        say(0, n, 101 + n);
    look();
    EXPECT_EQ(above->taken, (std::vector<std::uint64_t>{99, 101, 102, 103, 104}));
    ASSERT_NE(above->last, nullptr);
    EXPECT_EQ(above->last->key, peer_key(peer_home, peer_nonce, peer_index));
    EXPECT_EQ(returned().check, 9u);
    EXPECT_EQ(returned().status, LeaseStatus::open);
    EXPECT_EQ(returned().consumed, seq_base(own_nonce) + 4) << "a quarter of the ring";
    say(0, 5, 106); // the one before is not there yet
    look();
    say(0, 4 + ring_slots, 222); // the right slot, the wrong time
    look();
    EXPECT_EQ(above->taken.size(), 5u);
    say(0, 4, 105);
    look();
    EXPECT_EQ(above->taken.back(), 106u);
}

TEST_F(RingsTest, APacketStaysWhereThereIsNoRoomForIt)
{
    ask(9);
    above->taken.clear();
    say(0, 0, 1);
    say(0, 1, 2);
    above->room = 1;
    look();
    look();
    EXPECT_EQ(above->taken, std::vector<std::uint64_t>{1});
    above->room = 1;
    look();
    EXPECT_EQ(above->taken, (std::vector<std::uint64_t>{1, 2}));
}

TEST_F(RingsTest, AReportThatFindsNoRoomIsMadeUpFor)
{
    ask(9);
    for (std::uint32_t n = 0; n < 4; n++)
        say(0, n, n);
    net().busy_percent = 100;
    look();
    EXPECT_EQ(above->taken.size(), 5u);
    EXPECT_EQ(returned().status, LeaseStatus::granted);
    EXPECT_TRUE(above->in.behind());
    net().busy_percent = 0;
    rings->catch_up();
    EXPECT_EQ(returned().consumed, seq_base(own_nonce) + 4);
    EXPECT_FALSE(above->in.behind());
}

TEST_F(RingsTest, AByeFreesTheRingAndIsAnswered)
{
    ask(9);
    say(0, 0, 1);
    write(0, 1, Type::release, static_cast<std::uint16_t>(Release::of_ring));
    net().busy_percent = 100;
    look();
    EXPECT_EQ(count_rings(), 1u) << "there was no room for the answer: the release stays";
    net().busy_percent = 0;
    above->last->users++; // a message of it is still kept
    look();
    EXPECT_EQ(count_rings(), 0u);
    EXPECT_EQ(returned().status, LeaseStatus::closed);
    EXPECT_EQ(above->last->known.target_vcq, peer_home) << "the sender is known as long as there are messages";
    above->last->unref();
    ask(8, 3, peer_home + 1);
    above->taken.clear();
    look();
    EXPECT_TRUE(above->taken.empty()) << "no packet of the last owner is there any more";
    say(0, 0, 5);
    look();
    EXPECT_EQ(above->taken, std::vector<std::uint64_t>{5});
}

TEST_F(RingsTest, WhatCannotBeIsDroppedAndNothingElse)
{
    say(0, 0, 1); // a ring without an owner
    look();
    EXPECT_TRUE(above->taken.empty());
    ask(9);
    above->taken.clear();
    write(0, 0, Type::release, static_cast<std::uint16_t>(Release::of_ring), nullptr, 0, 1); // a flag that it has not
    write(0, 1, Type::release, 7);
    say(0, 2, 42);
    look();
    EXPECT_EQ(above->taken, std::vector<std::uint64_t>{42});
    EXPECT_EQ(count_rings(), 1u);
}

TEST_F(RingsTest, WhatADeadSenderHadSentIsTakenBeforeItsRingIsFree)
{
    ask(9);
    above->taken.clear();
    net().broken = Net::base; // its area is gone
    say(0, 0, 1);
    rings->in.peer_failed(peer_home);
    poll();
    rings->in.close_dead();
    EXPECT_EQ(count_rings(), 1u) << "there is a packet still";
    look();
    rings->in.close_dead();
    EXPECT_EQ(above->taken, std::vector<std::uint64_t>{1});
    EXPECT_EQ(count_rings(), 0u);
}

TEST_F(RingsTest, APostThatFailedMakesTheSenderOfARingBeProbed)
{
    ask(9);
    ASSERT_EQ(count_rings(), 1u);
    net().broken = Net::base; // its area is gone
    rings->peer_failed(peer_home);
    poll();
    rings->in.close_dead();
    EXPECT_EQ(count_rings(), 0u);
}

/// Cases L2 and L6; a ring that was never used, too.
TEST_F(RingsTest, IdleSendersAreAskedForTheirRings)
{
    for (std::uint16_t n = 0; n < ring_count; n++)
        ask(1, static_cast<std::uint16_t>(2 + n), peer_home + n);
    rings->in.revoke_some();
    const auto asked = [&] {
        unsigned count = 0;
        for (unsigned n = 0; n < ring_count; n++)
            count += returned(2 + n).status == LeaseStatus::revoked;
        return count;
    };
    for (unsigned look = 0; look < 4; look++)
        rings->in.revoke_some();
    EXPECT_EQ(asked(), 0u) << "there was one for each sender";
    ask(1, 10, peer_home + 10);
    rings->in.revoke_some(); // this look finds that all have sent since
    EXPECT_EQ(asked(), 0u);
    say(1, 0, 1);
    look();
    ask(1, 10, peer_home + 10);
    rings->in.revoke_some();
    EXPECT_EQ(asked(), ring_count - 1);
    EXPECT_EQ(returned(3).status, LeaseStatus::granted) << "a sender that has sent keeps it";
    EXPECT_NE(read_grant(returned(2).consumed, own_index).slots, 0u) << "and its location, perhaps unread";
    EXPECT_TRUE(rung(get<std::uint64_t>(doorbells_offset), Doorbell::status));
}

/// The post that has failed may have been one to an earlier process with this VCQ ID.
TEST_F(RingsTest, APostThatFailedMakesThePeerBeProbed)
{
    TxChannel& ch = open_channel();
    put(0, header());
    rings->peer_failed(peer_home + 1);
    EXPECT_FALSE(ch.life.under_way || ch.credit_stalls != 0) << "of another peer";
    rings->peer_failed(peer_home);
    poll();
    EXPECT_EQ(ch.state, ChannelState::open) << "it lives";
    put(0, AreaHeader{area_magic, wire_version, peer_index, 0, peer_nonce + 1});
    net().busy_percent = 100;
    rings->peer_failed(peer_home);
    net().busy_percent = 0;
    poll();
    EXPECT_EQ(ch.state, ChannelState::open) << "there was no room for the probe";
    rings->out.watch(1);
    poll();
    EXPECT_EQ(ch.state, ChannelState::failed);
    EXPECT_EQ(above->failures, std::vector<int>{FI_EHOSTDOWN});
}

/// Behind release_all() nothing that comes changes anything.
TEST_F(RingsTest, LeavesWithAByeToAll)
{
    TxChannel& ch = open_channel();
    rings->release_all();
    EXPECT_EQ(found(0, 0).type, Type::release);
    EXPECT_EQ(found(0, 0).length, static_cast<std::uint16_t>(Release::for_good));
    EXPECT_EQ(rings->out.prepare_to_send(ch), -FI_ESHUTDOWN);
    rings->peer_failed(peer_home);
    poll();
    EXPECT_TRUE(above->failures.empty());
}

} // namespace
} // namespace tofu::proto
