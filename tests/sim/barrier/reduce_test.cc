// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Packets and their combination: operators, BFPSUM in any order, its edges (guide 2.3.4).
#include "barrier/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace tofu::sim {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

Packet integers(ReduceOp op, std::vector<uint64_t> data)
{
    return integer_packet(op, data);
}

Packet doubles(std::vector<double> data)
{
    return double_packet(data);
}

uint64_t bits(double value)
{
    return std::bit_cast<uint64_t>(value);
}

// In a random grouping and order.
Packet combine_at_random(std::vector<Packet> packets, std::mt19937_64& random)
{
    while (packets.size() > 1) {
        std::swap(packets[random() % packets.size()], packets.back());
        const Packet last = packets.back();
        packets.pop_back();
        Packet& other = packets[random() % packets.size()];
        other = random() % 2 == 0 ? combine(other, last) : combine(last, other);
    }
    return packets[0];
}

double sum(std::vector<double> values)
{
    std::vector<Packet> packets;
    for (const double value : values)
        packets.push_back(doubles({value}));
    std::mt19937_64 random(values.size());
    const Packet first = combine_at_random(packets, random);
    for (int i = 0; i < 20; i++)
        EXPECT_EQ(combine_at_random(packets, random), first);
    return bfp_value(first, 0);
}

TEST(Combine, DoesWhatTheOperatorSays)
{
    const std::vector<uint64_t> a = {0xf0, 5, ~uint64_t{0}};
    const std::vector<uint64_t> b = {0x3c, 9, 1};
    const auto words = [&](ReduceOp op) {
        const Packet p = combine(integers(op, a), integers(op, b));
        EXPECT_FALSE(p.mismatch);
        EXPECT_EQ(p.count, 3);
        return std::vector<uint64_t>(p.words, p.words + 3);
    };
    EXPECT_EQ(words(ReduceOp::band), (std::vector<uint64_t>{0x30, 1, 1}));
    EXPECT_EQ(words(ReduceOp::bor), (std::vector<uint64_t>{0xfc, 13, ~uint64_t{0}}));
    EXPECT_EQ(words(ReduceOp::bxor), (std::vector<uint64_t>{0xcc, 12, ~uint64_t{1}}));
    EXPECT_EQ(words(ReduceOp::max), (std::vector<uint64_t>{0xf0, 9, ~uint64_t{0}}));
    EXPECT_EQ(words(ReduceOp::sum), (std::vector<uint64_t>{0x12c, 14, 0})); // wraps
}

TEST(Combine, MaxlocTakesPairsAndTheSmallerLocationOfEqualValues)
{
    const Packet a = integers(ReduceOp::maxloc, {7, 3, 8, 1, 5, 9});
    const Packet b = integers(ReduceOp::maxloc, {7, 2, 6, 0, 6, 10});
    for (const Packet& p : {combine(a, b), combine(b, a)})
        EXPECT_EQ(std::vector<uint64_t>(p.words, p.words + 6), (std::vector<uint64_t>{7, 2, 8, 1, 6, 10}));
}

TEST(Combine, MismatchOfOperationOrCountSticks)
{
    const Packet sum = integers(ReduceOp::sum, {1});
    for (const Packet& other :
         {integers(ReduceOp::max, {1}), integers(ReduceOp::sum, {1, 2}), barrier_packet(), doubles({1.0})}) {
        const Packet p = combine(sum, other);
        EXPECT_TRUE(p.mismatch);
        EXPECT_TRUE(combine(p, sum).mismatch);
        EXPECT_TRUE(combine(sum, p).mismatch);
        EXPECT_TRUE(combine(p, p).mismatch);
    }
    EXPECT_FALSE(combine(barrier_packet(), barrier_packet()).mismatch);
}

TEST(Bfpsum, OneValueComesBackBitByBit)
{
    std::mt19937_64 random(1);
    std::vector<double> values = {0.0,          -0.0,          1.0,       -1.0,     DBL_MAX,  -DBL_MAX, DBL_MIN,
                                  DBL_TRUE_MIN, -DBL_TRUE_MIN, 0x1p-1023, 0x1p1023, infinity, -infinity};
    for (int i = 0; i < 100000; i++) {
        const double value = std::bit_cast<double>(random());
        values.push_back(std::isnan(value) ? 1.5 : value);
    }
    for (const double value : values)
        ASSERT_EQ(bits(bfp_value(doubles({value}), 0)), bits(value)) << value;
}

