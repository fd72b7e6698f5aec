// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The adversarial mode reads before what was posted earlier has written, and keeps the order of reading and that of
// writing (guide 2.2.10).
#include "chaos.h"

namespace tofu::sim::test {
namespace {

class ChaosRaw : public SimChaos {};

// A put, or an ARMW, and a get of the same word behind it, in strong order: the get may have read before. Its notice
// comes behind the put all the same, for writing waits for writing.
TEST_P(ChaosRaw, AGetReadsBeforeAnEarlierPutHasWritten)
{
    take_exact_alone();
    for (const char* relaxations : {"raw", "", "late"}) {
        take(relaxations);
        const bool may = std::strcmp(relaxations, "late") != 0;
        expect_processes(1, [&](const Rank&) {
            static volatile uint64_t words[4];
            const Own own;
            const utofu_stadd_t at = own.add(words);
            unsigned early[2] = {};
            for (uint64_t round = 1; round <= 40; round++) {
                const bool armw = round % 2 == 0;
                words[0] = round - 1;
                words[1] = UINT64_MAX;
                ASSERT_EQ(posted([&] {
                              return armw ? utofu_armw8(own.vcq, own.id, UTOFU_ARMW_OP_SWAP, round, at, 0,
                                                        local_notice | UTOFU_ONESIDED_FLAG_STRONG_ORDER, nullptr)
                                          : utofu_put_piggyback8(own.vcq, own.id, round, at, 8, 0, local_notice,
                                                                 nullptr);
                          }),
                          UTOFU_SUCCESS);
                ASSERT_EQ(posted([&] {
                              return utofu_get(own.vcq, own.id, at + 8, at, 8, 1,
                                               local_notice | UTOFU_ONESIDED_FLAG_STRONG_ORDER, nullptr);
                          }),
                          UTOFU_SUCCESS);
                utofu_mrq_notice notice;
                ASSERT_EQ(wait_mrq(own.vcq, &notice), UTOFU_SUCCESS);
                ASSERT_EQ(wait_mrq(own.vcq, &notice), UTOFU_SUCCESS);
                void* cbdata = nullptr;
                ASSERT_EQ(utofu_poll_tcq(own.vcq, 0, &cbdata), UTOFU_ERR_NOT_FOUND); // gives the TOQ room
                ASSERT_EQ(words[0], round);
                ASSERT_TRUE(words[1] == round || words[1] == round - 1) << words[1];
                early[armw ? 1 : 0] += words[1] != round ? 1 : 0;
            }
            EXPECT_EQ(early[0] > 0, may) << early[0];
            EXPECT_EQ(early[1] > 0, may) << early[1];
        });
    }
}

// A process that acquires a lock by a CSWAP reads, by a get behind it in strong order, what its last holder wrote
// before it freed the lock: reading follows reading, and the CSWAP has read that the lock is free.
TEST_P(ChaosRaw, ALockTakenByACswapProtectsWhatIsReadBehindIt)
{
    constexpr uint64_t rounds = 200;
    expect_processes(2, [](const Rank& rank) {
        alignas(256) static volatile uint64_t words[4]; // at rank 0: the lock, the sum; here: what was read
        Pair me(rank, const_cast<uint64_t*>(words), sizeof words);
        const utofu_vcq_id_t target = rank.get(0);
        const utofu_stadd_t lock = rank.get(1);
        const unsigned long flags = UTOFU_ONESIDED_FLAG_STRONG_ORDER | local_notice;
        const auto swap = [&](uint64_t from, uint64_t to) {
            ASSERT_EQ(posted([&] { return utofu_cswap8(me.vcq, target, from, to, lock, 0, flags, nullptr); }),
                      UTOFU_SUCCESS);
        };
        utofu_mrq_notice notice[2];
        void* cbdata = nullptr;
        for (uint64_t done = 0; done < rounds;) {
            swap(0, 1 + rank.number);
            ASSERT_EQ(posted([&] { return utofu_get(me.vcq, target, me.stadd + 16, lock + 8, 8, 1, flags, nullptr); }),
                      UTOFU_SUCCESS);
            ASSERT_EQ(wait_mrq(me.vcq, &notice[0]), UTOFU_SUCCESS);
            ASSERT_EQ(wait_mrq(me.vcq, &notice[1]), UTOFU_SUCCESS);
            if (notice[0].rmt_value == 0) {
                ASSERT_EQ(posted([&] {
                              return utofu_put_piggyback8(me.vcq, target, words[2] + 1, lock + 8, 8, 0, flags, nullptr);
                          }),
                          UTOFU_SUCCESS);
                swap(1 + rank.number, 0);
                ASSERT_EQ(wait_mrq(me.vcq, &notice[0]), UTOFU_SUCCESS);
                ASSERT_EQ(wait_mrq(me.vcq, &notice[1]), UTOFU_SUCCESS);
                done++;
            }
            ASSERT_EQ(utofu_poll_tcq(me.vcq, 0, &cbdata), UTOFU_ERR_NOT_FOUND); // gives the TOQ room
        }
        rank.barrier();
        if (rank.number == 0)
            EXPECT_EQ(words[1], 2 * rounds);
    });
}

// Gets keep their order of reading, puts theirs of writing, whatever overtakes between the two kinds.
TEST_P(ChaosRaw, GetsAndPutsKeepTheirOrderAmongThemselves)
{
    take_exact_alone();
    expect_processes(1, [](const Rank&) {
        static volatile uint64_t words[64];
        const Own own;
        const utofu_stadd_t at = own.add(words);
        const unsigned long flags = UTOFU_ONESIDED_FLAG_STRONG_ORDER | local_notice;
        for (uint64_t round = 1; round <= 40; round++) {
            for (unsigned i = 0; i < 8; i++) { // word 0 counts up, and is read as often
                ASSERT_EQ(posted([&] {
                              return utofu_put_piggyback8(own.vcq, own.id, round * 8 + i, at, 8, 0, flags, nullptr);
                          }),
                          UTOFU_SUCCESS);
                ASSERT_EQ(posted([&] { return utofu_get(own.vcq, own.id, at + 8 + i * 8, at, 8, 0, flags, nullptr); }),
                          UTOFU_SUCCESS);
            }
            utofu_mrq_notice notice;
            for (unsigned i = 0; i < 16; i++)
                ASSERT_EQ(wait_mrq(own.vcq, &notice), UTOFU_SUCCESS);
            void* cbdata = nullptr;
            ASSERT_EQ(utofu_poll_tcq(own.vcq, 0, &cbdata), UTOFU_ERR_NOT_FOUND); // gives the TOQ room
            EXPECT_EQ(words[0], round * 8 + 7);
            for (unsigned i = 1; i < 8; i++)
                ASSERT_GE(words[1 + i], words[i]);
        }
    });
}

INSTANTIATE_TEST_SUITE_P(Seeds, ChaosRaw, ::testing::ValuesIn(chaos_seeds));

} // namespace
} // namespace tofu::sim::test
