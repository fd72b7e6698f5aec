// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The pending queue: which operation waits behind which, what a fence waits for, how all of it ends. A test for each
// case of tx/pending_queue.h, by its number. Run by make check; calls pending_queue.h alone.
#include "tx/pending_queue.h"

#include <deque>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace {

using tofu::BlockReason;
using tofu::Peer;
using tofu::PendingOp;
using tofu::PendingQueue;

struct Op : PendingOp {
    unsigned number = 0;
};

/// An engine whose operations lack what the test says.
struct Engine {
    explicit Engine(PendingQueue& pending) : stream(pending, this, steps) {}

    void push(unsigned number, std::uint64_t key, BlockReason reason = BlockReason::peer)
    {
        ops[number].number = number;
        stream.push(ops[number], key, reason);
    }
    static Engine& of(void* engine) { return *static_cast<Engine*>(engine); }
    static const PendingQueue::SubQueue::Steps steps;

    std::map<unsigned, Op> ops;
    std::function<BlockReason(std::uint64_t key)> reason = [](std::uint64_t) { return BlockReason::nothing; };
    std::function<void(Op&)> behind = [](Op&) {};
    std::vector<unsigned> gone;
    std::vector<unsigned> cancelled;
    PendingQueue::SubQueue stream;
};

constexpr PendingQueue::SubQueue::Steps Engine::steps{
    [](void* engine, PendingOp& op) noexcept { return Engine::of(engine).reason(op.links.key); },
    [](void* engine, PendingOp& op) noexcept {
        Engine::of(engine).gone.push_back(static_cast<Op&>(op).number);
        Engine::of(engine).behind(static_cast<Op&>(op));
    },
    [](void* engine, PendingOp& op) noexcept { Engine::of(engine).cancelled.push_back(static_cast<Op&>(op).number); },
};

struct PendingTest : testing::Test {
    using Numbers = std::vector<unsigned>;
    /// What leaves in as many rounds as it takes to come by all buckets, while nothing goes to these.
    Numbers resume(const std::set<std::uint64_t>& blocked = {})
    {
        engine.reason = [&](std::uint64_t key) {
            return blocked.contains(key) ? BlockReason::peer : BlockReason::nothing;
        };
        engine.gone.clear();
        for (int round = 0; round < 4; round++)
            pending.resume();
        return engine.gone;
    }
    PendingQueue pending;
    Engine engine{pending};
    PendingQueue::SubQueue& stream = engine.stream;
};

TEST_F(PendingTest, Case1NothingWaitsAtFirst)
{
    EXPECT_TRUE(pending.empty());
    for (std::uint64_t key = 0; key < 1000; key++) {
        EXPECT_FALSE(stream.may_block(key));
        EXPECT_FALSE(stream.blocks(key));
    }
    EXPECT_EQ(resume(), Numbers{});
}

TEST_F(PendingTest, Case2And3ALineKeepsItsOrderAndHoldsUpItselfAlone)
{
    for (unsigned n = 0; n < 10; n++)
        engine.push(n, n % 2);
    EXPECT_EQ(stream.size(), 10u);
    EXPECT_TRUE(stream.blocks(0) && stream.blocks(1));
    EXPECT_EQ(resume({0}), (Numbers{1, 3, 5, 7, 9}));
    EXPECT_TRUE(stream.blocks(0));
    EXPECT_FALSE(stream.blocks(1));
    engine.push(11, 0);
    EXPECT_EQ(resume(), (Numbers{0, 2, 4, 6, 8, 11}));
    EXPECT_TRUE(pending.empty());
    EXPECT_FALSE(stream.may_block(0));
}

TEST_F(PendingTest, Case3AStreamHoldsUpNoOther)
{
    Engine other{pending};
    engine.push(0, 5, BlockReason::room);
    EXPECT_FALSE(other.stream.may_block(5));
    other.push(1, 5);
    EXPECT_EQ(resume({5}), Numbers{});
    EXPECT_EQ(other.gone, Numbers{1});
    EXPECT_FALSE(pending.empty());
}

/// More lines than there are buckets: keys that share one are distinguished.
TEST_F(PendingTest, Case3ManyLinesHoldUpNoOther)
{
    constexpr unsigned peers = 1000;
    for (unsigned n = 0; n < 3 * peers; n++)
        engine.push(n, n % peers);
    for (std::uint64_t key = 0; key < peers; key++)
        EXPECT_TRUE(stream.blocks(key));
    for (std::uint64_t key = peers; key < 2 * peers; key++)
        EXPECT_FALSE(stream.blocks(key)) << key;
    std::set<std::uint64_t> even;
    for (std::uint64_t key = 0; key < peers; key += 2)
        even.insert(key);
    std::map<std::uint64_t, unsigned> last;
    for (unsigned n : resume(even)) {
        EXPECT_EQ(n % peers % 2, 1u);
        EXPECT_TRUE(!last.contains(n % peers) || last[n % peers] < n);
        last[n % peers] = n;
    }
    EXPECT_EQ(stream.size(), 3 * peers / 2);
    for (std::uint64_t key = 0; key < peers; key++)
        EXPECT_EQ(stream.blocks(key), key % 2 == 0) << key;
    EXPECT_EQ(resume().size(), 3 * peers / 2);
    EXPECT_TRUE(pending.empty());
}

