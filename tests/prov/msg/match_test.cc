// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The matcher beside a list that is searched from its start; copies between bytes and segments.
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
struct Kept : UnexpectedLinks {
    int id = 0;
};

bool fits(const Posted& r, std::uint64_t source, std::uint64_t tag)
{
    return (r.source == any_source || r.source == source) && ((r.tag ^ tag) & ~r.ignore) == 0;
}

/// A matcher beside plain lists, which receive the same events.
class Compared {
  public:
    Compared(unsigned masks, unsigned seed) : masks_(masks), random_(seed) {}
    void step(int number)
    {
        const std::uint64_t source = 1 + random_() % 5;
        const std::uint64_t tag = random_() % 16;
        if (random_() % 2)
            post(number, source, tag);
        else if (random_() % 8)
            arrive(source, tag);
        else if (!posted_.empty())
            cancel();
        most_posted = std::max(most_posted, posted_.size());
        most_kept = std::max(most_kept, kept_.size());
        emptied += posted_.empty() + kept_.empty();
        ASSERT_EQ(matcher_.posted(), posted_.size());
        ASSERT_EQ(matcher_.arrived(), kept_.size());
    }
    std::size_t most_posted = 0, most_kept = 0, emptied = 0;

  private:
    void post(int number, std::uint64_t source, std::uint64_t tag)
    {
        auto r = std::make_unique<Receive>();
        r->id = number;
        r->source = random_() % 3 ? source : any_source;
        r->tag = tag;
        r->ignore = random_() % 2 ? 0 : std::uint64_t{random_() % masks_} * 3;
        const auto it = std::find_if(kept_.begin(), kept_.end(),
                                     [&](const Kept* kept) { return fits(*r, kept->source, kept->tag); });
        UnexpectedLinks* found = matcher_.find(r->source, r->tag, r->ignore);
        ASSERT_EQ(found, it == kept_.end() ? nullptr : static_cast<UnexpectedLinks*>(*it));
        if (found != nullptr) {
            matcher_.drop(*found);
            kept_.erase(it);
            return;
        }
        matcher_.post(*r);
        posted_.push_back(r.get());
        receives_.push_back(std::move(r));
    }
    void arrive(std::uint64_t source, std::uint64_t tag)
    {
        const auto it =
            std::find_if(posted_.begin(), posted_.end(), [&](const Receive* r) { return fits(*r, source, tag); });
        Posted* found = matcher_.match(source, tag);
        ASSERT_EQ(found, it == posted_.end() ? nullptr : static_cast<Posted*>(*it));
        if (found != nullptr) {
            matcher_.withdraw(*found);
            posted_.erase(it);
            return;
        }
        auto m = std::make_unique<Kept>();
        m->source = source;
        m->tag = tag;
        matcher_.keep(*m);
        kept_.push_back(m.get());
        messages_.push_back(std::move(m));
    }
    void cancel()
    {
        auto it = posted_.begin();
        std::advance(it, random_() % posted_.size());
        matcher_.withdraw(**it);
        posted_.erase(it);
    }

    unsigned masks_;
    std::mt19937 random_;
    Matcher matcher_;
    std::list<Receive*> posted_;
    std::list<Kept*> kept_;
    std::vector<std::unique_ptr<Receive>> receives_;
    std::vector<std::unique_ptr<Kept>> messages_;
};

void compare_with_a_list(unsigned masks, unsigned seed)
{
    Compared compared(masks, seed);
    for (int step = 0; step < 30000 && !testing::Test::HasFatalFailure(); step++)
        compared.step(step);
    // From few to many and back, often.
    EXPECT_GT(compared.most_posted, 30u);
    EXPECT_GT(compared.most_kept, 30u);
    EXPECT_GT(compared.emptied, 500u);
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
