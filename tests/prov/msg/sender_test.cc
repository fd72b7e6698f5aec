// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The sending half of the message protocol: what the peer finds, whether it gave a ring or not; rings that are full,
// peers that answer with errors or not at all.
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include "cq/counter.h"
#include "prov/lib/messages.h"

namespace tofu::proto {
namespace {

TEST_F(Messages, AShortOneIsOverWhenItsPacketIsOut)
{
    win_ring();
    ASSERT_EQ(send("hello", 5), 0);
    EXPECT_EQ(entry(), "sent");
    Packet p;
    ASSERT_TRUE(found(1, p));
    EXPECT_EQ(p.tag, 7u);
    EXPECT_EQ(std::memcmp(p.body, "hello", 5), 0);
}

TEST_F(Messages, ALongerOneTakesAsManySlotsAsItNeeds)
{
    win_ring();
    std::memset(buffer, 'x', sizeof buffer);
    ASSERT_EQ(send(buffer, 200), 0);
    ASSERT_EQ(send(buffer, 700), 0);
    ASSERT_EQ(send("end", 3), 0);
    Packet p;
    ASSERT_TRUE(found(1, p));
    EXPECT_EQ(p.control.length, 200u);
    ASSERT_TRUE(found(2, p));
    EXPECT_EQ(p.type, Type::long_eager);
    EXPECT_EQ(get<char>(geometry.ring(0) + 2 * slot_size + 699), 'x');
    ASSERT_TRUE(found(6, p));
    EXPECT_EQ(std::memcmp(p.body, "end", 3), 0);
}

TEST_F(Messages, WithoutARingWhatFitsIntoOnePacketGoesAsAnAnonymousPacket)
{
    ASSERT_EQ(send("hello", 5), 0);
    ASSERT_EQ(send(buffer, 192, FI_INJECT), 0);
    ASSERT_EQ(send(buffer, 192, FI_DELIVERY_COMPLETE), 0);
    EXPECT_EQ(entry(), "sent");
    EXPECT_EQ(entry(), "sent");
    EXPECT_EQ(entry(), "nothing");
    Packet p;
    ASSERT_TRUE(got_anonymous(0, p));
    EXPECT_EQ(p.tag, 7u);
    EXPECT_EQ(std::memcmp(p.body, "hello", 5), 0);
    ASSERT_TRUE(got_anonymous(1, p));
    EXPECT_EQ(p.control.length, 192u);
    ASSERT_TRUE(got_anonymous(2, p));
    ASSERT_EQ(p.control.flags, flag_tag | flag_ack);
    complete(p.ack, 0);
    run(2);
    EXPECT_EQ(entry(), "sent");
    ssize_t ret = -FI_EAGAIN;
    for (unsigned n = 0; n < 4 && ret == -FI_EAGAIN; n++, run(1))
        ret = messages->sender().write_data(to, 99, 4096);
    ASSERT_EQ(ret, 0);
    ASSERT_TRUE(got_anonymous(3, p));
    EXPECT_EQ(p.type, Type::write_data);
    EXPECT_EQ(p.data, 99u);
}

/// All that is longer is fetched, so that nothing needs a ring.
TEST_F(Messages, WithoutARingWhatIsLongerIsOfferedByAnAnonymousPacket)
{
    const std::vector<char> text(max_eager + 1, 'y');
    unsigned n = 0;
    for (const std::size_t size : {217, 700, 8192, 8193}) {
        ASSERT_EQ(send(text.data(), size), 0);
        Packet p;
        ASSERT_TRUE(got_anonymous(n++, p)) << size;
        const bool kept = size <= max_eager;
        ASSERT_EQ(p.type, kept ? Type::eager_by_get : Type::rts);
        EXPECT_EQ(entry(), kept ? "sent" : "nothing") << "it lies in a block of ours";
        Rts rts{};
        std::memcpy(&rts, p.body, sizeof rts);
        EXPECT_EQ(rts.vcq, kept ? domain->target_vcq_id() : vcq.id()) << "a copy outlives its endpoint";
        EXPECT_EQ(tx->all_has_left(), !kept) << "a close waits for it";
        complete(p.ack, 0);
        run(2);
        EXPECT_EQ(entry(), kept ? "nothing" : "sent");
        EXPECT_TRUE(tx->all_has_left());
    }
    Packet p;
    ASSERT_EQ(send(text.data(), 700, FI_DELIVERY_COMPLETE), 0);
    EXPECT_EQ(entry(), "nothing");
    ASSERT_TRUE(got_anonymous(n, p));
    complete(p.ack, 0);
    run(2);
    EXPECT_EQ(entry(), "sent");
}

TEST_F(Messages, AFenceWaitsForAnonymousPacketsToo)
{
    const Peer* const peer = peers->find(to);
    EXPECT_TRUE(messages->sender().confirmed(*peer, false));
    ASSERT_EQ(send("a", 1), 0);
    for (unsigned n = 0; n < 20 && !messages->sender().requests().awaits_any(); n++) {
        EXPECT_FALSE(messages->sender().confirmed(*peer, false));
        run(1);
    }
    Packet p;
    ASSERT_TRUE(got_anonymous(1, p));
    EXPECT_EQ(p.type, Type::fence);
    EXPECT_FALSE(messages->sender().idle_towards(*peer)) << "the question is under way";
    complete(p.ack, 0);
    run(2);
    EXPECT_TRUE(messages->sender().confirmed(*peer, false));
    EXPECT_FALSE(messages->sender().confirmed(*peer, true)) << "that is another question";
}

/// What was sent before is behind the ring's first packet, and counts as sent there.
TEST_F(Messages, AFenceInARingIsForAnonymousPacketsToo)
{
    const Peer* const peer = peers->find(to);
    win_ring();
    EXPECT_FALSE(messages->sender().confirmed(*peer, false));
    Packet p;
    ASSERT_TRUE(found(1, p));
    EXPECT_EQ(p.type, Type::fence);
}

/// The ring is full: as many as tx_attr.size wait, an inject is refused, and all leave in their order.
TEST_F(Messages, WhatFindsNoRoomWaitsInItsOrder)
{
    win_ring();
    const char* const text = "abcdefghijklmnopqrstuvwxyz";
    for (unsigned n = 1; n < ring_slots + 5; n++)
        ASSERT_EQ(send(text + n, 1), 0);
    EXPECT_EQ(send("!", 1), -FI_EAGAIN);
    EXPECT_EQ(send("!", 1, FI_INJECT), -FI_EAGAIN);
    EXPECT_FALSE(tx->all_has_left());
    credit(2);
    run(1);
    credit(7);
    ASSERT_EQ(send(text + ring_slots + 5, 1), 0); // there is room: it overtakes no send
    run(1);
    EXPECT_TRUE(tx->all_has_left());
    for (unsigned n = ring_slots + 1; n <= ring_slots + 5; n++) {
        Packet p;
        ASSERT_TRUE(found(n, p));
        EXPECT_EQ(static_cast<char>(p.body[0]), text[n]);
    }
}

TEST_F(Messages, ARendezvousEndsByTheAnswerToItAndNoOther)
{
    win_ring();
    ASSERT_EQ(send(buffer, sizeof buffer), 0);
    Packet p;
    ASSERT_TRUE(found(1, p));
    ASSERT_EQ(p.type, Type::rts);
    EXPECT_EQ(word(completion_offset(p.ack.word)).load(), completion_word(p.ack.seq, completion_pending));
    Segment segment;
    std::memcpy(&segment, p.body + sizeof(Rts), sizeof segment);
    EXPECT_EQ(segment.length, sizeof buffer);
    complete({p.ack.word, p.ack.seq - 1}, 0);
    run();
    EXPECT_EQ(entry(), "nothing");
    complete(p.ack, 0);
    run();
    EXPECT_EQ(entry(), "sent");
    ASSERT_EQ(send(buffer, sizeof buffer), 0);
    ASSERT_TRUE(found(2, p));
    complete(p.ack, FI_ENOMEM);
    run();
    EXPECT_EQ(entry(), "error " + std::to_string(FI_EREMOTEIO));
}

TEST_F(Messages, APeerThatDiesEndsWhatWaitsForIt)
{
    win_ring();
    ASSERT_EQ(send(buffer, sizeof buffer), 0);
    ASSERT_EQ(send("x", 1, FI_DELIVERY_COMPLETE), 0);
    put(0, AreaHeader{area_magic, wire_version, peer_index, 0, peer_nonce + 1}); // another process has its VCQ
    messages->sender().on_unsignaled_error(UTOFU_ERR_MRQ_PEER, {}, peer_home);
    vcq.poll();
    EXPECT_EQ(entry(), "error " + std::to_string(FI_EHOSTDOWN));
    EXPECT_EQ(entry(), "error " + std::to_string(FI_EHOSTDOWN));
    EXPECT_EQ(send("x", 1), -FI_EHOSTDOWN);
    EXPECT_EQ(entry(), "nothing");
}

/// The error is that of a post to an earlier process with the same VCQ ID.
TEST_F(Messages, AnErrorThatSpeaksOfAnotherProcessEndsNothing)
{
    win_ring();
    ASSERT_EQ(send(buffer, sizeof buffer), 0);
    Packet p;
    ASSERT_TRUE(found(1, p));
    messages->sender().on_unsignaled_error(UTOFU_ERR_MRQ_PEER, {}, peer_home);
    run();
    EXPECT_EQ(entry(), "nothing");
    complete(p.ack, 0);
    run();
    EXPECT_EQ(entry(), "sent");
    EXPECT_EQ(send("x", 1), 0);
}

/// It has closed its endpoint behind its answer, and something else of ours finds that out before the word is looked
/// at.
TEST_F(Messages, WhatAPeerAnsweredBeforeItLeftStands)
{
    win_ring();
    ASSERT_EQ(send(buffer, sizeof buffer), 0);
    Packet answered_one, refused_one;
    ASSERT_TRUE(found(1, answered_one));
    ASSERT_EQ(send(buffer, sizeof buffer), 0);
    ASSERT_TRUE(found(2, refused_one));
    ASSERT_EQ(send(buffer, sizeof buffer), 0);
    complete(answered_one.ack, 0);
    complete(refused_one.ack, FI_ENOMEM);
    put(0, AreaHeader{area_magic, wire_version, peer_index, 0, peer_nonce + 1}); // another process has its VCQ
    messages->sender().on_unsignaled_error(UTOFU_ERR_MRQ_PEER, {}, peer_home);
    vcq.poll();
    std::multiset<std::string> ends{entry(), entry(), entry()};
    EXPECT_EQ(ends, (std::multiset<std::string>{"sent", "error " + std::to_string(FI_EREMOTEIO),
                                                "error " + std::to_string(FI_EHOSTDOWN)}));
    EXPECT_EQ(entry(), "nothing");
}

TEST_F(Messages, AFenceAsksOnceAndIsAnsweredForAllBefore)
{
    win_ring();
    const Peer& peer = *peers->find(to);
    ASSERT_EQ(send("x", 1), 0);
    EXPECT_TRUE(messages->sender().idle_towards(peer));
    EXPECT_FALSE(messages->sender().confirmed(peer, false));
    EXPECT_FALSE(messages->sender().idle_towards(peer)) << "the question is under way";
    Packet p;
    ASSERT_TRUE(found(2, p));
    EXPECT_EQ(p.type, Type::fence);
    complete(p.ack, 0);
    run();
    EXPECT_TRUE(messages->sender().confirmed(peer, false));
    EXPECT_EQ(entry(), "sent");
    EXPECT_EQ(entry(), "nothing") << "no operation of the application";
}

/// A copy of a message that was reported as sent outlives its endpoint, until the receiver has fetched it.
TEST_F(Messages, ACopyGoesToTheDomainWhenItsEndpointCloses)
{
    OrphanedCopies estate(*domain);
    EXPECT_FALSE(messages->hand_over_to(estate)) << "there is none";
    const std::vector<char> text(700, 'y');
    ASSERT_EQ(send(text.data(), text.size()), 0);
    EXPECT_EQ(entry(), "sent");
    Packet p;
    ASSERT_TRUE(got_anonymous(0, p));
    ASSERT_TRUE(messages->hand_over_to(estate));
    for (unsigned round = 0; round < 10; round++) {
        estate.progress();
        domain->target_vcq().poll();
    }
    EXPECT_TRUE(estate.any()) << "the receiver lives, and has not fetched it";
    complete(p.ack, 0);
    estate.progress();
    EXPECT_FALSE(estate.any());
    EXPECT_EQ(estate.close(), 0u);
}

TEST_F(Messages, ACopyForAReceiverThatIsGoneIsGivenUp)
{
    OrphanedCopies estate(*domain);
    const std::vector<char> text(700, 'y');
    ASSERT_EQ(send(text.data(), text.size()), 0);
    ASSERT_TRUE(messages->hand_over_to(estate));
    put(0, AreaHeader{area_magic, wire_version, peer_index, 0, peer_nonce + 1}); // another process has its VCQ
    for (unsigned round = 0; round < 10'000'000 && estate.any(); round++) {
        estate.progress();
        domain->target_vcq().poll();
    }
    EXPECT_FALSE(estate.any());
    EXPECT_EQ(estate.close(), 0u);
}

TEST_F(Messages, AMessageWithACopyCountsOnce)
{
    fi_cntr_attr attr{};
    fid_cntr* counter = nullptr;
    ASSERT_EQ(Counter::open(&*domain, &attr, &counter, nullptr), 0);
    tx->reports().counters.send = &Counter::of(counter);
    const std::vector<char> text(700, 'y');
    ASSERT_EQ(send(text.data(), text.size()), 0);
    EXPECT_EQ(fi_cntr_read(counter), 1u);
    Packet p;
    ASSERT_TRUE(got_anonymous(0, p));
    complete(p.ack, 0);
    run(2);
    EXPECT_TRUE(tx->all_has_left());
    EXPECT_EQ(fi_cntr_read(counter), 1u);
    tx->reports().counters.send = nullptr;
    EXPECT_EQ(fi_close(&counter->fid), 0);
}

} // namespace
} // namespace tofu::proto
