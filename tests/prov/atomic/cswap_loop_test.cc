// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The runner over a network with an adversary: every operation and datatype alone, then several initiators at
// once on the same words. Run by make check.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>

#include <rdma/fi_errno.h>

#include "initiator.h"

namespace {
std::function<void()> at_end; ///< called by the end of an operation
}

namespace tofu {

/// What the requests' own file does in the provider; here the ends are counted.
void complete(Request& request) noexcept
{
    auto* const ends = static_cast<std::map<void*, std::vector<int>>*>(
        static_cast<void*>(const_cast<tofu::Reports*>(request.reports)));
    const bool of_utofu = request.err != 0 && request.err != FI_ECANCELED; // whichever it is: FI_EIO
    (*ends)[request.completion.context].push_back(of_utofu ? FI_EIO : request.err);
    if (at_end)
        at_end();
}

} // namespace tofu

namespace {

using namespace tofu::test;

void fill(std::vector<unsigned char>& bytes, fi_datatype type, std::mt19937& random)
{
    for (auto& b : bytes)
        b = static_cast<unsigned char>(random());
    // Small numbers meet more often: equal values, zeros, no changes.
    if (type <= FI_UINT64 && random() % 2)
        for (std::size_t i = 0; i < bytes.size(); ++i)
            bytes[i] = i % tofu::datatypes[type].size == 0 ? bytes[i] % 3 : 0;
    if (type == FI_FLOAT || type == FI_FLOAT_COMPLEX)
        for (std::size_t i = 0; i + 4 <= bytes.size(); i += 4) {
            const float f = static_cast<float>(static_cast<int>(random() % 7) - 3) * 0.5f;
            std::memcpy(&bytes[i], &f, 4);
        }
    if (type == FI_LONG_DOUBLE || type == FI_LONG_DOUBLE_COMPLEX)
        for (std::size_t i = 0; i + 16 <= bytes.size(); i += 16) {
            const long double d = (static_cast<int>(random() % 7) - 3) * 0.5L;
            std::memset(&bytes[i], 0, 16);
            std::memcpy(&bytes[i], &d, 10);
        }
    if (type == FI_DOUBLE || type == FI_DOUBLE_COMPLEX)
        for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
            const double d = (static_cast<int>(random() % 7) - 3) * 0.5;
            std::memcpy(&bytes[i], &d, 8);
        }
}

class EveryPair : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(EveryPair, MatchesTheOracleAtAnyPlaceAndLength)
{
    const auto op = static_cast<fi_op>(std::get<0>(GetParam()));
    const auto type = static_cast<fi_datatype>(std::get<1>(GetParam()));
    if (tofu::lookup(family_of(op), op, type) == tofu::Method::none) {
        EXPECT_FALSE(tofu::kernel_of(op, type));
        return;
    }
    Net& net = Net::reset(static_cast<unsigned>(op * 100 + type));
    Initiator who;
    net.window = 8;
    net.busy_percent = 20;
    const std::size_t size = tofu::datatypes[type].size;
    for (unsigned trial = 0; trial < 60; ++trial) {
        const std::size_t count = 1 + net.random() % (trial % 10 == 0 ? 600 : 20);
        const std::uint64_t offset = 64 + size * (net.random() % 16) + (size > 8 ? 8 * (trial % 2) : 0);
        std::vector<unsigned char> operand(count * size), compare(count * size), result(count * size), before;
        std::vector<unsigned char> target(count * size + 32);
        fill(operand, type, net.random);
        fill(compare, type, net.random);
        fill(target, type, net.random);
        std::memcpy(&net.memory[offset - 8], target.data(), target.size());
        if (op >= FI_CSWAP && net.random() % 2)
            std::memcpy(compare.data(), &net.memory[offset], count * size);
        before = net.memory;
        std::vector<unsigned char> expected = net.memory;
        for (std::size_t i = 0; i < count; ++i)
            ASSERT_EQ(
                atomic_oracle::apply(op, type, &expected[offset + i * size], &operand[i * size], &compare[i * size]),
                atomic_oracle::Outcome::done);
        const bool inject = trial % 3 == 0;
        who.ends.clear();
        who.runner->submit(make(who, {op, type, offset, count, operand.data(), compare.data(), result.data()}), inject);
        if (inject) { // ours again, and overwritten
            std::fill(operand.begin(), operand.end(), 0xee);
            std::fill(compare.begin(), compare.end(), 0xee);
        }
        ASSERT_TRUE(run({&who}));
        ASSERT_EQ(who.ends[nullptr], std::vector<int>{0}) << "one end, without error";
        ASSERT_EQ(std::memcmp(result.data(), &before[offset], count * size), 0);
        ASSERT_TRUE(std::all_of(&net.memory[locks_at], &net.memory[locks_at + 256], [](unsigned char b) {
            return b == 0;
        })) << "locks are free again";
        if (type == FI_LONG_DOUBLE || type == FI_LONG_DOUBLE_COMPLEX) // their padding means nothing
            for (std::size_t i = 0; i < count; ++i) {
                ASSERT_TRUE(
                    atomic_oracle::same_value(type, &net.memory[offset + i * size], &expected[offset + i * size]));
                std::memcpy(&net.memory[offset + i * size], &expected[offset + i * size], size);
            }
        ASSERT_EQ(net.memory, expected) << "neighbours included";
    }
}

