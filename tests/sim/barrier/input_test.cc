// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Bad input to every barrier function, quantities, IDs (guide 3.2, 3.4, 3.8, tables 6.3 and 6.5).
#include "member.h"

#include <cstdlib>
#include <cstring>

namespace tofu::sim::test {
namespace {

TEST(BarrierInput, QueriesAnswerTheTablesOfTheGuide)
{
    expect_processes(1, [](const Rank&) {
        utofu_tni_id_t* tnis = nullptr;
        size_t count = 0;
        EXPECT_EQ(utofu_get_barrier_tnis(nullptr, &count), UTOFU_ERR_INVALID_POINTER);
        EXPECT_EQ(utofu_get_barrier_tnis(&tnis, nullptr), UTOFU_ERR_INVALID_POINTER);
        ASSERT_EQ(utofu_get_barrier_tnis(&tnis, &count), UTOFU_SUCCESS);
        ASSERT_EQ(count, 6u);
        for (utofu_tni_id_t tni = 0; tni < 6; tni++) {
            EXPECT_EQ(tnis[tni], tni);
            utofu_barrier_caps* caps = nullptr;
            ASSERT_EQ(utofu_query_barrier_caps(tni, &caps), UTOFU_SUCCESS);
            EXPECT_EQ(caps->flags, 0u);
            EXPECT_EQ(caps->reduce_ops, 0x1feu);
            EXPECT_EQ(caps->max_uint64_reduction, 6u);
            EXPECT_EQ(caps->max_double_reduction, 3u);
        }
        std::free(tnis);
        utofu_barrier_caps* caps = nullptr;
        EXPECT_EQ(utofu_query_barrier_caps(6, &caps), UTOFU_ERR_INVALID_TNI_ID);
        EXPECT_EQ(utofu_query_barrier_caps(0, nullptr), UTOFU_ERR_INVALID_POINTER);
    });
}

TEST(BarrierInput, AllocationRefusesAndExhausts)
{
    expect_processes(1, [](const Rank&) {
        utofu_vbg_id_t ids[40];
        EXPECT_EQ(utofu_alloc_vbg(6, 1, 0, ids), UTOFU_ERR_INVALID_TNI_ID);
        EXPECT_EQ(utofu_alloc_vbg(0, 0, 0, ids), UTOFU_ERR_INVALID_NUMBER);
        EXPECT_EQ(utofu_alloc_vbg(0, 1, 2, ids), UTOFU_ERR_INVALID_FLAGS);
        EXPECT_EQ(utofu_alloc_vbg(0, 1, 0, nullptr), UTOFU_ERR_INVALID_POINTER);
        EXPECT_EQ(utofu_alloc_vbg(0, 34, 0, ids), UTOFU_ERR_FULL);
        EXPECT_EQ(utofu_alloc_vbg(0, SIZE_MAX, 0, ids), UTOFU_ERR_FULL);
        // All relay gates at once, then none is left, but start/end gates are.
        ASSERT_EQ(utofu_alloc_vbg(0, 33, 0, ids), UTOFU_SUCCESS);
        utofu_vbg_id_t more[2];
        EXPECT_EQ(utofu_alloc_vbg(0, 2, 0, more), UTOFU_ERR_FULL);
        EXPECT_EQ(utofu_alloc_vbg(0, 1, 0, more), UTOFU_SUCCESS);
        // IDs: place of the node, TNI, numbers 0-15 and 16-47.
        uint8_t mine[6];
        ASSERT_EQ(utofu_query_my_coords(mine), UTOFU_SUCCESS);
        for (unsigned i = 0; i < 33; i++) {
            uint8_t coords[6];
            utofu_tni_id_t tni = 99;
            utofu_bg_id_t gate = 99;
            uint16_t extra = 99;
            ASSERT_EQ(utofu_query_vbg_info(ids[i], coords, &tni, &gate, &extra), UTOFU_SUCCESS);
            EXPECT_EQ(std::memcmp(coords, mine, 6), 0);
            EXPECT_EQ(tni, 0);
            EXPECT_EQ(gate, i == 0 ? 0 : 15 + i);
            EXPECT_EQ(ids[i] & 0xffffffff, gate);
        }
        // Freeing.
        EXPECT_EQ(utofu_free_vbg(nullptr, 33), UTOFU_ERR_INVALID_POINTER);
        EXPECT_EQ(utofu_free_vbg(ids, 0), UTOFU_ERR_INVALID_NUMBER);
        EXPECT_EQ(utofu_free_vbg(ids, 32), UTOFU_ERR_INVALID_NUMBER);
        EXPECT_EQ(utofu_free_vbg(ids + 1, 32), UTOFU_ERR_INVALID_VBG_ID);
        std::swap(ids[4], ids[5]);
        EXPECT_EQ(utofu_free_vbg(ids, 33), UTOFU_ERR_INVALID_VBG_ID);
        std::swap(ids[4], ids[5]);
        EXPECT_EQ(utofu_free_vbg(ids, 33), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_free_vbg(ids, 33), UTOFU_ERR_INVALID_VBG_ID);
        EXPECT_EQ(utofu_alloc_vbg(0, 33, 0, ids), UTOFU_SUCCESS);
    });
}

TEST(BarrierInput, SettingRefusesEachBadMember)
{
    ::setenv("TOFU_SIM_SHAPE", "1x1x1", 1);
    expect_processes(1, [](const Rank&) {
        utofu_vbg_id_t ids[3];
        utofu_vbg_id_t other[1];
        ASSERT_EQ(utofu_alloc_vbg(1, 3, 0, ids), UTOFU_SUCCESS);
        ASSERT_EQ(utofu_alloc_vbg(2, 1, 0, other), UTOFU_SUCCESS);
        const auto null = UTOFU_VBG_ID_NULL;
        const utofu_vbg_setting good[3] = {
            {ids[0], ids[2], null, ids[1], null, {UTOFU_PATH_COORD_NULL, 9, 9}},
            {ids[1], ids[0], null, ids[2], other[0], {1, 2, 1}},
            {ids[2], ids[1], null, ids[0], null, {9, 9, 9}}, // no packet, no path
        };
        utofu_vbg_setting s[3];
        const auto with = [&](auto change) {
            std::memcpy(s, good, sizeof s);
            change();
            return utofu_set_vbg(s, 3);
        };
        EXPECT_EQ(with([] {}), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_set_vbg(nullptr, 3), UTOFU_ERR_INVALID_POINTER);
        EXPECT_EQ(utofu_set_vbg(s, 0), UTOFU_ERR_INVALID_NUMBER);
        EXPECT_EQ(utofu_set_vbg(s, 4), UTOFU_ERR_INVALID_NUMBER);
        EXPECT_EQ(utofu_set_vbg(s, 2), UTOFU_SUCCESS);                // a subset
        EXPECT_EQ(utofu_set_vbg(s + 1, 2), UTOFU_ERR_INVALID_VBG_ID); // the first must be the start/end gate
        EXPECT_EQ(with([&] { std::swap(s[1], s[2]); }), UTOFU_SUCCESS);
        EXPECT_EQ(with([&] { s[2].vbg_id = ids[1]; }), UTOFU_ERR_INVALID_VBG_ID); // twice
        EXPECT_EQ(with([&] { s[2].vbg_id = other[0]; }), UTOFU_ERR_INVALID_VBG_ID);
        EXPECT_EQ(with([&] { s[2].vbg_id = null; }), UTOFU_ERR_INVALID_VBG_ID);
        EXPECT_EQ(with([&] { s[0].vbg_id = other[0]; }), UTOFU_ERR_INVALID_NUMBER); // of one gate
        // Signals stay in the TNI and on the node.
        EXPECT_EQ(with([&] { s[1].src_lcl_vbg_id = other[0]; }), UTOFU_ERR_INVALID_VBG_ID);
        EXPECT_EQ(with([&] { s[1].dst_lcl_vbg_id = other[0]; }), UTOFU_ERR_INVALID_VBG_ID);
        EXPECT_EQ(with([&] { s[1].src_lcl_vbg_id = ids[0] ^ uint64_t { 1 } << 56; }), UTOFU_ERR_INVALID_VBG_ID);
        // No such gate, TNI, node, or bits that no ID has.
        for (const utofu_vbg_id_t bad : {ids[0] | 48, ids[0] | uint64_t{7} << 61, ids[0] + (uint64_t{1} << 32),
                                         ids[0] | 1u << 24, ids[0] | uint64_t{1} << 60}) {
            EXPECT_EQ(with([&] { s[1].src_rmt_vbg_id = bad; }), UTOFU_ERR_INVALID_VBG_ID);
            EXPECT_EQ(with([&] { s[1].dst_rmt_vbg_id = bad; }), UTOFU_ERR_INVALID_VBG_ID);
        }
        EXPECT_EQ(with([&] { s[1].dst_path_coords[0] = 2; }), UTOFU_ERR_INVALID_PATH);
        EXPECT_EQ(with([&] { s[1].dst_path_coords[1] = 3; }), UTOFU_ERR_INVALID_PATH);
        EXPECT_EQ(with([&] { s[1].dst_path_coords[2] = 2; }), UTOFU_ERR_INVALID_PATH);
        // The last good setting is in force: a signal around.
        EXPECT_EQ(with([] {}), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_barrier(ids[0], 0), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_poll_barrier(ids[0], 0), UTOFU_SUCCESS);
    });
    ::unsetenv("TOFU_SIM_SHAPE");
}

TEST(BarrierInput, InformationNeedsAnIdAndPlaces)
{
    expect_processes(1, [](const Rank&) {
        utofu_vbg_id_t id = 0;
        ASSERT_EQ(utofu_alloc_vbg(3, 1, 0, &id), UTOFU_SUCCESS);
        uint8_t coords[6];
        utofu_tni_id_t tni = 0;
        utofu_bg_id_t gate = 0;
        uint16_t extra = 0;
        EXPECT_EQ(utofu_query_vbg_info(id, coords, &tni, &gate, &extra), UTOFU_SUCCESS);
        EXPECT_EQ(tni, 3);
        EXPECT_EQ(utofu_query_vbg_info(UTOFU_VBG_ID_NULL, coords, &tni, &gate, &extra), UTOFU_ERR_INVALID_VBG_ID);
        EXPECT_EQ(utofu_query_vbg_info(id, nullptr, &tni, &gate, &extra), UTOFU_ERR_INVALID_POINTER);
        EXPECT_EQ(utofu_query_vbg_info(id, coords, nullptr, &gate, &extra), UTOFU_ERR_INVALID_POINTER);
        EXPECT_EQ(utofu_query_vbg_info(id, coords, &tni, nullptr, &extra), UTOFU_ERR_INVALID_POINTER);
        EXPECT_EQ(utofu_query_vbg_info(id, coords, &tni, &gate, nullptr), UTOFU_ERR_INVALID_POINTER);
    });
}

TEST(BarrierInput, StartAndPollRefuseBadParameters)
{
    expect_processes(1, [](const Rank& rank) {
        EXPECT_EQ(utofu_barrier(0, 0), UTOFU_ERR_INVALID_VBG_ID); // before anything was allocated
        EXPECT_EQ(utofu_poll_barrier(0, 0), UTOFU_ERR_INVALID_VBG_ID);
        Member member = allocate(rank, Shape::ring, 1, 0, 0);
        connect(rank, Shape::ring, 1, member);
        const utofu_vbg_id_t id = member.start();
        uint64_t words[8] = {};
        double values[8] = {};
        for (const utofu_vbg_id_t bad : {member.ids[1], id + 1, id + (uint64_t{1} << 61), UTOFU_VBG_ID_NULL}) {
            EXPECT_EQ(utofu_barrier(bad, 0), UTOFU_ERR_INVALID_VBG_ID);
            EXPECT_EQ(utofu_reduce_uint64(bad, UTOFU_REDUCE_OP_SUM, words, 1, 0), UTOFU_ERR_INVALID_VBG_ID);
            EXPECT_EQ(utofu_reduce_double(bad, UTOFU_REDUCE_OP_BFPSUM, values, 1, 0), UTOFU_ERR_INVALID_VBG_ID);
            EXPECT_EQ(utofu_poll_barrier(bad, 0), UTOFU_ERR_INVALID_VBG_ID);
            EXPECT_EQ(utofu_poll_reduce_uint64(bad, 0, words), UTOFU_ERR_INVALID_VBG_ID);
            EXPECT_EQ(utofu_poll_reduce_double(bad, 0, values), UTOFU_ERR_INVALID_VBG_ID);
        }
        EXPECT_EQ(utofu_barrier(id, 1), UTOFU_ERR_INVALID_FLAGS);
        EXPECT_EQ(utofu_reduce_uint64(id, UTOFU_REDUCE_OP_SUM, words, 1, 1), UTOFU_ERR_INVALID_FLAGS);
        EXPECT_EQ(utofu_reduce_double(id, UTOFU_REDUCE_OP_BFPSUM, values, 1, 1), UTOFU_ERR_INVALID_FLAGS);
        EXPECT_EQ(utofu_poll_barrier(id, 1), UTOFU_ERR_INVALID_FLAGS);
        EXPECT_EQ(utofu_poll_reduce_uint64(id, 1, words), UTOFU_ERR_INVALID_FLAGS);
        EXPECT_EQ(utofu_poll_reduce_double(id, 1, values), UTOFU_ERR_INVALID_FLAGS);
        for (const int op : {-1, 0, int{UTOFU_REDUCE_OP_BARRIER}, int{UTOFU_REDUCE_OP_BFPSUM}, 9, 258})
            EXPECT_EQ(utofu_reduce_uint64(id, static_cast<utofu_reduce_op>(op), words, 1, 0), UTOFU_ERR_INVALID_OP);
        EXPECT_EQ(utofu_reduce_double(id, UTOFU_REDUCE_OP_SUM, values, 1, 0), UTOFU_ERR_INVALID_OP);
        EXPECT_EQ(utofu_reduce_uint64(id, UTOFU_REDUCE_OP_SUM, nullptr, 1, 0), UTOFU_ERR_INVALID_POINTER);
        EXPECT_EQ(utofu_reduce_double(id, UTOFU_REDUCE_OP_BFPSUM, nullptr, 1, 0), UTOFU_ERR_INVALID_POINTER);
        EXPECT_EQ(utofu_poll_reduce_uint64(id, 0, nullptr), UTOFU_ERR_INVALID_POINTER);
        EXPECT_EQ(utofu_poll_reduce_double(id, 0, nullptr), UTOFU_ERR_INVALID_POINTER);
        EXPECT_EQ(utofu_reduce_uint64(id, UTOFU_REDUCE_OP_SUM, words, 0, 0), UTOFU_ERR_INVALID_NUMBER);
        EXPECT_EQ(utofu_reduce_uint64(id, UTOFU_REDUCE_OP_SUM, words, 7, 0), UTOFU_ERR_INVALID_NUMBER);
        EXPECT_EQ(utofu_reduce_uint64(id, UTOFU_REDUCE_OP_MAXLOC, words, 3, 0), UTOFU_ERR_INVALID_NUMBER);
        EXPECT_EQ(utofu_reduce_double(id, UTOFU_REDUCE_OP_BFPSUM, values, 0, 0), UTOFU_ERR_INVALID_NUMBER);
        EXPECT_EQ(utofu_reduce_double(id, UTOFU_REDUCE_OP_BFPSUM, values, 4, 0), UTOFU_ERR_INVALID_NUMBER);
        // None of this started anything.
        EXPECT_EQ(utofu_poll_barrier(id, 0), UTOFU_ERR_BUSY);
        EXPECT_EQ(utofu_barrier(id, 0), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_poll_barrier(id, 0), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_free_vbg(member.ids.data(), member.ids.size()), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_barrier(id, 0), UTOFU_ERR_INVALID_VBG_ID);
        EXPECT_EQ(utofu_poll_barrier(id, 0), UTOFU_ERR_INVALID_VBG_ID);
    });
}

} // namespace
} // namespace tofu::sim::test
