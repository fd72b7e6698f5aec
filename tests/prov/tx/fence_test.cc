// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// FI_FENCE: the five conditions of tx/tx_context.h, each alone, over a network inside the process that carries out
// posts when the test says so. The engine is the test's.
#include <cstdint>
#include <optional>

#include <gtest/gtest.h>

#include "av/address.h"
#include "av/peer_table.h"
#include "prov/lib/fake_domain.h"
#include "prov/lib/fake_net.h"
#include "tx/remote_memory.h"
#include "tx/tx_context.h"

namespace tofu {
namespace {

using fake::Net;

constexpr utofu_vcq_id_t peer_home = 77, other_home = 78;
constexpr utofu_stadd_t target = Net::base + 64;

/// What it has under way is up to the test.
struct Scripted final : Engine {
    bool idle = true;
    bool taken = true;   ///< by the peer ...
    bool matched = true; ///< ... and given to receives
    unsigned asked = 0;
    [[nodiscard]] bool idle_towards(const Peer&) const noexcept override { return idle; }
    [[nodiscard]] bool all_has_left() const noexcept override { return true; }
    [[nodiscard]] bool confirmed(const Peer&, bool also_matched) noexcept override
    {
        asked++;
        return also_matched ? matched : taken;
    }
    void close() noexcept override {}
    void on_unsignaled_error(int, vcq::Unsignaled, utofu_vcq_id_t) noexcept override {}
};

struct Done : vcq::CompletionHandler {
    unsigned told = 0;
    Done()
    {
        notify = [](CompletionHandler* self, vcq::Notice) noexcept { static_cast<Done*>(self)->told++; };
    }
};

struct FenceTest : testing::Test {
    FenceTest()
    {
        Net::reset(1);
        domain.emplace();
        peers.emplace(*domain);
        for (auto [target_vcq, number] : {std::pair{peer_home, &to}, std::pair{other_home, &other}}) {
            EndpointAddress address{};
            address.magic = address_magic;
            address.version = wire_version;
            address.target_vcq = target_vcq;
            address.nonce = 5;
            EXPECT_EQ(peers->insert(address, *number), 0);
        }
        peers->changed();
        tx.emplace();
        tx->set_up({.domain = &*domain, .lock = &domain->shared_lock(), .round = round, .owner = this});
        EXPECT_EQ(tx->open_vcq(), 0);
        tx->use(&*peers);
        tx->engines().add(Engine::messages, engine);
    }
    ~FenceTest() override
    {
        carry_out();
        tx->detach();
        tx->close_vcq();
        tx->use(nullptr);
        tx.reset();
        peers.reset();
        domain.reset();
    }
    static bool round(void* self) noexcept
    {
        auto& test = *static_cast<FenceTest*>(self);
        test.rounds++;
        return test.tx->vcq().poll() != 0;
    }
    void carry_out() { Net::step_all(static_cast<unsigned>(tx->vcq().handle() - 1)); }
    bool passed(std::uint64_t flags = 0) { return tx->fence().passed(to, flags); }
    /// Without a waiter for its end.
    void inject()
    {
        const std::uint64_t word = 1;
        EXPECT_EQ(tx->vcq().put_inline(peer_home, &word, target, sizeof word,
                                       vcq::UnsignaledArgs{vcq::Unsignaled::write, vcq::flags_of(false, false)}),
                  vcq::Post::done);
    }

    std::optional<fake::Domain> domain;
    std::optional<Peers> peers;
    std::optional<TxContext> tx;
    Scripted engine;
    fi_addr_t to = 0, other = 0;
    unsigned rounds = 0;
};

TEST_F(FenceTest, NothingIsUnderWay)
{
    EXPECT_TRUE(passed(FI_MATCH_COMPLETE));
    EXPECT_EQ(rounds, 0u);
    engine.idle = false;
    EXPECT_TRUE(tx->fence().passed(FI_ADDR_NOTAVAIL, 0)); // the caller finds out that there is no such peer
}

TEST_F(FenceTest, WaitsForNoticesOfEachPeer)
{
    Done done;
    ASSERT_EQ(tx->vcq().get(other_home, target, target, 8,
                            vcq::PostOptions{.level = vcq::CompletionLevel::delivered, .handler = &done}),
              vcq::Post::done);
    EXPECT_FALSE(passed());
    EXPECT_EQ(rounds, rounds_of_a_call);
    std::uint64_t landed = 0;
    Net::now().vcqs[tx->vcq().handle() - 1].posted.front().local = reinterpret_cast<std::uintptr_t>(&landed);
    carry_out();
    EXPECT_TRUE(passed());
    EXPECT_EQ(done.told, 1u);
}

TEST_F(FenceTest, WaitsForWhatIsPendingTowardsThePeerAlone)
{
    PendingQueue::SubQueue stream(tx->pending(), nullptr, {});
    PendingOp op;
    stream.push(op, PendingQueue::queue_key(*peers->find(to)), BlockReason::peer);
    EXPECT_FALSE(passed());
    EXPECT_TRUE(tx->fence().passed(other, 0));
}

TEST_F(FenceTest, WaitsForWhatAnEngineAloneKnows)
{
    engine.idle = false;
    EXPECT_FALSE(passed());
    engine.idle = true;
    EXPECT_TRUE(passed());
}

TEST_F(FenceTest, FollowsUnsignaledPostsByOneArmw)
{
    inject();
    inject();
    const std::size_t before = Net::now().posts;
    EXPECT_FALSE(passed());
    EXPECT_FALSE(passed());
    EXPECT_EQ(Net::now().posts, before + 1);
    carry_out();
    EXPECT_TRUE(passed());
    EXPECT_TRUE(passed());
    EXPECT_EQ(Net::now().posts, before + 1);
    inject();
    EXPECT_TRUE(tx->fence().passed(other, 0)); // of another peer
    EXPECT_FALSE(passed());
}

TEST_F(FenceTest, AskedForMoreItWaitsForThePeersWord)
{
    engine.taken = engine.matched = false;
    EXPECT_TRUE(passed());
    EXPECT_EQ(engine.asked, 0u);
    EXPECT_FALSE(passed(FI_DELIVERY_COMPLETE));
    engine.taken = true;
    EXPECT_TRUE(passed(FI_DELIVERY_COMPLETE));
    EXPECT_FALSE(passed(FI_MATCH_COMPLETE));
    engine.matched = true;
    EXPECT_TRUE(passed(FI_MATCH_COMPLETE));
}

} // namespace
} // namespace tofu
