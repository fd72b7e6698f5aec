// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Every function of guide 3.2 to 3.7 and 3.9 with each parameter wrong: the code for it, and nothing done. Barrier
// functions: tests/sim/barrier/input_test.cc.
#include "lib/harness.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

namespace tofu::sim::test {
namespace {

constexpr uint64_t untouched = 0x5a5a5a5a5a5a5a5a;

// What a call is given; each row of a table spoils one of them.
struct Arguments {
    utofu_vcq_hdl_t vcq = 0;
    utofu_vcq_id_t id = 0;
    utofu_stadd_t lcl = 0;
    utofu_stadd_t rmt = 0;
    void* data = nullptr;
    size_t length = 8;
    size_t stride = 8;
    size_t blocks = 2;
    uint64_t edata = 1;
    unsigned long flags = 0;
    size_t mtu = 1920;
    size_t gap = 0;
    int armw_op = UTOFU_ARMW_OP_ADD;
    void* desc = nullptr;
    size_t* desc_size = nullptr;

    [[nodiscard]] utofu_armw_op op() const { return static_cast<utofu_armw_op>(armw_op); }
};

// Which parameters a function has.
enum Has : unsigned {
    target = 1,
    edata = 2,
    length = 4,
    gap = 8,
    blocks = 16,
    data = 32,
    data8 = 64, // by value
    op = 128,
    word4 = 256,
    word8 = 512,
    onesided = target | edata,
    transfer = onesided | length,
};

struct Function {
    const char* name;
    unsigned has;
    int (*start)(const Arguments&);
    int (*prepare)(const Arguments&);
};

#define FUNCTION(name, has, ...)                                                                                       \
    {                                                                                                                  \
#name, has,                                                                                              \
     [](const Arguments& a) { return utofu_##name(a.vcq __VA_OPT__(, ) __VA_ARGS__, a.flags, nullptr); },     \
     [](const Arguments& a) {                                                                                 \
         return utofu_prepare_##name(a.vcq __VA_OPT__(, ) __VA_ARGS__, a.flags, a.desc, a.desc_size);         \
     }             \
    }
#define FUNCTION_GAP(name, has, ...)                                                                                   \
    {                                                                                                                  \
#name, has,                                                                                              \
     [](const Arguments& a) { return utofu_##name(a.vcq, __VA_ARGS__, a.flags, a.mtu, a.gap, nullptr); },     \
     [](const Arguments& a) {                                                                                 \
         return utofu_prepare_##name(a.vcq, __VA_ARGS__, a.flags, a.mtu, a.gap, a.desc, a.desc_size);         \
     }             \
    }

const Function functions[] = {
    FUNCTION(put, transfer, a.id, a.lcl, a.rmt, a.length, a.edata),
    FUNCTION_GAP(put_gap, transfer | gap, a.id, a.lcl, a.rmt, a.length, a.edata),
    FUNCTION(put_stride, transfer | blocks, a.id, a.lcl, a.rmt, a.length, a.stride, a.blocks, a.edata),
    FUNCTION_GAP(put_stride_gap, transfer | blocks | gap, a.id, a.lcl, a.rmt, a.length, a.stride, a.blocks, a.edata),
    FUNCTION(put_piggyback, onesided | data, a.id, a.data, a.rmt, a.length, a.edata),
    FUNCTION(put_piggyback8, onesided | data8, a.id, 7, a.rmt, a.length, a.edata),
    FUNCTION(get, transfer, a.id, a.lcl, a.rmt, a.length, a.edata),
    FUNCTION_GAP(get_gap, transfer | gap, a.id, a.lcl, a.rmt, a.length, a.edata),
    FUNCTION(get_stride, transfer | blocks, a.id, a.lcl, a.rmt, a.length, a.stride, a.blocks, a.edata),
    FUNCTION_GAP(get_stride_gap, transfer | blocks | gap, a.id, a.lcl, a.rmt, a.length, a.stride, a.blocks, a.edata),
    FUNCTION(armw4, onesided | op | word4, a.id, a.op(), 1, a.rmt, a.edata),
    FUNCTION(armw8, onesided | op | word8, a.id, a.op(), 1, a.rmt, a.edata),
    FUNCTION(cswap4, onesided | word4, a.id, 0, 1, a.rmt, a.edata),
    FUNCTION(cswap8, onesided | word8, a.id, 0, 1, a.rmt, a.edata),
    FUNCTION(nop, 0),
};

// A parameter made wrong. `of`: all of these a function must have; `code`: what it answers.
struct Mistake {
    const char* name;
    unsigned of;
    int code;
    void (*make)(Arguments&);
};

const Mistake mistakes[] = {
    {"no handle", 0, UTOFU_ERR_INVALID_VCQ_HDL, [](Arguments& a) { a.vcq = 0; }},
    {"a pointer into the middle", 0, UTOFU_ERR_INVALID_VCQ_HDL, [](Arguments& a) { a.vcq += 8; }},
    {"foreign memory", 0, UTOFU_ERR_INVALID_VCQ_HDL, [](Arguments& a) { a.vcq = utofu_vcq_hdl_t(&a); }},
    {"all bits", 0, UTOFU_ERR_INVALID_VCQ_HDL, [](Arguments& a) { a.vcq = ~utofu_vcq_hdl_t{0}; }},
    {"an unknown flag", 0, UTOFU_ERR_INVALID_FLAGS, [](Arguments& a) { a.flags = 1ul << 4; }},
    {"the highest flag", 0, UTOFU_ERR_INVALID_FLAGS, [](Arguments& a) { a.flags = 1ul << 63; }},
    {"a path with B = 3", 0, UTOFU_ERR_INVALID_PATH_ID, [](Arguments& a) { a.flags = UTOFU_ONESIDED_FLAG_PATH(15); }},
    {"no ID", target, UTOFU_ERR_INVALID_VCQ_ID, [](Arguments& a) { a.id = 0; }},
    {"all bits of an ID", target, UTOFU_ERR_INVALID_VCQ_ID, [](Arguments& a) { a.id = ~utofu_vcq_id_t{0}; }},
    {"EDATA of two bytes", edata, UTOFU_ERR_INVALID_EDATA, [](Arguments& a) { a.edata = 256; }},
    {"EDATA of eight bytes", edata, UTOFU_ERR_INVALID_EDATA, [](Arguments& a) { a.edata = ~uint64_t{0}; }},
    {"a byte too long", length, UTOFU_ERR_INVALID_SIZE, [](Arguments& a) { a.length = 1 << 24; }},
    {"as long as can be", length, UTOFU_ERR_INVALID_SIZE, [](Arguments& a) { a.length = SIZE_MAX; }},
    {"MTU", gap, UTOFU_ERR_INVALID_SIZE, [](Arguments& a) { a.mtu = 1921; }},
    {"gap", gap, UTOFU_ERR_INVALID_NUMBER, [](Arguments& a) { a.gap = 256; }},
    {"no block", blocks, UTOFU_ERR_INVALID_NUMBER, [](Arguments& a) { a.blocks = 0; }},
    {"more blocks than a TOQ takes", blocks, UTOFU_ERR_INVALID_NUMBER, [](Arguments& a) { a.blocks = 1 << 20; }},
    {"any number of blocks", blocks, UTOFU_ERR_INVALID_NUMBER, [](Arguments& a) { a.blocks = SIZE_MAX; }},
    {"no data", data, UTOFU_ERR_INVALID_POINTER, [](Arguments& a) { a.data = nullptr; }},
    {"33 bytes of data", data, UTOFU_ERR_INVALID_SIZE, [](Arguments& a) { a.length = 33; }},
    {"9 bytes of a word", data8, UTOFU_ERR_INVALID_SIZE, [](Arguments& a) { a.length = 9; }},
    {"no operation", op, UTOFU_ERR_INVALID_OP, [](Arguments& a) { a.armw_op = 0; }},
    {"an operation too far", op, UTOFU_ERR_INVALID_OP, [](Arguments& a) { a.armw_op = 6; }},
    {"a negative operation", op, UTOFU_ERR_INVALID_OP, [](Arguments& a) { a.armw_op = -1; }},
    {"one of eight bits too many", op, UTOFU_ERR_INVALID_OP, [](Arguments& a) { a.armw_op = 258; }},
    {"half of 4 bytes", word4, UTOFU_ERR_INVALID_STADD, [](Arguments& a) { a.rmt += 2; }},
    {"half of 8 bytes", word8, UTOFU_ERR_INVALID_STADD, [](Arguments& a) { a.rmt += 4; }},
};

// Of the prepare functions alone.
const Mistake of_prepare[] = {
    {"no descriptor", 0, UTOFU_ERR_INVALID_POINTER, [](Arguments& a) { a.desc = nullptr; }},
    {"a descriptor not aligned", 0, UTOFU_ERR_INVALID_POINTER,
     [](Arguments& a) { a.desc = static_cast<char*>(a.desc) + 4; }},
    {"no size", 0, UTOFU_ERR_INVALID_POINTER, [](Arguments& a) { a.desc_size = nullptr; }},
};

struct World {
    alignas(256) uint64_t words[64] = {};
    alignas(8) uint8_t desc[256];
    size_t desc_size = untouched;
    Arguments good;

    World()
    {
        EXPECT_EQ(utofu_create_vcq(0, 0, &good.vcq), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_query_vcq_id(good.vcq, &good.id), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_reg_mem(good.vcq, words, sizeof words, 0, &good.lcl), UTOFU_SUCCESS);
        good.rmt = good.lcl + 128;
        good.data = words;
        good.desc = desc;
        good.desc_size = &desc_size;
        std::memset(desc, 0x5a, sizeof desc);
    }
    // Neither queue has anything, memory and descriptor are as they were.
    void expect_nothing_done() const
    {
        void* cbdata = nullptr;
        utofu_mrq_notice notice;
        EXPECT_EQ(utofu_poll_tcq(good.vcq, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
        EXPECT_EQ(utofu_poll_mrq(good.vcq, 0, &notice), UTOFU_ERR_NOT_FOUND);
        size_t unread = 1;
        EXPECT_EQ(utofu_query_num_unread_tcq(good.vcq, &unread), UTOFU_SUCCESS);
        EXPECT_EQ(unread, 0u);
        for (const uint64_t word : words)
            ASSERT_EQ(word, 0u);
        EXPECT_EQ(desc_size, untouched);
        for (const uint8_t byte : desc)
            ASSERT_EQ(byte, 0x5a);
    }
};

TEST(SimInput, StartAndPrepareFunctionsRefuseEachMistake)
{
    expect_processes(1, [](const Rank&) {
        World w;
        for (const Function& f : functions) {
            const auto refused = [&](const Mistake& m, bool prepares_only) {
                if ((f.has & m.of) != m.of)
                    return;
                Arguments bad = w.good;
                m.make(bad);
                EXPECT_EQ(f.prepare(bad), m.code) << "prepare_" << f.name << ": " << m.name;
                if (!prepares_only) {
                    // An adversary may find the TOQ full before the ID is looked at.
                    EXPECT_EQ(posted([&] { return f.start(bad); }), m.code) << f.name << ": " << m.name;
                }
            };
            for (const Mistake& m : mistakes)
                refused(m, false);
            for (const Mistake& m : of_prepare)
                refused(m, true);
        }
        w.expect_nothing_done();
        // And the freed handle, of which each kind of function must know.
        ASSERT_EQ(utofu_free_vcq(w.good.vcq), UTOFU_SUCCESS);
        for (const Function& f : functions) {
            EXPECT_EQ(f.start(w.good), UTOFU_ERR_INVALID_VCQ_HDL) << f.name;
            EXPECT_EQ(f.prepare(w.good), UTOFU_ERR_INVALID_VCQ_HDL) << f.name;
        }
        EXPECT_EQ(w.desc_size, untouched);
    });
}

TEST(SimInput, AllOfThemWorkWithoutAMistake)
{
    expect_processes(1, [](const Rank&) {
        World w;
        for (const Function& f : functions) {
            EXPECT_EQ(posted([&] { return f.start(w.good); }), UTOFU_SUCCESS) << f.name;
            EXPECT_EQ(f.prepare(w.good), UTOFU_SUCCESS) << f.name;
        }
    });
}

struct Row {
    const char* name;
    int code;
    std::function<int()> call;
};

void expect_rows(const std::vector<Row>& rows)
{
    for (const Row& row : rows)
        EXPECT_EQ(row.call(), row.code) << row.name;
}

TEST(SimInput, QueriesAndIdsRefuseEachMistake)
{
    expect_processes(1, [](const Rank&) {
        const World w;
        const utofu_vcq_hdl_t vcq = w.good.vcq;
        const utofu_vcq_id_t id = w.good.id;
        utofu_tni_id_t* tnis = nullptr;
        utofu_onesided_caps* caps = nullptr;
        uint8_t c[6] = {};
        uint8_t outside[6] = {255, 0, 0, 0, 0, 0};
        uint8_t no_b[6] = {0, 0, 0, 0, 3, 0};
        utofu_vcq_id_t out = untouched;
        utofu_tni_id_t tni = 77;
        utofu_cq_id_t cq = 77;
        uint16_t extra = 77;
        size_t count = untouched;
        constexpr int pointer = UTOFU_ERR_INVALID_POINTER;
        expect_rows({
            {"get_onesided_tnis", pointer, [&] { return utofu_get_onesided_tnis(nullptr, &count); }},
            {"get_onesided_tnis", pointer, [&] { return utofu_get_onesided_tnis(&tnis, nullptr); }},
            {"query_onesided_caps", UTOFU_ERR_INVALID_TNI_ID, [&] { return utofu_query_onesided_caps(65535, &caps); }},
            {"query_vcq_id", pointer, [&] { return utofu_query_vcq_id(vcq, nullptr); }},
            {"construct_vcq_id", pointer, [&] { return utofu_construct_vcq_id(nullptr, 0, 0, 0, &out); }},
            {"construct_vcq_id", pointer, [&] { return utofu_construct_vcq_id(c, 0, 0, 0, nullptr); }},
            {"construct_vcq_id", UTOFU_ERR_INVALID_COORDS,
             [&] { return utofu_construct_vcq_id(outside, 0, 0, 0, &out); }},
            {"construct_vcq_id", UTOFU_ERR_INVALID_COORDS, [&] { return utofu_construct_vcq_id(no_b, 0, 0, 0, &out); }},
            {"construct_vcq_id", UTOFU_ERR_INVALID_TNI_ID, [&] { return utofu_construct_vcq_id(c, 6, 0, 0, &out); }},
            {"construct_vcq_id", UTOFU_ERR_INVALID_CQ_ID, [&] { return utofu_construct_vcq_id(c, 0, 9, 0, &out); }},
            {"construct_vcq_id", UTOFU_ERR_INVALID_CMP_ID,
             [&] { return utofu_construct_vcq_id(c, 0, 0, 65535, &out); }},
            {"query_vcq_info", pointer, [&] { return utofu_query_vcq_info(id, nullptr, &tni, &cq, &extra); }},
            {"query_vcq_info", pointer, [&] { return utofu_query_vcq_info(id, c, nullptr, &cq, &extra); }},
            {"query_vcq_info", pointer, [&] { return utofu_query_vcq_info(id, c, &tni, nullptr, &extra); }},
            {"query_vcq_info", pointer, [&] { return utofu_query_vcq_info(id, c, &tni, &cq, nullptr); }},
            {"query_vcq_info", UTOFU_ERR_INVALID_VCQ_ID, [&] { return utofu_query_vcq_info(0, c, &tni, &cq, &extra); }},
            {"query_my_coords", pointer, [&] { return utofu_query_my_coords(nullptr); }},
            {"query_num_unread_tcq", pointer, [&] { return utofu_query_num_unread_tcq(vcq, nullptr); }},
            {"query_num_unread_tcq", UTOFU_ERR_INVALID_VCQ_HDL,
             [&] { return utofu_query_num_unread_tcq(vcq + 1, &count); }},
            {"query_num_unread_mrq", pointer, [&] { return utofu_query_num_unread_mrq(vcq, nullptr); }},
            {"query_num_unread_mrq", UTOFU_ERR_INVALID_VCQ_HDL, [&] { return utofu_query_num_unread_mrq(0, &count); }},
        });
        // Outputs are as they were, and functions that return nothing take null.
        EXPECT_TRUE(out == untouched && count == untouched && tnis == nullptr && caps == nullptr);
        EXPECT_TRUE(tni == 77 && cq == 77 && extra == 77);
        int version = 77;
        utofu_query_tofu_version(nullptr, &version);
        utofu_query_utofu_version(&version, nullptr);
        utofu_get_last_error(nullptr);
        EXPECT_EQ(version, 77);
        w.expect_nothing_done();
    });
}

TEST(SimInput, PathsRefuseEachMistake)
{
    expect_processes(1, [](const Rank&) {
        const World w;
        const utofu_vcq_id_t id = w.good.id;
        uint8_t path[3] = {0, 0, 0};
        uint8_t no_path[3] = {2, 0, 0};
        utofu_vcq_id_t any = ~utofu_vcq_id_t{0};
        utofu_path_id_t path_id = 77;
        constexpr int pointer = UTOFU_ERR_INVALID_POINTER;
        expect_rows({
            {"set_vcq_id_path", pointer, [&] { return utofu_set_vcq_id_path(nullptr, path); }},
            {"set_vcq_id_path", UTOFU_ERR_INVALID_VCQ_ID, [&] { return utofu_set_vcq_id_path(&any, path); }},
            {"set_vcq_id_path", UTOFU_ERR_INVALID_PATH,
             [&, copy = id]() mutable { return utofu_set_vcq_id_path(&copy, no_path); }},
            {"get_path_id", pointer, [&] { return utofu_get_path_id(id, path, nullptr); }},
            {"get_path_id", UTOFU_ERR_INVALID_VCQ_ID, [&] { return utofu_get_path_id(0, path, &path_id); }},
            {"get_path_id", UTOFU_ERR_INVALID_PATH, [&] { return utofu_get_path_id(id, no_path, &path_id); }},
            {"get_path_coords", pointer, [&] { return utofu_get_path_coords(id, 0, nullptr); }},
            {"get_path_coords", UTOFU_ERR_INVALID_VCQ_ID, [&] { return utofu_get_path_coords(any, 0, path); }},
            {"get_path_coords", UTOFU_ERR_INVALID_PATH_ID, [&] { return utofu_get_path_coords(id, 255, path); }},
        });
        EXPECT_TRUE(path_id == 77 && any == ~utofu_vcq_id_t{0});
        w.expect_nothing_done();
    });
}

TEST(SimInput, VcqsAndMemoryRefuseEachMistake)
{
    expect_processes(1, [](const Rank&) {
        World w;
        const utofu_vcq_hdl_t vcq = w.good.vcq;
        utofu_vcq_hdl_t other = untouched;
        utofu_stadd_t stadd = untouched;
        void* const at = w.words;
        void* const odd = reinterpret_cast<char*>(w.words) + 128;
        void* const nowhere = reinterpret_cast<void*>(uintptr_t{0x1000}); // below what may be mapped (vm.mmap_min_addr)
        constexpr int pointer = UTOFU_ERR_INVALID_POINTER;
        constexpr int handle = UTOFU_ERR_INVALID_VCQ_HDL;
        constexpr int flags = UTOFU_ERR_INVALID_FLAGS;
        expect_rows({
            {"create_vcq", UTOFU_ERR_INVALID_TNI_ID, [&] { return utofu_create_vcq(65535, 0, &other); }},
            {"create_vcq", flags, [&] { return utofu_create_vcq(0, ~0ul, &other); }},
            {"create_vcq_with_cmp_id", pointer, [&] { return utofu_create_vcq_with_cmp_id(0, 0, 0, nullptr); }},
            {"create_vcq_with_cmp_id", UTOFU_ERR_INVALID_TNI_ID,
             [&] { return utofu_create_vcq_with_cmp_id(6, 0, 0, &other); }},
            {"create_vcq_with_cmp_id", UTOFU_ERR_INVALID_CMP_ID,
             [&] { return utofu_create_vcq_with_cmp_id(0, 8, 0, &other); }},
            {"create_vcq_with_cmp_id", flags, [&] { return utofu_create_vcq_with_cmp_id(0, 0, 1ul << 40, &other); }},
            {"create_vcq_with_cmp_id", flags,
             [&] { return utofu_create_vcq_with_cmp_id(0, 0, UTOFU_VCQ_FLAG_SESSION_MODE, &other); }},
            {"free_vcq", handle, [&] { return utofu_free_vcq(0); }},
            {"reg_mem", UTOFU_ERR_INVALID_ADDRESS, [&] { return utofu_reg_mem(vcq, nowhere, 8, 0, &stadd); }},
            {"reg_mem", UTOFU_ERR_INVALID_SIZE, [&] { return utofu_reg_mem(vcq, at, SIZE_MAX, 0, &stadd); }},
            {"reg_mem", flags, [&] { return utofu_reg_mem(vcq, at, 8, ~0ul, &stadd); }},
            {"reg_mem_with_stag", handle, [&] { return utofu_reg_mem_with_stag(0, at, 256, 0, 0, &stadd); }},
            {"reg_mem_with_stag", pointer, [&] { return utofu_reg_mem_with_stag(vcq, at, 256, 0, 0, nullptr); }},
            {"reg_mem_with_stag", UTOFU_ERR_INVALID_ADDRESS,
             [&] { return utofu_reg_mem_with_stag(vcq, nullptr, 256, 0, 0, &stadd); }},
            {"reg_mem_with_stag", UTOFU_ERR_INVALID_ADDRESS,
             [&] { return utofu_reg_mem_with_stag(vcq, odd, 256, 0, 0, &stadd); }},
            {"reg_mem_with_stag", UTOFU_ERR_INVALID_SIZE,
             [&] { return utofu_reg_mem_with_stag(vcq, at, 0, 0, 0, &stadd); }},
            {"reg_mem_with_stag", UTOFU_ERR_INVALID_SIZE,
             [&] { return utofu_reg_mem_with_stag(vcq, at, 255, 0, 0, &stadd); }},
            {"reg_mem_with_stag", UTOFU_ERR_INVALID_STAG,
             [&] { return utofu_reg_mem_with_stag(vcq, at, 256, 256, 0, &stadd); }},
            {"reg_mem_with_stag", UTOFU_ERR_INVALID_STAG,
             [&] { return utofu_reg_mem_with_stag(vcq, at, 256, ~0u, 0, &stadd); }},
            {"reg_mem_with_stag", flags, [&] { return utofu_reg_mem_with_stag(vcq, at, 256, 0, 2, &stadd); }},
            {"query_stadd", pointer, [&] { return utofu_query_stadd(w.good.id, 0, nullptr); }},
            {"query_stadd", UTOFU_ERR_INVALID_VCQ_ID, [&] { return utofu_query_stadd(0, 0, &stadd); }},
            {"query_stadd", UTOFU_ERR_INVALID_STAG, [&] { return utofu_query_stadd(w.good.id, 256, &stadd); }},
            {"dereg_mem", handle, [&] { return utofu_dereg_mem(0, w.good.lcl, 0); }},
            {"dereg_mem", flags, [&] { return utofu_dereg_mem(vcq, w.good.lcl, 1); }},
            {"dereg_mem", UTOFU_ERR_INVALID_STADD, [&] { return utofu_dereg_mem(vcq, 0, 0); }},
            {"dereg_mem", UTOFU_ERR_INVALID_STADD, [&] { return utofu_dereg_mem(vcq, w.good.lcl + 8, 0); }},
            {"dereg_mem", UTOFU_ERR_INVALID_STADD, [&] { return utofu_dereg_mem(vcq, ~utofu_stadd_t{0}, 0); }},
        });
        EXPECT_TRUE(other == untouched && stadd == untouched);
        w.expect_nothing_done();
    });
}

TEST(SimInput, QueuesRefuseEachMistake)
{
    expect_processes(1, [](const Rank&) {
        World w;
        const utofu_vcq_hdl_t vcq = w.good.vcq;
        void* cbdata = &w;
        utofu_mrq_notice notice;
        constexpr int pointer = UTOFU_ERR_INVALID_POINTER;
        constexpr int handle = UTOFU_ERR_INVALID_VCQ_HDL;
        constexpr int flags = UTOFU_ERR_INVALID_FLAGS;
        expect_rows({
            {"post_toq", handle, [&] { return utofu_post_toq(0, w.desc, 32, nullptr); }},
            {"post_toq", pointer, [&] { return utofu_post_toq(vcq, nullptr, 32, nullptr); }},
            {"post_toq", pointer, [&] { return utofu_post_toq(vcq, w.desc + 4, 32, nullptr); }},
            {"post_toq", UTOFU_ERR_INVALID_DESC, [&] { return utofu_post_toq(vcq, w.desc, 31, nullptr); }},
            {"post_toq", UTOFU_ERR_INVALID_DESC, [&] { return utofu_post_toq(vcq, w.desc, sizeof w.desc, nullptr); }},
            {"poll_tcq", handle, [&] { return utofu_poll_tcq(0, 0, &cbdata); }},
            {"poll_tcq", pointer, [&] { return utofu_poll_tcq(vcq, 0, nullptr); }},
            {"poll_tcq", flags, [&] { return utofu_poll_tcq(vcq, 1ul << 63, &cbdata); }},
            {"poll_mrq", handle, [&] { return utofu_poll_mrq(0, 0, &notice); }},
            {"poll_mrq", flags, [&] { return utofu_poll_mrq(vcq, 1, &notice); }},
        });
        EXPECT_EQ(cbdata, &w);
        w.expect_nothing_done();
    });
}

TEST(SimInput, AFreedVcqAndMemoryAreRefused)
{
    expect_processes(1, [](const Rank&) {
        World w;
        const utofu_vcq_hdl_t vcq = w.good.vcq;
        utofu_stadd_t stadd = untouched, other = untouched;
        void* const at = w.words;
        void* cbdata = &w;
        utofu_mrq_notice notice;
        constexpr int handle = UTOFU_ERR_INVALID_VCQ_HDL;
        ASSERT_EQ(utofu_reg_mem_with_stag(vcq, at, 256, 3, 0, &stadd), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_reg_mem_with_stag(vcq, at, 256, 3, 0, &other), UTOFU_ERR_USED);
        EXPECT_EQ(utofu_dereg_mem(vcq, stadd, 0), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_dereg_mem(vcq, stadd, 0), UTOFU_ERR_INVALID_STADD);
        ASSERT_EQ(utofu_free_vcq(vcq), UTOFU_SUCCESS);
        size_t count = 0;
        expect_rows({
            {"free_vcq", handle, [&] { return utofu_free_vcq(vcq); }},
            {"query_vcq_id", handle, [&] { return utofu_query_vcq_id(vcq, &w.good.id); }},
            {"reg_mem", handle, [&] { return utofu_reg_mem(vcq, at, 8, 0, &stadd); }},
            {"reg_mem_with_stag", handle, [&] { return utofu_reg_mem_with_stag(vcq, at, 256, 0, 0, &stadd); }},
            {"dereg_mem", handle, [&] { return utofu_dereg_mem(vcq, w.good.lcl, 0); }},
            {"post_toq", handle, [&] { return utofu_post_toq(vcq, nullptr, 0, nullptr); }},
            {"poll_tcq", handle, [&] { return utofu_poll_tcq(vcq, 0, &cbdata); }},
            {"poll_mrq", handle, [&] { return utofu_poll_mrq(vcq, 0, &notice); }},
            {"query_num_unread_tcq", handle, [&] { return utofu_query_num_unread_tcq(vcq, &count); }},
            {"query_num_unread_mrq", handle, [&] { return utofu_query_num_unread_mrq(vcq, &count); }},
        });
    });
}

} // namespace
} // namespace tofu::sim::test
