// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The two sides of rings, each by itself over a network inside the process, without the rounds that drive them:
// anonymous packets and leases of the sender (TxRings), leases and anonymous packets of the receiver (RxRings,
// Arrivals). The test plays the peer, and stands between them and operator new.
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include "msg/rx_ring.h"
#include "msg/tx_ring.h"
#include "prov/lib/fake_net.h"

namespace {
bool no_memory = false; ///< for a ring
} // namespace

void* operator new(std::size_t size, const std::nothrow_t&) noexcept
{
    return no_memory ? nullptr : ::operator new(size);
}

namespace tofu::proto {
namespace {

using fake::Net;

constexpr std::uint64_t own_nonce = 0x1111222233334444, peer_nonce = 0x5555666677778888;
constexpr utofu_vcq_id_t peer_home = 77;
constexpr unsigned own_index = 3, peer_index = 5, slots = 4;
constexpr Geometry geometry{4, 16, slots};

struct PartsTest : testing::Test, fake::OverVcqs, Protocol {
    struct In final : RxRings {
        using RxRings::RxRings;
    };

    PartsTest() : OverVcqs(geometry.size() + 65536)
    {
        own.emplace(LocalEndpoint{vcq, target_vcq, lock, own_nonce, own_index,
                                  make_address(target_vcq.id(), own_nonce, own_index)},
                    *this);
        EXPECT_EQ(own->area.open(target_vcq, lock, own_nonce, own_index, geometry), 0);
        own->open = true;
        out.emplace(*own);
        in.emplace(*own);
        EXPECT_EQ(in->open(geometry), 0);
        EXPECT_TRUE(in->anon_receiver.open(geometry));
        put(0, AreaHeader{area_magic, wire_version, peer_index, 0, peer_nonce});
        put(slot_counter_offset, slot_counter_word(peer_nonce, 0, slots));
        TxChannel* made = nullptr;
        EXPECT_EQ(out->channel_to({peer_index, peer}, made), 0);
        EXPECT_EQ(made, &channel);
        channel.area = Net::base;
    }
    ~PartsTest() override
    {
        no_memory = false;
        own->open = false;
        vcq.drain();
        in.reset();
        own->area.close();
    }
    TxChannel* make_channel() noexcept override { return std::exchange(spare, nullptr); }
    void channel_failed(TxChannel&, vcq::CompletionHandler*) noexcept override {}
    bool accept_anonymous(RxRing& anonymous) noexcept override
    {
        std::uint64_t body = 0;
        std::memcpy(&body, anonymous.base + slot_size - 16, sizeof body);
        offered.push_back(body);
        return body != unwanted;
    }
    void tick() noexcept override {}

    /// Asks once, and hears what comes of it.
    int step()
    {
        const int ret = out->claim_anon_slot(channel);
        (void)vcq.poll();
        return ret;
    }
    /// What the peer writes into our credit block.
    void answer(std::uint64_t consumed, LeaseStatus status)
    {
        own->area.consumed(channel.number).store(consumed);
        own->area.status(channel.number)
            .store(std::uint64_t{channel.serial} << 32 | static_cast<std::uint32_t>(status));
        out->read_credit_block(channel);
    }
    /// A question for a ring has gone out.
    void ask()
    {
        channel.anonymous.count = TxChannel::Anonymous::most;
        (void)out->envelope(channel);
        ASSERT_TRUE(channel.anonymous.carries_request);
        out->sent(channel);
    }
    void grant(unsigned ring)
    {
        ask();
        answer(Grant{static_cast<std::uint32_t>(geometry.ring(ring) / slot_size), geometry.ring_slots}.word(),
               LeaseStatus::granted);
    }
    /// Of a sender at `from`, which requests a ring if `at` is a credit block.
    static Envelope sender(utofu_vcq_id_t from = peer_home, std::uint16_t at = no_credit_block)
    {
        return {from, peer_nonce, own_nonce, wire_version, 0, peer_index, peer_index, at, 9};
    }
    /// The next slot of ours is filled.
    void come(std::uint64_t body, const Envelope& who = sender(), Type type = Type::eager)
    {
        const std::uint64_t word = std::atomic_ref(*own->area.slot_counter()).fetch_add(slot_counter_step);
        ASSERT_LT(slot_counter_next(word), slot_counter_end(word));
        alignas(8) std::byte image[slot_size];
        PacketWriter packet(image + slot_size);
        packet.control(type, 0, 8, anon_seq(word));
        packet.put(who);
        packet.put64(body);
        std::memcpy(own->area.anon_slots() + (slot_counter_next(word) + 1) * slot_size - packet.size(), packet.data(),
                    packet.size());
    }
    CreditBlock returned(unsigned at = 2) { return get<CreditBlock>(credit_offset(at)); }
    RxRing& granted() { return (*in)[in->polls()[0]]; }