TEST_F(PendingTest, Case4AnOperationWithoutRoomBlocksItsStream)
{
    engine.push(0, 5);
    engine.push(1, 6, BlockReason::room);
    engine.push(2, 7);
    EXPECT_TRUE(stream.blocks(1234));
    EXPECT_FALSE(stream.has_peer_queue(1234));
    unsigned asked = 0;
    engine.reason = [&](std::uint64_t key) {
        asked += key == 6;
        return key == 6 ? BlockReason::room : BlockReason::peer;
    };
    for (int round = 0; round < 10; round++)
        pending.resume();
    EXPECT_GE(asked, 9u); // it is the first to be asked
    EXPECT_TRUE(stream.blocks(1234));
    EXPECT_EQ(resume({5, 7}), Numbers{1});
    EXPECT_FALSE(stream.blocks(1234));
    EXPECT_TRUE(stream.blocks(5) && stream.blocks(7));
}

TEST_F(PendingTest, Case5ARoundIsBoundedAndTheNextGoesOnBehindIt)
{
    constexpr unsigned peers = 64;
    for (unsigned n = 0; n < peers; n++)
        engine.push(n, n);
    std::map<std::uint64_t, unsigned> asked;
    engine.reason = [&](std::uint64_t key) {
        asked[key]++;
        return BlockReason::peer;
    };
    pending.resume();
    EXPECT_LT(asked.size(), peers);
    for (int round = 1; round < 4; round++)
        pending.resume();
    EXPECT_EQ(asked.size(), peers);
    for (const auto& [key, times] : asked)
        EXPECT_LE(times, 2u) << key;
}

TEST_F(PendingTest, Case6AnOperationThatHasToWaitAgainGoesToTheEndOfItsLine)
{
    engine.push(0, 5);
    engine.push(1, 5);
    bool again = true;
    engine.behind = [&](Op& op) {
        if (std::exchange(again, false))
            engine.stream.push(op, op.links.key, BlockReason::peer);
    };
    EXPECT_EQ(resume(), (Numbers{0, 1, 0}));
    EXPECT_TRUE(pending.empty());
}

/// Of operations that get in line at any time, some of them twice, each leaves when all that got in line before it have
/// left.
TEST_F(PendingTest, Case6EachLineIsAQueue)
{
    std::mt19937 random{6};
    constexpr unsigned count = 3000, keys = 150;
    std::map<std::uint64_t, std::deque<unsigned>> waiting;
    const auto get_in_line = [&](unsigned n) {
        waiting[n % keys].push_back(n);
        engine.push(n, n % keys);
    };
    engine.behind = [&](Op& op) {
        std::deque<unsigned>& line = waiting[op.links.key];
        EXPECT_EQ(line.front(), op.number);
        line.pop_front();
        if (random() % 3 == 0)
            get_in_line(op.number);
    };
    engine.reason = [&](std::uint64_t) { return random() % 3 == 0 ? BlockReason::peer : BlockReason::nothing; };
    for (unsigned n = 0; n < count; n++) {
        get_in_line(n);
        if (random() % 4 == 0)
            pending.resume();
    }
    for (int round = 0; round < 10000 && !pending.empty(); round++)
        pending.resume();
    EXPECT_TRUE(pending.empty());
}

TEST_F(PendingTest, Case7AFenceAsksForTheLinesOfItsPeerInAllStreams)
{
    Engine other{pending};
    const Peer first{.target_vcq = 5, .nonce = 1, .index = 0, .further = 0, .counts_events = false, .generation = 0};
    Peer second = first;
    second.index = 1; // another endpoint there
    engine.push(0, 77, BlockReason::room);
    EXPECT_FALSE(pending.has_pending_for(first));
    other.push(1, PendingQueue::queue_key(first));
    EXPECT_TRUE(pending.has_pending_for(first));
    EXPECT_FALSE(pending.has_pending_for(second));
    pending.resume();
    EXPECT_FALSE(pending.has_pending_for(first));
}

TEST_F(PendingTest, Case8WhatIsCancelledKeepsTheOrderOfItsLineAndNothingIsBegun)
{
    Engine other{pending};
    for (unsigned n = 0; n < 300; n++)
        engine.push(n, n % 100, n == 7 ? BlockReason::room : BlockReason::peer);
    other.push(0, 3);
    engine.stream.cancel();
    EXPECT_EQ(engine.gone, Numbers{});
    EXPECT_EQ(engine.cancelled.size(), 300u);
    std::map<unsigned, unsigned> last;
    for (unsigned n : engine.cancelled) {
        EXPECT_TRUE(!last.contains(n % 100) || last[n % 100] < n);
        last[n % 100] = n;
    }
    EXPECT_FALSE(stream.may_block(7));
    EXPECT_FALSE(pending.empty()); // the other engine's
    other.stream.cancel();
    EXPECT_TRUE(pending.empty());
}

/// An engine that goes takes along what waits.
TEST_F(PendingTest, Case8AStreamMayEndBeforeItsOperations)
{
    {
        Engine other{pending};
        other.push(0, 3);
        EXPECT_FALSE(pending.empty());
    }
    EXPECT_TRUE(pending.empty());
    EXPECT_FALSE(pending.has_pending_for(
        {.target_vcq = 3, .nonce = 0, .index = 0, .further = 0, .counts_events = false, .generation = 0}));
    pending.resume();
}

} // namespace
