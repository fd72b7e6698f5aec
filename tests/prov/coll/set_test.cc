// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_av_set(3): ranges, strides, the calls between sets, bad input.
#include "prov/coll/circle.h"

namespace tofu::test {
namespace {

using Members = std::vector<fi_addr_t>;

/// A set has no call that lists it: each address that can be inserted was not in it.
Members members_of(fid_av_set* set, fi_addr_t end)
{
    Members found;
    for (fi_addr_t at = 0; at < end; at++)
        if (fi_av_set_insert(set, at) == 0)
            EXPECT_EQ(fi_av_set_remove(set, at), 0);
        else
            found.push_back(at);
    return found;
}

TEST(AvSet, RangesStridesAndCallsBetweenSets)
{
    sim::test::expect_processes(1, [](const Rank& rank) {
        Circle circle(rank);
        char name[64];
        std::size_t length = sizeof(name);
        fi_addr_t at = 0;
        EXPECT_EQ(fi_getname(&circle.session.ep->fid, name, &length), 0);
        for (int i = 1; i < 8; i++)
            EXPECT_EQ(fi_av_insert(circle.session.av, name, 1, &at, 0, nullptr), 1);
        fi_addr_t hole = 4;
        EXPECT_EQ(fi_av_remove(circle.session.av, &hole, 1, 0), 0);
        const auto open = [&](std::size_t count, fi_addr_t first, fi_addr_t last, std::uint64_t stride,
                              std::uint64_t flags, int expected) {
            fi_av_set_attr attr{count, first, last, stride, 0, nullptr, flags};
            fid_av_set* set = nullptr;
            EXPECT_EQ(fi_av_set(circle.session.av, &attr, &set, nullptr), expected);
            return set;
        };
        constexpr fi_addr_t none = FI_ADDR_NOTAVAIL;
        fid_av_set* const even = open(0, 0, 7, 2, 0, 0);
        fid_av_set* const upper = open(5, 3, 100, 1, FI_BARRIER_SET, 0);
        fid_av_set* const all = open(0, none, none, 0, FI_UNIVERSE, 0);
        EXPECT_EQ(members_of(even, 8), (Members{0, 2, 4, 6})); // 4 cannot be inserted: it is no address
        EXPECT_EQ(members_of(upper, 8), (Members{3, 4, 5, 6, 7}));
        EXPECT_EQ(fi_av_set_intersect(upper, even), 0);
        EXPECT_EQ(members_of(upper, 8), (Members{4, 6}));
        EXPECT_EQ(fi_av_set_diff(all, even), 0);
        EXPECT_EQ(members_of(all, 8), (Members{1, 3, 4, 5, 7}));
        EXPECT_EQ(fi_av_set_union(all, upper), 0);
        EXPECT_EQ(members_of(all, 8), (Members{1, 3, 4, 5, 6, 7}));
        EXPECT_EQ(fi_av_set_diff(all, all), 0);
        EXPECT_EQ(members_of(all, 8), (Members{4}));
        EXPECT_EQ(fi_av_set_remove(all, 1), -FI_EINVAL);
        EXPECT_EQ(fi_av_set_insert(all, 100), -FI_EINVAL);
        (void)open(0, 3, 1, 1, 0, -FI_EINVAL);
        (void)open(0, 0, none, 1, 0, -FI_EINVAL);
        (void)open(0, 0, 3, 0, 0, -FI_EINVAL);
        (void)open(2, 0, 3, 1, 0, -FI_EINVAL);
        (void)open(0, none, none, 0, 1, -FI_EBADFLAGS);
        // A member of both sets is one member of their union: a group has no member twice.
        fid_av_set* const own = open(0, 0, 0, 1, 0, 0);
        fid_av_set* const same = open(0, 0, 0, 1, 0, 0);
        EXPECT_EQ(fi_av_set_union(own, same), 0);
        fid_mc* alone = nullptr;
        EXPECT_EQ(fi_join_collective(circle.session.ep, FI_ADDR_NOTAVAIL, own, 0, &alone, &circle.groups), 0);
        EXPECT_EQ(circle.end_join(alone), 0);
        EXPECT_EQ(fi_close(&alone->fid), 0);
        for (fid_av_set* set : {even, upper, all, own, same})
            EXPECT_EQ(fi_close(&set->fid), 0);
    });
}

} // namespace
} // namespace tofu::test