INSTANTIATE_TEST_SUITE_P(All, EveryPair,
                         testing::Combine(testing::Range(0, static_cast<int>(FI_ATOMIC_OP_LAST)),
                                          testing::Range(0, static_cast<int>(FI_UINT128) + 1)));

TEST(AtomicRounds, UncontendedMinTakesOneOrTwoRoundTrips)
{
    Net::reset(1);
    Initiator who;
    Net& net = Net::now();
    net.prompt = true;
    std::uint64_t value = 100, operand = 7, result = 0;
    std::memcpy(&net.memory[0], &value, 8);
    who.runner->submit(make(who, {FI_MIN, FI_UINT64, 0, 1, &operand, nullptr, &result}), false);
    ASSERT_TRUE(run({&who}));
    EXPECT_EQ(result, 100u);
    EXPECT_EQ(net.swaps, 2u) << "guess, then the value that came back";
    net.swaps = 0;
    operand = 9;
    who.runner->submit(make(who, {FI_MIN, FI_UINT64, 0, 1, &operand, nullptr, &result}), false);
    ASSERT_TRUE(run({&who}));
    EXPECT_EQ(result, 7u);
    EXPECT_EQ(net.swaps, 1u) << "the last seen value was right";
}

TEST(AtomicRounds, WordOperationsOfOneEndpointShareACswap)
{
    Net::reset(2);
    Initiator who;
    Net& net = Net::now();
    std::vector<std::uint32_t> operands(300, 3), results(300);
    std::uint32_t one = 1;
    std::memcpy(&net.memory[0], &one, 4);
    for (unsigned i = 0; i < 300; ++i)
        who.runner->submit(make(who, {FI_PROD, FI_UINT32, 0, 1, &operands[i], nullptr, &results[i]}), false);
    ASSERT_TRUE(run({&who}));
    std::uint32_t expected = 1;
    for (unsigned i = 0; i < 300; ++i, expected *= 3)
        ASSERT_EQ(results[i], expected) << "in the order of the calls";
    EXPECT_LT(net.swaps, 20u);
}

/// As an operation that waits for the counter of another does (FI_TRIGGER, FI_QUEUE_WORK).
TEST(AtomicRounds, AnEndMayStartTheNextOperationOnItsWord)
{
    for (unsigned seed = 1; seed < 10; seed++) {
        Net& net = Net::reset(seed);
        Initiator who;
        std::uint64_t value = 1, operand = 3, result[12] = {};
        std::memcpy(&net.memory[0], &value, 8);
        unsigned started = 0;
        at_end = [&] {
            if (started < 12) {
                started++;
                who.runner->submit(make(who, {FI_PROD, FI_UINT64, 0, 1, &operand, nullptr, &result[started - 1]}),
                                   false);
            }
        };
        at_end();
        ASSERT_TRUE(run({&who})) << "seed " << seed;
        at_end = nullptr;
        EXPECT_EQ(who.ends[nullptr].size(), 12u);
        for (const std::uint64_t before : result) {
            EXPECT_EQ(before, value);
            value *= 3;
        }
    }
}

TEST(AtomicRounds, PairsOfSmallElementsShareAWord)
{
    Net::reset(3);
    Initiator who;
    Net& net = Net::now();
    std::vector<std::uint8_t> operand(512, 1), result(512);
    who.runner->submit(make(who, {FI_BOR, FI_UINT8, 64, 512, operand.data(), nullptr, result.data()}), false);
    ASSERT_TRUE(run({&who}));
    EXPECT_EQ(net.posts, 64u);
}

