// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The completion table by itself: tags, batches, and what never ends.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "utofu/under_way.h"

namespace {

using namespace tofu::vcq;

constexpr unsigned all_tags = CompletionTable::size - 1;
constexpr int lost = -7;

struct Heard : CompletionHandler {
    std::vector<int> codes;
    Heard()
    {
        notify = [](CompletionHandler* self, Notice notice) noexcept {
            static_cast<Heard*>(self)->codes.push_back(notice.code);
        };
    }
};

struct CompletionTableTest : testing::Test {
    CompletionTableTest() { table.reset(); }
    std::uint8_t take()
    {
        const std::uint8_t next = table.next();
        const std::uint8_t number = table.acquire(&who);
        EXPECT_EQ(number, next);
        return number;
    }
    void take_all()
    {
        while (table.acquire(&other) != 0)
            continue;
        EXPECT_EQ(table.free(), 0u);
    }
    void grow_old()
    {
        for (unsigned i = 1; i < CompletionTable::lost_age; i++)
            EXPECT_FALSE(table.grow_older());
    }
    CompletionTable table;
    Heard who, other;
};

TEST_F(CompletionTableTest, EachTagIsAcquiredOnceAndFreeAfterItsNotice)
{
    std::set<unsigned> taken;
    for (unsigned i = 0; i < all_tags; i++)
        taken.insert(take());
    EXPECT_EQ(taken.size(), all_tags);
    EXPECT_EQ(*taken.begin(), 1u);
    EXPECT_EQ(*taken.rbegin(), all_tags);
    EXPECT_EQ(table.acquire(&who), 0);
    EXPECT_EQ(&table.arrived(17), &who);
    EXPECT_NE(&table.arrived(17), &who); // reported already
    EXPECT_EQ(take(), 17);
}

TEST_F(CompletionTableTest, ABatchHoldsItsTagUntilItsLastNotice)
{
    const std::uint8_t batch = take();
    table.open(batch, false);
    table.announce(batch, 2, false);
    EXPECT_EQ(&table.arrived(batch), &who);
    EXPECT_FALSE(table.no_waiters());
    EXPECT_EQ(&table.arrived(batch), &who);
    EXPECT_FALSE(table.all_free()); // there may be more
    table.announce(batch, 1, true);
    EXPECT_EQ(&table.arrived(batch), &who);
    EXPECT_TRUE(table.all_free());
    table.open(take(), false);
    table.announce(batch, 0, true);
    EXPECT_TRUE(table.all_free());
}

/// Such as that of an operation that finds no room for the rest.
TEST_F(CompletionTableTest, AnOpenBatchWithoutPostsUnderWayIsNotWaitedFor)
{
    const std::uint8_t batch = take(), failures = take();
    table.open(batch, false);
    table.open(failures, true);
    EXPECT_TRUE(table.no_waiters());
    grow_old();
    EXPECT_FALSE(table.grow_older());
    EXPECT_FALSE(table.give_up(lost, false));
    EXPECT_TRUE(who.codes.empty());
    table.announce(batch, 1, false);
    EXPECT_FALSE(table.no_waiters());
    EXPECT_TRUE(table.give_up(lost, false));
    EXPECT_EQ(who.codes, std::vector<int>{lost}) << "of the one post";
    EXPECT_TRUE(table.no_waiters());
    EXPECT_NE(&table.arrived(batch), &who);
    EXPECT_EQ(table.free(), all_tags - 1) << "its late notice frees the tag";
    table.close(failures, &who);
    EXPECT_TRUE(table.all_free());
}

TEST_F(CompletionTableTest, AnEndlessBatchIsClosedByItsHandlerAlone)
{
    const std::uint8_t batch = take();
    table.open(batch, true);
    for (unsigned i = 0; i < 70000; i++)
        ASSERT_EQ(&table.arrived(batch), &who);
    table.close(batch, &other);
    EXPECT_FALSE(table.all_free());
    for (unsigned i = 0; i < 2 * CompletionTable::lost_age; i++)
        EXPECT_FALSE(table.grow_older());
    table.close(batch, &who);
    EXPECT_TRUE(table.all_free());
}

TEST_F(CompletionTableTest, AHandlerIsNotifiedOfEachMissingNotice)
{
    const std::uint8_t batch = take();
    table.open(batch, false);
    table.announce(batch, 3, true);
    grow_old();
    (void)table.arrived(batch); // young again
    grow_old();
    const std::uint8_t young = table.acquire(&other);
    EXPECT_TRUE(table.grow_older());
    EXPECT_TRUE(table.give_up(lost, false, CompletionTable::lost_age));
    EXPECT_EQ(who.codes, (std::vector<int>{lost, lost}));
    EXPECT_TRUE(other.codes.empty());
    EXPECT_FALSE(table.give_up(lost, false, CompletionTable::lost_age));
    EXPECT_FALSE(table.no_waiters());
    EXPECT_EQ(&table.arrived(young), &other);
    EXPECT_TRUE(table.no_waiters());
    EXPECT_EQ(table.free(), all_tags - 1);
}

TEST_F(CompletionTableTest, AGivenUpTagIsKeptForItsLateNotice)
{
    const std::uint8_t tag = take();
    grow_old();
    EXPECT_TRUE(table.grow_older());
    EXPECT_TRUE(table.give_up(lost, false, CompletionTable::lost_age));
    CompletionHandler& given_up = table.arrived(tag);
    given_up.notify(&given_up, Notice{0, 0});
    EXPECT_EQ(who.codes, std::vector<int>{lost});
    EXPECT_TRUE(table.all_free());
}

TEST_F(CompletionTableTest, AGivenUpTagIsReusedIfThereIsNoOther)
{
    const std::uint8_t tag = take();
    grow_old();
    EXPECT_TRUE(table.grow_older());
    EXPECT_TRUE(table.give_up(lost, false, CompletionTable::lost_age));
    (void)table.grow_older();
    EXPECT_EQ(table.free(), all_tags - 1); // there are others
    take_all();
    (void)table.grow_older();
    EXPECT_EQ(take(), tag);
}

TEST_F(CompletionTableTest, AnAbandonedTagIsNotReusedUntilItIsOld)
{
    const std::uint8_t batch = take();
    table.open(batch, true);
    table.abandon(batch, &other);
    EXPECT_EQ(&table.arrived(batch), &who);
    table.abandon(batch, &who);
    EXPECT_NE(&table.arrived(batch), &who);
    take_all();
    grow_old();
    EXPECT_EQ(table.free(), 0u);
    (void)table.grow_older();
    EXPECT_EQ(take(), batch);
    EXPECT_TRUE(who.codes.empty());
}

TEST_F(CompletionTableTest, GivenUpForGoodAllTagsAreFree)
{
    const std::uint8_t batch = take();
    table.open(batch, false);
    table.announce(batch, 2, false);
    table.open(take(), true);
    EXPECT_TRUE(table.give_up(lost, true));
    EXPECT_EQ(who.codes, (std::vector<int>{lost, lost, lost}));
    EXPECT_TRUE(table.all_free());
}

} // namespace
