// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What goes into the words of gates and comes out of them, for each collective that they carry out.
#include "coll/barrier_circuit.h"

#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "prov/coll/model.h"

namespace tofu::test {
namespace {

using namespace coll;
using vcq::GateData;

/// As the guide has it (2.3.4).
void combine(utofu_reduce_op op, GateData& all, const GateData& one, unsigned used)
{
    for (unsigned i = 0; i < used; i++)
        switch (op) {
        case UTOFU_REDUCE_OP_BAND: all.word[i] &= one.word[i]; break;
        case UTOFU_REDUCE_OP_BOR: all.word[i] |= one.word[i]; break;
        case UTOFU_REDUCE_OP_BXOR: all.word[i] ^= one.word[i]; break;
        case UTOFU_REDUCE_OP_MAX: all.word[i] = std::max(all.word[i], one.word[i]); break;
        case UTOFU_REDUCE_OP_SUM: all.word[i] += one.word[i]; break;
        case UTOFU_REDUCE_OP_BFPSUM: all.real[i] += one.real[i]; break;
        default: FAIL() << "operation " << op;
        }
}

/// All rounds; false: the signatures differ, as `each` member finds.
bool run(const Shape& shape, const GateMapping& native, const std::vector<Bytes>& in, std::vector<Bytes>& out,
         const std::vector<std::uint32_t>& signatures, std::vector<bool>* each = nullptr)
{
    const auto n = static_cast<unsigned>(in.size());
    bool good = true;
    for (unsigned round = 0; round < native.rounds; round++) {
        GateData all{};
        for (unsigned m = 0; m < n; m++) {
            GateData one;
            const bool gives = shape.coll != FI_BROADCAST || m == shape.root;
            const unsigned used = pack(native, shape, round, gives ? in[m].data() : nullptr, signatures[m], one);
            EXPECT_LE(used, native.op == UTOFU_REDUCE_OP_BFPSUM ? GateData::reals : GateData::words);
            EXPECT_TRUE(used != 0 || native.form == GateMapping::Form::barrier);
            if (m == 0)
                all = one;
            else
                combine(native.op, all, one, used);
        }
        for (unsigned m = 0; m < n; m++) {
            const bool one =
                unpack(native, shape, round, out[m].empty() ? nullptr : out[m].data(), signatures[m], n, all);
            good &= one;
            if (each != nullptr)
                each->push_back(one);
        }
    }
    return good;
}

TEST(GateMapping, WhatGatesDoEndsAsTheModelSays)
{
    std::mt19937_64 random(5);
    unsigned native_ones = 0, in_rounds = 0;
    for (int i = 0; i < 2000 && !testing::Test::HasFailure(); i++) {
        const Case c = random_case(random, 2 + static_cast<unsigned>(random() % 30), 400);
        const Shape shape{c.coll, c.type, c.op, c.count, c.root};
        const GateMapping native = gate_mapping_of(shape, c.members);
        if (native.rounds == 0 || c.coll == FI_BARRIER || c.count == 0)
            continue;
        native_ones++;
        in_rounds += native.rounds > 1;
        std::vector<Bytes> in, out;
        for (unsigned m = 0; m < c.members; m++) {
            in.push_back(input_of(c, m));
            out.push_back(Bytes(out_bytes(c, m), std::byte{0xee}));
        }
        ASSERT_TRUE(run(shape, native, in, out, std::vector<std::uint32_t>(c.members, 0x80001235)));
        for (unsigned m = 0; m < c.members; m++)
            ASSERT_EQ(out[m], output_of(c, m)) << "collective " << c.coll << " type " << c.type << " op " << c.op
                                               << " count " << c.count << " root " << c.root;
    }
    EXPECT_GT(native_ones, 100u);
    EXPECT_GT(in_rounds, 10u);
}

TEST(GateMapping, LimitsOfOneRoundAreThoseOfTheTable)
{
    const auto rounds = [](fi_collective_op coll, fi_datatype type, fi_op op, std::size_t count) {
        return gate_mapping_of({coll, type, op, count, 0}, 2).rounds; // among two, one round at most
    };
    const auto expect_limit = [&](std::size_t most, fi_collective_op coll, fi_datatype type, fi_op op) {
        EXPECT_EQ(rounds(coll, type, op, most), 1) << "type " << type << " op " << op;
        EXPECT_EQ(rounds(coll, type, op, most + 1), 0) << "type " << type << " op " << op;
    };
    expect_limit(48, FI_BROADCAST, FI_UINT8, FI_NOOP);
    expect_limit(3, FI_BROADCAST, FI_LONG_DOUBLE, FI_NOOP);
    for (const fi_collective_op coll : {FI_ALLREDUCE, FI_REDUCE}) {
        expect_limit(6, coll, FI_INT8, FI_SUM);
        expect_limit(6, coll, FI_UINT64, FI_SUM);
        expect_limit(3, coll, FI_FLOAT, FI_SUM);
        expect_limit(3, coll, FI_DOUBLE, FI_SUM);
        expect_limit(1, coll, FI_DOUBLE_COMPLEX, FI_SUM);
        expect_limit(6, coll, FI_FLOAT, FI_MIN);
        expect_limit(6, coll, FI_INT64, FI_MAX);
        expect_limit(384, coll, FI_DOUBLE, FI_LXOR);
        expect_limit(48, coll, FI_INT8, FI_BAND);
        expect_limit(6, coll, FI_UINT64, FI_BXOR);
        EXPECT_EQ(rounds(coll, FI_UINT64, FI_PROD, 1), 0);
        EXPECT_EQ(rounds(coll, FI_LONG_DOUBLE, FI_SUM, 1), 0);
        EXPECT_EQ(rounds(coll, FI_INT128, FI_SUM, 1), 0);
        EXPECT_EQ(rounds(coll, FI_UINT64, FI_SUM, ~std::size_t{0} / 8), 0);
    }
    EXPECT_EQ(rounds(FI_ALLGATHER, FI_UINT8, FI_NOOP, 1), 0);
    EXPECT_EQ(gate_mapping_of({FI_ALLREDUCE, FI_DOUBLE, FI_SUM, 9, 0}, 4096).rounds, 3);
    EXPECT_EQ(gate_mapping_of({FI_ALLREDUCE, FI_DOUBLE, FI_SUM, 10, 0}, 4096).rounds, 0);
    EXPECT_EQ(gate_mapping_of({FI_REDUCE, FI_DOUBLE, FI_SUM, 15, 0}, 4096).rounds, 5);
    EXPECT_EQ(gate_mapping_of({FI_REDUCE, FI_DOUBLE, FI_SUM, 16, 0}, 4096).rounds, 0);
}

template <class T>
T extreme(fi_datatype type, fi_op op, const std::vector<T>& values)
{
    const Shape shape{FI_ALLREDUCE, type, op, 1, 0};
    std::vector<Bytes> in, out(values.size(), Bytes(sizeof(T)));
    for (const T value : values) {
        in.emplace_back(sizeof(T));
        std::memcpy(in.back().data(), &value, sizeof(T));
    }
    EXPECT_TRUE(run(shape, gate_mapping_of(shape, static_cast<unsigned>(values.size())), in, out,
                    std::vector<std::uint32_t>(values.size(), 1)));
    T result;
    std::memcpy(&result, out[0].data(), sizeof(T));
    return result;
}

template <class T>
void expect_order(fi_datatype type)
{
    using L = std::numeric_limits<T>;
    const T least = L::denorm_min(), nan = L::quiet_NaN();
    const std::vector<T> rising = {-L::infinity(), L::lowest(), T(-1),    -L::min(), -least,   T(-0.0),
                                   T(0.0),         least,       L::min(), T(1),      L::max(), L::infinity()};
    for (std::size_t i = 0; i < rising.size(); i++)
        for (std::size_t j = 0; j < rising.size(); j++) {
            const T low = extreme<T>(type, FI_MIN, {rising[i], nan, rising[j]});
            const T high = extreme<T>(type, FI_MAX, {rising[i], -nan, rising[j]});
            EXPECT_EQ(low, rising[std::min(i, j)]);
            EXPECT_EQ(high, rising[std::max(i, j)]);
            EXPECT_EQ(std::signbit(low), std::signbit(rising[std::min(i, j)])) << "0 and -0";
            EXPECT_EQ(std::signbit(high), std::signbit(rising[std::max(i, j)])) << "0 and -0";
        }
    EXPECT_TRUE(std::isnan(extreme<T>(type, FI_MIN, {nan, nan})));
    EXPECT_TRUE(std::isnan(extreme<T>(type, FI_MAX, {nan, -nan})));
}

TEST(GateMapping, NumbersKeepTheirOrderAndNoneIsIgnored)
{
    expect_order<double>(FI_DOUBLE);
    expect_order<float>(FI_FLOAT);
    EXPECT_EQ(extreme<std::int64_t>(FI_INT64, FI_MIN, {5, std::numeric_limits<std::int64_t>::min(), -1}),
              std::numeric_limits<std::int64_t>::min());
    EXPECT_EQ(extreme<std::int8_t>(FI_INT8, FI_MAX, {-128, -1}), -1);
    EXPECT_EQ(extreme<std::uint8_t>(FI_UINT8, FI_MIN, {200, 255}), 200);
    EXPECT_EQ(extreme<std::uint64_t>(FI_UINT64, FI_MAX, {0, ~std::uint64_t{0}}), ~std::uint64_t{0});
}

/// Each of the four members detects it alone, whichever of them calls something else.
void expect_found(const Shape& shape)
{
    const std::vector<Bytes> in(4, Bytes(48, std::byte{1}));
    const GateMapping native = gate_mapping_of(shape, 4);
    ASSERT_EQ(native.rounds, 1) << "type " << shape.type << " op " << shape.op;
    // Equal, even among two and two, and such as differ in single bits of theirs.
    for (const std::uint32_t other : {0x80000000u, 0x80012346u, 0xffffffffu, 0x80012344u, 0x80092345u})
        for (unsigned mask = 0; mask < 16; mask++) {
            std::vector<std::uint32_t> signatures(4, 0x80012345u);
            for (unsigned m = 0; m < 4; m++)
                if ((mask >> m & 1) != 0)
                    signatures[m] = other;
            std::vector<Bytes> out(4, Bytes(48));
            std::vector<bool> good;
            run(shape, native, in, out, signatures, &good);
            EXPECT_EQ(good, std::vector<bool>(4, mask == 0 || mask == 15))
                << "type " << shape.type << " op " << shape.op << " other " << other << " mask " << mask;
        }
}

TEST(GateMapping, NoTwoRoundsHaveOneSeal)
{
    std::set<std::uint32_t> seals;
    for (const std::uint64_t group : {0ull, 1ull, 0x8000000000000001ull, ~0ull})
        for (const std::uint32_t operation : {0u, 1u, 3u, 0x80000000u})
            for (const unsigned round : {0u, 1u, 4u})
                for (const std::uint32_t signature : {1u, 3u, 0x80000001u})
                    seals.insert(seal_of(group, operation, round, signature));
    EXPECT_EQ(seals.size(), 4u * 4 * 3 * 3);
}

TEST(GateMapping, MembersThatDisagreeAllFindItWhereThereIsRoom)
{
    expect_found({FI_BROADCAST, FI_UINT8, FI_NOOP, 40, 0});
    for (const fi_collective_op coll : {FI_ALLREDUCE, FI_REDUCE}) {
        expect_found({coll, FI_INT32, FI_SUM, 5, 0});
        expect_found({coll, FI_FLOAT, FI_SUM, 2, 0});
        expect_found({coll, FI_DOUBLE_COMPLEX, FI_SUM, 1, 0});
        for (const fi_op op : {FI_MIN, FI_MAX})
            expect_found({coll, FI_DOUBLE, op, 4, 0});
        for (const fi_op op : {FI_LAND, FI_LOR})
            expect_found({coll, FI_INT8, op, 320 / 8, 0});
        for (const fi_op op : {FI_BAND, FI_BOR})
            expect_found({coll, FI_UINT64, op, 5, 0});
    }
}

} // namespace
} // namespace tofu::test
