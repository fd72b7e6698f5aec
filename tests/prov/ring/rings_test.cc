// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The rings of one endpoint (ring/rings) over a network inside the process: the test plays the peer, which reads and
// writes the two message areas, and the protocol above. A TNI that is full, peers that refuse, lie or die in the middle.
#include <vector>

#include <gtest/gtest.h>

#include "memory/directory.h"
#include "prov/ring/rings_of_one.h"

namespace tofu::proto {
namespace {

// --- contact

TEST_F(RingsTest, ContactClaimsARingAndSaysHello)
{
    Channel& ch = open_channel();
    EXPECT_EQ(claim_at_peer(ch.contact.ring), home.id());
    const Control c = found(ch.contact.ring, 0);
    EXPECT_EQ(c.type, static_cast<std::uint8_t>(Type::hello));
    EXPECT_EQ(c.seq, seq_base(peer_nonce) + 1);
    EXPECT_TRUE(rung(get<std::uint64_t>(doorbells_offset), Doorbell::contact));
    EXPECT_EQ(claims, 0u) << "the HELLO has landed";
    EXPECT_EQ(ch.free_slots(), ring_slots - 1);
    EXPECT_EQ(rings->out.last(peer_index), &ch);
    EXPECT_EQ(rings->out.last(peer_index + 1), nullptr);
}

TEST_F(RingsTest, AHeaderThatCannotBeFailsTheChannel)
{
    AreaHeader wrong = header();
    wrong.version++;
    put(0, wrong);
    Channel* ch = channel();
    EXPECT_EQ(contact(*ch), -FI_ECONNREFUSED);
    EXPECT_EQ(contact(*ch), -FI_ECONNREFUSED) << "for good";
    wrong = header(peer_index + 1);
    wrong.ring_count = max_ring_count + 1;
    put(0, wrong);
    ch = channel(peer_index + 1);
    EXPECT_EQ(contact(*ch), -FI_EIO);
    EXPECT_EQ(above->failures, (std::vector<int>{FI_ECONNREFUSED, FI_EIO})) << "each is told once";
    EXPECT_EQ(claims, 0u);
}

TEST_F(RingsTest, AnotherProcessAtTheAddressIsNotTheOneMeant)
{
    put(offsetof(AreaHeader, nonce), peer_nonce + 1);
    Channel* ch = channel();
    EXPECT_EQ(contact(*ch), -FI_EHOSTDOWN);
    EXPECT_EQ(claim_at_peer(0) | claim_at_peer(1) | claim_at_peer(2) | claim_at_peer(3), 0u) << "nothing was written";
}

TEST_F(RingsTest, PeerWithoutAnAreaIsWaitedForAWhile)
{
    net().broken = Net::base;
    Channel* ch = channel();
    EXPECT_EQ(contact(*ch), -FI_EAGAIN);
    EXPECT_EQ(ch->state, ChannelState::pausing);
    rings->port.now += 2;
    net().broken = 0;
    EXPECT_EQ(contact(*ch), 0);

    Channel* other = channel(peer_index + 1);
    net().broken = Net::base;
    EXPECT_EQ(contact(*other), -FI_EAGAIN);
    rings->port.now += 20000;
    EXPECT_NE(contact(*other), -FI_EAGAIN) << "not for ever";
}

TEST_F(RingsTest, WithoutAFreeRingThePeerIsAskedForOne)
{
    for (unsigned i = 0; i < ring_count; i++)
        put(geometry.claim(i), std::uint64_t{4711});
    Channel* ch = channel();
    EXPECT_EQ(contact(*ch, 64), -FI_EAGAIN);
    EXPECT_EQ(ch->state, ChannelState::pausing);
    EXPECT_TRUE(rung(get<std::uint64_t>(doorbells_offset), Doorbell::ring_wanted));
    EXPECT_EQ(claims, 0u);
    put(geometry.claim(2), std::uint64_t{0});
    rings->port.now += 100;
    EXPECT_EQ(contact(*ch, 64), 0);
    EXPECT_EQ(ch->contact.ring, 2u);
}

TEST_F(RingsTest, AFullQueueOfTheTniHoldsTheHelloBack)
{
    net().prompt = false;
    Channel* ch = channel();
    (void)rings->out.contact(*ch); // the header is asked for
    net().step_all(1);
    poll();
    net().busy_percent = 100; // when the claim is answered nothing more leaves
    net().step_all(1);
    poll();
    EXPECT_EQ(ch->state, ChannelState::open);
    EXPECT_TRUE(rings->out.deferred());
    EXPECT_FALSE(rings->out.flush(*ch));
    EXPECT_EQ(claims, 1u) << "no peer takes the claim for one that nobody stands behind";
    net().busy_percent = 0;
    net().prompt = true;
    rings->catch_up();
    poll();
    EXPECT_FALSE(rings->out.deferred());
    EXPECT_EQ(found(ch->contact.ring, 0).type, static_cast<std::uint8_t>(Type::hello));
    EXPECT_EQ(claims, 0u);
}

/// Also that of a channel that has failed meanwhile: the HELLO may land yet.
TEST_F(RingsTest, AClaimIsCountedUntilItsHelloHasLanded)
{
    net().prompt = false;
    Channel* ch = channel();
    (void)rings->out.contact(*ch);
    for (unsigned i = 0; i < 2; i++) { // the header, the claim
        net().step_all(1);
        poll();
    }
    ASSERT_EQ(ch->state, ChannelState::open);
    rings->out.fail(*ch, FI_EHOSTDOWN, 0);
    EXPECT_EQ(claims, 1u);
    net().step_all(1);
    poll();
    EXPECT_EQ(claims, 0u);
}

// --- credits

TEST_F(RingsTest, ARingThatIsFullTakesNothingUntilThePeerReports)
{
    Channel& ch = open_channel();
    while (rings->out.room(ch, 1))
        ASSERT_EQ(send(ch), vcq::Post::done);
    EXPECT_EQ(ch.free_slots(), 0u);
    EXPECT_GE(ch.starved, 1u) << "the watch asks for a sign of life";
    const std::uint32_t sent = ch.next_seq - 1;
    answer(ch, sent + 1, ReturnStatus::open); // more than was sent
    EXPECT_FALSE(rings->out.room(ch, 1));
    answer(ch, sent - ring_slots - 1, ReturnStatus::open); // backwards
    EXPECT_FALSE(rings->out.room(ch, 1));
    area().status(ch.number).store((std::uint64_t{ch.serial} + 1) << 32); // of another claim
    area().consumed(ch.number).store(sent);
    EXPECT_FALSE(rings->out.room(ch, 1));
    answer(ch, sent - 3, ReturnStatus::open);
    EXPECT_TRUE(rings->out.room(ch, 13));
    EXPECT_FALSE(rings->out.room(ch, 14));
}

TEST_F(RingsTest, APacketThatIsRefusedForGoodFailsTheChannel)
{
    Channel& ch = open_channel();
    std::byte image[inline_limit];
    PacketWriter packet(image + sizeof image);
    packet.control(Type::eager, 0, 0, ch.next_seq);
    vcq::Waiter waiter{};
    rings->out.defer(ch, packet, &waiter);
    ch.next_seq++;
    net().refused = ch.slot(ch.deferred.seq) + slot_size - packet.size();
    EXPECT_FALSE(rings->out.flush(ch));
    EXPECT_EQ(ch.state, ChannelState::failed);
    EXPECT_EQ(above->lost, &waiter) << "its packet will never leave";
    EXPECT_FALSE(rings->out.deferred());
    EXPECT_EQ(Outbound::refusal(ch), -ch.err);
}

TEST_F(RingsTest, PeersRefuseByTheReturnBlock)
{
    Channel& ch = open_channel();
    answer(ch, 0, ReturnStatus::refused_version);
    rings->out.look_at_returns(1);
    EXPECT_EQ(ch.state, ChannelState::failed);
    EXPECT_EQ(above->failures, std::vector<int>{FI_ECONNREFUSED});
}

// --- turnover and death, of receivers

TEST_F(RingsTest, ARingThatIsAskedBackIsLeftAndWonAgain)
{
    Channel& ch = open_channel();
    ASSERT_EQ(send(ch), vcq::Post::done);
    ch.mark[0] = ch.next_seq; // nothing sent since
    const std::uint16_t serial = ch.serial;
    answer(ch, ch.next_seq - 1, ReturnStatus::give_back);
    rings->out.look_at_returns(1);
    EXPECT_EQ(ch.state, ChannelState::leaving);
    EXPECT_EQ(found(ch.contact.ring, 2).type, static_cast<std::uint8_t>(Type::bye));
    EXPECT_EQ(found(ch.contact.ring, 2).length, bye_for_now);
    EXPECT_EQ(contact(ch), -FI_EAGAIN) << "never two rings to one peer";
    put(geometry.claim(ch.contact.ring), std::uint64_t{0});
    answer(ch, ch.next_seq - 1, ReturnStatus::closed);
    EXPECT_EQ(contact(ch), 0);
    EXPECT_EQ(ch.serial, serial + 1);
    EXPECT_EQ(ch.mark[0], ch.next_seq);
    EXPECT_NE(ch.mark[1], ch.next_seq);
}

TEST_F(RingsTest, ChannelsAreSharedByMorePeersThanThereAre)
{
    Channel& first = open_channel();
    put(0, header(peer_index + 1));
    Channel* second = channel(peer_index + 1);
    EXPECT_EQ(contact(*second), 0);
    second->outstanding++; // something waits for its peer
    EXPECT_EQ(channel(peer_index + 2), nullptr);
    EXPECT_EQ(status, -FI_EAGAIN);
    EXPECT_EQ(first.state, ChannelState::leaving) << "the one that is idle is given up";
    EXPECT_EQ(second->state, ChannelState::open);
    answer(first, first.next_seq - 1, ReturnStatus::closed);
    EXPECT_EQ(channel(peer_index + 2), &first);
    EXPECT_EQ(first.peer.index, peer_index + 2);
}

TEST_F(RingsTest, APeerThatDiesInTheMiddleFailsWhatWaitsForIt)
{
    Channel& ch = open_channel();
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

// --- what we receive

TEST_F(RingsTest, PacketsComeInTheirOrderAndSlotsGoBack)
{
    claim(1);
    greet(1, hello());
    for (std::uint32_t n = 1; n <= 5; n++)
        say(1, n, 100 + n);
    look();
    EXPECT_EQ(above->taken, (std::vector<std::uint64_t>{101, 102, 103, 104, 105}));
    ASSERT_NE(above->last, nullptr);
    EXPECT_EQ(above->last->key, peer_key(peer_home, peer_nonce, peer_index));
    EXPECT_EQ(returned().check, 9u);
    EXPECT_EQ(static_cast<std::uint32_t>(returned().consumed), seq_base(own_nonce) + 4) << "a quarter of the ring";
    say(1, 7, 107); // the one before is not there yet
    look();
    say(1, 6 + ring_slots, 222); // the right slot, the wrong time
    look();
    EXPECT_EQ(above->taken.size(), 5u);
    say(1, 6, 106);
    look();
    EXPECT_EQ(above->taken.back(), 107u);
}

TEST_F(RingsTest, APacketStaysWhereThereIsNoRoomForIt)
{
    claim(0);
    greet(0, hello());
    say(0, 1, 1);
    say(0, 2, 2);
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
    claim(0);
    greet(0, hello());
    for (std::uint32_t n = 1; n <= 3; n++)
        say(0, n, n);
    net().busy_percent = 100;
    look();
    EXPECT_EQ(above->taken.size(), 3u);
    EXPECT_EQ(returned().check, 0u);
    EXPECT_TRUE(above->in.behind());
    net().busy_percent = 0;
    rings->catch_up();
    EXPECT_EQ(static_cast<std::uint32_t>(returned().consumed), seq_base(own_nonce) + 4);
    EXPECT_FALSE(above->in.behind());
}

TEST_F(RingsTest, AByeFreesTheRingAndIsAnswered)
{
    claim(2);
    greet(2, hello());
    say(2, 1, 1);
    write(2, 2, Type::bye, bye_for_now);
    net().busy_percent = 100;
    look();
    EXPECT_EQ(count_rings(), 1u) << "there was no room for the answer: the BYE stays";
    net().busy_percent = 0;
    above->last->users++; // a message of it is still kept
    look();
    EXPECT_EQ(count_rings(), 0u);
    EXPECT_EQ(returned().status, static_cast<std::uint32_t>(ReturnStatus::closed));
    EXPECT_EQ(area().claim(2).load(), 0u);
    EXPECT_EQ(above->last->home, peer_home) << "who sent is known as long as there are messages";
    Inbound::let_go(*above->last);
    claim(2, peer_home + 1);
    look();
    EXPECT_EQ(above->taken.size(), 1u) << "no packet of the last owner is there any more";
}

TEST_F(RingsTest, WhatCannotBeIsDroppedAndNothingElse)
{
    claim(0);
    say(0, 0, 1); // before HELLO
    Hello wrong = hello();
    wrong.return_index = return_count;
    write(0, 1, Type::hello, 0, &wrong, sizeof wrong);
    wrong = hello();
    wrong.index = max_endpoints;
    write(0, 2, Type::hello, 0, &wrong, sizeof wrong);
    const Hello right = hello();
    write(0, 3, Type::hello, 0, &right, sizeof right, 1); // a flag that it has not
    write(0, 4, Type::bye, bye_for_now);
    look();
    EXPECT_TRUE(above->taken.empty());
    EXPECT_EQ(count_rings(), 1u);
    EXPECT_EQ(net().strays, 0u) << "a report to a sender that has not said where it wants them";
    write(0, 5, Type::hello, 0, &right, sizeof right);
    write(0, 6, Type::hello, 0, &right, sizeof right); // again
    write(0, 7, Type::bye, 7);
    say(0, 8, 42);
    look();
    EXPECT_EQ(above->taken, std::vector<std::uint64_t>{42});
    EXPECT_EQ(count_rings(), 1u);
}

TEST_F(RingsTest, AHelloForAnEarlierProcessIsRefused)
{
    claim(0);
    Hello h = hello();
    h.target_nonce++;
    greet(0, h);
    look();
    EXPECT_EQ(returned().status, static_cast<std::uint32_t>(ReturnStatus::refused_nonce));
    EXPECT_EQ(count_rings(), 0u);
    EXPECT_EQ(area().claim(0).load(), 0u);
    claim(0);
    h = hello();
    h.version++;
    greet(0, h);
    look();
    EXPECT_EQ(returned().status, static_cast<std::uint32_t>(ReturnStatus::refused_version));
}

TEST_F(RingsTest, WhatADeadSenderHadSentIsTakenBeforeItsRingIsFree)
{
    claim(0);
    greet(0, hello());
    look();
    net().broken = Net::base; // its area is gone
    say(0, 1, 1);
    rings->in.peer_failed(peer_home);
    poll();
    rings->in.close_gone();
    EXPECT_EQ(count_rings(), 1u) << "there is a packet still";
    look();
    rings->in.close_gone();
    EXPECT_EQ(above->taken, std::vector<std::uint64_t>{1});
    EXPECT_EQ(count_rings(), 0u);
    EXPECT_EQ(area().claim(0).load(), 0u);
}

TEST_F(RingsTest, AClaimWithoutHelloIsFreeWhenItsDomainCountsNone)
{
    const auto counts = [&](std::uint64_t n) {
        put(directory::contacts_offset, directory::Contacts{peer_nonce, n});
    };
    claim(3);
    look();
    counts(1);
    rings->in.watch(64);
    poll();
    rings->in.close_gone();
    EXPECT_EQ(area().claim(3).load(), peer_home) << "its HELLO is on its way";
    counts(0);
    rings->in.watch(64);
    greet(3, hello()); // it comes while the answer does
    poll();
    rings->in.close_gone();
    EXPECT_EQ(area().claim(3).load(), peer_home);
    claim(1);
    look();
    rings->in.watch(64);
    poll();
    rings->in.close_gone();
    EXPECT_EQ(area().claim(1).load(), 0u);
    EXPECT_EQ(count_rings(), 1u);
}

TEST_F(RingsTest, IdleSendersAreAskedForTheirRings)
{
    for (unsigned ring = 0; ring < ring_count; ring++) {
        claim(ring, peer_home + ring);
        Hello h = hello();
        h.return_index = static_cast<std::uint16_t>(2 + ring);
        greet(ring, h);
    }
    look();
    rings->in.on_ring_wanted(true); // the first look finds that all have sent since
    say(1, 1, 1);
    look();
    rings->in.on_ring_wanted(true);
    unsigned asked = 0;
    for (unsigned ring = 0; ring < ring_count; ring++)
        asked += get<ReturnBlock>(return_offset(2 + ring)).status == static_cast<std::uint32_t>(ReturnStatus::give_back);
    EXPECT_GE(asked, 1u);
    EXPECT_TRUE(rung(get<std::uint64_t>(doorbells_offset), Doorbell::status));
}

/// Behind leave() nothing that comes changes anything.
TEST_F(RingsTest, LeavesWithAByeToAll)
{
    Channel& ch = open_channel();
    rings->leave();
    EXPECT_EQ(found(ch.contact.ring, 1).type, static_cast<std::uint8_t>(Type::bye));
    EXPECT_EQ(found(ch.contact.ring, 1).length, bye_for_good);
    EXPECT_EQ(rings->out.contact(ch), -FI_ESHUTDOWN);
    rings->peer_failed(peer_home, UTOFU_ERR_MRQ_PEER);
    EXPECT_TRUE(above->failures.empty());
}

} // namespace
} // namespace tofu::proto
