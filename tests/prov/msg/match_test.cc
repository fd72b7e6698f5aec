// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The matcher beside a list that is searched from its start; copies between bytes and segments. Calls msg/match,
// mem/local_buffer.
#include <algorithm>
#include <cstring>
#include <list>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "mem/local_buffer.h"
#include "msg/match.h"

namespace tofu::proto {
namespace {

TEST(Iov, GathersAndScatters)
{
    char a[3], b[5], all[9] = "12345678";
    const iovec to[] = {{a, 3}, {nullptr, 0}, {b, 5}};
    EXPECT_EQ(scatter(to, 3, reinterpret_cast<std::byte*>(all), 8), 8u);
    EXPECT_EQ(std::memcmp(b, "45678", 5), 0);
    std::byte back[8];
    gather(back, to, 3, 8);
    EXPECT_EQ(std::memcmp(back, all, 8), 0);
    EXPECT_EQ(scatter(to, 1, reinterpret_cast<std::byte*>(all), 8), 3u);
    const iovec huge[] = {{nullptr, ~std::size_t{0}}, {nullptr, 2}};
    std::size_t total;
    EXPECT_FALSE(total_length(huge, 2, total));
}

// --- the matcher beside a list that is searched from its start

struct Receive : Posted {
    int id = 0;
};
struct Kept : Arrived {
    int id = 0;
};

bool fits(const Posted& r, std::uint64_t source, std::uint64_t tag)
{
    return (r.source == any_source || r.source == source) && ((r.tag ^ tag) & ~r.ignore) == 0;
}

void compare_with_a_list(unsigned masks, unsigned seed)
{
    std::mt19937 random(seed);
    Matcher matcher;
    std::list<Receive*> posted;
    std::list<Kept*> kept;
    std::vector<std::unique_ptr<Receive>> receives;
    std::vector<std::unique_ptr<Kept>> messages;
    std::size_t most_posted = 0, most_kept = 0, emptied = 0;
    auto mask = [&] { return random() % 2 ? 0 : std::uint64_t{random() % masks} * 3; };
    for (int step = 0; step < 30000; step++) {
        const std::uint64_t source = 1 + random() % 5;
        const std::uint64_t tag = random() % 16;
        if (random() % 2) { // a receive comes
            auto r = std::make_unique<Receive>();
            r->id = step;
            r->source = random() % 3 ? source : any_source;
            r->tag = tag;
            r->ignore = mask();
            auto it = kept.begin();
            while (it != kept.end() && !fits(*r, (*it)->source, (*it)->tag))
                ++it;
            Arrived* found = matcher.find(r->source, r->tag, r->ignore);
            ASSERT_EQ(found, it == kept.end() ? nullptr : static_cast<Arrived*>(*it));
            if (found != nullptr) {
                matcher.drop(*found);
                kept.erase(it);
                continue;
            }
            matcher.post(*r);
            posted.push_back(r.get());
            receives.push_back(std::move(r));
        } else if (random() % 8) { // a message comes
            auto it = posted.begin();
            while (it != posted.end() && !fits(**it, source, tag))
                ++it;
            Posted* found = matcher.match(source, tag);
            ASSERT_EQ(found, it == posted.end() ? nullptr : static_cast<Posted*>(*it));
            if (found != nullptr) {
                matcher.withdraw(*found);
                posted.erase(it);
                continue;
            }
            auto m = std::make_unique<Kept>();
            m->source = source;
            m->tag = tag;
            matcher.keep(*m);
            kept.push_back(m.get());
            messages.push_back(std::move(m));
        } else if (!posted.empty()) { // one is cancelled
            auto it = posted.begin();
            std::advance(it, random() % posted.size());
            matcher.withdraw(**it);
            posted.erase(it);
        }
        ASSERT_EQ(matcher.posted(), posted.size());
        ASSERT_EQ(matcher.arrived(), kept.size());
        most_posted = std::max(most_posted, posted.size());
        most_kept = std::max(most_kept, kept.size());
        emptied += posted.empty() + kept.empty();
    }
    // From few to many and back, often.
    EXPECT_GT(most_posted, 30u);
    EXPECT_GT(most_kept, 30u);
    EXPECT_GT(emptied, 500u);
}

TEST(Match, AgreesWithAListFewMasks)
{
    compare_with_a_list(3, 11);
}
TEST(Match, AgreesWithAListMoreMasksThanKinds)
{
    compare_with_a_list(40, 12);
}

TEST(Match, TakesTheOldestAcrossKinds)
{
    Matcher m;
    Receive any, exact;
    any.ignore = ~std::uint64_t{0};
    exact.source = 5;
    exact.tag = 7;
    m.post(any);
    m.post(exact);
    EXPECT_EQ(m.match(5, 7), &any);
    m.withdraw(any);
    EXPECT_EQ(m.match(5, 7), &exact);
    EXPECT_EQ(m.match(6, 7), nullptr);
    EXPECT_EQ(m.match(5, 8), nullptr);
}

TEST(Match, ManyWithOneKeyLeaveInOrder)
{
    Matcher m;
    std::vector<Receive> rs(10000);
    for (auto& r : rs) {
        r.tag = 1;
        m.post(r);
    }
    m.withdraw(rs[1]);
    m.withdraw(rs[9999]);
    for (std::size_t i = 0; i < rs.size() - 1; i++) {
        if (i == 1)
            continue;
        ASSERT_EQ(m.match(9, 1), &rs[i]);
        m.withdraw(rs[i]);
    }
    EXPECT_EQ(m.posted(), 0u);
}

} // namespace
} // namespace tofu::proto
