// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Batches of ARMWs over a network with an adversary: their notices, failures and ends (atomic/armw_batch.cc). Run by
// make check.
#include <gtest/gtest.h>

#include <chrono>
#include <utility>

#include <rdma/fi_errno.h>

#include "initiator.h"

namespace {

using namespace tofu::test;

/// A batch of sums, one for each word of the operand from `offset` on; it fetches where there is a place for results.
void sum(Initiator& who, std::vector<std::uint64_t>& operand, std::vector<std::uint64_t>* result, void* context,
         bool inject = false, std::uint64_t offset = 0)
{
    who.runner->submit(make(who,
                            {FI_SUM, FI_UINT64, offset, operand.size(), operand.data(), nullptr,
                             result != nullptr ? result->data() : nullptr},
                            context),
                       inject);
}

/// A network that refuses one post in three where `busy`.
Net& narrow_network(unsigned seed, bool busy)
{
    Net& net = Net::reset(seed, 4);
    net.busy_percent = busy ? 30 : 0;
    return net;
}

TEST(AtomicBatches, OneNoticeAndTwoPlacesServeASum)
{
    Net::reset(5);
    Initiator who;
    Net& net = Net::now();
    net.window = 8;
    std::vector<std::uint64_t> operand(512);
    for (unsigned i = 0; i < 512; ++i)
        operand[i] = i + 1;
    sum(who, operand, nullptr, nullptr, false, 64);
    EXPECT_EQ(who.vcq.completions().free(), tofu::vcq::CompletionTable::size - 1 - 2);
    unsigned notices = 0;
    for (Net::step_all(0); who.vcq.poll() != 0; ++notices) {
    }
    EXPECT_EQ(notices, 1u);
    EXPECT_EQ(net.posts, 512u);
    EXPECT_EQ(who.ends[nullptr], std::vector<int>{0});
    EXPECT_TRUE(who.vcq.idle());
    for (unsigned i = 0; i < 512; ++i) {
        std::uint64_t value;
        std::memcpy(&value, &net.memory[64 + 8 * i], 8);
        ASSERT_EQ(value, i + 1);
    }
}

/// The library's descriptors, with something else in their last bytes.
template <auto last>
int prepare_otherwise(utofu_vcq_hdl_t vcq, utofu_vcq_id_t peer, utofu_armw_op op, std::uint64_t operand,
                      utofu_stadd_t remote, std::uint64_t edata, unsigned long flags, void* to, std::size_t* size)
{
    const int code = prepare_armw<std::uint64_t>(vcq, peer, op, operand, remote, edata, flags, to, size);
    const std::uint32_t word = last(PreparedArmw::read(to));
    std::memcpy(static_cast<char*>(to) + 4, &word, sizeof word);
    return code;
}

struct RowCase {
    const char* name;
    decltype(tofu::vcq::Functions::prepare_armw8) prepare;
    std::size_t rows; ///< of 511 words, the last of which has a notice of its own
};

class AtomicRows : public testing::TestWithParam<RowCase> {};

/// Descriptors are copied only where a copy is what the library would have prepared.
TEST_P(AtomicRows, ReachEachWordOnce)
{
    Net& net = Net::reset(7, 8);
    tofu::vcq::Functions functions = fake::functions();
    functions.prepare_armw8 = GetParam().prepare;
    Initiator who(functions);
    std::vector<std::uint64_t> operand(512);
    for (unsigned i = 0; i < 512; ++i)
        operand[i] = i + 1;
    for (unsigned round = 1; round <= 2; ++round) { // what is known of the descriptors, and what was learned before
        sum(who, operand, nullptr, nullptr, false, 64);
        ASSERT_TRUE(run({&who}));
        EXPECT_EQ(net.rows, GetParam().rows * round);
        EXPECT_EQ(net.posts, 512u * round);
        for (unsigned i = 0; i < 512; ++i) {
            std::uint64_t value;
            std::memcpy(&value, &net.memory[64 + 8 * i], 8);
            ASSERT_EQ(value, (i + 1) * round);
        }
    }
    EXPECT_TRUE(who.vcq.idle());
}

INSTANTIATE_TEST_SUITE_P(
    , AtomicRows,
    testing::Values(
        RowCase{"Plain", prepare_armw<std::uint64_t>, 8}, RowCase{"None", nullptr, 0},
        RowCase{"WithAChecksum",
                prepare_otherwise<[](const PreparedArmw& d) { return std::uint32_t(d.operand * 31 + d.remote); }>, 0},
        RowCase{"ThatDependOnTheWordAtTheEnd",
                prepare_otherwise<[](const PreparedArmw& d) { return std::uint32_t(d.operand == 511); }>, 0},
        RowCase{"Refused", [](auto...) { return int{UTOFU_ERR_NOT_SUPPORTED}; }, 0}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(AtomicBatches, FetchedValuesBelongToTheirElements)
{
    for (unsigned seed = 1; seed <= 10; ++seed) {
        const unsigned count = seed == 1 ? 3000 : 600; // the network of the test takes time that grows with the square
        Net::reset(seed);
        Initiator who;
        Net& net = Net::now();
        net.window = 8;
        net.busy_percent = 40;
        std::vector<std::uint32_t> operand(count, 5), compare(count), result(count);
        for (unsigned i = 0; i < count; ++i) {
            std::memcpy(&net.memory[4 * i], &i, 4);
            compare[i] = i & ~1u; // every other one swaps
        }
        who.runner->submit(make(who, {FI_CSWAP, FI_UINT32, 0, count, operand.data(), compare.data(), result.data()}),
                           false);
        ASSERT_TRUE(run({&who}));
        EXPECT_EQ(who.ends[nullptr], std::vector<int>{0});
        for (unsigned i = 0; i < count; ++i) {
            std::uint32_t value;
            std::memcpy(&value, &net.memory[4 * i], 4);
            ASSERT_EQ(result[i], i);
            ASSERT_EQ(value, i & 1 ? i : 5u);
        }
        EXPECT_TRUE(who.vcq.idle());
    }
}

TEST(AtomicBatches, AFailureInTheMiddleIsOneFailure)
{
    for (unsigned seed = 1; seed <= 20; ++seed) {
        Net& net = narrow_network(seed, seed % 2 != 0);
        Initiator who;
        net.broken = Net::base + 8 * 17;
        std::vector<std::uint64_t> operand(100, 1), result(100);
        int base = 0, fetch = 0;
        sum(who, operand, nullptr, &base, true);
        sum(who, operand, &result, &fetch);
        ASSERT_TRUE(run({&who}));
        EXPECT_EQ(who.ends[&base], std::vector<int>{FI_EIO});
        EXPECT_EQ(who.ends[&fetch], std::vector<int>{FI_EIO});
        EXPECT_TRUE(who.vcq.idle());
    }
}

TEST(AtomicBatches, OneRefusedForGoodLeavesNothingBehind)
{
    for (unsigned seed = 1; seed <= 20; ++seed) {
        Net& net = narrow_network(seed, seed % 2 != 0);
        Initiator who;
        net.refused = Net::base + 8 * 17;
        net.broken = seed % 4 > 1 ? Net::base + 8 * 5 : 0;
        std::vector<std::uint64_t> operand(100, 1), result(100);
        int base = 0, fetch = 0, later = 0;
        sum(who, operand, nullptr, &base, seed % 3 == 0);
        sum(who, operand, &result, &fetch);
        sum(who, operand, nullptr, &later, false, 800);
        ASSERT_TRUE(run({&who}));
        EXPECT_EQ(who.ends[&base], std::vector<int>{FI_EIO});
        EXPECT_EQ(who.ends[&fetch], std::vector<int>{FI_EIO});
        EXPECT_EQ(who.ends[&later], std::vector<int>{0});
        EXPECT_TRUE(who.vcq.idle()) << "seed " << seed;
        EXPECT_EQ(who.vcq.completions().free(), tofu::vcq::CompletionTable::size - 1);
        if (net.broken == 0)
            EXPECT_EQ(net.memory[8 * 16], 2); // by the two
        EXPECT_EQ(net.memory[8 * 18], 0);
    }
}

TEST(AtomicBatches, AQueueThatTakesNothingMoreIsIdleAllTheSame)
{
    Net& net = Net::reset(7);
    net.broken = Net::base + 8 * 5; // which fails when the batch is gone
    Initiator who;
    std::vector<std::uint64_t> operand(100, 1);
    int context = 0;
    for (unsigned i = 0; i < 20; ++i) {
        net.refused_from = net.posts + 10; // in the middle of the batch, and what would end it as well
        sum(who, operand, nullptr, &context);
        net.refused_from = 0;
        ASSERT_TRUE(run({&who}));
        EXPECT_TRUE(who.vcq.idle());
    }
    EXPECT_EQ(who.ends[&context], std::vector<int>(20, FI_EIO));
    EXPECT_EQ(who.vcq.completions().free(),
              tofu::vcq::CompletionTable::size - 1 - 20); // a late failure meets no other owner
}

TEST(AtomicBatches, HalfPostedOnesEndWithTheRunner)
{
    for (const bool fetches : {false, true}) {
        Net::reset(8);
        std::vector<std::uint64_t> operand(3000, 1), result(3000);
        int context = 0;
        Initiator who;
        Net::now().busy_percent = 1; // stops somewhere in the middle
        sum(who, operand, fetches ? &result : nullptr, &context);
        ASSERT_GT(Net::now().posts, 1u);
        who.runner->close();
        who.vcq.close();
        EXPECT_EQ(who.runner->ops.outstanding(), 0u);
        EXPECT_EQ(who.ends[&context], std::vector<int>{FI_ECANCELED});
    }
}

/// A library that does not report accesses to memory that is not there. The first notices are missed while there is
/// no room for more of them.
TEST(AtomicBatches, OneWithoutAnyNoticeEnds)
{
    using tofu::vcq::Vcq;
    using namespace std::chrono_literals;
    Net& net = Net::reset(9);
    net.silent = true;
    const auto usual = std::exchange(Vcq::lost_after, 6ms);
    Initiator who;
    std::vector<std::uint64_t> operand(3000, 1), result(3000);
    int context = 0;
    sum(who, operand, &result, &context, false, net.memory.size());
    for (const auto until = std::chrono::steady_clock::now() + 5s;
         who.runner->ops.outstanding() != 0 && std::chrono::steady_clock::now() < until; who.round())
        Net::step_all(0);
    EXPECT_EQ(who.ends[&context].size(), 1u);
    EXPECT_NE(who.ends[&context], std::vector<int>{0});
    EXPECT_TRUE(who.vcq.idle());
    Vcq::lost_after = usual;
}

TEST(AtomicBatches, EndWithTheVcq)
{
    Net::reset(6);
    std::vector<std::uint64_t> operand(100, 1), result(100);
    int base = 0, fetch = 0;
    Initiator who;
    sum(who, operand, nullptr, &base);
    sum(who, operand, &result, &fetch);
    who.vcq.drain(); // nothing takes effect, no notice comes
    EXPECT_EQ(who.ends[&base], std::vector<int>{FI_EIO});
    EXPECT_EQ(who.ends[&fetch], std::vector<int>{FI_EIO});
    EXPECT_TRUE(who.vcq.idle());
}

} // namespace
