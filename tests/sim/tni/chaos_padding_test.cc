// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The adversarial mode writes around a put with the padding flag, to the ends of its cache lines and no further (guide
// 2.2.11).
#include "chaos.h"

namespace tofu::sim::test {
namespace {

class ChaosPadding : public SimChaos {};

constexpr unsigned long padding = UTOFU_ONESIDED_FLAG_PADDING | UTOFU_ONESIDED_FLAG_CACHE_INJECTION;

// How many bytes of `target` are not what was put at `offset` there, or the pattern that stood there before: within the
// lines of the put, and beyond them.
struct Strange {
    unsigned within = 0;
    unsigned beyond = 0;
};

template <size_t lines>
Strange put_into(const Own& own, volatile uint8_t (&target)[lines * 256], size_t offset, size_t length,
                 unsigned long flags)
{
    const utofu_stadd_t to = own.add(target);
    Strange strange;
    for (unsigned round = 0; round < 20; round++) { // the rubbish may be what was there
        for (size_t i = 0; i < sizeof target; i++)
            target[i] = 0x5a;
        uint8_t bytes[32];
        std::memset(bytes, static_cast<int>(round), sizeof bytes);
        EXPECT_EQ(posted([&] {
                      return utofu_put_piggyback(own.vcq, own.id, bytes, to + offset, length, 0,
                                                 flags | UTOFU_ONESIDED_FLAG_STRONG_ORDER | local_notice, nullptr);
                  }),
                  UTOFU_SUCCESS);
        utofu_mrq_notice notice;
        EXPECT_EQ(wait_mrq(own.vcq, &notice), UTOFU_SUCCESS);
        for (size_t i = 0; i < sizeof target; i++) {
            const bool data = i >= offset && i < offset + length;
            if (data) {
                EXPECT_EQ(target[i], round) << i;
            } else if (target[i] != 0x5a) {
                const bool near = i / 256 >= offset / 256 && i / 256 <= (offset + length - 1) / 256;
                (near ? strange.within : strange.beyond)++;
            }
        }
    }
    return strange;
}

TEST_P(ChaosPadding, WhatIsBesideThePutIsAnythingToTheEndsOfItsLines)
{
    expect_processes(1, [](const Rank&) {
        alignas(256) static volatile uint8_t target[4 * 256];
        const Own own;
        for (const auto& [offset, length] : {std::pair<size_t, size_t>{256, 8}, {400, 32}, {480, 32}, {500, 24}}) {
            const Strange strange = put_into<4>(own, target, offset, length, padding);
            EXPECT_GT(strange.within, 0u) << offset;
            EXPECT_EQ(strange.beyond, 0u) << offset;
        }
    });
}

TEST_P(ChaosPadding, WithoutTheFlagOrTheFreedomNothingIsWrittenBesideThePut)
{
    for (const char* relaxations : {"", "late,drop,raw,poll,torn"}) {
        take(relaxations);
        const unsigned long flags = *relaxations != '\0' ? padding : UTOFU_ONESIDED_FLAG_CACHE_INJECTION;
        expect_processes(1, [&](const Rank&) {
            alignas(256) static volatile uint8_t target[4 * 256];
            const Own own;
            EXPECT_EQ(put_into<4>(own, target, 400, 32, flags).within, 0u) << relaxations;
        });
    }
}

// A line that is registered in part is written where it is registered.
TEST_P(ChaosPadding, WhatIsNotRegisteredStays)
{
    expect_processes(1, [](const Rank&) {
        alignas(256) static volatile uint8_t line[256];
        const Own own;
        utofu_stadd_t to = 0;
        ASSERT_EQ(utofu_reg_mem(own.vcq, const_cast<uint8_t*>(line + 100), 8, 0, &to), UTOFU_SUCCESS);
        ASSERT_EQ(
            posted([&] { return utofu_put_piggyback8(own.vcq, own.id, 7, to, 8, 0, padding | local_notice, nullptr); }),
            UTOFU_SUCCESS);
        utofu_mrq_notice notice;
        EXPECT_EQ(wait_mrq(own.vcq, &notice), UTOFU_SUCCESS);
        for (size_t i = 0; i < sizeof line; i++)
            EXPECT_EQ(line[i], i == 100 ? 7 : 0) << i;
    });
}

INSTANTIATE_TEST_SUITE_P(Seeds, ChaosPadding, ::testing::ValuesIn(chaos_seeds));

} // namespace
} // namespace tofu::sim::test
