// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Exact mode's list of puts that are on their way to a process: order, reuse of entries, and bad numbers.
#include "tni/inbox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <tuple>
#include <vector>

namespace tofu::sim::test {
namespace {

// Zeroed memory, as a new segment is.
class InboxTest : public ::testing::Test {
  protected:
    Inbox& inbox() { return *box_; }

    uint32_t add(const InboxKey& key)
    {
        uint32_t index = 0;
        InboxEntry* const entry = box_->allocate(index);
        EXPECT_NE(entry, nullptr);
        entry->key = key;
        entry->stage = InboxStage::write;
        box_->add(index);
        return index;
    }
    std::vector<InboxKey> take_all()
    {
        std::vector<InboxKey> keys;
        while (box_->count() != 0) {
            const uint32_t index = box_->index_at(0);
            keys.push_back(box_->entry(index).key);
            box_->remove_first();
            box_->free(index);
        }
        return keys;
    }

  private:
    struct Free {
        void operator()(Inbox* box) const { ::operator delete (box, std::align_val_t{alignof(Inbox)}); }
    };
    static Inbox* make()
    {
        void* const memory = ::operator new (sizeof(Inbox), std::align_val_t{alignof(Inbox)});
        return static_cast<Inbox*>(std::memset(memory, 0, sizeof(Inbox)));
    }
    std::unique_ptr<Inbox, Free> box_{make()};
};

bool same(const InboxKey& a, const InboxKey& b)
{
    return !(a < b) && !(b < a);
}

TEST_F(InboxTest, EntriesAreInTheOrderOfTimeThenRankThenPosting)
{
    const std::vector<InboxKey> sorted = {{5, 0, 9}, {5, 1, 2}, {5, 1, 3}, {7, 0, 0}, {8, 4, 1}};
    std::vector<size_t> order = {0, 1, 2, 3, 4};
    do {
        for (const size_t i : order)
            add(sorted[i]);
        EXPECT_EQ(inbox().due(), 5u);
        const std::vector<InboxKey> taken = take_all();
        ASSERT_EQ(taken.size(), sorted.size());
        for (size_t i = 0; i < sorted.size(); i++)
            EXPECT_TRUE(same(taken[i], sorted[i])) << i;
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(InboxTest, NothingIsDueInAnEmptyOne)
{
    EXPECT_EQ(inbox().count(), 0u);
    EXPECT_EQ(inbox().due(), UINT64_MAX);
    add({3, 0, 0});
    EXPECT_EQ(inbox().due(), 3u);
    take_all();
    EXPECT_EQ(inbox().due(), UINT64_MAX);
}

TEST_F(InboxTest, AFullOneRefusesUntilAnEntryIsFree)
{
    uint32_t index = 0;
    std::vector<uint32_t> taken;
    while (inbox().allocate(index) != nullptr) {
        ASSERT_EQ(std::count(taken.begin(), taken.end(), index), 0) << "given out twice: " << index;
        taken.push_back(index);
        ASSERT_LT(taken.size(), 10'000u);
    }
    EXPECT_GE(taken.size(), 64u);
    EXPECT_EQ(inbox().allocate(index), nullptr);
    inbox().free(taken[10]);
    ASSERT_NE(inbox().allocate(index), nullptr);
    EXPECT_EQ(index, taken[10]);
    EXPECT_EQ(inbox().allocate(index), nullptr);
}

// A poster knows its entry by index and serial number: another one there is not its own.
TEST_F(InboxTest, AnEntryThatIsUsedAgainHasAnotherSerialNumber)
{
    const uint32_t first = add({1, 0, 0});
    const uint32_t serial = inbox().entry(first).serial;
    take_all();
    EXPECT_EQ(inbox().entry(first).stage, InboxStage::free);
    const uint32_t second = add({2, 0, 1});
    EXPECT_EQ(second, first);
    EXPECT_NE(inbox().entry(second).serial, serial);
}

// An entry that failed is out of the order, but not free, until its poster has seen it.
TEST_F(InboxTest, AnEntryOutOfTheOrderKeepsItsPlace)
{
    const uint32_t failed = add({1, 0, 0});
    inbox().remove_first();
    inbox().entry(failed).stage = InboxStage::failed;
    EXPECT_EQ(inbox().count(), 0u);
    EXPECT_NE(add({2, 0, 1}), failed);
    inbox().free(failed);
    EXPECT_EQ(add({3, 0, 2}), failed);
}

// The second stage of an entry has a later time, and comes behind what has arrived in between.
TEST_F(InboxTest, AnEntryCanBeAddedAgainForItsNextStage)
{
    const uint32_t index = add({1, 0, 0});
    add({2, 0, 1});
    add({4, 0, 2});
    inbox().remove_first();
    inbox().entry(index).key.when = 3;
    inbox().add(index);
    EXPECT_EQ(inbox().count(), 3u);
    EXPECT_EQ(inbox().due(), 2u);
    EXPECT_EQ(inbox().index_at(1), index);
}

TEST_F(InboxTest, RandomUseAgreesWithASortedList)
{
    std::mt19937_64 random(20261126);
    std::vector<InboxKey> expected;
    const auto before = [](const InboxKey& a, const InboxKey& b) { return a < b; };
    for (uint64_t number = 0; number < 20'000; number++) {
        if (expected.size() < 60 && random() % 2 == 0) {
            const InboxKey key{random() % 50, static_cast<uint32_t>(random() % 4), number};
            add(key);
            expected.insert(std::upper_bound(expected.begin(), expected.end(), key, before), key);
        } else if (!expected.empty()) {
            const uint32_t index = inbox().index_at(0);
            ASSERT_TRUE(same(inbox().entry(index).key, expected.front()));
            inbox().remove_first();
            inbox().free(index);
            expected.erase(expected.begin());
        }
        ASSERT_EQ(inbox().count(), expected.size());
    }
}

// The memory is another process's, too: whatever it wrote, nothing outside the list is touched.
TEST_F(InboxTest, BadNumbersStayWithinIt)
{
    for (const unsigned fill : {0xffu, 0x7fu, 0x80u}) {
        std::memset(static_cast<void*>(&inbox()), static_cast<int>(fill), offsetof(InboxEntry, bytes));
        EXPECT_LE(inbox().count(), 1000u);
        (void)inbox().due();
        uint32_t index = 0;
        if (inbox().allocate(index) != nullptr)
            inbox().add(index);
        inbox().remove_first();
        inbox().free(UINT32_MAX);
        EXPECT_LT(inbox().index_at(UINT32_MAX), 1000u);
    }
}

} // namespace
} // namespace tofu::sim::test