    std::optional<RingContext> own;
    std::optional<TxRings> out;
    std::optional<In> in;
    const Peer peer{peer_home, peer_nonce, peer_index, 0, false, 1};
    TxChannel channel;
    TxChannel* spare = &channel;
    std::vector<std::uint64_t> offered;         ///< packets, in this order
    std::uint64_t unwanted = ~std::uint64_t{0}; ///< for which there is no room
};

// --- Anonymous packets

TEST_F(PartsTest, AnonymousPacketsTakeOneSlotForOnePacket)
{
    EXPECT_EQ(step(), -FI_EAGAIN);
    EXPECT_FALSE(out->awaits_anon_slot());
    const std::size_t posts = net().posts;
    EXPECT_EQ(step(), 0);
    EXPECT_EQ(net().posts, posts) << "the slot is ours until a packet is in it";
    EXPECT_EQ(channel.anonymous.slot, channel.area + anon_slots_offset);
    EXPECT_EQ(channel.anonymous.seq, anon_seq(slot_counter_word(peer_nonce, 0, 0)));
    EXPECT_EQ(slot_counter_next(get<std::uint64_t>(slot_counter_offset)), 1u);
}

TEST_F(PartsTest, AnonymousPacketsReadASlotCounterThatWasFullBeforeTheyAskAgain)
{
    put(slot_counter_offset, slot_counter_word(peer_nonce, slots, slots));
    EXPECT_EQ(step(), -FI_EAGAIN);
    EXPECT_TRUE(channel.anonymous.full);
    const std::uint64_t word = get<std::uint64_t>(slot_counter_offset);
    for (int i = 0; i < 10; i++)
        EXPECT_EQ(step(), -FI_EAGAIN);
    EXPECT_EQ(get<std::uint64_t>(slot_counter_offset), word) << "a second ADD would go beyond the end once more";
    put(slot_counter_offset, slot_counter_word(peer_nonce, 1, 2));
    for (int i = 0; i < 200 && channel.anonymous.slot == 0; i++)
        (void)step();
    EXPECT_EQ(channel.anonymous.slot, channel.area + anon_slots_offset + slot_size);
}

TEST_F(PartsTest, AnonymousPacketsLeaveAnEmptyPacketInTheSlotOfAnotherProcess)
{
    const std::uint64_t stranger = peer_nonce ^ 0xfedcba9876543210;
    put(slot_counter_offset, slot_counter_word(stranger, 2, slots));
    put(0, AreaHeader{area_magic, wire_version, peer_index, 0, stranger});
    (void)step();
    (void)vcq.poll();
    EXPECT_EQ(channel.state, ChannelState::failed);
    EXPECT_EQ(channel.err, FI_EHOSTDOWN);
    const Control left = get<Control>(anon_slots_offset + 3 * slot_size - sizeof(Control));
    EXPECT_EQ(left.type, Type::none);
    EXPECT_EQ(left.seq, anon_seq(slot_counter_word(stranger, 0, 0)));
}

TEST_F(PartsTest, AnonymousPacketsTakeNoSlotOfAnotherProcessByReadingItsCounter)
{
    const std::uint64_t stranger = peer_nonce ^ 0xfedcba9876543210;
    put(slot_counter_offset, slot_counter_word(peer_nonce, slots, slots));
    EXPECT_EQ(step(), -FI_EAGAIN);
    put(slot_counter_offset, slot_counter_word(stranger, 2, slots));
    put(0, AreaHeader{area_magic, wire_version, peer_index, 0, stranger});
    for (int i = 0; i < 200 && channel.state != ChannelState::failed; i++)
        (void)step();
    EXPECT_EQ(channel.err, FI_EHOSTDOWN);
    EXPECT_EQ(get<std::uint64_t>(slot_counter_offset), slot_counter_word(stranger, 2, slots));
    EXPECT_EQ(get<Control>(anon_slots_offset + 3 * slot_size - sizeof(Control)).seq, 0u) << "not ours";
}

TEST_F(PartsTest, AnonymousPacketsWaitForAnAreaAndGiveUpInTheEnd)
{
    net().broken = Net::base + slot_counter_offset;
    own->now = 1000;
    (void)step();
    EXPECT_EQ(channel.state, ChannelState::backing_off);
    const std::size_t posts = net().posts;
    EXPECT_EQ(step(), -FI_EAGAIN);
    EXPECT_EQ(net().posts, posts) << "its time has not come";
    own->now += 2;
    (void)step();
    EXPECT_EQ(net().posts, posts + 1);
    EXPECT_EQ(channel.state, ChannelState::backing_off);
    own->now += 10'000;
    (void)step();
    EXPECT_EQ(channel.state, ChannelState::failed);
}

TEST_F(PartsTest, AnonymousPacketsDoNotWaitForAnAreaThatWasThere)
{
    channel.peer_seen = true;
    net().broken = Net::base + slot_counter_offset;
    (void)step();
    (void)vcq.poll();
    EXPECT_EQ(channel.state, ChannelState::failed);
    EXPECT_EQ(channel.err, FI_EHOSTDOWN) << "its endpoint was closed";
}

TEST_F(PartsTest, AnonymousPacketsKeepASlotOfNoUseWhileTheTniIsFull)
{
    (void)step();
    net().busy_percent = 100;
    out->dismiss_anon_slot(channel);
    EXPECT_NE(channel.anonymous.slot, 0u);
    net().busy_percent = 0;
    out->dismiss_anon_slot(channel);
    EXPECT_EQ(channel.anonymous.slot, 0u);
    EXPECT_EQ(get<Control>(anon_slots_offset + slot_size - sizeof(Control)).type, Type::none);
}

// --- leases of the sender

TEST_F(PartsTest, RingLeaseAsksFromTheFourthPacketOn)
{
    for (unsigned n = 0; n < TxChannel::Anonymous::least; n++) {
        EXPECT_EQ(out->envelope(channel).credit_index, no_credit_block) << n;
        out->sent(channel);
    }
    const Envelope who = out->envelope(channel);
    EXPECT_EQ(who.credit_index, channel.number);
    EXPECT_EQ(who.serial, channel.serial + 1);
    out->sent(channel);
    EXPECT_TRUE(channel.anonymous.asked);
    EXPECT_EQ(channel.serial, who.serial);
    EXPECT_EQ(out->envelope(channel).credit_index, no_credit_block) << "one question at a time";
}

/// Its peers may still answer the earlier one, in the same credit block.
TEST_F(PartsTest, RingLeaseIsAskedForUnderOtherSerialsThanThoseOfAnEarlierEndpoint)
{
    TxChannel another;
    spare = &another;
    TxRings successor(*own);
    TxChannel* made = nullptr;
    ASSERT_EQ(successor.channel_to({peer_index, peer}, made), 0);
    ASSERT_EQ(made, &another);
    EXPECT_EQ(another.number, channel.number);
    EXPECT_NE(another.serial, channel.serial);
}

TEST_F(PartsTest, RingLeaseAsksLaterAfterEachRefusal)
{
    for (const std::uint32_t enough : {8u, 16u, 32u, 64u, 64u}) {
        ask();
        answer(0, LeaseStatus::denied);
        EXPECT_FALSE(channel.anonymous.asked);
        EXPECT_EQ(channel.anonymous.enough, enough);
    }
    EXPECT_EQ(channel.state, ChannelState::idle);
}

TEST_F(PartsTest, RingLeaseGivesBackWhatItIsAskedForAndAnonymousPacketsAfterwards)
{
    grant(1);
    ASSERT_EQ(channel.state, ChannelState::open);
    EXPECT_EQ(channel.ring, channel.area + geometry.ring(1));
    answer(channel.next_seq - 1, LeaseStatus::closed);
    EXPECT_EQ(channel.state, ChannelState::open) << "an answer to no release";
    answer(channel.next_seq - 1, LeaseStatus::revoked);
    out->poll_credit_blocks(1);
    EXPECT_EQ(channel.state, ChannelState::releasing);
    EXPECT_EQ(get<Control>(geometry.ring(1) + slot_size - sizeof(Control)).type, Type::release);
    answer(channel.next_seq, LeaseStatus::closed);
    EXPECT_EQ(channel.state, ChannelState::idle);
}

TEST_F(PartsTest, RingLeaseReusesAChannelThatNothingCanReachAnyMore)
{
    ask();
    EXPECT_EQ(out->reuse(), nullptr) << "an answer may come";
    answer(0, LeaseStatus::denied);
    channel.outstanding = 1;
    EXPECT_EQ(out->reuse(), nullptr) << "a send waits for the peer";
    channel.outstanding = 0;
    EXPECT_EQ(out->reuse(), &channel);
    EXPECT_EQ(channel.area, 0u);
}

// --- leases of the receiver

TEST_F(PartsTest, GrantsSayWhereTheRingIs)
{
    EXPECT_TRUE(in->grant_or_deny(sender(peer_home, 2), Net::base));
    ASSERT_EQ(in->polls().size(), 1u);
    EXPECT_EQ(returned().status, LeaseStatus::granted);
    EXPECT_EQ(returned().check, 9u);
    EXPECT_EQ(read_grant(returned().consumed, own_index).slots, geometry.ring_slots);
    EXPECT_EQ(granted().known.target_vcq, peer_home);
}

TEST_F(PartsTest, GrantsDenyAndThenRevokeIdleRings)
{
    EXPECT_TRUE(in->grant_or_deny(sender(peer_home, 2), Net::base));
    no_memory = true;
    EXPECT_TRUE(in->grant_or_deny(sender(peer_home + 1, 3), Net::base));
    EXPECT_EQ(returned(3).status, LeaseStatus::denied);
    in->revoke_some(); // it has talked since it was last looked at
    EXPECT_EQ(returned().status, LeaseStatus::granted);
    EXPECT_TRUE(in->grant_or_deny(sender(peer_home + 1, 3), Net::base));
    in->revoke_some();
    EXPECT_EQ(returned().status, LeaseStatus::revoked);
}

TEST_F(PartsTest, GrantsReportLateWhereTheTniWasFull)
{
    EXPECT_TRUE(in->grant_or_deny(sender(peer_home, 2), Net::base));
    RxRing& ring = granted();
    ring.state = RingState::begun;
    ring.status = LeaseStatus::open;
    ring.next_seq += 5;
    net().busy_percent = 100;
    in->report(ring);
    EXPECT_TRUE(in->behind());
    net().busy_percent = 0;
    in->catch_up();
    EXPECT_FALSE(in->behind());
    EXPECT_EQ(returned().consumed, ring.next_seq - 1);
}

TEST_F(PartsTest, GrantsGiveARingAwayOnceItsOwnerIsKnownToBeGone)
{
    EXPECT_TRUE(in->grant_or_deny(sender(peer_home, 2), Net::base));
    in->close_dead();
    EXPECT_EQ(in->polls().size(), 1u);
    put(0, AreaHeader{area_magic, wire_version, peer_index, 0, ~peer_nonce}); // another process is there now
    in->watch();
    (void)vcq.poll();
    in->close_dead();
    EXPECT_TRUE(in->polls().empty());
    EXPECT_TRUE(in->grant_or_deny(sender(peer_home + 1, 3), Net::base));
    EXPECT_EQ(granted().number, 0u);
}

TEST_F(PartsTest, GrantsKeepARingWhoseProbeIsUnderWay)
{
    EXPECT_TRUE(in->grant_or_deny(sender(peer_home, 2), Net::base));
    net().prompt = false;
    in->peer_failed(peer_home);
    in->close(granted());
    EXPECT_TRUE(in->polls().empty());
    net().prompt = true;
    EXPECT_TRUE(in->grant_or_deny(sender(peer_home + 1, 3), Net::base));
    EXPECT_EQ(granted().number, 1u) << "the answer of the probe still comes to number 0";
    Net::step_all(1);
    (void)vcq.poll();
    EXPECT_TRUE(in->grant_or_deny(sender(peer_home + 2, 4), Net::base));
    EXPECT_EQ((*in)[in->polls()[1]].number, 0u);
}

// --- Arrivals

TEST_F(PartsTest, ArrivalsHandOnInOrderAndOnce)
{
    come(11);
    come(12, sender(peer_home + 1));
    come(13);
    in->anon_receiver.accept_all();
    in->anon_receiver.accept_all();
    EXPECT_EQ(offered, (std::vector<std::uint64_t>{11, 12, 13}));
    EXPECT_EQ(in->anon_receiver.unfilled(), 0u);
}

TEST_F(PartsTest, ArrivalsOfABlockedSenderStayInOrder)
{
    come(11);
    come(12, sender(peer_home + 1));
    come(13);
    unwanted = 11;
    in->anon_receiver.accept_all();
    EXPECT_EQ(offered, (std::vector<std::uint64_t>{11, 12})) << "13 is behind 11";
    EXPECT_TRUE(in->anon_receiver.any_refused());
    EXPECT_TRUE(in->anon_receiver.refuses(peer_key(peer_home, peer_nonce, peer_index)));
    EXPECT_FALSE(in->anon_receiver.refuses(peer_key(peer_home + 1, peer_nonce, peer_index)));
    unwanted = 0;
    offered.clear();
    in->anon_receiver.accept_all();
    EXPECT_EQ(offered, (std::vector<std::uint64_t>{11, 13}));
    EXPECT_FALSE(in->anon_receiver.any_refused());
}

TEST_F(PartsTest, ArrivalsPassOverWhatIsEmptyOrMeantForAnother)
{
    come(11, sender(), Type::none);
    Envelope other = sender();
    other.target_nonce++;
    come(12, other);
    come(13);
    in->anon_receiver.accept_all();
    EXPECT_EQ(offered, std::vector<std::uint64_t>{13});
}

TEST_F(PartsTest, ArrivalsAnswerAQuestionOnceThoughThePacketStays)
{
    unwanted = 11;
    come(11, sender(peer_home, 2));
    in->anon_receiver.accept_all();
    EXPECT_EQ(returned().status, LeaseStatus::granted);
    in->anon_receiver.accept_all();
    EXPECT_EQ(in->polls().size(), 1u);
    EXPECT_EQ(offered.size(), 2u);
}

} // namespace
} // namespace tofu::proto