TEST(AtomicRounds, LeavesPlacesToTheOtherEngines)
{
    Net::reset(4);
    Initiator who;
    std::vector<std::uint64_t> result(2000);
    who.runner->submit(make(who, {FI_ATOMIC_READ, FI_UINT64, 0, 2000, nullptr, nullptr, result.data()}), false);
    EXPECT_GE(who.vcq.completions().free(), tofu::AtomicOps::window_reserve);
    EXPECT_LT(who.vcq.completions().free(), tofu::AtomicOps::window_reserve + 2);
    ASSERT_TRUE(run({&who}));
}

/// Four initiators, one word or few: unique old values, nothing lost.
TEST(AtomicContention, EveryUpdateIsAppliedOnce)
{
    for (unsigned seed = 1; seed <= 20; ++seed) {
        Net& net = Net::reset(seed, 6, 10);
        Initiator who[4];
        constexpr unsigned each = 50;
        std::uint16_t one = 1;
        std::vector<std::uint16_t> old(4 * each);
        // 16-bit sums beside each other in one word, two per word, everyone on everything.
        std::vector<std::vector<std::uint16_t>> results(4 * each, std::vector<std::uint16_t>(3));
        std::vector<std::uint16_t> ones(3, one);
        for (unsigned i = 0; i < each; ++i)
            for (unsigned w = 0; w < 4; ++w)
                who[w].runner->submit(
                    make(who[w], {FI_SUM, FI_UINT16, 6, 3, ones.data(), nullptr, results[w * each + i].data()}), false);
        ASSERT_TRUE(run({&who[0], &who[1], &who[2], &who[3]}));
        for (unsigned element = 0; element < 3; ++element) {
            std::set<unsigned> seen;
            for (auto& r : results)
                ASSERT_TRUE(seen.insert(r[element]).second) << "an old value came twice";
            std::uint16_t end;
            std::memcpy(&end, &net.memory[6 + 2 * element], 2);
            ASSERT_EQ(end, 4 * each);
        }
        ASSERT_EQ(net.memory[4] | net.memory[5] | net.memory[12] | net.memory[13], 0);
    }
}

/// Random operations on one 64-bit word: some order of all must explain every result. Each CSWAP that wrote links
/// an old value to a new one; with distinct values the chain is the order.
TEST(AtomicContention, FloatSumsLoseNothing)
{
    Net::reset(77, 4);
    Initiator who[4];
    constexpr unsigned each = 200;
    double one = 1.0;
    std::vector<double> results(4 * each);
    for (unsigned i = 0; i < 4 * each; ++i)
        who[i % 4].runner->submit(make(who[i % 4], {FI_SUM, FI_DOUBLE, 8, 1, &one, nullptr, &results[i]}), false);
    ASSERT_TRUE(run({&who[0], &who[1], &who[2], &who[3]}));
    std::sort(results.begin(), results.end());
    for (unsigned i = 0; i < 4 * each; ++i)
        ASSERT_EQ(results[i], i);
}

TEST(AtomicContention, EachInitiatorGetsThrough)
{
    Net& net = Net::reset(5);
    Initiator who[8];
    // Each keeps one multiplication under way; no initiator may stay far behind.
    std::uint64_t factor = 3, start = 1, result[8];
    std::memcpy(&net.memory[0], &start, 8);
    unsigned done[8] = {};
    for (unsigned i = 0; i < 400000; ++i) {
        const unsigned w = net.random() % 8;
        net.step(unsigned(who[w].vcq.handle() - 1));
        who[w].round();
        if (who[w].runner->ops.outstanding() == 0) {
            ++done[w];
            who[w].runner->submit(make(who[w], {FI_PROD, FI_UINT64, 0, 1, &factor, nullptr, &result[w]}), false);
        }
    }
    const auto [least, most] = std::minmax_element(done, done + 8);
    EXPECT_GT(*least, 100u);
    EXPECT_LT(*most, *least * 3);
}

