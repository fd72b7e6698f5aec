// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Rows of ARMWs and CSWAPs that DELAY_START may hold back (guide 3.7.9.1): whatever is held, what comes later finds it
// done.
#include "lib/harness.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

namespace tofu::sim::test {
namespace {

constexpr unsigned long held = UTOFU_ONESIDED_FLAG_DELAY_START;
constexpr unsigned long told = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_STRONG_ORDER;
constexpr size_t words = 512;
constexpr utofu_armw_op all_ops[] = {UTOFU_ARMW_OP_SWAP, UTOFU_ARMW_OP_ADD, UTOFU_ARMW_OP_XOR, UTOFU_ARMW_OP_AND,
                                     UTOFU_ARMW_OP_OR};

uint64_t apply(utofu_armw_op op, uint64_t was, uint64_t by)
{
    switch (op) {
    case UTOFU_ARMW_OP_SWAP: return by;
    case UTOFU_ARMW_OP_ADD: return was + by;
    case UTOFU_ARMW_OP_XOR: return was ^ by;
    case UTOFU_ARMW_OP_AND: return was & by;
    default: return was | by;
    }
}

uint64_t noise(uint64_t n)
{
    n = (n + 1) * 0x9e3779b97f4a7c15u;
    return n ^ n >> 29;
}

// Two VCQs of one process: one posts, the other owns the words.
struct Rows {
    Rows()
    {
        EXPECT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_create_vcq(1, 0, &target), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_query_vcq_id(target, &id), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_reg_mem(target, memory.data(), sizeof memory, 0, &stadd), UTOFU_SUCCESS);
    }
    ~Rows()
    {
        EXPECT_EQ(utofu_free_vcq(vcq), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_free_vcq(target), UTOFU_SUCCESS);
    }
    // Posts, making room in the TOQ where it is full.
    template <typename Post>
    [[nodiscard]] int row(Post&& post) const
    {
        int code = UTOFU_ERR_BUSY;
        (void)wait_until([&] {
            void* data = nullptr;
            code = post();
            return code != UTOFU_ERR_BUSY || utofu_poll_tcq(vcq, 0, &data) != UTOFU_ERR_NOT_FOUND;
        });
        return code;
    }
    [[nodiscard]] int add(size_t word, uint64_t by, unsigned long flags, uint64_t edata = 0) const
    {
        return row(
            [&] { return utofu_armw8(vcq, id, UTOFU_ARMW_OP_ADD, by, stadd + word * 8, edata, flags, nullptr); });
    }
    // Acquire, paired with the ARMW: what the test writes there next comes after it.
    [[nodiscard]] uint64_t at(size_t word) const { return __atomic_load_n(&memory[word], __ATOMIC_ACQUIRE); }
    // Each word looked at once. Not by memcmp, nor by ==, which calls it: where it has found a difference it looks
    // there again, and says "equal" of all if the byte has changed between its two looks.
    template <typename Word, size_t count>
    [[nodiscard]] bool holds(const std::array<Word, count>& wanted) const
    {
        static_assert(sizeof wanted == sizeof memory);
        const auto* const found = reinterpret_cast<const Word*>(memory.data()); // as the ARMWs take them
        size_t i = 0;
        while (i < count && __atomic_load_n(&found[i], __ATOMIC_ACQUIRE) == wanted[i])
            i++;
        return i == count;
    }

