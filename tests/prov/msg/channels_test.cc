// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which channel an address leads to, by itself.
#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include "msg/tx_ring.h"

namespace tofu::proto {
namespace {

struct ChannelsTest : testing::Test {
    /// A channel to a context of `peer`, found by address `address`.
    void add(TxChannel& ch, const Peer& peer, std::uint64_t address, unsigned context = 0)
    {
        ch.peer = peer;
        ch.peer.index = static_cast<std::uint16_t>(peer.index + context);
        ASSERT_TRUE(channels.reserve());
        channels.add(ch);
        channels.enter({address, peer, context}, ch);
    }
    Peer near{77, 0x1111, 5, 3, false, 1}, far{78, 0x2222, 5, 0, false, 1};
    TxChannel a, b;
    TxChannels channels;
};

TEST_F(ChannelsTest, AnEndpointHasOneChannelByWhateverAddress)
{
    add(a, near, 2000, 3);
    add(b, far, 7);
    EXPECT_EQ(channels.find({2000, near, 3}), &a);
    EXPECT_EQ(channels.find({7, far}), &b);
    EXPECT_EQ(channels.find({2000, near, 2}), nullptr) << "another context";
    EXPECT_EQ(channels.find({3000, near, 3}), &a) << "another address of the same endpoint";
    const Peer copy = near;
    EXPECT_EQ(channels.find({5000, copy, 3}), &a) << "in the address vector twice";
}

TEST_F(ChannelsTest, RecentOnesAreKnownUntilTheirAddressesChange)
{
    add(a, near, 1);
    add(b, far, 2);
    EXPECT_EQ(channels.recent(2), &b);
    EXPECT_EQ(channels.recent(1), &a) << "another one since";
    EXPECT_EQ(channels.recent(3), nullptr);
    EXPECT_EQ(channels.recent(FI_ADDR_NOTAVAIL), nullptr);
    near.generation++; // fi_av_remove, fi_av_insert
    EXPECT_EQ(channels.recent(1), nullptr);
    EXPECT_EQ(channels.recent(2), &b);
    near.nonce++;
    EXPECT_EQ(channels.find({1, near}), nullptr);
}

TEST_F(ChannelsTest, AddressesThatShareAnEntryTakeItInTurn)
{
    add(a, near, 1);
    add(b, far, 1 + 1024);
    EXPECT_EQ(channels.recent(1), nullptr);
    EXPECT_EQ(channels.recent(1025), &b);
    ASSERT_EQ(channels.find({1, near}), &a);
    EXPECT_EQ(channels.recent(1), &a);
    EXPECT_EQ(channels.recent(1025), nullptr);
}

TEST_F(ChannelsTest, WhatIsUnlinkedIsFoundByNoneOfItsAddresses)
{
    add(a, near, 1);
    ASSERT_EQ(channels.find({5000, near}), &a);
    add(b, far, 2);
    channels.unlink(a);
    EXPECT_EQ(channels.find({1, near}), nullptr);
    EXPECT_EQ(channels.find({5000, near}), nullptr);
    EXPECT_EQ(channels.recent(1), nullptr);
    EXPECT_EQ(channels.recent(5000), nullptr);
    EXPECT_EQ(channels.recent(2), &b);
    channels.unlink(b);
    EXPECT_EQ(channels.recent(2), nullptr);
    EXPECT_EQ(channels.size(), 2u);
}

TEST_F(ChannelsTest, ManyChannelsAreFoundAndUnlinkedEachByItself)
{
    std::vector<TxChannel> many(credit_block_count);
    std::vector<Peer> peers;
    for (std::uint16_t i = 0; i < many.size(); i++)
        peers.push_back({77u + i % 7, 0x1111u * (i + 1u), static_cast<std::uint16_t>(i % 5), 0, false, 1});
    for (std::size_t i = 0; i < many.size(); i++)
        add(many[i], peers[i], i);
    for (std::size_t i = 0; i < many.size(); i += 2)
        channels.unlink(many[i]);
    for (std::size_t i = 0; i < many.size(); i++)
        EXPECT_EQ(channels.find({i, peers[i]}), i % 2 == 0 ? nullptr : &many[i]) << i;
}

} // namespace
} // namespace tofu::proto