TEST(AtomicOrder, LaterOperationsSeeEarlierOnes)
{
    for (unsigned seed = 1; seed < 30; ++seed) {
        Net& net = Net::reset(seed, 8, 15);
        Initiator who;
        who.runner->ordered = true;
        std::uint64_t model = 5;
        std::memcpy(&net.memory[0], &model, 8);
        constexpr unsigned n = 100;
        std::vector<std::uint64_t> operands(n), results(n), expected(n);
        for (unsigned i = 0; i < n; ++i) {
            static constexpr fi_op ops[] = {FI_SUM, FI_PROD, FI_BXOR, FI_MAX, FI_ATOMIC_WRITE};
            const fi_op op = ops[net.random() % 5];
            operands[i] = net.random();
            expected[i] = model;
            atomic_oracle::apply(op, FI_UINT64, &model, &operands[i], nullptr);
            who.runner->submit(make(who, {op, FI_UINT64, 0, 1, &operands[i], nullptr, &results[i]}), false);
        }
        ASSERT_TRUE(run({&who}));
        ASSERT_EQ(results, expected) << "seed " << seed;
    }
}

TEST(AtomicRead, MemoryForReadingOnlyIsReadByGet)
{
    Net& net = Net::reset(21, 8, 30);
    net.read_only_all = true;
    Initiator who;
    for (unsigned i = 0; i < 4096; ++i)
        net.memory[i] = static_cast<unsigned char>(i * 13);
    std::vector<std::uint16_t> seen(700);
    who.runner->submit(make(who, {FI_ATOMIC_READ, FI_UINT16, 6, 700, nullptr, nullptr, seen.data()}), false);
    ASSERT_TRUE(run({&who}));
    EXPECT_EQ(who.ends[nullptr], std::vector<int>{0});
    EXPECT_EQ(std::memcmp(seen.data(), &net.memory[6], 1400), 0);
    std::uint16_t one = 1;
    who.runner->submit(make(who, {FI_SUM, FI_UINT16, 6, 1, &one, nullptr, seen.data()}), false);
    ASSERT_TRUE(run({&who}));
    EXPECT_EQ(who.ends[nullptr], (std::vector<int>{0, FI_EIO}));
}

TEST(AtomicRead, TakesOneArmwForEachWord)
{
    Net& net = Net::reset(22);
    Initiator who;
    std::vector<std::uint16_t> seen(700);
    who.runner->submit(make(who, {FI_ATOMIC_READ, FI_UINT16, 0, 700, nullptr, nullptr, seen.data()}), false);
    ASSERT_TRUE(run({&who}));
    EXPECT_EQ(net.posts, 700u / 4) << "a Get as well is for memory that refuses an ARMW";
}

TEST(AtomicErrors, AFailedOperationEndsOnce)
{
    for (unsigned seed = 1; seed < 20; ++seed) {
        Net& net = Net::reset(seed, 8);
        net.broken = Net::base + 80;
        Initiator who;
        std::vector<std::uint64_t> operand(100, 2), result(100);
        int bad = 0, good = 0;
        who.runner->submit(make(who, {FI_PROD, FI_UINT64, 0, 100, operand.data(), nullptr, result.data()}, &bad),
                           false);
        who.runner->submit(make(who, {FI_PROD, FI_UINT64, 80, 1, operand.data(), nullptr, result.data()}, &bad), false);
        who.runner->submit(make(who, {FI_SUM, FI_UINT64, 800, 4, operand.data(), nullptr, result.data()}, &good),
                           false);
        ASSERT_TRUE(run({&who}));
        EXPECT_EQ(who.ends[&bad], (std::vector<int>{FI_EIO, FI_EIO}));
        EXPECT_EQ(who.ends[&good], std::vector<int>{0});
    }
}

TEST(AtomicEvents, OneNoticePerOperationAtItsEnd)
{
    for (unsigned seed = 1; seed < 20; ++seed) {
        Net& net = Net::reset(seed, 8, 30);
        Initiator who[2];
        std::vector<std::uint64_t> operand(20, 2);
        for (unsigned w = 0; w < 2; ++w)
            for (auto [op, count] : {std::pair{FI_SUM, 1}, {FI_SUM, 20}, {FI_PROD, 1}, {FI_PROD, 20}}) {
                AtomicOp* const made =
                    make(who[w], {op, FI_UINT64, 0, static_cast<std::size_t>(count), operand.data(), nullptr, nullptr});
                made->event = tofu::AtomicEvent::write;
                who[w].runner->submit(made, false);
            }
        ASSERT_TRUE(run({&who[0], &who[1]}));
        EXPECT_EQ(net.remote_notices.size(), 8u);
        for (auto& [type, stadd, unsignaled] : net.remote_notices) {
            EXPECT_EQ(type, UTOFU_MRQ_TYPE_RMT_ARMW);
            EXPECT_FALSE(unsignaled);
        }
    }
}