    alignas(256) static inline std::array<uint64_t, words> memory{};
    utofu_vcq_hdl_t vcq = 0, target = 0;
    utofu_vcq_id_t id = 0;
    utofu_stadd_t stadd = 0;
};

// A test is a process of its own (tests/lib/harness.h).
#define ROW_TEST(name)                                                                                                 \
    struct name : Rows {                                                                                               \
        void run();                                                                                                    \
    };                                                                                                                 \
    TEST(SimRow, name)                                                                                                 \
    {                                                                                                                  \
        expect_processes(1, [](const Rank&) { name().run(); });                                                        \
    }                                                                                                                  \
    void name::run()

ROW_TEST(EachOperationReachesEachWord)
{
    for (const utofu_armw_op op : all_ops)
        for (const size_t first : {0u, 1u, 3u}) // on sixteen bytes, and beside them
            for (const size_t count : {1u, 2u, 5u, 127u, 128u, 129u, 255u, 256u, 257u, 300u}) {
                std::array<uint64_t, words> wanted{};
                for (size_t i = 0; i < words; i++)
                    memory[i] = wanted[i] = noise(i * 7 + count);
                for (size_t i = 0; i < count; i++) {
                    const uint64_t by = noise(i + first);
                    wanted[first + i] = apply(op, wanted[first + i], by);
                    ASSERT_EQ(
                        row([&] { return utofu_armw8(vcq, id, op, by, stadd + (first + i) * 8, 0, held, nullptr); }),
                        UTOFU_SUCCESS);
                }
                ASSERT_EQ(utofu_post_toq(vcq, nullptr, 0, nullptr), UTOFU_SUCCESS);
                ASSERT_TRUE(wait_until([&] { return holds(wanted); })) << op << ", " << count << " from " << first;
            }
}

ROW_TEST(HalfWordsDoNotCarryIntoEachOther)
{
    for (const utofu_armw_op op : all_ops)
        for (const size_t first : {0u, 1u, 2u, 3u}) {
            constexpr size_t count = 301;
            std::array<uint32_t, words * 2> wanted{};
            const uint32_t start = op == UTOFU_ARMW_OP_OR ? 0 : ~uint32_t{0}; // each changes its word: it is waited for
            memory.fill(start * uint64_t{0x1'0000'0001});
            wanted.fill(start);
            for (size_t i = 0; i < count; i++) {
                const auto by = static_cast<uint32_t>(noise(i));
                wanted[first + i] = static_cast<uint32_t>(apply(op, wanted[first + i], by));
                ASSERT_EQ(row([&] { return utofu_armw4(vcq, id, op, by, stadd + (first + i) * 4, 0, held, nullptr); }),
                          UTOFU_SUCCESS);
            }
            ASSERT_EQ(utofu_post_toq(vcq, nullptr, 0, nullptr), UTOFU_SUCCESS);
            ASSERT_TRUE(wait_until([&] { return holds(wanted); })) << op << " from " << first;
        }
}

// A row is broken off wherever the next one does not continue it; what is posted without the flag comes after all of
// it.
ROW_TEST(WhatFollowsFindsTheRowDone)
{
    const std::function<int()> followers[] = {
        [&] { return utofu_armw8(vcq, id, UTOFU_ARMW_OP_OR, 0, stadd + 8, 1, told, nullptr); },
        [&] { return utofu_cswap8(vcq, id, 6, 6, stadd + 8, 1, told, nullptr); },
        [&] { return utofu_armw4(vcq, id, UTOFU_ARMW_OP_OR, 0, stadd + 8, 1, told, nullptr); },
        [&] { return utofu_armw8(vcq, id, UTOFU_ARMW_OP_OR, 0, stadd + 8, 1, told | held, nullptr); },
        [&] {
            alignas(8) char row[64];
            size_t bytes = 0;
            EXPECT_EQ(utofu_prepare_armw8(vcq, id, UTOFU_ARMW_OP_OR, 0, stadd + 8, 1, told, row, &bytes),
                      UTOFU_SUCCESS);
            return utofu_post_toq(vcq, row, bytes, nullptr);
        },
    };
    for (const auto& follow : followers) {
        memory.fill(0);
        for (int round = 1; round <= 3; round++)
            for (size_t i = 0; i < 3; i++) // the same words again: no continuation
                ASSERT_EQ(add(i, static_cast<uint64_t>(round), held), UTOFU_SUCCESS);
        ASSERT_EQ(row(follow), UTOFU_SUCCESS);
        ASSERT_EQ(utofu_post_toq(vcq, nullptr, 0, nullptr), UTOFU_SUCCESS);
        utofu_mrq_notice notice{};
        ASSERT_EQ(wait_mrq(vcq, &notice), UTOFU_SUCCESS);
        EXPECT_EQ(notice.notice_type, UTOFU_MRQ_TYPE_LCL_ARMW);
        EXPECT_EQ(notice.rmt_value, 6u) << "strong order: after all of the row";
        EXPECT_EQ(at(0), 6u);
        EXPECT_EQ(at(2), 6u);
    }
}

// Notices that were asked for come in the order of the posts (guide 2.2.10), each with what was there before.
ROW_TEST(EachTellsWhatItFound)
{
    for (const size_t first : {0u, 1u, 3u})
        for (const size_t count : {1u, 2u, 127u, 128u, 129u, 255u, 256u, 257u, 300u})
            for (const bool swaps : {false, true}) {
                std::array<uint64_t, words> wanted{}, before{};
                for (size_t i = 0; i < words; i++)
                    memory[i] = wanted[i] = before[i] = noise(i * 7 + count);
                for (size_t i = first; i < first + count; i++) {
                    const uint64_t by = noise(i);
                    const uint64_t expected = before[i] + (i % 3 == 0); // one in three does not swap
                    wanted[i] = !swaps ? before[i] ^ by : i % 3 == 0 ? before[i] : by;
                    const auto post = [&] {
                        const utofu_stadd_t to = stadd + i * 8;
                        return swaps ? utofu_cswap8(vcq, id, expected, by, to, 7, told | held, nullptr)
                                     : utofu_armw8(vcq, id, UTOFU_ARMW_OP_XOR, by, to, 7, told | held, nullptr);
                    };
                    ASSERT_EQ(row(post), UTOFU_SUCCESS);
                }
                ASSERT_EQ(utofu_post_toq(vcq, nullptr, 0, nullptr), UTOFU_SUCCESS);
                for (size_t i = first; i < first + count; i++) {
                    utofu_mrq_notice notice{};
                    ASSERT_EQ(wait_mrq(vcq, &notice), UTOFU_SUCCESS);
                    ASSERT_EQ(notice.notice_type, UTOFU_MRQ_TYPE_LCL_ARMW);
                    ASSERT_EQ(notice.edata, 7u);
                    ASSERT_EQ(notice.rmt_value, before[i]) << i << " of " << count << " from " << first;
                    ASSERT_EQ(notice.rmt_stadd, stadd + i * 8);
                }
                ASSERT_EQ(memory, wanted) << count << " from " << first;
            }
}

ROW_TEST(HalfWordsAreSwappedEachByItself)
{
    for (const size_t first : {0u, 1u, 2u, 3u}) {
        constexpr size_t count = 301;
        std::array<uint32_t, words * 2> before{}, wanted{};
        for (size_t i = 0; i < words; i++)
            memory[i] = noise(i);
        std::memcpy(before.data(), memory.data(), sizeof before);
        wanted = before;
        for (size_t i = first; i < first + count; i++) {
            const bool equal = i % 3 != 0;
            wanted[i] = equal ? static_cast<uint32_t>(i) : before[i];
            ASSERT_EQ(row([&] {
                          return utofu_cswap4(vcq, id, before[i] + !equal, static_cast<uint32_t>(i), stadd + i * 4, 7,
                                              told | held, nullptr);
                      }),
                      UTOFU_SUCCESS);
        }
        ASSERT_EQ(utofu_post_toq(vcq, nullptr, 0, nullptr), UTOFU_SUCCESS);
        for (size_t i = first; i < first + count; i++) {
            utofu_mrq_notice notice{};
            ASSERT_EQ(wait_mrq(vcq, &notice), UTOFU_SUCCESS);
            ASSERT_EQ(notice.rmt_value, before[i]);
        }
        EXPECT_EQ(std::memcmp(memory.data(), wanted.data(), sizeof wanted), 0) << first;
    }
}

// Prepared descriptors that are a row take effect as one by one, and none of them where one is unsound.
ROW_TEST(PreparedOnesTakeEffectInTheirOrder)
{
    alignas(8) static std::byte memory_of[128 * 64];
    const auto prepare = [&](bool swaps, size_t i, uint64_t operand, utofu_stadd_t to, size_t& used) {
        size_t bytes = 0;
        const int code =
            swaps ? utofu_prepare_cswap8(vcq, id, at(i), operand, to, 7, told, memory_of + used, &bytes)
                  : utofu_prepare_armw8(vcq, id, UTOFU_ARMW_OP_XOR, operand, to, 7, told, memory_of + used, &bytes);
        used += bytes;
        return code;
    };
    for (const bool swaps : {false, true})
        for (const size_t count : {1u, 2u, 3u, 64u, 65u, 128u})
            for (const size_t gap : {0u, 1u, 2u}) { // none, in the middle, at the end
                std::array<uint64_t, words> wanted{}, before{};
                for (size_t i = 0; i < words; i++)
                    memory[i] = wanted[i] = before[i] = noise(i * 7 + count);
                size_t used = 0;
                std::array<size_t, 128> at_word{};
                for (size_t i = 0; i < count; i++) {
                    at_word[i] = i + (gap == 1 && i >= count / 2 ? 3 : gap == 2 && i + 1 == count ? 5 : 0);
                    wanted[at_word[i]] = swaps ? noise(i) : before[at_word[i]] ^ noise(i);
                    ASSERT_EQ(prepare(swaps, at_word[i], noise(i), stadd + at_word[i] * 8, used), UTOFU_SUCCESS);
                }
                EXPECT_EQ(utofu_post_toq(vcq, memory_of, used - 8, nullptr), UTOFU_ERR_INVALID_DESC);
                ASSERT_EQ(memory, before) << "nothing of it";
                ASSERT_EQ(row([&] { return utofu_post_toq(vcq, memory_of, used, nullptr); }), UTOFU_SUCCESS);
                for (size_t i = 0; i < count; i++) {
                    utofu_mrq_notice notice{};
                    ASSERT_EQ(wait_mrq(vcq, &notice), UTOFU_SUCCESS);
                    ASSERT_EQ(notice.rmt_value, before[at_word[i]]) << i << " of " << count << " with gap " << gap;
                    ASSERT_EQ(notice.rmt_stadd, stadd + at_word[i] * 8);
                }
                ASSERT_EQ(memory, wanted) << count << " with gap " << gap;
            }
}

// A CSWAP is no ARMW, whatever number its operation is called by, and the other way round.
ROW_TEST(OnlyItsLikeContinuesARow)
{
    ASSERT_EQ(row([&] { return utofu_cswap8(vcq, id, 0, 1, stadd, 7, held, nullptr); }), UTOFU_SUCCESS);
    EXPECT_EQ(utofu_armw8(vcq, id, static_cast<utofu_armw_op>(0), 1, stadd + 8, 7, held, nullptr),
              UTOFU_ERR_INVALID_OP);
    ASSERT_EQ(add(1, 2, held, 7), UTOFU_SUCCESS);
    ASSERT_EQ(row([&] { return utofu_cswap8(vcq, id, 0, 3, stadd + 16, 7, held, nullptr); }), UTOFU_SUCCESS);
    ASSERT_EQ(row([&] { return utofu_cswap4(vcq, id, 0, 4, stadd + 24, 7, held, nullptr); }), UTOFU_SUCCESS);
    ASSERT_EQ(utofu_post_toq(vcq, nullptr, 0, nullptr), UTOFU_SUCCESS);
    EXPECT_TRUE(wait_until([&] { return at(0) == 1 && at(1) == 2 && at(2) == 3 && at(3) == 4; }));
}

// Each one that fails leaves its notice, though none was asked for, with its own EDATA.
ROW_TEST(EachFailureIsTold)
{
    constexpr size_t inside = 3, outside = 4;
    utofu_mrq_notice notice{};
    for (const bool all : {false, true}) { // or the others as well
        for (size_t i = 0; i < inside + outside; i++)
            ASSERT_EQ(add(words - inside + i, 1, all ? held | told : held, 9), UTOFU_SUCCESS);
        ASSERT_EQ(utofu_post_toq(vcq, nullptr, 0, nullptr), UTOFU_SUCCESS);
        for (size_t i = 0; all && i < inside; i++)
            EXPECT_EQ(wait_mrq(vcq, &notice), UTOFU_SUCCESS);
        for (size_t i = 0; i < outside; i++) {
            EXPECT_EQ(wait_mrq(vcq, &notice), UTOFU_ERR_MRQ_RMT_STADD);
            EXPECT_EQ(notice.notice_type, UTOFU_MRQ_TYPE_LCL_ARMW);
            EXPECT_EQ(notice.edata, 9u);
        }
    }
    for (size_t i = 0; i < inside; i++)
        EXPECT_EQ(at(words - inside + i), 2u);
    EXPECT_EQ(utofu_poll_mrq(vcq, 0, &notice), UTOFU_ERR_NOT_FOUND);
}

// The TOQ is full of delayed descriptors: nothing else could make room, so they start then (guide 3.7.9.1).
ROW_TEST(MoreThanTheQueueHolds)
{
    for (size_t i = 0; i < 5000; i++)
        ASSERT_EQ(add(i % words, 1, held), UTOFU_SUCCESS);
    ASSERT_EQ(utofu_post_toq(vcq, nullptr, 0, nullptr), UTOFU_SUCCESS);
    uint64_t sum = 0;
    EXPECT_TRUE(wait_until([&] {
        sum = 0;
        for (size_t i = 0; i < words; i++)
            sum += at(i);
        return sum == 5000;
    })) << sum;
}

// Words that the owner's processor adds to at the same time, neighbours that it alone changes among them.
ROW_TEST(AtomicAgainstTheOwnersProcessor)
{
    constexpr uint64_t rounds = 2000, row = 8;
    std::atomic<bool> stop{false};
    uint64_t mine = 0;
    std::thread owner([&] {
        for (; !stop.load(std::memory_order_relaxed); mine++)
            for (size_t i = 0; i < row; i++)
                __atomic_fetch_add(&memory[i], uint64_t{1} << 32, __ATOMIC_RELAXED);
    });
    for (uint64_t round = 0; round < rounds; round++) {
        for (size_t i = 0; i < row; i++)
            ASSERT_EQ(add(i, 1, held), UTOFU_SUCCESS);
        ASSERT_EQ(utofu_post_toq(vcq, nullptr, 0, nullptr), UTOFU_SUCCESS);
    }
    ASSERT_EQ(add(row, 0, told), UTOFU_SUCCESS);
    utofu_mrq_notice notice{};
    EXPECT_EQ(wait_mrq(vcq, &notice), UTOFU_SUCCESS);
    stop = true;
    owner.join();
    for (size_t i = 0; i < row; i++)
        EXPECT_EQ(at(i), rounds + (mine << 32));
}

ROW_TEST(FreeingTheQueueLosesNothing)
{
    for (size_t i = 0; i < 3; i++)
        ASSERT_EQ(add(i, 5, held), UTOFU_SUCCESS);
    ASSERT_EQ(utofu_free_vcq(vcq), UTOFU_SUCCESS);
    for (size_t i = 0; i < 3; i++)
        EXPECT_EQ(at(i), 5u);
    ASSERT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_SUCCESS);
    EXPECT_EQ(utofu_post_toq(vcq, nullptr, 0, nullptr), UTOFU_SUCCESS);
    EXPECT_EQ(at(0), 5u) << "once";
}

