// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Many words that loop together over a network with an adversary: one Get, a batch of CSWAPs, and what becomes of words
// that changed in between (atomic/cswap_loop.cc). Run by make check.
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <utility>

#include <rdma/fi_errno.h>

#include "initiator.h"

namespace {

using namespace tofu::test;

constexpr unsigned n = 300; ///< elements: three spans

/// Sums of doubles from `offset` on; it fetches where there is a place for results.
void sum(Initiator& who, std::vector<double>& operand, std::vector<double>* result, void* context = nullptr,
         std::uint64_t offset = 0, bool inject = false)
{
    who.runner->submit(make(who,
                            {FI_SUM, FI_DOUBLE, offset, operand.size(), operand.data(), nullptr,
                             result != nullptr ? result->data() : nullptr},
                            context),
                       inject);
}

double at(unsigned element)
{
    double value;
    std::memcpy(&value, &Net::now().memory[8 * element], 8);
    return value;
}

void place(unsigned element, double value)
{
    std::memcpy(&Net::now().memory[8 * element], &value, 8);
}

TEST(AtomicSpans, OneCswapAWordAndAGetForMany)
{
    Net::reset(1);
    Initiator who;
    Net& net = Net::now();
    net.window = 8;
    std::vector<double> operand(n, 0.5), result(n);
    for (unsigned i = 0; i < n; ++i)
        place(i, i);
    sum(who, operand, &result);
    EXPECT_GE(who.vcq.completions().free(), tofu::vcq::CompletionTable::size - 1 - 3) << "one place each";
    ASSERT_TRUE(run({&who}));
    EXPECT_EQ(who.ends[nullptr], std::vector<int>{0});
    EXPECT_EQ(net.posts, n + 3);
    for (unsigned i = 0; i < n; ++i) {
        ASSERT_EQ(result[i], i);
        ASSERT_EQ(at(i), i + 0.5);
    }
}

TEST(AtomicSpans, FewWordsGuessByThemselves)
{
    Net::reset(2);
    Initiator who;
    Net& net = Net::now();
    net.prompt = true;
    std::vector<double> operand(8, 0.5);
    sum(who, operand, nullptr);
    ASSERT_TRUE(run({&who}));
    EXPECT_EQ(net.swaps, 8u) << "a memory of zeros: the first guess is right";
    EXPECT_EQ(net.posts, 8u);
}

TEST(AtomicSpans, WordsThatChangedAreTriedAgainAndNoOthers)
{
    Net::reset(3);
    Initiator who;
    Net& net = Net::now();
    std::vector<double> operand(100, 1), result(100);
    sum(who, operand, &result);
    net.step(0); // the Get
    who.round();
    place(0, 5), place(50, 6), place(99, 7);
    ASSERT_TRUE(run({&who}));
    EXPECT_EQ(net.swaps, 103u);
    for (unsigned i = 0; i < 100; ++i) {
        const double before = i == 0 ? 5 : i == 50 ? 6 : i == 99 ? 7 : 0;
        ASSERT_EQ(result[i], before) << i;
        ASSERT_EQ(at(i), before + 1) << i;
    }
}

TEST(AtomicSpans, OfOneEndpointDoNotMeet)
{
    Net::reset(4);
    Initiator who;
    Net& net = Net::now();
    net.window = 8;
    std::vector<double> operand(n, 1);
    std::vector<std::vector<double>> result(5, std::vector<double>(n));
    for (auto& one : result)
        sum(who, operand, &one);
    ASSERT_TRUE(run({&who}));
    EXPECT_EQ(net.swaps, 5 * n) << "no loop lost";
    for (unsigned i = 0; i < 5; ++i)
        EXPECT_EQ(result[i], std::vector<double>(n, i)) << "in the order of the calls";
}

/// Several initiators on everything, with different cuts: unique old values, nothing lost.
TEST(AtomicSpans, EveryUpdateIsAppliedOnce)
{
    for (unsigned seed = 1; seed <= 10; ++seed) {
        Net& net = Net::reset(seed, 6, 10);
        Initiator who[3];
        constexpr unsigned each = 8;
        std::vector<std::int16_t> ones(n, 1);
        std::vector<std::vector<std::int16_t>> result(3 * each, std::vector<std::int16_t>(n));
        for (unsigned i = 0; i < 3 * each; ++i)
            who[i % 3].runner->submit(
                make(who[i % 3], {FI_SUM, FI_INT16, 6, n - i % 3, ones.data(), nullptr, result[i].data()}), false);
        ASSERT_TRUE(run({&who[0], &who[1], &who[2]}));
        for (unsigned element = 0; element < n - 2; ++element) {
            std::set<int> seen;
            for (auto& r : result)
                ASSERT_TRUE(seen.insert(r[element]).second) << "an old value came twice";
            std::int16_t end;
            std::memcpy(&end, &net.memory[6 + 2 * element], 2);
            ASSERT_EQ(end, int{3 * each});
        }
        ASSERT_EQ(net.memory[5] | net.memory[6 + 2 * n], 0) << "neighbours";
        for (Initiator& one : who)
            EXPECT_TRUE(one.vcq.idle());
    }
}

TEST(AtomicSpans, AFailureIsOneFailure)
{
    for (unsigned seed = 1; seed <= 20; ++seed) {
        Net& net = Net::reset(seed, 4);
        net.busy_percent = seed % 2 ? 30 : 0;
        (seed % 4 < 2 ? net.broken : net.refused) = Net::base + (seed % 3 == 0 ? 0 : 8 * 17); // the Get, or a CSWAP
        Initiator who;
        std::vector<double> operand(100, 1), result(100);
        int base = 0, fetch = 0, later = 0;
        sum(who, operand, nullptr, &base);
        sum(who, operand, &result, &fetch);
        sum(who, operand, nullptr, &later, 800);
        ASSERT_TRUE(run({&who}));
        EXPECT_EQ(who.ends[&base], std::vector<int>{FI_EIO});
        EXPECT_EQ(who.ends[&fetch], std::vector<int>{FI_EIO});
        EXPECT_EQ(who.ends[&later], std::vector<int>{0});
        EXPECT_EQ(at(150), 1);
        EXPECT_TRUE(who.vcq.idle()) << "seed " << seed;
        EXPECT_EQ(who.vcq.completions().free(), tofu::vcq::CompletionTable::size - 1);
    }
}

/// Wherever they are: before the Get has ended, half posted, with words to be tried again.
TEST(AtomicSpans, EndWithTheRunnerAtAnyTime)
{
    for (unsigned seed = 1; seed <= 60; ++seed) {
        Net& net = Net::reset(seed, 4, 20);
        std::vector<double> operand(n, 1), result(n);
        int first = 0, second = 0;
        Initiator who;
        sum(who, operand, &result, &first);
        sum(who, operand, nullptr, &second);
        for (unsigned steps = net.random() % 500; steps != 0; --steps) {
            net.step(0);
            if (net.random() % 2)
                who.round();
            if (net.random() % 8 == 0)
                place(net.random() % n, 100 + steps); // another initiator
        }
        who.runner->close();
        if (seed % 12 != 0) // else some never end, which takes the VCQ its time
            Net::step_all(0);
        who.vcq.close();
        EXPECT_EQ(who.runner->ops.outstanding(), 0u);
        EXPECT_EQ(who.ends[&first].size(), 1u);
        EXPECT_EQ(who.ends[&second].size(), 1u);
    }
}

/// No notice comes of the CSWAPs that were posted, and for as long there is no room for the others.
TEST(AtomicSpans, OneThatIsGivenUpHalfPostedEndsOnce)
{
    using tofu::vcq::Vcq;
    using namespace std::chrono_literals;
    Net& net = Net::reset(9);
    net.read_only_all = net.silent = true;
    const auto usual = std::exchange(Vcq::lost_after, 6ms);
    Initiator who;
    std::vector<double> operand(100, 1), result(100);
    int context = 0;
    const auto go_on = [&](std::chrono::milliseconds most) {
        for (const auto until = std::chrono::steady_clock::now() + most;
             who.runner->ops.outstanding() != 0 && std::chrono::steady_clock::now() < until; who.round())
            Net::step_all(0);
    };
    sum(who, operand, &result, &context);
    while (net.posts < 20) { // the Get, and some of the CSWAPs
        net.busy_percent = 80;
        go_on(0ms);
        who.round();
        Net::step_all(0);
    }
    net.busy_percent = 100;
    go_on(100ms);
    net.busy_percent = 0;
    go_on(5000ms);
    who.round();
    EXPECT_EQ(who.ends[&context].size(), 1u);
    EXPECT_TRUE(who.vcq.idle());
    Vcq::lost_after = usual;
}

TEST(AtomicSpans, EndWithTheVcq)
{
    Net::reset(6);
    std::vector<double> operand(n, 1);
    int context = 0;
    Initiator who;
    sum(who, operand, nullptr, &context);
    Net::now().step(0);
    who.round(); // one is swapping, the others get
    who.vcq.drain();
    EXPECT_EQ(who.ends[&context], std::vector<int>{FI_EIO});
    EXPECT_TRUE(who.vcq.idle());
}

/// The lists of an injected operation are not read when the call has returned.
TEST(AtomicSpans, InjectedOperandsAreTheCallers)
{
    Net::reset(7);
    Initiator who;
    std::vector<double> operand(n, 1);
    sum(who, operand, nullptr, nullptr, 0, true);
    operand.assign(n, 1000);
    ASSERT_TRUE(run({&who}));
    for (unsigned i = 0; i < n; ++i)
        ASSERT_EQ(at(i), 1);
}

TEST(AtomicSpans, KeepTheOrderThatWasPromised)
{
    for (unsigned seed = 1; seed <= 4; ++seed) {
        Net& net = Net::reset(seed, 8, 15);
        Initiator who;
        who.runner->ordered = true;
        std::vector<std::uint64_t> model(n, 5), by(n, 3);
        std::memcpy(net.memory.data(), model.data(), 8 * n);
        std::vector<std::vector<std::uint64_t>> result(20, std::vector<std::uint64_t>(n)), expected = result;
        for (unsigned i = 0; i < 20; ++i) {
            static constexpr fi_op ops[] = {FI_SUM, FI_PROD, FI_BXOR, FI_MAX, FI_ATOMIC_WRITE};
            const fi_op op = ops[net.random() % 5];
            expected[i] = model;
            for (unsigned k = 0; k < n; ++k)
                atomic_oracle::apply(op, FI_UINT64, &model[k], &by[k], nullptr);
            who.runner->submit(make(who, {op, FI_UINT64, 0, n, by.data(), nullptr, result[i].data()}), false);
        }
        ASSERT_TRUE(run({&who}));
        ASSERT_EQ(result, expected) << "seed " << seed;
    }
}

} // namespace
