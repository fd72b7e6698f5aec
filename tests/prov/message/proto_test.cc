// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Units of the message protocol that need no network: packets, slots of long messages, the matcher against a
// plain list. Calls ring/wire, match/match.
#include <cstring>
#include <list>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "match/iov.h"
#include "match/match.h"
#include "message/packet.h"
#include "ring/wire.h"

namespace tofu::proto {
namespace {

alignas(8) std::byte slot[slot_size];

TEST(Wire, ReadsWhatItWrote)
{
    std::memset(slot, 0x55, sizeof slot);
    PacketWriter w(slot + slot_size);
    w.control(Type::eager, flag_tag | flag_data | flag_ack, 5, 77);
    w.put64(0xda7a);
    w.put64(0x7a9);
    w.put(Ack{3, 9});
    std::memcpy(w.reserve(5), "hello", 5);
    EXPECT_EQ(w.size(), 40u);
    Packet p;
    ASSERT_TRUE(decode(slot, p));
    EXPECT_EQ(p.type, Type::eager);
    EXPECT_EQ(p.control.seq, 77u);
    EXPECT_EQ(p.data, 0xda7au);
    EXPECT_EQ(p.tag, 0x7a9u);
    EXPECT_EQ(p.ack.fin, 3u);
    EXPECT_EQ(p.ack.seq, 9u);
    EXPECT_EQ(std::memcmp(p.body, "hello", 5), 0);
}

TEST(Wire, TaggedEightBytesFitIntoADescriptor)
{
    EXPECT_LE(overhead(flag_tag) + 8, 32u);
    EXPECT_LE(overhead(0) + 24, 32u);
}

TEST(Wire, FuzzedSlotsNeverLeadOutside)
{
    std::mt19937_64 random(1);
    unsigned good = 0;
    for (int round = 0; round < 200000; round++) {
        for (std::size_t i = 0; i < slot_size; i += 8) {
            const std::uint64_t v = random();
            std::memcpy(slot + i, &v, 8);
        }
        slot[slot_size - 8] = static_cast<std::byte>(random() % 9); // mostly a type
        slot[slot_size - 7] = static_cast<std::byte>(random() % 18);
        if (random() % 2)
            slot[slot_size - 5] = std::byte{0};
        Packet p;
        if (!decode(slot, p))
            continue;
        good++;
        EXPECT_LT(p.ack.fin, fin_count);
        std::size_t length = 0;
        if (p.type == Type::eager)
            length = p.control.length;
        else if (p.type == Type::rts)
            length = sizeof(Rts) + p.control.length * sizeof(Segment);
        if (p.body != nullptr) {
            ASSERT_GE(p.body, slot);
            ASSERT_LE(p.body + length, slot + slot_size - sizeof(Control));
        }
    }
    EXPECT_GT(good, 1000u);
}

TEST(Wire, LongMessagesStayInTheRingAndWithinCredits)
{
    const Geometry g{1, 64};
    ASSERT_TRUE(g.valid());
    for (std::uint32_t seq = 1; seq <= 128; seq++)
        for (std::uint32_t length = 1; length <= g.eager_limit(); length += 61) {
            const LongSlots s = long_slots(seq, length, g.ring_slots);
            EXPECT_LE(s.first + s.count, g.ring_slots);
            EXPECT_GE(s.count * slot_size, length);
            // What may be unreported never keeps a message out for ever.
            EXPECT_LE(s.total, g.ring_slots - (g.report_after() - 1));
            const std::uint32_t header = (seq - 1) % g.ring_slots;
            EXPECT_TRUE(header < s.first || header >= s.first + s.count);
        }
}

/// A slot that was never used holds 0: no packet may be expected there under that number.
TEST(Wire, NoSlotIsFirstUsedAsNumberZero)
{
    std::uint64_t inverse = 1; // of the factor, by Newton's method
    for (int i = 0; i < 6; i++)
        inverse *= 2 - 0x9e3779b97f4a7c15u * inverse;
    for (std::uint64_t base : {0xfffff000u, 0x7ffff000u, 0u, 0x12345000u}) {
        const std::uint32_t first = seq_base(inverse * (base << 32));
        for (std::uint32_t n = 1; n <= max_ring_slots; n++)
            ASSERT_NE(first + n, 0u) << base;
    }
}

TEST(Wire, GeometryIsChecked)
{
    EXPECT_FALSE((Geometry{0, 64}).valid());
    EXPECT_FALSE((Geometry{8, 48}).valid());
    EXPECT_FALSE((Geometry{8, 8}).valid());
    EXPECT_FALSE((Geometry{max_ring_count + 1, 64}).valid());
    const Geometry g{512, 64};
    EXPECT_EQ(g.rings() % 65536, 0u);
    EXPECT_GE(g.rings(), g.claim(511) + 8);
    EXPECT_EQ(seq_base(0x1234567890abcdef) % max_ring_slots, 0u);
}

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
    }
}

TEST(Match, AgreesWithAListFewMasks) { compare_with_a_list(3, 11); }
TEST(Match, AgreesWithAListMoreMasksThanKinds) { compare_with_a_list(40, 12); }

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