TEST(Bfpsum, TwoValuesAreAddedAsTheProcessorDoes)
{
    std::mt19937_64 random(2);
    for (int i = 0; i < 200000; i++) {
        const uint64_t near = random() % 200; // exponents apart by up to 100: ties and cancellation happen
        const double a = std::bit_cast<double>(random() & ~(uint64_t{0xffff} >> (random() % 17)));
        const int exponent = std::isfinite(a) && a != 0 ? std::ilogb(a) : 0;
        const double b = std::ldexp(std::bit_cast<double>((random() >> 12) | 0x3ff0000000000000u),
                                    exponent + static_cast<int>(near) - 100) *
                         (random() % 2 == 0 ? 1 : -1);
        if (std::isnan(a) || std::isnan(b))
            continue;
        const double got = bfp_value(combine(doubles({a}), doubles({b})), 0);
        ASSERT_EQ(bits(got), bits(a + b)) << a << " + " << b;
    }
}

TEST(Bfpsum, DoesNotDependOnOrderOrGrouping)
{
    std::mt19937_64 random(3);
    for (int spread : {1, 10, 60, 200, 2000}) {
        for (int i = 0; i < 50; i++) {
            std::vector<Packet> packets;
            for (unsigned n = 2 + random() % 60; n != 0; n--) {
                std::vector<double> values(3);
                for (double& value : values) {
                    value = std::ldexp(static_cast<double>(static_cast<int64_t>(random())),
                                       static_cast<int>(random() % unsigned(spread)) - spread / 2 - 63);
                }
                packets.push_back(doubles(values));
            }
            const Packet first = combine_at_random(packets, random);
            for (int again = 0; again < 10; again++)
                ASSERT_EQ(combine_at_random(packets, random), first);
        }
    }
}

TEST(Bfpsum, KeepsWhatADoubleSumLoses)
{
    EXPECT_EQ(sum({1e16, 1.0, -1e16}), 1.0);
    EXPECT_EQ(sum({1.0, 0x1p-60, 0x1p-60, -1.0}), 0x1p-59);
    EXPECT_EQ(sum({1.0, 0x1p-53, 0x1p-90}), 1.0 + 0x1p-52); // above the tie
    EXPECT_EQ(sum({1.0, 0x1p-53}), 1.0);                    // the tie, to even
    EXPECT_EQ(sum({1.0 + 0x1p-52, 0x1p-53}), 1.0 + 0x1p-51);
    std::vector<double> tenths(1000, 0.1);
    EXPECT_EQ(sum(tenths), 100.0);
    EXPECT_EQ(sum({DBL_TRUE_MIN, DBL_TRUE_MIN, -DBL_MIN}), 2 * DBL_TRUE_MIN - DBL_MIN);
}

TEST(Bfpsum, ErrorIsBoundedByTheLargestSummand)
{
    std::mt19937_64 random(4);
    for (int i = 0; i < 200; i++) {
        std::vector<double> values;
        typedef float Quad __attribute__((mode(TF))); // __float128; a long double on aarch64
        Quad exact = 0;
        double largest = 0;
        for (int n = 0; n < 48; n++) {
            values.push_back(
                std::ldexp(static_cast<double>(static_cast<int64_t>(random())), -63 - static_cast<int>(random() % 40)));
            exact += values.back();
            largest = std::max(largest, std::fabs(values.back()));
        }
        const double got = sum(values);
        EXPECT_LE(std::fabs(static_cast<double>(exact - got)), std::fabs(got) * 0x1p-53 + largest * 48 * 0x1p-96);
    }
}

TEST(Bfpsum, TreatsOverflowInfinitiesNanAndZeros)
{
    EXPECT_EQ(sum({DBL_MAX, DBL_MAX}), infinity);
    EXPECT_EQ(sum({-DBL_MAX, -DBL_MAX}), -infinity);
    EXPECT_EQ(sum({DBL_MAX, DBL_MAX, -DBL_MAX}), DBL_MAX); // only the result is rounded
    EXPECT_EQ(sum({infinity, 1.0, -DBL_MAX}), infinity);
    EXPECT_EQ(sum({-infinity, 1.0, DBL_MAX}), -infinity);
    const double nan = std::numeric_limits<double>::quiet_NaN();
    EXPECT_EQ(bits(sum({infinity, -infinity})), 0x7ff8000000000000u);
    EXPECT_EQ(bits(sum({1.0, -nan, infinity})), 0x7ff8000000000000u);
    EXPECT_EQ(bits(sum({std::bit_cast<double>(uint64_t{0x7ff0000000000001}), 1.0})), 0x7ff8000000000000u);
    EXPECT_EQ(bits(sum({-0.0, -0.0})), bits(-0.0));
    EXPECT_EQ(bits(sum({-0.0, 0.0})), bits(0.0));
    EXPECT_EQ(bits(sum({3.25, -3.25})), bits(0.0));
    EXPECT_EQ(bits(sum({3.25, -3.25, -0.0})), bits(0.0));
}

} // namespace
} // namespace tofu::sim