ROW_TEST(TheTargetMayBeFreedBeforeTheQueue)
{
    for (size_t i = 0; i < 3; i++)
        ASSERT_EQ(add(i, 5, held), UTOFU_SUCCESS);
    ASSERT_EQ(utofu_free_vcq(target), UTOFU_SUCCESS);
    ASSERT_EQ(utofu_free_vcq(vcq), UTOFU_SUCCESS);
    ASSERT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_SUCCESS);
    ASSERT_EQ(utofu_create_vcq(1, 0, &target), UTOFU_SUCCESS);
}

ROW_TEST(BadInputIsRefusedInTheMiddleOfARow)
{
    ASSERT_EQ(add(0, 1, held), UTOFU_SUCCESS);
    EXPECT_EQ(utofu_armw8(vcq, id, UTOFU_ARMW_OP_ADD, 1, stadd + 12, 0, held, nullptr), UTOFU_ERR_INVALID_STADD);
    EXPECT_EQ(utofu_armw8(vcq, id, UTOFU_ARMW_OP_ADD, 1, stadd + 8, 256, held, nullptr), UTOFU_ERR_INVALID_EDATA);
    EXPECT_EQ(utofu_armw8(vcq, id, UTOFU_ARMW_OP_ADD, 1, stadd + 8, 0, held | 1ul << 60, nullptr),
              UTOFU_ERR_INVALID_FLAGS);
    EXPECT_EQ(row([&] { return utofu_armw8(vcq, ~id, UTOFU_ARMW_OP_ADD, 1, stadd + 8, 0, held, nullptr); }),
              UTOFU_ERR_INVALID_VCQ_ID); // of a queue that has room
    EXPECT_EQ(utofu_armw8(vcq + 8, id, UTOFU_ARMW_OP_ADD, 1, stadd + 8, 0, held, nullptr), UTOFU_ERR_INVALID_VCQ_HDL);
    ASSERT_EQ(add(1, 1, held), UTOFU_SUCCESS);
    ASSERT_EQ(utofu_post_toq(vcq, nullptr, 0, nullptr), UTOFU_SUCCESS);
    EXPECT_TRUE(wait_until([&] { return at(0) == 1 && at(1) == 1 && at(2) == 0; }));
}

