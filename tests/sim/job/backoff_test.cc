// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How long and how often a process looks whose turn it is to join.
#include "job/backoff.h"

#include <gtest/gtest.h>

namespace tofu::sim {
namespace {

TEST(SimPatience, LastsAsLongAsOthersGetOn)
{
    Backoff backoff(1000, 100, 7);
    EXPECT_TRUE(backoff.lasts(1099, 7));
    EXPECT_FALSE(Backoff(backoff).lasts(1100, 7));
    EXPECT_TRUE(backoff.lasts(1100, 8)) << "another process has joined";
    EXPECT_TRUE(backoff.lasts(1199, 8));
    EXPECT_TRUE(backoff.lasts(1250, 9));
    EXPECT_FALSE(backoff.lasts(1350, 9));
}

TEST(SimPatience, LooksLessAndLessOften)
{
    Backoff backoff(0, 1, 0);
    uint64_t waited_ns = 0;
    unsigned looks = 0;
    for (; waited_ns < 1'000'000'000; looks++) {
        const uint32_t pause = backoff.pause_ns();
        EXPECT_LE(pause, Backoff::longest_pause_ns);
        waited_ns += pause;
    }
    EXPECT_LT(looks, 50u) << "in a second";
    EXPECT_EQ(backoff.pause_ns(), Backoff::longest_pause_ns);
}

} // namespace
} // namespace tofu::sim
