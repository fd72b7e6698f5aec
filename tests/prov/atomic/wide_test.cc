// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Atomics of elements wider than a word, under lock words, over a network with an adversary (atomic/wide.cc). Run by
// make check.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>

#include "initiator.h"

namespace {

using namespace tofu::test;

TEST(AtomicContention, WideSumsLoseNothing)
{
    for (unsigned seed = 1; seed < 10; ++seed) {
        Net::reset(seed, 4, 20);
        Initiator who[4];
        constexpr unsigned each = 40;
        long double one[2] = {1.0L, 2.0L};
        std::vector<std::array<long double, 2>> results(4 * each);
        for (unsigned i = 0; i < 4 * each; ++i)
            who[i % 4].runner->submit(
                make(who[i % 4], {FI_SUM, FI_LONG_DOUBLE_COMPLEX, 24, 1, one, nullptr, &results[i]}), false);
        ASSERT_TRUE(run({&who[0], &who[1], &who[2], &who[3]}));
        std::sort(results.begin(), results.end());
        for (unsigned i = 0; i < 4 * each; ++i) {
            ASSERT_EQ(results[i][0], i);
            ASSERT_EQ(results[i][1], 2 * i) << "torn";
        }
    }
}

TEST(AtomicWide, TheLockOfADeadHolderIsBroken)
{
    Net& net = Net::reset(3);
    Initiator who;
    const std::uint64_t element = 32, token = 0x1234567;
    std::memcpy(&net.memory[locks_at + 8 * tofu::locks::index_of(Net::base + element)], &token, 8);
    __int128 five = 5, result = 1;
    who.runner->submit(make(who, {FI_SUM, static_cast<fi_datatype>(FI_INT128), element, 1, &five, nullptr, &result}),
                       false);
    const auto start = std::chrono::steady_clock::now();
    ASSERT_TRUE(run({&who}, 2000000000));
    EXPECT_GE(std::chrono::steady_clock::now() - start, tofu::WideRunner::break_after);
    EXPECT_EQ(result, 0);
    __int128 now;
    std::memcpy(&now, &net.memory[element], 16);
    EXPECT_EQ(now, five);
    EXPECT_EQ(who.ends[nullptr], std::vector<int>{0});
}

/// A clock of the test's.
struct Time {
    Time() { tofu::WideRunner::now = &read; }
    ~Time() { tofu::WideRunner::now = &tofu::Clock::now; }
    static std::chrono::steady_clock::time_point read() noexcept { return at; }
    static inline std::chrono::steady_clock::time_point at{};
};

/// One sum of 5, stopped where it has lock and value, and its Put is refused or not; then another initiator takes the
/// lock over, adds 7, and leaves. Returns the code it ended with, and the sum.
std::pair<int, __int128> oversleep(bool put_is_refused, std::chrono::milliseconds sleep)
{
    Net& net = Net::reset(5);
    Time time;
    Initiator who;
    const std::uint64_t element = 32;
    unsigned char* const lock = &net.memory[locks_at + 8 * tofu::locks::index_of(Net::base + element)];
    __int128 five = 5, result = 0, seven = 7, now = 0;
    who.runner->submit(make(who, {FI_SUM, static_cast<fi_datatype>(FI_INT128), element, 1, &five, nullptr, &result}),
                       false);
    const auto queue = static_cast<unsigned>(who.vcq.handle() - 1);
    Net::step_all(queue); // CSWAP and Get
    net.busy_percent = put_is_refused ? 100 : 0;
    who.round();
    net.busy_percent = 0;
    time.at += sleep;
    if (sleep > tofu::WideRunner::break_after) {
        std::memcpy(&net.memory[element], &seven, 16);
        std::memset(lock, 0, 8);
    }
    EXPECT_TRUE(run({&who}));
    std::memcpy(&now, &net.memory[element], 16);
    EXPECT_EQ(who.ends[nullptr].size(), 1u);
    return {who.ends[nullptr].empty() ? -1 : who.ends[nullptr][0], now};
}

TEST(AtomicWide, APutThatWasRefusedAsksForItsLeaseAgain)
{
    EXPECT_TRUE((oversleep(true, std::chrono::milliseconds(0)) == std::pair<int, __int128>{0, 5}));
    EXPECT_TRUE((oversleep(true, std::chrono::milliseconds(500)) == std::pair<int, __int128>{0, 5})); // renewed
    EXPECT_TRUE((oversleep(true, std::chrono::milliseconds(5000)) == std::pair<int, __int128>{0, 12}));
}

TEST(AtomicWide, AHolderThatSleepsBeyondItsLeaseIsInformed)
{
    EXPECT_TRUE((oversleep(false, std::chrono::milliseconds(0)) == std::pair<int, __int128>{0, 5}));
    const auto [code, sum] = oversleep(false, std::chrono::milliseconds(5000));
    EXPECT_NE(code, 0);
    EXPECT_TRUE(sum == 5); // its Put came late: that is what the error says
}

TEST(AtomicWide, AComplexFloatMayLieAcrossTwoWords)
{
    Net::reset(4);
    Initiator who;
    float one[2] = {1, 2}, result[2] = {};
    AtomicOp* const op = make(who, {FI_SUM, FI_FLOAT_COMPLEX, 12, 1, one, nullptr, result});
    op->multi = true;
    who.runner->submit(op, false);
    ASSERT_TRUE(run({&who}));
    float now[2];
    std::memcpy(now, &Net::now().memory[12], 8);
    EXPECT_EQ(now[0], 1);
    EXPECT_EQ(now[1], 2);
}

} // namespace
