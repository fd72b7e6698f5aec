// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Slots and areas as both sides of a ring compute them.
#include <gtest/gtest.h>

#include "msg/wire.h"

namespace tofu::proto {
namespace {

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
    EXPECT_GE((Geometry{512, 64, 1024}).rings(), anon_slots_offset + 1024 * slot_size);
    EXPECT_EQ(seq_base(0x1234567890abcdef) % max_ring_slots, 0u);
}

/// Owner and peers agree where rings are: those of the first part behind each other, the others under the further STag.
TEST(Wire, EveryRingHasItsPlaceInWhatIsRegistered)
{
    for (const Geometry g :
         {Geometry{512, 64, 1024}, {1, 4096, 0}, {2, 4096, 0}, {300, 16, 0}, {65536, 4096, 0}, {64, 64, 0}})
        for (const unsigned index : {0u, growing_endpoints - 1, growing_endpoints, max_endpoints - 1}) {
            const std::uint32_t first = g.first_rings(index);
            EXPECT_TRUE(first >= 1 && first <= g.ring_count);
            EXPECT_LE(g.ring(first) - g.ring(0), index < growing_endpoints ? 1u << 20 : g.size());
            for (std::uint32_t n = 0; n < g.ring_count; n++) {
                const Grant grant = read_grant(grant_of(g, index, n).word(), index);
                ASSERT_EQ(grant.slots, g.ring_slots);
                ASSERT_EQ(grant.is_further(), n >= first);
                ASSERT_EQ(grant.offset(), n < first ? g.ring(n) : g.ring(n) - g.ring(first));
            }
        }
}

} // namespace
} // namespace tofu::proto
