// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The adversarial mode writes lines in parts, where the guide permits it (2.2.10, 6.1.3.1) and where asked to.
#include "chaos.h"

namespace tofu::sim::test {
namespace {

class ChaosTorn : public SimChaos {};

// A reader that polls the last byte of a strongly ordered put sees all of it, and all that was posted before.
TEST_P(ChaosTorn, StrongOrderMakesTheLastByteLast)
{
    expect_processes(2, [](const Rank& rank) {
        constexpr size_t size = 3000;
        alignas(256) static uint8_t buffer[4 * size];
        Pair me(rank, buffer, sizeof buffer);
        for (unsigned round = 1; round <= 100; round++) {
            const auto value = static_cast<uint8_t>(round);
            if (rank.number == 0) {
                std::memset(buffer, value, 2 * size);
                for (size_t part = 0; part < 2; part++)
                    ASSERT_EQ(posted([&] {
                                  return utofu_put(me.vcq, me.peer(), me.stadd + part * size, me.at(part * size), size,
                                                   0, UTOFU_ONESIDED_FLAG_STRONG_ORDER | local_notice, nullptr);
                              }),
                              UTOFU_SUCCESS);
                utofu_mrq_notice notice;
                EXPECT_EQ(wait_mrq(me.vcq, &notice), UTOFU_SUCCESS);
                EXPECT_EQ(wait_mrq(me.vcq, &notice), UTOFU_SUCCESS);
            } else {
                const volatile uint8_t& last = buffer[2 * size - 1];
                ASSERT_TRUE(wait_until([&] { return last == value; }));
                for (size_t i = 0; i < 2 * size; i++)
                    ASSERT_EQ(buffer[i], value) << i;
            }
            rank.barrier();
        }
    });
}

// A line whose bytes come from two pages of 64 KiB arrives in two parts: in any order, but with strong order the one
// from the second page last (guide 6.1.3.1).
TEST_P(ChaosTorn, CutsLinesWhereTheSourceCrossesAPage)
{
    expect_processes(1, [](const Rank&) {
        constexpr size_t page = 65536;
        constexpr size_t size = 256;
        alignas(page) static volatile uint8_t sources[2 * page];
        alignas(256) static volatile uint8_t target[size];
        const Own own;
        const utofu_stadd_t from = own.add(sources);
        const utofu_stadd_t to = own.add(target);
        const auto run = [&](bool get, unsigned long strong, size_t skip) {
            volatile uint8_t* const source = sources + page - skip;
            const utofu_stadd_t at = from + page - skip;
            unsigned first_alone = 0;
            unsigned last_alone = 0;
            for (unsigned round = 1; round <= 200; round++) {
                const auto value = static_cast<uint8_t>(round);
                for (size_t i = 0; i < size; i++)
                    source[i] = value;
                const unsigned long flags = strong | local_notice;
                EXPECT_EQ(posted([&] {
                              return get ? utofu_get(own.vcq, own.id, to, at, size, 0, flags, nullptr)
                                         : utofu_put(own.vcq, own.id, at, to, size, 0, flags, nullptr);
                          }),
                          UTOFU_SUCCESS);
                utofu_mrq_notice notice;
                int rc = UTOFU_ERR_NOT_FOUND;
                while (rc == UTOFU_ERR_NOT_FOUND) {
                    const bool last = target[size - 1] == value; // its thread goes on between these looks
                    const bool first = target[0] == value;
                    last_alone += last && !first ? 1 : 0;
                    first_alone += first && target[size - 1] != value ? 1 : 0;
                    rc = utofu_poll_mrq(own.vcq, 0, &notice);
                }
                EXPECT_EQ(rc, UTOFU_SUCCESS);
                for (size_t i = 0; i < size; i++)
                    EXPECT_EQ(target[i], value);
            }
            if (strong != 0)
                EXPECT_EQ(last_alone, 0u);
            else
                EXPECT_GT(last_alone, 0u) << get << ' ' << skip;
            EXPECT_GT(first_alone, 0u) << get << ' ' << strong << ' ' << skip;
        };
        for (const bool get : {false, true})
            for (const unsigned long strong : {0ul, UTOFU_ONESIDED_FLAG_STRONG_ORDER})
                run(get, strong, 100);
    });
}

// Torn: a line comes in parts, of which with strong order the one with the last byte is the last; no word of 8 bytes is
// torn. Without that freedom a line is whole.
TEST_P(ChaosTorn, LinesAreTornWhereAskedFor)
{
    take_exact_alone();
    for (const char* relaxations : {"torn", "", "late,drop,raw,poll,torn"}) {
        take(relaxations);
        const bool may = *relaxations != '\0';
        expect_processes(1, [&](const Rank&) {
            constexpr size_t size = 32; // words of a line
            alignas(256) static volatile uint64_t source[2 * size];
            alignas(256) static volatile uint64_t target[2 * size];
            const Own own;
            const utofu_stadd_t from = own.add(source);
            const utofu_stadd_t to = own.add(target);
            for (const unsigned long strong : {0ul, UTOFU_ONESIDED_FLAG_STRONG_ORDER}) {
                unsigned torn = 0;
                unsigned last_early = 0;
                for (uint64_t round = 1; round <= 40; round++) {
                    const uint64_t value = round * 0x0101010101010101u;
                    const uint64_t former = target[0];
                    for (auto& word : source)
                        word = value;
                    ASSERT_EQ(posted([&] {
                                  return utofu_put(own.vcq, own.id, from, to, sizeof source, 0, strong | local_notice,
                                                   nullptr);
                              }),
                              UTOFU_SUCCESS);
                    utofu_mrq_notice notice;
                    while (utofu_poll_mrq(own.vcq, 0, &notice) == UTOFU_ERR_NOT_FOUND) {
                        const uint64_t last = target[2 * size - 1]; // its thread goes on between these looks
                        ASSERT_TRUE(last == value || last == former);
                        unsigned there = 0;
                        for (unsigned i = size; i < 2 * size - 1; i++)
                            there += target[i] == value ? 1 : 0;
                        torn += there != 0 && target[size] != value ? 1 : 0;
                        last_early += last == value && there != size - 1 ? 1 : 0;
                    }
                    for (const auto& word : target)
                        ASSERT_EQ(word, value);
                }
                EXPECT_EQ(torn > 0, may) << strong << ' ' << relaxations;
                EXPECT_EQ(last_early > 0, may && strong == 0) << strong << ' ' << relaxations;
            }
        });
    }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ChaosTorn, ::testing::ValuesIn(chaos_seeds));

} // namespace
} // namespace tofu::sim::test
