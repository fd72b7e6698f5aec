// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The entries of a completion queue by themselves: their order however many there are, and what is reported when there
// is no memory for more.
#include <cstdint>
#include <new>

#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include "cq/cq.h"

namespace {
bool no_memory = false;
} // namespace

void* operator new[](std::size_t size, const std::nothrow_t&) noexcept
{
    return no_memory ? nullptr : ::operator new[](size);
}

namespace tofu {
namespace {

constexpr std::size_t size = 8;

struct EntriesTest : testing::Test {
    EntriesTest() { EXPECT_TRUE(entries.open(size)); }
    ~EntriesTest() override { no_memory = false; }
    void put(std::size_t number) { entries.put(Completion{.length = number}); }
    void put_error(std::size_t number, int err) { entries.put(CqEntry{Completion{.length = number}, err, -5, 17}); }
    /// The number of the next one, negated if it is an error.
    std::int64_t take()
    {
        const CqEntry* const first = entries.first();
        if (first == nullptr)
            return INT64_MIN;
        const auto number = static_cast<std::int64_t>(first->completion.length);
        const bool error = first->err != 0;
        entries.pop();
        return error ? -number : number;
    }
    Entries entries;
};

TEST_F(EntriesTest, ComeOutInTheirOrderHoweverManyThereAre)
{
    std::int64_t in = 1, out = 1;
    for (std::int64_t burst = 1; burst < 100; burst = burst * 2 + 1) { // longer than the ring, from any place of it
        for (std::int64_t i = 0; i < burst; i++, in++)
            in % 5 == 0 ? put_error(static_cast<std::size_t>(in), FI_EIO) : put(static_cast<std::size_t>(in));
        for (std::int64_t i = 0; i < burst - 1; i++, out++)
            ASSERT_EQ(take(), out % 5 == 0 ? -out : out);
    }
    for (; out < in; out++)
        ASSERT_EQ(take(), out % 5 == 0 ? -out : out);
    EXPECT_TRUE(entries.empty());
    EXPECT_EQ(entries.first(), nullptr);
}

TEST_F(EntriesTest, AnErrorKeepsWhatIsSaidOfIt)
{
    put_error(3, FI_ETRUNC);
    const CqEntry* const first = entries.first();
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(first->err, FI_ETRUNC);
    EXPECT_EQ(first->prov_errno, -5);
    EXPECT_EQ(first->overflow_length, 17u);
}

TEST_F(EntriesTest, WithoutMemoryTheLastPlaceSaysThatSomeAreLost)
{
    no_memory = true;
    for (std::size_t number = 1; number <= size + 2; number++)
        number == size ? put_error(number, FI_EIO) : put(number);
    for (std::int64_t number = 1; number < static_cast<std::int64_t>(size); number++)
        ASSERT_EQ(take(), number);
    ASSERT_NE(entries.first(), nullptr);
    EXPECT_EQ(entries.first()->err, FI_EOVERRUN);
    EXPECT_EQ(take(), -static_cast<std::int64_t>(size));
    EXPECT_TRUE(entries.empty());
    put(20);
    EXPECT_EQ(take(), 20);
}

TEST_F(EntriesTest, WhatComesWhenThereIsMemoryAgainIsKept)
{
    no_memory = true;
    for (std::size_t number = 1; number <= size + 2; number++)
        put(number);
    no_memory = false;
    put(11);
    for (std::int64_t number = 1; number < static_cast<std::int64_t>(size); number++)
        ASSERT_EQ(take(), number);
    EXPECT_EQ(take(), -static_cast<std::int64_t>(size));
    EXPECT_EQ(take(), 11);
    EXPECT_TRUE(entries.empty());
}

TEST_F(EntriesTest, AQueueWithoutMemoryIsNotOpened)
{
    no_memory = true;
    EXPECT_FALSE(Entries().open(size));
}

} // namespace
} // namespace tofu
