// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The rule of when memory is moved keeps its bound, whatever the sizes and the number of transfers.
#include "memory/rent.h"

#include <gtest/gtest.h>

namespace {

using tofu::sim::Rent;

constexpr size_t sizes[] = {1, 8, 1000, 9 << 10, 16 << 10, 64 << 10, 1 << 20, size_t{1} << 30};

TEST(Rent, TheFirstMoveIsAskedForWhenCopiesHaveCostAsMuch)
{
    for (const size_t bytes : sizes) {
        Rent rent;
        uint64_t paid = Rent::copy(bytes);
        while (!rent.pay(bytes))
            paid += Rent::copy(bytes);
        EXPECT_GE(paid, Rent::move(bytes)) << bytes;
        EXPECT_LT(paid - Rent::copy(bytes), Rent::move(bytes)) << bytes;
        EXPECT_EQ(rent.paid(), 0u);
    }
}

// However many transfers there are: the copies and the move cost at most twice the better of copying all and of moving
// at once, and one copy.
TEST(Rent, NeverCostsMoreThanTwiceTheBetterChoice)
{
    for (const size_t bytes : sizes)
        for (uint64_t transfers = 1; transfers <= 400; ++transfers) {
            Rent rent;
            uint64_t cost = 0;
            bool moved = false;
            for (uint64_t i = 0; i < transfers && !moved; ++i) {
                moved = rent.pay(bytes);
                cost += moved ? Rent::move(bytes) : Rent::copy(bytes);
            }
            EXPECT_LE(cost, 2 * std::min(transfers * Rent::copy(bytes), Rent::move(bytes)) + Rent::copy(bytes))
                << bytes << " bytes, " << transfers << " transfers";
        }
}

// The rent of all sizes from one address counts.
TEST(Rent, AddsUpWhateverTheSizes)
{
    Rent rent;
    uint64_t paid = 0;
    for (size_t i = 0;; ++i) {
        const size_t bytes = sizes[i % 5];
        paid += Rent::copy(bytes);
        if (rent.pay(bytes)) {
            EXPECT_GE(paid, Rent::move(bytes));
            break;
        }
        ASSERT_LT(i, 1000u);
    }
}

TEST(Rent, IsTwiceAsMuchEachTimeUpToABound)
{
    for (const size_t bytes : sizes) {
        Rent rent;
        for (uint32_t asked = 0; asked < 12; ++asked) {
            uint64_t paid = Rent::copy(bytes);
            while (!rent.pay(bytes))
                paid += Rent::copy(bytes);
            EXPECT_GE(paid, Rent::move(bytes) << std::min(asked, Rent::most_doublings));
            EXPECT_LT(paid - Rent::copy(bytes), Rent::move(bytes) << std::min(asked, Rent::most_doublings));
        }
    }
}

} // namespace