TEST(AtomicEvents, FetchingEndsWithAnUnattendedArmwReadingWithAGet)
{
    Net& net = Net::reset(31);
    net.busy_percent = 30;
    Initiator who;
    std::vector<std::uint8_t> operand(300, 2), result(300);
    using Seen = std::tuple<std::uint8_t, std::uint64_t, bool>;
    for (auto [op, event, seen] :
         {std::tuple{FI_SUM, tofu::AtomicEvent::fetch, Seen{UTOFU_MRQ_TYPE_RMT_ARMW, Net::base, true}},
          std::tuple{FI_BOR, tofu::AtomicEvent::read, Seen{UTOFU_MRQ_TYPE_RMT_GET, Net::base + 3, false}}}) {
        net.remote_notices.clear();
        for (unsigned i = 0; i < 2; ++i) {
            AtomicOp* const made = make(who, {op, FI_UINT8, 3, 300, operand.data(), nullptr, result.data()});
            made->event = event;
            who.runner->submit(made, false);
        }
        ASSERT_TRUE(run({&who}));
        EXPECT_EQ(net.remote_notices, std::vector<Seen>(2, seen));
    }
}

TEST(AtomicLists, CutsOfAllListsMayDiffer)
{
    Net& net = Net::reset(9, 8);
    Initiator who;
    std::vector<std::uint8_t> a(40), b(40), r(40);
    for (unsigned i = 0; i < 40; ++i)
        a[i] = static_cast<std::uint8_t>(net.random());
    AtomicOp* op = make(who, {FI_SUM, FI_UINT8, 0, 40, nullptr, nullptr, nullptr});
    op->operand.clear();
    op->operand.add(&a[0], 7);
    op->operand.add(&a[7], 1);
    op->operand.add(&a[8], 32);
    op->fetches = true;
    op->result.add(&r[0], 3);
    op->result.add(&r[3], 37);
    op->target[0] = {{1, Net::base + 5}, 11, 0, 0};
    op->target[1] = {{1, Net::base + 103}, 29, 0, 0};
    op->targets = 2;
    for (unsigned i = 0; i < 200; ++i)
        net.memory[i] = static_cast<unsigned char>(i * 7);
    auto expected = net.memory;
    for (unsigned i = 0; i < 40; ++i) {
        auto& e = expected[i < 11 ? 5 + i : 103 + i - 11];
        b[i] = e;
        e = static_cast<unsigned char>(e + a[i]);
    }
    who.runner->submit(op, false);
    ASSERT_TRUE(run({&who}));
    EXPECT_EQ(net.memory, expected);
    EXPECT_EQ(r, b);
}

TEST(AtomicClose, WhatIsLeftEndsWithAnError)
{
    Net::reset(11);
    Initiator who;
    std::vector<std::uint64_t> operand(3000, 2);
    int first = 0, second = 0;
    who.runner->submit(make(who, {FI_PROD, FI_UINT64, 0, 3000, operand.data(), nullptr, nullptr}, &first), false);
    who.runner->submit(make(who, {FI_PROD, FI_UINT64, 0, 1, operand.data(), nullptr, nullptr}, &second), false);
    who.runner->close();
    who.vcq.close();
    EXPECT_EQ(who.runner->ops.outstanding(), 0u);
    EXPECT_EQ(who.ends[&first], std::vector<int>{FI_ECANCELED});
    EXPECT_EQ(who.ends[&second].size(), 1u);
    EXPECT_NE(who.ends[&second][0], 0);
}

/// A loop that lost and a wide element that has just got its lock need another post, which is not accepted any more.
TEST(AtomicClose, WhatCannotGoOnIsNoSuccess)
{
    for (const fi_datatype type : {FI_UINT64, FI_UINT128}) {
        Net& net = Net::reset(12);
        Initiator who;
        const std::uint64_t operand[2] = {2, 0};
        net.memory[0] = 7; // not what is guessed
        int context = 0;
        who.runner->submit(
            make(who, {FI_PROD, type, 0, 1, const_cast<std::uint64_t*>(operand), nullptr, nullptr}, &context), false);
        Net::step_all(0);
        who.runner->close();
        who.vcq.close();
        EXPECT_EQ(net.memory[0], 7);
        EXPECT_EQ(who.ends[&context], std::vector<int>{FI_EIO}) << type;
    }
}

} // namespace
