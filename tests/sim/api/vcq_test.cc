// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Queries, VCQs and their quantities, IDs, paths, parameter errors (guide 3.2, 3.3, 3.5 to 3.7, 6.1.2).
#include "lib/harness.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace tofu::sim::test {
namespace {

utofu_vcq_hdl_t create(unsigned tni, unsigned long flags = 0)
{
    utofu_vcq_hdl_t vcq = 0;
    EXPECT_EQ(utofu_create_vcq(static_cast<utofu_tni_id_t>(tni), flags, &vcq), UTOFU_SUCCESS);
    return vcq;
}

TEST(SimQueries, AnswerTheTablesOfTheGuide)
{
    expect_processes(1, [](const Rank&) {
        utofu_tni_id_t* tnis = nullptr;
        size_t count = 0;
        ASSERT_EQ(utofu_get_onesided_tnis(&tnis, &count), UTOFU_SUCCESS);
        EXPECT_EQ(count, 6u);
        EXPECT_EQ(tnis[5], 5);
        std::free(tnis);
        ASSERT_EQ(utofu_get_barrier_tnis(&tnis, &count), UTOFU_SUCCESS);
        EXPECT_EQ(count, 6u);
        std::free(tnis);
        utofu_onesided_caps* caps = nullptr;
        ASSERT_EQ(utofu_query_onesided_caps(5, &caps), UTOFU_SUCCESS);
        EXPECT_EQ(caps->flags, 3u);
        EXPECT_EQ(caps->armw_ops, 0x3fu);
        EXPECT_EQ(caps->max_putget_size, (1u << 24) - 1);
        EXPECT_EQ(caps->max_mtu, 1920u);
        utofu_barrier_caps* barrier = nullptr;
        ASSERT_EQ(utofu_query_barrier_caps(0, &barrier), UTOFU_SUCCESS);
        EXPECT_EQ(barrier->reduce_ops, 0x1feu);
        EXPECT_EQ(barrier->max_double_reduction, 3u);
        EXPECT_EQ(utofu_query_onesided_caps(6, &caps), UTOFU_ERR_INVALID_TNI_ID);
        EXPECT_EQ(utofu_query_onesided_caps(0, nullptr), UTOFU_ERR_INVALID_POINTER);
        int major = 0;
        int minor = -1;
        utofu_query_tofu_version(&major, &minor);
        EXPECT_EQ(major, 3);
        EXPECT_EQ(minor, 0);
    });
}

TEST(SimVcq, GivesAsManyAsRealSystemsDoToOneProcess)
{
    expect_processes(1, [](const Rank&) {
        std::vector<utofu_vcq_hdl_t> all;
        utofu_vcq_hdl_t vcq = 0;
        int rc = UTOFU_SUCCESS;
        while ((rc = utofu_create_vcq(2, 0, &vcq)) == UTOFU_SUCCESS)
            all.push_back(vcq);
        EXPECT_EQ(rc, UTOFU_ERR_FULL);
        EXPECT_EQ(all.size(), 64u);
        for (const auto each : all)
            EXPECT_EQ(utofu_free_vcq(each), UTOFU_SUCCESS);
        all.clear();
        while ((rc = utofu_create_vcq(2, UTOFU_VCQ_FLAG_EXCLUSIVE, &vcq)) == UTOFU_SUCCESS)
            all.push_back(vcq);
        EXPECT_EQ(rc, UTOFU_ERR_FULL);
        EXPECT_EQ(all.size(), 7u);
        for (const auto each : all)
            EXPECT_EQ(utofu_free_vcq(each), UTOFU_SUCCESS);
        all.clear();
        while ((rc = utofu_create_vcq(2, UTOFU_VCQ_FLAG_SESSION_MODE, &vcq)) == UTOFU_SUCCESS)
            all.push_back(vcq);
        EXPECT_EQ(rc, UTOFU_ERR_FULL);
        EXPECT_EQ(all.size(), 3u);
    });
}

// Guide 4.3.2.1 and 4.3.2.2: what the environment keeps for a kind of VCQ is not taken by another.
TEST(SimVcq, KeepsCqsForTheProcessesThatTheEnvironmentNames)
{
    struct Case {
        const char* exclusive;
        const char* session;
        size_t free_mode; // VCQs to be had on a TNI, asked for in this order
        size_t exclusives;
        size_t sessions;
    };
    for (const Case& c : {Case{"5", nullptr, 24, 5, 1}, Case{"7", nullptr, 8, 7, 1}, Case{"100", nullptr, 8, 7, 1},
                          Case{nullptr, "5", 32, 0, 5}, Case{"6", "4", 8, 6, 2}, Case{nullptr, nullptr, 64, 0, 1}}) {
        const auto set = [](const char* name, const char* value) {
            value != nullptr ? ::setenv(name, value, 1) : ::unsetenv(name);
        };
        set("UTOFU_NUM_EXCLUSIVE_CQS", c.exclusive);
        set("UTOFU_NUM_SESSION_MODE_CQS", c.session);
        expect_processes(1, [&](const Rank&) {
            const auto as_many_as_can_be = [](unsigned long flags) {
                size_t count = 0;
                utofu_vcq_hdl_t vcq = 0;
                int rc = UTOFU_SUCCESS;
                for (; (rc = utofu_create_vcq(3, flags, &vcq)) == UTOFU_SUCCESS; count++) {
                }
                EXPECT_EQ(rc, UTOFU_ERR_FULL);
                return count;
            };
            EXPECT_EQ(as_many_as_can_be(0), c.free_mode);
            EXPECT_EQ(as_many_as_can_be(UTOFU_VCQ_FLAG_EXCLUSIVE), c.exclusives);
            EXPECT_EQ(as_many_as_can_be(UTOFU_VCQ_FLAG_SESSION_MODE), c.sessions);
        });
        set("UTOFU_NUM_EXCLUSIVE_CQS", nullptr);
        set("UTOFU_NUM_SESSION_MODE_CQS", nullptr);
    }
}

TEST(SimVcq, ComponentsShareACqAndTheirNameSpace)
{
    expect_processes(1, [](const Rank&) {
        utofu_vcq_hdl_t seven = 0;
        utofu_vcq_hdl_t other = 0;
        ASSERT_EQ(utofu_create_vcq_with_cmp_id(1, 7, 0, &seven), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_create_vcq_with_cmp_id(1, 7, 0, &other), UTOFU_ERR_USED);
        ASSERT_EQ(utofu_create_vcq(1, 0, &other), UTOFU_SUCCESS);
        utofu_vcq_id_t id = 0;
        utofu_vcq_id_t built = 0;
        ASSERT_EQ(utofu_query_vcq_id(seven, &id), UTOFU_SUCCESS);
        uint8_t coords[6];
        ASSERT_EQ(utofu_query_my_coords(coords), UTOFU_SUCCESS);
        ASSERT_EQ(utofu_construct_vcq_id(coords, 1, 0, 7, &built), UTOFU_SUCCESS);
        EXPECT_EQ(id, built);
        uint8_t its_coords[6];
        utofu_tni_id_t tni = 0;
        utofu_cq_id_t cq = 0;
        uint16_t extra = 0;
        ASSERT_EQ(utofu_query_vcq_info(id, its_coords, &tni, &cq, &extra), UTOFU_SUCCESS);
        EXPECT_EQ(tni, 1);
        EXPECT_EQ(extra, 15);
        EXPECT_EQ(utofu_free_vcq(seven), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_create_vcq_with_cmp_id(1, 7, 0, &seven), UTOFU_SUCCESS);
    });
}

TEST(SimVcq, RefusesBadParameters)
{
    expect_processes(1, [](const Rank&) {
        utofu_vcq_hdl_t vcq = 0;
        EXPECT_EQ(utofu_create_vcq(6, 0, &vcq), UTOFU_ERR_INVALID_TNI_ID);
        EXPECT_EQ(utofu_create_vcq(0, 8, &vcq), UTOFU_ERR_INVALID_FLAGS);
        EXPECT_EQ(utofu_create_vcq(0, UTOFU_VCQ_FLAG_EXCLUSIVE | UTOFU_VCQ_FLAG_SESSION_MODE, &vcq),
                  UTOFU_ERR_INVALID_FLAGS);
        EXPECT_EQ(utofu_create_vcq(0, 0, nullptr), UTOFU_ERR_INVALID_POINTER);
        EXPECT_EQ(utofu_create_vcq_with_cmp_id(0, 8, 0, &vcq), UTOFU_ERR_INVALID_CMP_ID);
        EXPECT_EQ(utofu_create_vcq_with_cmp_id(0, 0, UTOFU_VCQ_FLAG_EXCLUSIVE, &vcq), UTOFU_ERR_INVALID_FLAGS);
        EXPECT_EQ(vcq, 0u);
    });
}

TEST(SimVcq, TellsForeignAndFreedHandles)
{
    expect_processes(1, [](const Rank&) {
        const utofu_vcq_hdl_t vcq = create(0);
        utofu_vcq_id_t id = 0;
        ASSERT_EQ(utofu_query_vcq_id(vcq, &id), UTOFU_SUCCESS);
        uint64_t word = 0;
        utofu_stadd_t stadd = 0;
        void* cbdata = nullptr;
        utofu_mrq_notice notice;
        const auto refused = [&](utofu_vcq_hdl_t bad) {
            EXPECT_EQ(utofu_query_vcq_id(bad, &id), UTOFU_ERR_INVALID_VCQ_HDL);
            EXPECT_EQ(utofu_reg_mem(bad, &word, 8, 0, &stadd), UTOFU_ERR_INVALID_VCQ_HDL);
            EXPECT_EQ(utofu_put_piggyback8(bad, id, 0, 0, 8, 0, 0, nullptr), UTOFU_ERR_INVALID_VCQ_HDL);
            EXPECT_EQ(utofu_nop(bad, 0, nullptr), UTOFU_ERR_INVALID_VCQ_HDL);
            EXPECT_EQ(utofu_poll_tcq(bad, 0, &cbdata), UTOFU_ERR_INVALID_VCQ_HDL);
            EXPECT_EQ(utofu_poll_mrq(bad, 0, &notice), UTOFU_ERR_INVALID_VCQ_HDL);
            EXPECT_EQ(utofu_free_vcq(bad), UTOFU_ERR_INVALID_VCQ_HDL);
        };
        for (const utofu_vcq_hdl_t bad : {utofu_vcq_hdl_t{0}, vcq + 1, vcq + 512, vcq - 512, vcq + (1 << 30),
                                          ~utofu_vcq_hdl_t{0}, reinterpret_cast<utofu_vcq_hdl_t>(&word)})
            refused(bad);
        EXPECT_EQ(utofu_free_vcq(vcq), UTOFU_SUCCESS);
        refused(vcq);
    });
}

TEST(SimPost, RefusesBadParametersWithoutEffect)
{
    expect_processes(1, [](const Rank&) {
        const utofu_vcq_hdl_t vcq = create(0);
        utofu_vcq_id_t id = 0;
        ASSERT_EQ(utofu_query_vcq_id(vcq, &id), UTOFU_SUCCESS);
        uint64_t word = 5;
        utofu_stadd_t at = 0;
        ASSERT_EQ(utofu_reg_mem(vcq, &word, 8, 0, &at), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_put(vcq, id, at, at, 1 << 24, 0, 0, nullptr), UTOFU_ERR_INVALID_SIZE);
        EXPECT_EQ(utofu_put(vcq, id, at, at, 8, 256, 0, nullptr), UTOFU_ERR_INVALID_EDATA);
        EXPECT_EQ(utofu_put(vcq, id, at, at, 8, 0, 1ul << 40, nullptr), UTOFU_ERR_INVALID_FLAGS);
        EXPECT_EQ(utofu_put(vcq, 0, at, at, 8, 0, 0, nullptr), UTOFU_ERR_INVALID_VCQ_ID);
        EXPECT_EQ(utofu_put(vcq, id ^ (1ul << 32), at, at, 8, 0, 0, nullptr), UTOFU_ERR_INVALID_VCQ_ID);
        EXPECT_EQ(utofu_put_gap(vcq, id, at, at, 8, 0, 0, 1921, 0, nullptr), UTOFU_ERR_INVALID_SIZE);
        EXPECT_EQ(utofu_put_gap(vcq, id, at, at, 8, 0, 0, 1920, 256, nullptr), UTOFU_ERR_INVALID_NUMBER);
        EXPECT_EQ(utofu_put_stride(vcq, id, at, at, 8, 8, 0, 0, 0, nullptr), UTOFU_ERR_INVALID_NUMBER);
        EXPECT_EQ(utofu_put_piggyback(vcq, id, &word, at, 33, 0, 0, nullptr), UTOFU_ERR_INVALID_SIZE);
        EXPECT_EQ(utofu_put_piggyback(vcq, id, nullptr, at, 8, 0, 0, nullptr), UTOFU_ERR_INVALID_POINTER);
        EXPECT_EQ(utofu_put_piggyback8(vcq, id, 1, at, 9, 0, 0, nullptr), UTOFU_ERR_INVALID_SIZE);
        EXPECT_EQ(utofu_armw8(vcq, id, static_cast<utofu_armw_op>(0), 1, at, 0, 0, nullptr), UTOFU_ERR_INVALID_OP);
        EXPECT_EQ(utofu_armw8(vcq, id, UTOFU_ARMW_OP_ADD, 1, at + 4, 0, 0, nullptr), UTOFU_ERR_INVALID_STADD);
        EXPECT_EQ(utofu_armw4(vcq, id, UTOFU_ARMW_OP_ADD, 1, at + 2, 0, 0, nullptr), UTOFU_ERR_INVALID_STADD);
        EXPECT_EQ(utofu_cswap8(vcq, id, 5, 1, at + 4, 0, 0, nullptr), UTOFU_ERR_INVALID_STADD);
        EXPECT_EQ(utofu_reg_mem(vcq, nullptr, 8, 0, &at), UTOFU_ERR_INVALID_ADDRESS);
        EXPECT_EQ(utofu_reg_mem(vcq, &word, 0, 0, &at), UTOFU_ERR_INVALID_SIZE);
        EXPECT_EQ(utofu_reg_mem(vcq, &word, 8, 2, &at), UTOFU_ERR_INVALID_FLAGS);
        EXPECT_EQ(utofu_reg_mem(vcq, &word, 8, 0, nullptr), UTOFU_ERR_INVALID_POINTER);
        void* const odd = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(&word) | 8); // of no line's start
        EXPECT_EQ(utofu_reg_mem_with_stag(vcq, odd, 256, 256, 0, &at), UTOFU_ERR_INVALID_ADDRESS);
        void* cbdata = nullptr;
        utofu_mrq_notice notice;
        EXPECT_EQ(utofu_poll_tcq(vcq, 1, &cbdata), UTOFU_ERR_INVALID_FLAGS);
        EXPECT_EQ(utofu_poll_mrq(vcq, 0, nullptr), UTOFU_ERR_INVALID_POINTER);
        EXPECT_EQ(utofu_poll_tcq(vcq, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
        EXPECT_EQ(utofu_poll_mrq(vcq, 0, &notice), UTOFU_ERR_NOT_FOUND);
        EXPECT_EQ(word, 5u);
        char text[1024];
        utofu_get_last_error(text);
        EXPECT_STREQ(text, "invalid pointer (-513)");
    });
}

TEST(SimPost, TheToqFillsUpAndPollingMakesRoom)
{
    if (std::getenv("TOFU_SIM_CHAOS") != nullptr)
        GTEST_SKIP() << "the adversarial mode answers BUSY before the TOQ is full";
    expect_processes(1, [](const Rank&) {
        const utofu_vcq_hdl_t vcq = create(0);
        for (uintptr_t round = 0; round < 3; round++) {
            uintptr_t posted = 0;
            int rc = UTOFU_SUCCESS;
            while ((rc = utofu_nop(vcq, posted % 2 == 0 ? UTOFU_ONESIDED_FLAG_TCQ_NOTICE : 0,
                                   reinterpret_cast<void*>(posted))) == UTOFU_SUCCESS)
                posted++;
            EXPECT_EQ(rc, UTOFU_ERR_BUSY);
            EXPECT_EQ(posted, 2048u);
            size_t unread = 0;
            EXPECT_EQ(utofu_query_num_unread_tcq(vcq, &unread), UTOFU_SUCCESS);
            EXPECT_EQ(unread, 2048u);
            void* cbdata = nullptr;
            for (uintptr_t i = 0; i < posted; i += 2) {
                ASSERT_EQ(utofu_poll_tcq(vcq, 0, &cbdata), UTOFU_SUCCESS);
                EXPECT_EQ(reinterpret_cast<uintptr_t>(cbdata), i);
            }
            EXPECT_EQ(utofu_nop(vcq, 0, nullptr), UTOFU_SUCCESS);
            EXPECT_EQ(utofu_poll_tcq(vcq, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
            EXPECT_EQ(utofu_query_num_unread_tcq(vcq, &unread), UTOFU_SUCCESS);
            EXPECT_EQ(unread, 0u);
        }
    });
}

TEST(SimPath, EmbedsAndTranslatesCoordinates)
{
    expect_processes(1, [](const Rank&) {
        const utofu_vcq_hdl_t vcq = create(3);
        utofu_vcq_id_t id = 0;
        ASSERT_EQ(utofu_query_vcq_id(vcq, &id), UTOFU_SUCCESS);
        const utofu_vcq_id_t before = id;
        uint8_t path[3] = {1, 2, 1};
        utofu_path_id_t path_id = 0;
        ASSERT_EQ(utofu_get_path_id(id, path, &path_id), UTOFU_SUCCESS);
        EXPECT_EQ(path_id, 13);
        uint8_t back[3] = {};
        ASSERT_EQ(utofu_get_path_coords(id, path_id, back), UTOFU_SUCCESS);
        EXPECT_EQ(back[1], 2);
        ASSERT_EQ(utofu_set_vcq_id_path(&id, path), UTOFU_SUCCESS);
        EXPECT_NE(id, before);
        ASSERT_EQ(utofu_set_vcq_id_path(&id, nullptr), UTOFU_SUCCESS);
        path[1] = 3;
        EXPECT_EQ(utofu_set_vcq_id_path(&id, path), UTOFU_ERR_INVALID_PATH);
        EXPECT_EQ(utofu_get_path_id(id, path, &path_id), UTOFU_ERR_INVALID_PATH);
        EXPECT_EQ(utofu_get_path_coords(id, 6, back), UTOFU_ERR_INVALID_PATH_ID);
        EXPECT_EQ(utofu_get_path_coords(id, 16, back), UTOFU_ERR_INVALID_PATH_ID);
        uint8_t coords[6] = {0, 0, 0, 1, 2, 1};
        EXPECT_EQ(utofu_construct_vcq_id(coords, 0, 9, 0, &id), UTOFU_ERR_INVALID_CQ_ID);
        EXPECT_EQ(utofu_construct_vcq_id(coords, 0, 0, 8, &id), UTOFU_ERR_INVALID_CMP_ID);
        coords[0] = 1;
        EXPECT_EQ(utofu_construct_vcq_id(coords, 0, 0, 0, &id), UTOFU_ERR_INVALID_COORDS);
    });
}

TEST(SimPost, PreparedDescriptorsOfSeveralKindsStartTogether)
{
    expect_processes(1, [](const Rank&) {
        const utofu_vcq_hdl_t vcq = create(0);
        utofu_vcq_id_t id = 0;
        ASSERT_EQ(utofu_query_vcq_id(vcq, &id), UTOFU_SUCCESS);
        static uint64_t words[64];
        utofu_stadd_t at = 0;
        ASSERT_EQ(utofu_reg_mem(vcq, words, sizeof words, 0, &at), UTOFU_SUCCESS);
        words[0] = 77;
        words[4] = 88;
        alignas(8) std::byte memory[8 * 64];
        size_t used = 0;
        size_t total = 0;
        constexpr unsigned long flags = UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
        ASSERT_EQ(utofu_prepare_put_stride(vcq, id, at, at + 8, 8, 32, 2, 9, flags, memory, &used), UTOFU_SUCCESS);
        EXPECT_EQ(used, 64u);
        total += used;
        uint64_t data[4] = {1, 2, 3, 4};
        ASSERT_EQ(utofu_prepare_put_piggyback(vcq, id, data, at + 256, 32, 9, 0, memory + total, &used), UTOFU_SUCCESS);
        EXPECT_EQ(used, 64u);
        total += used;
        ASSERT_EQ(utofu_prepare_nop(vcq, UTOFU_ONESIDED_FLAG_TCQ_NOTICE, memory + total, &used), UTOFU_SUCCESS);
        total += used;
        ASSERT_EQ(utofu_prepare_cswap8(vcq, id, 77, 99, at, 9, flags, memory + total, &used), UTOFU_SUCCESS);
        total += used;
        int token = 0;
        for (unsigned round = 0; round < 2; round++) {
            ASSERT_EQ(posted([&] { return utofu_post_toq(vcq, memory, total, &token); }), UTOFU_SUCCESS);
            void* cbdata = nullptr;
            for (unsigned i = 0; i < 4; i++) {
                EXPECT_EQ(wait_tcq(vcq, &cbdata), UTOFU_SUCCESS);
                EXPECT_EQ(cbdata, &token);
            }
            EXPECT_EQ(utofu_poll_tcq(vcq, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
            utofu_mrq_notice notice;
            for (unsigned i = 0; i < 3; i++) {
                EXPECT_EQ(wait_mrq(vcq, &notice), UTOFU_SUCCESS);
                EXPECT_EQ(notice.edata, 9u);
            }
            EXPECT_EQ(notice.rmt_value, round == 0 ? 77u : 99u);
        }
        EXPECT_EQ(words[0], 99u);
        EXPECT_EQ(words[5], 88u);
        EXPECT_TRUE(wait_until([&] { return *const_cast<volatile uint64_t*>(&words[35]) == 4; }));
        memory[0] = std::byte{0xff};
        EXPECT_EQ(utofu_post_toq(vcq, memory, total, &token), UTOFU_ERR_INVALID_DESC);
        EXPECT_EQ(utofu_post_toq(vcq, memory, 31, &token), UTOFU_ERR_INVALID_DESC);
        EXPECT_EQ(utofu_post_toq(vcq, nullptr, 0, nullptr), UTOFU_SUCCESS);
    });
}

TEST(SimPlacement, NodesAndCqsAreShared)
{
    ::setenv("TOFU_SIM_PPN", "4", 1);
    expect_processes(8, [](const Rank& rank) {
        uint8_t coords[6];
        ASSERT_EQ(utofu_query_my_coords(coords), UTOFU_SUCCESS);
        EXPECT_EQ(coords[5], rank.number / 4);
        // Two CQs of each TNI, and their VCQ IDs differ from those of all other processes.
        std::vector<utofu_vcq_hdl_t> all;
        utofu_vcq_hdl_t vcq = 0;
        while (utofu_create_vcq(4, 0, &vcq) == UTOFU_SUCCESS)
            all.push_back(vcq);
        EXPECT_EQ(all.size(), 16u);
        utofu_vcq_id_t id = 0;
        ASSERT_EQ(utofu_query_vcq_id(all[0], &id), UTOFU_SUCCESS);
        EXPECT_EQ(id & 0xf, rank.number % 4 * 2);
        rank.barrier();
    });
    ::unsetenv("TOFU_SIM_PPN");
}

TEST(SimEnvironment, BadValuesGiveOneLineAndAnError)
{
    const auto refused = [](const char* name, const char* value, int code) {
        ::setenv(name, value, 1);
        const auto exits = run_processes(1, [code](const Rank&) {
            utofu_vcq_hdl_t vcq = 0;
            EXPECT_EQ(utofu_create_vcq(0, 0, &vcq), code);
            EXPECT_EQ(utofu_create_vcq(0, 0, &vcq), code); // and is not said twice
        });
        EXPECT_TRUE(exits[0].success());
        EXPECT_EQ(exits[0].errors.rfind("tofu_sim: ", 0), 0u) << exits[0].errors;
        EXPECT_EQ(exits[0].errors.find('\n'), exits[0].errors.size() - 1) << exits[0].errors;
        EXPECT_FALSE(job_is_left());
        ::unsetenv(name);
    };
    refused("TOFU_SIM_SHAPE", "banana", UTOFU_ERR_INVALID_ARG);
    refused("TOFU_SIM_SHAPE", "0x1x1", UTOFU_ERR_INVALID_ARG);
    refused("TOFU_SIM_TORUS", "q", UTOFU_ERR_INVALID_ARG);
    refused("TOFU_SIM_PPN", "55", UTOFU_ERR_INVALID_ARG);
    for (const char* text : {"x", ":late", "7:", "7:late,", "7:fast", "7 :late", "-1", "18446744073709551616"})
        refused("TOFU_SIM_CHAOS", text, UTOFU_ERR_INVALID_ARG);
}

TEST(SimEnvironment, AJobThatIsNotOursIsRefused)
{
    const auto exits = run_processes(1, [](const Rank&) {
        const std::string base = "/dev/shm/tofu-sim-" + std::to_string(::geteuid());
        const std::string path = base + "/" + std::getenv("TOFU_SIM_JOB");
        ::umask(0022);
        ::mkdir(base.c_str(), 0700);
        ASSERT_EQ(::mkdir(path.c_str(), 0755), 0); // others may look in
        utofu_vcq_hdl_t vcq = 0;
        const pid_t other = ::fork(); // into another job, whose first process sweeps; and it leaves this directory
        if (other == 0) {
            ::setenv("TOFU_SIM_JOB", (std::getenv("TOFU_SIM_JOB") + std::string("-other")).c_str(), 1);
            std::exit(utofu_create_vcq(0, 0, &vcq) == UTOFU_SUCCESS && utofu_free_vcq(vcq) == UTOFU_SUCCESS ? 0 : 1);
        }
        int swept = -1;
        ::waitpid(other, &swept, 0);
        EXPECT_EQ(swept, 0);
        EXPECT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_ERR_NOT_AVAILABLE);
        EXPECT_EQ(::rmdir(path.c_str()), 0);
        // A link to elsewhere is none of ours either.
        ASSERT_EQ(::symlink("/tmp", path.c_str()), 0);
        const pid_t pid = ::fork();
        if (pid == 0)
            std::_Exit(utofu_create_vcq(0, 0, &vcq) == UTOFU_ERR_NOT_AVAILABLE ? 0 : 1);
        int status = -1;
        ::waitpid(pid, &status, 0);
        EXPECT_EQ(status, 0);
        EXPECT_EQ(::unlink(path.c_str()), 0);
        ::rmdir(base.c_str());
    });
    EXPECT_TRUE(exits[0].success());
    EXPECT_EQ(exits[0].errors.rfind("tofu_sim: ", 0), 0u) << exits[0].errors;
    EXPECT_NE(exits[0].errors.find("instead of user"), std::string::npos) << exits[0].errors;
    EXPECT_FALSE(job_is_left());
}

TEST(SimEnvironment, AllProcessesOfAJobNeedOneShape)
{
    const auto exits = run_processes(2, [](const Rank& rank) {
        utofu_vcq_hdl_t vcq = 0;
        if (rank.number == 0) {
            EXPECT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_SUCCESS);
            rank.barrier();
        } else {
            rank.barrier();
            ::setenv("TOFU_SIM_SHAPE", "2x2x2", 1);
            EXPECT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_ERR_INVALID_ARG);
        }
        rank.barrier();
    });
    EXPECT_TRUE(exits[0].success());
    EXPECT_TRUE(exits[1].success());
    EXPECT_EQ(exits[1].errors.rfind("tofu_sim: ", 0), 0u) << exits[1].errors;
    EXPECT_FALSE(job_is_left());
}

TEST(SimPlacement, FortyEightProcessesOfANodeTalk)
{
    ::setenv("TOFU_SIM_PPN", "48", 1);
    expect_processes(48, [](const Rank& rank) {
        utofu_tni_id_t* tnis = nullptr;
        size_t count = 0;
        ASSERT_EQ(utofu_get_onesided_tnis(&tnis, &count), UTOFU_SUCCESS);
        ASSERT_EQ(count, 1u); // a CQ on one TNI each
        const utofu_vcq_hdl_t vcq = create(tnis[0]);
        std::free(tnis);
        utofu_vcq_id_t id = 0;
        static volatile uint64_t word;
        utofu_stadd_t at = 0;
        ASSERT_EQ(utofu_query_vcq_id(vcq, &id), UTOFU_SUCCESS);
        ASSERT_EQ(utofu_reg_mem(vcq, const_cast<uint64_t*>(&word), 8, 0, &at), UTOFU_SUCCESS);
        rank.set(2 * rank.number, id);
        rank.set(2 * rank.number + 1, at);
        rank.barrier();
        for (unsigned other = 0; other < rank.size; other++) {
            ASSERT_EQ(posted([&] {
                          return utofu_armw8(vcq, rank.get(2 * other), UTOFU_ARMW_OP_ADD, 1, rank.get(2 * other + 1), 0,
                                             UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr);
                      }),
                      UTOFU_SUCCESS);
            utofu_mrq_notice notice;
            EXPECT_EQ(wait_mrq(vcq, &notice), UTOFU_SUCCESS);
        }
        rank.barrier();
        EXPECT_EQ(word, 48u);
    });
    ::unsetenv("TOFU_SIM_PPN");
}

} // namespace
} // namespace tofu::sim::test
