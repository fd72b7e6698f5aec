// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The completion window by itself (utofu/vcq.h): places, batches, and what never ends. Run by make check.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "utofu/vcq.h"

namespace {

using namespace tofu::vcq;

constexpr unsigned places = Window::size - 1;
constexpr int lost = -7;

struct Told : CompletionHandler {
    std::vector<int> codes;
    Told()
    {
        notify = [](CompletionHandler* self, const Notice& notice) noexcept {
            static_cast<Told*>(self)->codes.push_back(notice.code);
        };
    }
};

struct WindowTest : testing::Test {
    WindowTest() { window.reset(); }
    std::uint8_t take()
    {
        const std::uint8_t next = window.next();
        const std::uint8_t number = window.take(&who);
        EXPECT_EQ(number, next);
        return number;
    }
    void take_all()
    {
        while (window.take(&other) != 0)
            continue;
        EXPECT_EQ(window.free(), 0u);
    }
    void grow_old()
    {
        for (unsigned i = 1; i < Window::lost_age; i++)
            EXPECT_FALSE(window.grow_older());
    }
    Window window;
    Told who, other;
};

TEST_F(WindowTest, EachPlaceIsTakenOnceAndFreeBehindItsNotice)
{
    std::set<unsigned> taken;
    for (unsigned i = 0; i < places; i++)
        taken.insert(take());
    EXPECT_EQ(taken.size(), places);
    EXPECT_EQ(*taken.begin(), 1u);
    EXPECT_EQ(*taken.rbegin(), places);
    EXPECT_EQ(window.take(&who), 0);
    EXPECT_EQ(window.arrived(17), &who);
    EXPECT_EQ(window.arrived(17), nullptr); // told already
    EXPECT_EQ(take(), 17);
}

TEST_F(WindowTest, ABatchHoldsItsPlaceUntilItsLastNotice)
{
    const std::uint8_t batch = take();
    window.expect(batch, 2);
    window.extend(batch, 1);
    EXPECT_EQ(window.arrived(batch), &who);
    EXPECT_TRUE(window.shorten(batch)); // one will not come
    EXPECT_FALSE(window.all_free());
    EXPECT_EQ(window.arrived(batch), &who);
    EXPECT_TRUE(window.all_free());
    const std::uint8_t single = take();
    EXPECT_FALSE(window.shorten(single)); // the place is for one again
}

TEST_F(WindowTest, AnEndlessBatchIsClosedByItsWaiterAlone)
{
    const std::uint8_t batch = take();
    window.expect(batch, Window::endless);
    for (unsigned i = 0; i < 70000; i++)
        ASSERT_EQ(window.arrived(batch), &who);
    window.close(batch, &other);
    EXPECT_FALSE(window.all_free());
    for (unsigned i = 0; i < 2 * Window::lost_age; i++)
        EXPECT_FALSE(window.grow_older());
    window.close(batch, &who);
    EXPECT_TRUE(window.all_free());
}

TEST_F(WindowTest, WhatDoesNotEndIsToldOfEachMissingNotice)
{
    const std::uint8_t batch = take();
    window.expect(batch, 3);
    grow_old();
    (void)window.arrived(batch); // young again
    grow_old();
    const std::uint8_t young = window.take(&other);
    EXPECT_TRUE(window.grow_older());
    EXPECT_TRUE(window.give_up(lost, false, Window::lost_age));
    EXPECT_EQ(who.codes, (std::vector<int>{lost, lost}));
    EXPECT_TRUE(other.codes.empty());
    EXPECT_FALSE(window.give_up(lost, false, Window::lost_age));
    EXPECT_FALSE(window.nobody_waits());
    EXPECT_EQ(window.arrived(young), &other);
    EXPECT_TRUE(window.nobody_waits());
    EXPECT_EQ(window.free(), places - 1);
}

TEST_F(WindowTest, ThePlaceOfWhatWasGivenUpIsForItsLateNotice)
{
    const std::uint8_t place = take();
    grow_old();
    EXPECT_TRUE(window.grow_older());
    EXPECT_TRUE(window.give_up(lost, false, Window::lost_age));
    CompletionHandler* const nobody = window.arrived(place);
    ASSERT_NE(nobody, nullptr);
    nobody->notify(nobody, Notice{0, 0});
    EXPECT_EQ(who.codes, std::vector<int>{lost});
    EXPECT_TRUE(window.all_free());
}

TEST_F(WindowTest, ThePlaceOfWhatWasGivenUpIsUsedAgainWhereThereIsNoOther)
{
    const std::uint8_t place = take();
    grow_old();
    EXPECT_TRUE(window.grow_older());
    EXPECT_TRUE(window.give_up(lost, false, Window::lost_age));
    (void)window.grow_older();
    EXPECT_EQ(window.free(), places - 1); // there are others
    take_all();
    (void)window.grow_older();
    EXPECT_EQ(take(), place);
}

TEST_F(WindowTest, AnAbandonedPlaceMeetsNobodyElseUntilItIsOld)
{
    const std::uint8_t batch = take();
    window.expect(batch, Window::endless);
    window.abandon(batch, &other);
    EXPECT_FALSE(window.nobody_waits());
    window.abandon(batch, &who);
    EXPECT_TRUE(window.nobody_waits());
    take_all();
    grow_old();
    EXPECT_EQ(window.free(), 0u);
    (void)window.grow_older();
    EXPECT_EQ(take(), batch);
    EXPECT_TRUE(who.codes.empty());
}

TEST_F(WindowTest, GivenUpForGoodAllPlacesAreFree)
{
    window.expect(take(), 2);
    window.expect(take(), Window::endless);
    EXPECT_TRUE(window.give_up(lost, true));
    EXPECT_EQ(who.codes, (std::vector<int>{lost, lost, lost}));
    EXPECT_TRUE(window.all_free());
}

} // namespace
