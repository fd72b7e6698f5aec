// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Order across the VCQs of a peer: when a fence goes out, where to, and what waits for it. Run by make check; links
// order.cc, utofu/vcq.cc over a scripted network.
#include "tx/remote_memory.h"

#include <gtest/gtest.h>

#include "prov/lib/fake_net.h"

namespace {

using fake::Net;
using tofu::VcqOrder;

constexpr utofu_vcq_id_t target_vcq = 1;
constexpr utofu_vcq_id_t overflow = 2;
constexpr utofu_vcq_id_t other = 9;

struct VcqOrderTest : testing::Test {
    VcqOrderTest()
    {
        Net::reset(1);
        EXPECT_EQ(vcq.open(backend, 0, false, {}), 0);
        vcq_order.begin();
    }
    ~VcqOrderTest() override { vcq.close(); } // before the receivers of its notices
    /// The fences under way go to these.
    static std::vector<utofu_vcq_id_t> fences()
    {
        std::vector<utofu_vcq_id_t> to;
        for (const Net::Post& p : Net::now().vcqs[0].posted) {
            to.push_back(p.peer);
            EXPECT_EQ(p.stadd, Net::base + tofu::vcq::fence_offset);
            EXPECT_TRUE(p.flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER);
        }
        return to;
    }
    void arrive()
    {
        Net::step_all(0);
        vcq.poll();
    }
    tofu::vcq::Backend backend{fake::functions(), {}, 1};
    tofu::vcq::Vcq vcq;
    VcqOrder vcq_order{vcq};
    using Fences = std::vector<utofu_vcq_id_t>;
};

TEST_F(VcqOrderTest, NothingIsPaidWithoutAnOverflowVcq)
{
    VcqOrder unused(vcq);
    EXPECT_TRUE(unused.pass(target_vcq, target_vcq));
    EXPECT_TRUE(unused.pass(target_vcq, overflow));
    EXPECT_TRUE(vcq_order.pass(target_vcq, target_vcq));
    EXPECT_TRUE(vcq_order.pass(other, other));
    EXPECT_EQ(fences(), Fences{});
}

TEST_F(VcqOrderTest, WhatWentHomeBeforeTheFirstOverflowVcqIsWaitedFor)
{
    EXPECT_FALSE(vcq_order.pass(target_vcq, overflow));
    EXPECT_EQ(fences(), Fences{target_vcq});
    EXPECT_FALSE(vcq_order.pass(target_vcq, overflow));
    EXPECT_FALSE(vcq_order.pass(target_vcq, target_vcq)); // or it would overtake a waiting operation
    EXPECT_TRUE(vcq_order.pass(other, other));
    EXPECT_EQ(fences(), Fences{target_vcq});
    arrive();
    EXPECT_TRUE(vcq_order.pass(target_vcq, overflow));
    EXPECT_TRUE(vcq_order.pass(target_vcq, overflow));
    EXPECT_EQ(fences(), Fences{});
}

TEST_F(VcqOrderTest, EachChangeOfTheVcqFencesTheFormer)
{
    EXPECT_FALSE(vcq_order.pass(target_vcq, overflow));
    arrive();
    EXPECT_TRUE(vcq_order.pass(target_vcq, overflow));
    EXPECT_FALSE(vcq_order.pass(target_vcq, target_vcq));
    EXPECT_EQ(fences(), Fences{overflow});
    arrive();
    EXPECT_TRUE(vcq_order.pass(target_vcq, overflow)); // in either order, all has taken effect
    EXPECT_FALSE(vcq_order.pass(target_vcq, 3));
    EXPECT_EQ(fences(), Fences{overflow});
}

TEST_F(VcqOrderTest, AFullQueueIsTriedAgain)
{
    Net::now().busy_percent = 100;
    EXPECT_FALSE(vcq_order.pass(target_vcq, overflow));
    EXPECT_FALSE(vcq_order.pass(target_vcq, overflow));
    Net::now().busy_percent = 0;
    EXPECT_EQ(fences(), Fences{});
    EXPECT_FALSE(vcq_order.pass(target_vcq, overflow));
    EXPECT_EQ(fences(), Fences{target_vcq});
}

TEST_F(VcqOrderTest, AClosedVcqBlocksNoOther)
{
    Net::now().broken = Net::base + tofu::vcq::fence_offset;
    EXPECT_FALSE(vcq_order.pass(target_vcq, overflow));
    arrive();
    EXPECT_TRUE(vcq_order.pass(target_vcq, overflow));
    Net::now().refused = Net::now().broken;
    EXPECT_TRUE(vcq_order.pass(target_vcq, target_vcq));
}

/// Guide 2.2.10: strong order lets a Get read before an earlier Put has written; the three other pairs it keeps.
TEST_F(VcqOrderTest, AReadBehindAWriteIsFencedWhereItWasPromised)
{
    constexpr bool reads = true;
    VcqOrder raw(vcq);
    raw.order_reads();
    EXPECT_TRUE(raw.pass(target_vcq, target_vcq, reads));
    EXPECT_TRUE(raw.pass(target_vcq, target_vcq, reads));
    EXPECT_TRUE(raw.pass(target_vcq, target_vcq));
    EXPECT_TRUE(raw.pass(target_vcq, target_vcq));
    EXPECT_TRUE(raw.pass(other, other, reads)); // another peer
    EXPECT_EQ(fences(), Fences{});
    EXPECT_FALSE(raw.pass(target_vcq, target_vcq, reads));
    EXPECT_FALSE(raw.pass(target_vcq, target_vcq)); // or it would overtake a waiting operation
    EXPECT_EQ(fences(), Fences{target_vcq});
    arrive();
    EXPECT_TRUE(raw.pass(target_vcq, target_vcq, reads));
    EXPECT_TRUE(raw.pass(target_vcq, target_vcq, reads));
    EXPECT_TRUE(raw.pass(target_vcq, target_vcq)); // a write behind a read
    EXPECT_EQ(fences(), Fences{});
}

} // namespace