// The owner ends while the row is held: each of its words fails, as if it had been posted by itself.
TEST(SimRowOfTheDead, FailsWordByWord)
{
    expect_processes(2, [](const Rank& rank) {
        alignas(256) static std::array<uint64_t, 8> memory{};
        utofu_vcq_hdl_t vcq = 0;
        utofu_vcq_id_t id = 0;
        utofu_stadd_t stadd = 0;
        ASSERT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_SUCCESS);
        ASSERT_EQ(utofu_query_vcq_id(vcq, &id), UTOFU_SUCCESS);
        ASSERT_EQ(utofu_reg_mem(vcq, memory.data(), sizeof memory, 0, &stadd), UTOFU_SUCCESS);
        rank.set(2 * rank.number, id);
        rank.set(2 * rank.number + 1, stadd);
        rank.barrier();
        if (rank.number == 0) {
            const utofu_vcq_id_t other = rank.get(2);
            const utofu_stadd_t there = rank.get(3);
            for (size_t i = 0; i < 4; i++)
                ASSERT_EQ(posted([&] {
                              return utofu_armw8(vcq, other, UTOFU_ARMW_OP_ADD, 1, there + i * 8, 3, held, nullptr);
                          }),
                          UTOFU_SUCCESS);
            rank.barrier();
            rank.barrier();
            ASSERT_EQ(utofu_post_toq(vcq, nullptr, 0, nullptr), UTOFU_SUCCESS);
            size_t failed = 0;
            utofu_mrq_notice notice{};
            for (size_t i = 0; i < 4; i++)
                failed += wait_mrq(vcq, &notice) != UTOFU_SUCCESS && notice.edata == 3;
            EXPECT_EQ(failed, 4u);
        } else {
            rank.barrier();
            EXPECT_EQ(utofu_free_vcq(vcq), UTOFU_SUCCESS);
            rank.barrier();
        }
    });
}

} // namespace
} // namespace tofu::sim::test
