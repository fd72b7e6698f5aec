// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The adversarial mode gives the lowest free steering tag, as the machine's driver does; otherwise an ended STADD stays
// an error.
#include "chaos.h"

namespace tofu::sim::test {
namespace {

class ChaosTags : public SimChaos {};

TEST_P(ChaosTags, AFreedTagIsGivenAgainWithThisFreedomAlone)
{
    for (const bool reuses : {true, false}) {
        take(reuses ? "tags" : "late,drop,raw,poll,padding");
        expect_processes(1, [&](const Rank&) {
            alignas(256) static volatile uint64_t words[3][64];
            const Own own;
            const utofu_stadd_t first = own.add(words[0]);
            const utofu_stadd_t second = own.add(words[1]);
            ASSERT_EQ(utofu_dereg_mem(own.vcq, first, 0), UTOFU_SUCCESS);
            const utofu_stadd_t third = own.add(words[2]);
            EXPECT_EQ(third >> 40 == first >> 40, reuses);
            EXPECT_NE(third >> 40, second >> 40);
            ASSERT_EQ(
                posted([&] { return utofu_put_piggyback8(own.vcq, own.id, 7, third, 8, 0, local_notice, nullptr); }),
                UTOFU_SUCCESS);
            utofu_mrq_notice notice;
            EXPECT_EQ(wait_mrq(own.vcq, &notice), UTOFU_SUCCESS);
            EXPECT_EQ(words[0][0], 0u);
            EXPECT_EQ(words[2][0], 7u);
        });
    }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ChaosTags, ::testing::ValuesIn(chaos_seeds));

} // namespace
} // namespace tofu::sim::test
