// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The adversarial mode loses what is under way when its VCQ is freed, and polls find late what is there.
#include "chaos.h"

namespace tofu::sim::test {
namespace {

class ChaosLoss : public SimChaos {};

// An operation without a notice may be lost when the VCQ is freed. One with a notice has taken effect, and so has what
// was posted before that to the same VCQ.
TEST_P(ChaosLoss, WhatIsOnItsWayIsLostWithItsVcq)
{
    for (const char* relaxations : {"drop", ""}) {
        take(relaxations);
        expect_processes(1, [](const Rank&) {
            static volatile uint64_t words[32];
            const Own target;
            const utofu_stadd_t at = target.add(words);
            unsigned lost = 0;
            for (uint64_t round = 1; round <= 100; round++) {
                const Own own;
                for (unsigned i = 0; i < 32; i++)
                    ASSERT_EQ(posted([&] {
                                  return utofu_put_piggyback8(own.vcq, target.id, round, at + i * 8, 8, 0,
                                                              i == 15 ? local_notice : 0, nullptr);
                              }),
                              UTOFU_SUCCESS);
                utofu_mrq_notice notice;
                ASSERT_EQ(wait_mrq(own.vcq, &notice), UTOFU_SUCCESS);
                ASSERT_EQ(utofu_free_vcq(own.vcq), UTOFU_SUCCESS);
                for (unsigned i = 0; i < 16; i++)
                    ASSERT_EQ(words[i], round) << i;
                lost += words[31] != round ? 1 : 0;
            }
            EXPECT_GT(lost, 0u);
            EXPECT_LT(lost, 100u);
        });
    }
}

// An entry that is there is found later.
TEST_P(ChaosLoss, APollFindsLateWhatIsThere)
{
    for (const char* relaxations : {"poll", "", "late"}) {
        take(relaxations);
        const bool may = std::strcmp(relaxations, "late") != 0;
        expect_processes(1, [&](const Rank&) {
            utofu_vcq_hdl_t vcq = 0;
            ASSERT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_SUCCESS);
            unsigned late = 0;
            for (unsigned round = 0; round < 400; round++) {
                ASSERT_EQ(posted([&] { return utofu_nop(vcq, tcq_notice, nullptr); }), UTOFU_SUCCESS);
                size_t unread = 0;
                void* cbdata = nullptr;
                // One is there, it says, which polls alone take away: with nothing under way it is in the queue.
                while (utofu_poll_tcq(vcq, 0, &cbdata) == UTOFU_ERR_NOT_FOUND) {
                    late++;
                    ASSERT_EQ(utofu_query_num_unread_tcq(vcq, &unread), UTOFU_SUCCESS);
                    ASSERT_EQ(unread, 1u);
                    ASSERT_LT(late, 400u * 64);
                }
            }
            // Some 940 by the dice, give or take 130; and 75 for what is not carried out yet.
            EXPECT_EQ(late > 300, may) << late;
        });
    }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ChaosLoss, ::testing::ValuesIn(chaos_seeds));

} // namespace
} // namespace tofu::sim::test
