// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which channel an address leads to, by itself. Calls msg/tx_ring.
#include <gtest/gtest.h>

#include "msg/tx_ring.h"

namespace tofu::proto {
namespace {

struct ChannelsTest : testing::Test {
    /// A channel to `peer`, entered for its address.
    void add(Channel& ch, const Peer& peer, std::uint64_t place, unsigned context = 0)
    {
        ch.peer = peer;
        ch.peer.index = static_cast<std::uint16_t>(peer.index + context);
        ch.place = place;
        ch.context = context;
        ASSERT_TRUE(channels.reserve());
        channels.add(ch);
        ASSERT_TRUE(channels.enter(destination(peer, place, context), ch));
    }
    static Destination destination(const Peer& peer, std::uint64_t place, unsigned context = 0)
    {
        return {place * 4 + context, peer, place, context};
    }
    Peer near{77, 0x1111, 5, 3, false, 1}, far{78, 0x2222, 5, 0, false, 1};
    Channel a, b;
    Channels channels{2};
};

TEST_F(ChannelsTest, AnAddressLeadsToTheChannelEnteredForIt)
{
    add(a, near, 2000, 3);
    add(b, far, 7);
    EXPECT_EQ(channels.find(destination(near, 2000, 3)), &a);
    EXPECT_EQ(channels.find(destination(far, 7)), &b);
    EXPECT_EQ(channels.find(destination(near, 2000, 2)), nullptr) << "another context";
    EXPECT_EQ(channels.find(destination(near, 3000, 3)), nullptr) << "another place";
    EXPECT_EQ(channels.to(near, 8), &a);
    EXPECT_EQ(channels.to(near, 5), nullptr);
}

TEST_F(ChannelsTest, ThoseOfLateAreKnownUntilTheirAddressesMeanSomebodyElse)
{
    add(a, near, 1);
    add(b, far, 2);
    EXPECT_EQ(channels.recent(2 * 4), &b);
    EXPECT_EQ(channels.recent(1 * 4), &a) << "another one since";
    EXPECT_EQ(channels.recent(3 * 4), nullptr);
    EXPECT_EQ(channels.recent(FI_ADDR_NOTAVAIL), nullptr);
    near.generation++; // fi_av_remove, fi_av_insert
    EXPECT_EQ(channels.recent(1 * 4), nullptr);
    EXPECT_EQ(channels.recent(2 * 4), &b);
    near.nonce++;
    EXPECT_EQ(channels.find(destination(near, 1)), nullptr);
}

TEST_F(ChannelsTest, AddressesThatShareAnEntryTakeItInTurn)
{
    add(a, near, 1);
    add(b, far, 1 + 1024);
    EXPECT_EQ(channels.recent(1 * 4), nullptr);
    EXPECT_EQ(channels.recent(1025 * 4), &b);
    ASSERT_EQ(channels.find(destination(near, 1)), &a);
    EXPECT_EQ(channels.recent(1 * 4), &a);
    EXPECT_EQ(channels.recent(1025 * 4), nullptr);
}

TEST_F(ChannelsTest, WhatIsUnlinkedIsFoundByNoneOfItsAddresses)
{
    add(a, near, 1);
    a.aliased = true;
    ASSERT_TRUE(channels.enter(destination(near, 5000), a));
    add(b, far, 2);
    channels.unlink(a);
    EXPECT_EQ(channels.find(destination(near, 1)), nullptr);
    EXPECT_EQ(channels.find(destination(near, 5000)), nullptr);
    EXPECT_FALSE(a.aliased);
    EXPECT_EQ(channels.recent(1 * 4), nullptr);
    EXPECT_EQ(channels.recent(5000 * 4), nullptr);
    EXPECT_EQ(channels.recent(2 * 4), &b);
    channels.unlink(b);
    EXPECT_EQ(channels.recent(2 * 4), nullptr);
    EXPECT_EQ(channels.size(), 2u);
}

} // namespace
} // namespace tofu::proto
