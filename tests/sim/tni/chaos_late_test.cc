// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The adversarial mode carries out late, and in any order that the guide permits (2.2.10; DELAY_START: 3.7.9.1).
#include "chaos.h"

namespace tofu::sim::test {
namespace {

class ChaosLate : public SimChaos {};

// Where DELAY_START has filled the TOQ, the flag is ignored: nothing else could make room (guide 3.7.9.1).
TEST_P(ChaosLate, AToqFullOfDelayedStartsEmpties)
{
    expect_processes(1, [](const Rank&) {
        utofu_vcq_hdl_t vcq = 0;
        ASSERT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_SUCCESS);
        unsigned polled = 0;
        void* cbdata = nullptr;
        for (unsigned i = 0; i < 5000; i++)
            ASSERT_TRUE(wait_until([&] {
                if (utofu_nop(vcq, UTOFU_ONESIDED_FLAG_DELAY_START | tcq_notice, nullptr) == UTOFU_SUCCESS)
                    return true;
                polled += utofu_poll_tcq(vcq, 0, &cbdata) == UTOFU_SUCCESS ? 1 : 0;
                return false;
            })) << i;
        ASSERT_EQ(utofu_post_toq(vcq, nullptr, 0, nullptr), UTOFU_SUCCESS);
        EXPECT_TRUE(wait_until([&] {
            polled += utofu_poll_tcq(vcq, 0, &cbdata) == UTOFU_SUCCESS ? 1 : 0;
            return polled == 5000;
        }));
    });
}

TEST_P(ChaosLate, DelayStartHoldsUntilTheNextPost)
{
    expect_processes(1, [](const Rank&) {
        static volatile uint64_t words[8];
        const Own own;
        const utofu_stadd_t at = own.add(words);
        const auto put = [&](uint64_t value, unsigned long flags) {
            return posted(
                [&] { return utofu_put_piggyback8(own.vcq, own.id, value, at, 8, 0, flags | local_notice, nullptr); });
        };
        utofu_mrq_notice notice;
        ASSERT_EQ(put(1, UTOFU_ONESIDED_FLAG_DELAY_START), UTOFU_SUCCESS);
        for (unsigned i = 0; i < 100; i++)
            EXPECT_EQ(utofu_poll_mrq(own.vcq, 0, &notice), UTOFU_ERR_NOT_FOUND);
        ASSERT_EQ(posted([&] { return utofu_post_toq(own.vcq, nullptr, 0, nullptr); }), UTOFU_SUCCESS);
        EXPECT_EQ(wait_mrq(own.vcq, &notice), UTOFU_SUCCESS);
        EXPECT_EQ(words[0], 1u);
        ASSERT_EQ(put(2, UTOFU_ONESIDED_FLAG_DELAY_START), UTOFU_SUCCESS);
        ASSERT_EQ(put(3, UTOFU_ONESIDED_FLAG_STRONG_ORDER), UTOFU_SUCCESS);
        EXPECT_EQ(wait_mrq(own.vcq, &notice), UTOFU_SUCCESS);
        EXPECT_EQ(wait_mrq(own.vcq, &notice), UTOFU_SUCCESS);
        EXPECT_EQ(words[0], 3u);
    });
}

// Notices: TCQ entries in the order of posting; remote and local ones too for one peer; a remote one when its data are
// there; a get's local one when the data are here.
TEST_P(ChaosLate, NoticesKeepTheirOrderAndFollowTheirData)
{
    expect_processes(2, [](const Rank& rank) {
        constexpr unsigned count = 500;
        constexpr size_t size = 700;
        static uint8_t buffer[count][size];
        Pair me(rank, buffer, sizeof buffer);
        if (rank.number == 0) {
            std::memset(buffer, 7, sizeof buffer);
            uintptr_t next_tcq = 0;
            unsigned next_mrq = 0;
            const auto poll = [&] {
                void* cbdata = nullptr;
                if (utofu_poll_tcq(me.vcq, 0, &cbdata) == UTOFU_SUCCESS) {
                    EXPECT_EQ(reinterpret_cast<uintptr_t>(cbdata), next_tcq);
                    next_tcq++;
                }
                utofu_mrq_notice notice;
                if (utofu_poll_mrq(me.vcq, 0, &notice) == UTOFU_SUCCESS) {
                    EXPECT_EQ(notice.edata, next_mrq % 256);
                    next_mrq++;
                }
            };
            for (uintptr_t i = 0; i < count; i++)
                EXPECT_TRUE(wait_until([&] {
                    poll();
                    return utofu_put(me.vcq, me.peer(), me.stadd + i * size, me.at(i * size), size, i % 256,
                                     tcq_notice | local_notice | remote_notice,
                                     reinterpret_cast<void*>(i)) == UTOFU_SUCCESS;
                }));
            EXPECT_TRUE(wait_until([&] {
                poll();
                return next_tcq == count && next_mrq == count;
            }));
        } else {
            for (unsigned i = 0; i < count; i++) {
                utofu_mrq_notice notice;
                ASSERT_EQ(wait_mrq(me.vcq, &notice), UTOFU_SUCCESS);
                EXPECT_EQ(notice.edata, i % 256);
                for (size_t byte = 0; byte < size; byte++)
                    ASSERT_EQ(buffer[i][byte], 7);
            }
        }
        rank.barrier();
    });
}

// Without strong order lines of one transfer arrive in any order, but each of them whole.
TEST_P(ChaosLate, UsesItsFreedom)
{
    take_exact_alone();
    expect_processes(1, [](const Rank&) {
        constexpr size_t lines = 8;
        alignas(256) static volatile uint8_t source[lines * 256];
        alignas(256) static volatile uint8_t target[lines * 256];
        const Own own;
        const utofu_stadd_t from = own.add(source);
        const utofu_stadd_t to = own.add(target);
        unsigned overtaken = 0;
        for (unsigned round = 1; round <= 40; round++) {
            const auto value = static_cast<uint8_t>(round);
            for (auto& byte : source)
                byte = value;
            ASSERT_EQ(
                posted([&] { return utofu_put(own.vcq, own.id, from, to, sizeof source, 0, local_notice, nullptr); }),
                UTOFU_SUCCESS);
            utofu_mrq_notice notice;
            int rc = UTOFU_ERR_NOT_FOUND;
            while (rc == UTOFU_ERR_NOT_FOUND) { // each poll carries it on a little
                const uint8_t last = target[sizeof target - 1];
                overtaken += last == value && target[0] != value ? 1 : 0;
                rc = utofu_poll_mrq(own.vcq, 0, &notice);
            }
            EXPECT_EQ(rc, UTOFU_SUCCESS);
            for (const auto& byte : target)
                ASSERT_EQ(byte, value);
        }
        EXPECT_GT(overtaken, 0u);
    });
}

// The source of a put is read late, up to its TCQ entry.
TEST_P(ChaosLate, ASourceChangedTooEarlyIsSeen)
{
    take_exact_alone();
    expect_processes(1, [](const Rank&) {
        static volatile uint64_t words[64];
        const Own own;
        const utofu_stadd_t at = own.add(words);
        unsigned spoilt = 0;
        for (uint64_t round = 1; round <= 40; round++) {
            words[0] = round;
            ASSERT_EQ(posted([&] {
                          return utofu_put(own.vcq, own.id, at, at + 256, 8, 0, tcq_notice | local_notice, nullptr);
                      }),
                      UTOFU_SUCCESS);
            words[0] = 0; // the mistake
            void* cbdata = nullptr;
            ASSERT_EQ(wait_tcq(own.vcq, &cbdata), UTOFU_SUCCESS);
            utofu_mrq_notice notice;
            ASSERT_EQ(wait_mrq(own.vcq, &notice), UTOFU_SUCCESS);
            spoilt += words[32] != round ? 1 : 0;
        }
        EXPECT_GT(spoilt, 0u);
    });
}

// A put's TCQ entry may come before its data are there, but not before they were read.
TEST_P(ChaosLate, ASourceIsFreeBeforeTheDataArrive)
{
    take_exact_alone();
    expect_processes(1, [](const Rank&) {
        constexpr size_t lines = 16;
        alignas(256) static volatile uint8_t bytes[2 * lines * 256];
        volatile uint8_t* const there = bytes + lines * 256;
        const Own own;
        const utofu_stadd_t at = own.add(bytes);
        unsigned before = 0;
        for (unsigned round = 1; round <= 40; round++) {
            const auto fill = [&](uint8_t value) {
                for (size_t i = 0; i < lines * 256; i++)
                    bytes[i] = value;
            };
            const auto value = static_cast<uint8_t>(round);
            fill(value);
            ASSERT_EQ(posted([&] {
                          return utofu_put(own.vcq, own.id, at, at + lines * 256, lines * 256, 0,
                                           tcq_notice | local_notice, nullptr);
                      }),
                      UTOFU_SUCCESS);
            void* cbdata = nullptr;
            ASSERT_EQ(wait_tcq(own.vcq, &cbdata), UTOFU_SUCCESS);
            bool all = true;
            for (size_t i = 0; i < lines; i++)
                all = all && there[i * 256] == value;
            before += all ? 0 : 1;
            fill(0);
            utofu_mrq_notice notice;
            ASSERT_EQ(wait_mrq(own.vcq, &notice), UTOFU_SUCCESS);
            for (size_t i = 0; i < lines * 256; i++)
                ASSERT_EQ(there[i], value);
        }
        EXPECT_GT(before, 0u);
    });
}

// With the first freedom alone, late, what was posted arrives although its process frees the VCQ, or ends, at once.
TEST_P(ChaosLate, WhatIsOnItsWayArrives)
{
    take("late");
    expect_processes(2, [](const Rank& rank) {
        static volatile uint64_t words[101];
        Pair me(rank, const_cast<uint64_t*>(words), sizeof words);
        if (rank.number == 0) {
            for (unsigned i = 0; i < 100; i++)
                ASSERT_EQ(posted([&] {
                              return utofu_put_piggyback8(me.vcq, me.peer(), i + 1, me.at(i * 8), 8, 0, 0, nullptr);
                          }),
                          UTOFU_SUCCESS);
            return; // and out
        }
        for (unsigned i = 0; i < 100; i++)
            EXPECT_TRUE(wait_until([&] { return words[i] == i + 1; }));
    });
}

INSTANTIATE_TEST_SUITE_P(Seeds, ChaosLate, ::testing::ValuesIn(chaos_seeds));

} // namespace
} // namespace tofu::sim::test
