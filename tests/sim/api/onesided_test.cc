// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Put, get, ARMW and their notices between processes (guide 2.2, 3.7).
#include "lib/harness.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <sys/mman.h>
#include <vector>

namespace tofu::sim::test {
namespace {

constexpr unsigned long all_notices =
    UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE;

// A process with one VCQ and one registered buffer, known to the others.
struct Member {
    const Rank& rank;
    utofu_vcq_hdl_t vcq = 0;
    utofu_vcq_id_t id = 0;
    utofu_stadd_t stadd = 0;

    Member(const Rank& r, void* buffer, size_t size, unsigned long flags = 0) : rank(r)
    {
        EXPECT_EQ(utofu_create_vcq(0, flags, &vcq), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_query_vcq_id(vcq, &id), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_reg_mem(vcq, buffer, size, 0, &stadd), UTOFU_SUCCESS);
        rank.set(2 * rank.number, id);
        rank.set(2 * rank.number + 1, stadd);
        rank.barrier();
    }
    ~Member()
    {
        rank.barrier();
        EXPECT_EQ(utofu_dereg_mem(vcq, stadd, 0), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_free_vcq(vcq), UTOFU_SUCCESS);
    }
    [[nodiscard]] utofu_vcq_id_t id_of(unsigned other) const { return rank.get(2 * other); }
    [[nodiscard]] utofu_stadd_t stadd_of(unsigned other) const { return rank.get(2 * other + 1); }
};

TEST(SimPut, MovesBytesAndGivesAllThreeNotices)
{
    expect_processes(2, [](const Rank& rank) {
        alignas(256) static std::array<uint64_t, 64> buffer{};
        buffer.fill(rank.number == 0 ? 7 : 0);
        Member me(rank, buffer.data(), sizeof buffer);
        utofu_mrq_notice notice{};
        if (rank.number == 0) {
            int token = 0;
            ASSERT_EQ(posted([&] {
                          return utofu_put(me.vcq, me.id_of(1), me.stadd, me.stadd_of(1), 256, 42, all_notices, &token);
                      }),
                      UTOFU_SUCCESS);
            void* cbdata = nullptr;
            EXPECT_EQ(wait_tcq(me.vcq, &cbdata), UTOFU_SUCCESS);
            EXPECT_EQ(cbdata, &token);
            EXPECT_EQ(wait_mrq(me.vcq, &notice), UTOFU_SUCCESS);
            EXPECT_EQ(notice.notice_type, UTOFU_MRQ_TYPE_LCL_PUT);
            EXPECT_EQ(notice.vcq_id, me.id_of(1));
            EXPECT_EQ(notice.edata, 42u);
            EXPECT_EQ(notice.rmt_stadd, me.stadd_of(1) + 256);
        } else {
            EXPECT_EQ(wait_mrq(me.vcq, &notice), UTOFU_SUCCESS);
            EXPECT_EQ(notice.notice_type, UTOFU_MRQ_TYPE_RMT_PUT);
            EXPECT_EQ(notice.vcq_id, me.id_of(0));
            EXPECT_EQ(notice.edata, 42u);
            EXPECT_EQ(notice.rmt_stadd, me.stadd + 256);
            EXPECT_EQ(notice.rmt_value, me.stadd + 256);
            EXPECT_EQ(buffer[31], 7u);
            EXPECT_EQ(buffer[32], 0u);
            EXPECT_EQ(utofu_poll_mrq(me.vcq, 0, &notice), UTOFU_ERR_NOT_FOUND);
        }
    });
}

TEST(SimPut, PiggybackNeedsNoRegistration)
{
    expect_processes(2, [](const Rank& rank) {
        static volatile uint64_t buffer[8];
        Member me(rank, const_cast<uint64_t*>(buffer), sizeof buffer);
        if (rank.number == 0) {
            uint64_t data[4] = {1, 2, 3, 4};
            ASSERT_EQ(posted([&] {
                          return utofu_put_piggyback(me.vcq, me.id_of(1), data, me.stadd_of(1) + 8, 32, 0, 0, nullptr);
                      }),
                      UTOFU_SUCCESS);
            ASSERT_EQ(posted([&] {
                          return utofu_put_piggyback8(me.vcq, me.id_of(1), 0x1122334455667788, me.stadd_of(1), 3, 0, 0,
                                                      nullptr);
                      }),
                      UTOFU_SUCCESS);
        } else {
            EXPECT_TRUE(wait_until([&] { return buffer[0] == 0x667788; }));
            EXPECT_TRUE(wait_until([&] { return buffer[4] == 4; }));
        }
    });
}

TEST(SimGet, FetchesWhileTheTargetDoesNothing)
{
    expect_processes(2, [](const Rank& rank) {
        std::vector<uint8_t> buffer(100'000, rank.number == 0 ? 0 : 9);
        Member me(rank, buffer.data(), buffer.size());
        if (rank.number == 0) {
            ASSERT_EQ(posted([&] {
                          return utofu_get(me.vcq, me.id_of(1), me.stadd + 1, me.stadd_of(1) + 5, 99'000, 3,
                                           all_notices, nullptr);
                      }),
                      UTOFU_SUCCESS);
            utofu_mrq_notice notice{};
            EXPECT_EQ(wait_mrq(me.vcq, &notice), UTOFU_SUCCESS);
            EXPECT_EQ(notice.notice_type, UTOFU_MRQ_TYPE_LCL_GET);
            EXPECT_EQ(notice.lcl_stadd, me.stadd + 1 + 99'000);
            EXPECT_EQ(buffer[0], 0);
            EXPECT_EQ(buffer[1], 9);
            EXPECT_EQ(buffer[99'000], 9);
            EXPECT_EQ(buffer[99'001], 0);
        } else {
            utofu_mrq_notice notice{};
            EXPECT_EQ(wait_mrq(me.vcq, &notice), UTOFU_SUCCESS);
            EXPECT_EQ(notice.notice_type, UTOFU_MRQ_TYPE_RMT_GET);
            EXPECT_EQ(notice.rmt_stadd, me.stadd + 5 + 99'000);
        }
    });
}

TEST(SimArmw, EveryAdderSeesAnotherOldValue)
{
    constexpr unsigned processes = 3;
    constexpr unsigned adds = 2000;
    expect_processes(processes, [](const Rank& rank) {
        static std::atomic<uint64_t> counter{0};
        Member me(rank, &counter, sizeof counter);
        std::vector<bool> seen(processes * adds + adds);
        uint64_t own_adds = 0;
        for (unsigned i = 0; i < adds; i++) {
            ASSERT_EQ(posted([&] {
                          return utofu_armw8(me.vcq, me.id_of(0), UTOFU_ARMW_OP_ADD, 1, me.stadd_of(0), 0,
                                             UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr);
                      }),
                      UTOFU_SUCCESS);
            if (rank.number == 0) {
                counter.fetch_add(1); // the owner's CPU at the same time
                own_adds++;
            }
            utofu_mrq_notice notice{};
            ASSERT_EQ(wait_mrq(me.vcq, &notice), UTOFU_SUCCESS);
            ASSERT_EQ(notice.notice_type, UTOFU_MRQ_TYPE_LCL_ARMW);
            ASSERT_LT(notice.rmt_value, seen.size());
            EXPECT_FALSE(seen[notice.rmt_value]);
            seen[notice.rmt_value] = true;
            void* cbdata = nullptr;
            (void)utofu_poll_tcq(me.vcq, 0, &cbdata);
        }
        rank.barrier();
        if (rank.number == 0)
            EXPECT_EQ(counter.load(), processes * adds + own_adds);
    });
}

TEST(SimArmw, AppliesEachOperator)
{
    expect_processes(2, [](const Rank& rank) {
        static volatile uint64_t words[2] = {0xf0f0, 0x1'0000'0001};
        Member me(rank, const_cast<uint64_t*>(words), sizeof words);
        if (rank.number == 0) {
            const auto old_value = [&](int rc) {
                EXPECT_EQ(rc, UTOFU_SUCCESS);
                utofu_mrq_notice notice{};
                EXPECT_EQ(wait_mrq(me.vcq, &notice), UTOFU_SUCCESS);
                return notice.rmt_value;
            };
            const auto armw8 = [&](utofu_armw_op op, uint64_t value) {
                return old_value(posted([&] {
                    return utofu_armw8(me.vcq, me.id_of(1), op, value, me.stadd_of(1), 0,
                                       UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr);
                }));
            };
            EXPECT_EQ(armw8(UTOFU_ARMW_OP_XOR, 0x00ff), 0xf0f0u);
            EXPECT_EQ(armw8(UTOFU_ARMW_OP_AND, 0xff00), 0xf00fu);
            EXPECT_EQ(armw8(UTOFU_ARMW_OP_OR, 0x000f), 0xf000u);
            EXPECT_EQ(armw8(UTOFU_ARMW_OP_ADD, 1), 0xf00fu);
            EXPECT_EQ(armw8(UTOFU_ARMW_OP_SWAP, 5), 0xf010u);
            const auto cswap8 = [&](uint64_t old, uint64_t value) {
                return old_value(posted([&] {
                    return utofu_cswap8(me.vcq, me.id_of(1), old, value, me.stadd_of(1), 0,
                                        UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr);
                }));
            };
            EXPECT_EQ(cswap8(4, 6), 5u);
            EXPECT_EQ(cswap8(5, 6), 5u);
            EXPECT_EQ(cswap8(6, 7), 6u);
            EXPECT_EQ(old_value(posted([&] {
                          return utofu_armw4(me.vcq, me.id_of(1), UTOFU_ARMW_OP_ADD, 0xffffffff, me.stadd_of(1) + 8, 0,
                                             UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr);
                      })),
                      1u);
            EXPECT_EQ(old_value(posted([&] {
                          return utofu_cswap4(me.vcq, me.id_of(1), 1, 9, me.stadd_of(1) + 12, 0,
                                              UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr);
                      })),
                      1u);
            rank.barrier();
        } else {
            rank.barrier();
            EXPECT_EQ(words[0], 7u);
            EXPECT_EQ(words[1], 0x9'0000'0000u);
        }
    });
}

TEST(SimErrors, ComeBackThroughTheQueues)
{
    expect_processes(2, [](const Rank& rank) {
        static uint8_t buffer[4096];
        Member me(rank, buffer, sizeof buffer);
        if (rank.number != 0)
            return;
        void* cbdata = nullptr;
        utofu_mrq_notice notice{};
        int token = 0;
        const uint64_t rmt = me.stadd_of(1);
        const uint64_t nowhere = uint64_t{0x1ffe} << 40;
        const auto put = [&](uint64_t lcl, uint64_t to, size_t length) {
            return posted([&] { return utofu_put(me.vcq, me.id_of(1), lcl, to, length, 0, 0, &token); });
        };
        EXPECT_EQ(put(nowhere, rmt, 8), UTOFU_SUCCESS);
        EXPECT_EQ(wait_tcq(me.vcq, &cbdata), UTOFU_ERR_TCQ_STADD);
        EXPECT_EQ(cbdata, &token);
        EXPECT_EQ(put(me.stadd + 4090, rmt, 8), UTOFU_SUCCESS);
        EXPECT_EQ(wait_tcq(me.vcq, &cbdata), UTOFU_ERR_TCQ_LENGTH);
        EXPECT_EQ(put(me.stadd, nowhere, 8), UTOFU_SUCCESS);
        EXPECT_EQ(wait_mrq(me.vcq, &notice), UTOFU_ERR_MRQ_RMT_STADD);
        EXPECT_EQ(notice.vcq_id, me.id_of(1));
        EXPECT_EQ(put(me.stadd, rmt + 4089, 8), UTOFU_SUCCESS);
        EXPECT_EQ(wait_mrq(me.vcq, &notice), UTOFU_ERR_MRQ_RMT_LENGTH);
        EXPECT_EQ(posted([&] { return utofu_get(me.vcq, me.id_of(1), nowhere, rmt, 8, 0, 0, nullptr); }),
                  UTOFU_SUCCESS);
        EXPECT_EQ(wait_mrq(me.vcq, &notice), UTOFU_ERR_MRQ_LCL_STADD);
        EXPECT_EQ(posted([&] { return utofu_get(me.vcq, me.id_of(1), me.stadd + 4095, rmt, 8, 0, 0, nullptr); }),
                  UTOFU_SUCCESS);
        EXPECT_EQ(wait_mrq(me.vcq, &notice), UTOFU_ERR_MRQ_LCL_LENGTH);
        // Nothing of the failed ones goes further.
        EXPECT_EQ(utofu_poll_tcq(me.vcq, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
        EXPECT_EQ(utofu_poll_mrq(me.vcq, 0, &notice), UTOFU_ERR_NOT_FOUND);
    });
}

} // namespace
} // namespace tofu::sim::test
