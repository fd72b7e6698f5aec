// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Gates and walks without processes: rounds, epochs, stragglers, broken circuits, nonsense in shared memory.
#include "barrier/circuit.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <set>

namespace tofu::sim {
namespace {

constexpr GateRef start_a = gate_ref(0, 0, 0);
constexpr GateRef relay_a = gate_ref(0, 0, 16);
constexpr GateRef start_b = gate_ref(1, 2, 3);

struct World {
    static constexpr size_t bytes = 2 * tnis_per_node * tni_gates_bytes;
    std::unique_ptr<std::byte[]> memory{new (std::align_val_t{alignof(TniGates)}) std::byte[bytes]{}};
    Gates gates{memory.get(), 2};
    std::set<GateRef> dead;
    bool hold = false;

    ~World() { ::operator delete[](memory.release(), std::align_val_t{alignof(TniGates)}); }

    Circuit circuit()
    {
        CircuitHost host;
        host.context = this;
        host.owner_of = [](void*, GateRef gate) noexcept { return uint64_t{gate} + 1; };
        host.runs = [](void* self, uint64_t owner) noexcept {
            return !static_cast<World*>(self)->dead.contains(static_cast<GateRef>(owner - 1));
        };
        host.hold_packet = [](void* self) noexcept { return static_cast<World*>(self)->hold; };
        return {gates, host};
    }
    void set(GateRef gate, GateRef src_packet, GateRef src_signal, GateRef dst_packet, GateRef dst_signal)
    {
        GateSetting s;
        s.configured = true;
        s.src[0] = src_packet;
        s.src[1] = src_signal;
        s.dst[0] = dst_packet;
        s.dst[1] = dst_signal;
        s.src_owner[0] = src_packet == null_gate ? 0 : uint64_t{src_packet} + 1;
        s.src_owner[1] = src_signal == null_gate ? 0 : uint64_t{src_signal} + 1;
        gates.write(gate, s);
    }
    // A sends a packet to B and a signal to its relay; B's packet goes to the relay; the relay ends both.
    void set_pair()
    {
        set(start_a, null_gate, relay_a, null_gate, relay_a);
        set(relay_a, start_b, start_a, start_b, start_a);
        set(start_b, relay_a, null_gate, relay_a, null_gate);
    }
    Tag tag(GateRef gate, uint32_t round) const
    {
        GateSetting s;
        EXPECT_TRUE(gates.read(gate, s));
        return Tag::of(s.epoch, round);
    }
    void start(GateRef gate, uint32_t round, uint64_t value, bool push = true)
    {
        gates.publish_output(gate, tag(gate, round), integer_packet(ReduceOp::sum, {&value, 1}));
        if (push)
            circuit().push(gate, tag(gate, round));
    }
    Fetched end(GateRef gate, uint32_t round, uint64_t& value) const
    {
        Packet packet;
        const Fetched fetched = gates.fetch_end(gate, tag(gate, round), packet);
        value = packet.words[0];
        return fetched;
    }
    void expect_end(GateRef gate, uint32_t round, uint64_t expected) const
    {
        uint64_t value = 0;
        EXPECT_EQ(end(gate, round, value), Fetched::ready) << "round " << round;
        EXPECT_EQ(value, expected);
    }
};

TEST(Gates, RelayWaitsForBothInputs)
{
    World w;
    w.set_pair();
    uint64_t value = 0;
    w.start(start_a, 1, 10);
    EXPECT_EQ(w.end(start_a, 1, value), Fetched::not_yet);
    w.start(start_b, 1, 5);
    w.expect_end(start_a, 1, 15);
    w.expect_end(start_b, 1, 15);
}

TEST(Gates, RoundsWrapAroundTheirCounter)
{
    World w;
    w.set_pair();
    // As if 2^24 - 3 rounds had been: sources and their consumers are at the same round.
    for (uint64_t round = (1u << 24) - 3; round < (1u << 24) + 3; round++) {
        const auto r = static_cast<uint32_t>(round);
        if (round == (1u << 24) - 3) {
            // The first jump is larger than any straggler's: step by step instead, in halves of the counter.
            for (uint32_t step : {0x400000u, 0x800000u, 0xc00000u}) {
                w.start(start_a, step, 0);
                w.start(start_b, step, 0);
                w.start(start_a, step + 1, 0);
                w.start(start_b, step + 1, 0);
            }
        }
        w.start(start_b, r, round);
        w.start(start_a, r, 1);
        w.expect_end(start_a, r, round + 1);
        w.expect_end(start_b, r, round + 1);
    }
}

// A source that has done more than half of what its counter holds: a gate that is set now waits for its next round.
TEST(Gates, AGateSetLateJoinsASourceOfManyRounds)
{
    for (const uint32_t done : {7u, 0x700000u, 0x800001u, 0xffffffu, 0x1000003u}) {
        World w;
        w.set_pair();
        for (uint32_t step = 0x400000; step < done; step += 0x400000) {
            w.start(start_b, step, 0, false); // both slots
            w.start(start_b, step + 1, 0, false);
        }
        w.start(start_b, done - 1, 0, false);
        w.start(start_b, done, 0, false);
        w.set(relay_a, start_b, start_a, start_b, start_a);
        GateSetting s;
        ASSERT_TRUE(w.gates.read(relay_a, s));
        uint32_t round = 0;
        EXPECT_TRUE(w.gates.round_for(relay_a, s, Input::packet, w.tag(start_b, done + 1), round)) << done;
        EXPECT_EQ(round, 1u) << done;
    }
}

TEST(Gates, EpochsWrapAroundTheirCounter)
{
    World w;
    for (unsigned setting = 0; setting < 700; setting++) {
        w.set_pair();
        for (uint32_t round = 1; round <= 3; round++) {
            w.start(start_a, round, setting);
            w.start(start_b, round, round);
            w.expect_end(start_a, round, setting + round);
            w.expect_end(start_b, round, setting + round);
        }
    }
}

TEST(Gates, StragglerOfAnEarlierRoundOrEpochChangesNothing)
{
    World w;
    w.set_pair();
    const Tag old = w.tag(start_a, 1);
    for (uint32_t round = 1; round <= 3; round++) {
        w.start(start_a, round, 100 * round);
        w.start(start_b, round, round);
    }
    const uint64_t wrong = 4711;
    w.gates.publish_end(start_a, w.tag(start_a, 1), integer_packet(ReduceOp::sum, {&wrong, 1}));
    w.expect_end(start_a, 3, 303);
    w.set_pair();
    w.gates.publish_end(start_a, old, integer_packet(ReduceOp::sum, {&wrong, 1}));
    uint64_t value = 0;
    EXPECT_EQ(w.end(start_a, 1, value), Fetched::not_yet);
    w.start(start_a, 1, 1);
    w.start(start_b, 1, 2);
    w.expect_end(start_a, 1, 3);
}

TEST(Gates, OwnerKilledWhileSettingLeavesAGateThatCanBeSetAgain)
{
    World w;
    w.set_pair();
    w.start(start_b, 1, 5);
    // As a kill in the middle of write() leaves it: the version stays odd.
    GateState& state = reinterpret_cast<TniGates*>(w.memory.get())->gates[number_on_tni(relay_a)];
    (void)state.version.fetch_add(1);
    GateSetting setting;
    EXPECT_FALSE(w.gates.read(relay_a, setting));
    w.start(start_a, 1, 10);
    uint64_t value = 0;
    EXPECT_EQ(w.end(start_a, 1, value), Fetched::not_yet);
    EXPECT_EQ(w.circuit().pull(start_a, w.tag(start_a, 1), true), Circuit::Pulled::nothing);
    w.set_pair(); // the next owner
    w.start(start_a, 1, 1);
    w.start(start_b, 1, 2);
    w.expect_end(start_a, 1, 3);
    w.expect_end(start_b, 1, 3);
}

TEST(Gates, OverwrittenRoundIsLostAndNotWrong)
{
    World w;
    w.set(start_a, null_gate, null_gate, start_b, null_gate); // A only tells, B only hears
    w.set(start_b, start_a, null_gate, null_gate, null_gate);
    for (uint32_t round = 1; round <= 3; round++)
        w.start(start_a, round, round);
    uint64_t value = 0;
    EXPECT_EQ(w.end(start_b, 1, value), Fetched::lost);
    w.expect_end(start_b, 2, 2);
    w.expect_end(start_b, 3, 3);
}

TEST(Gates, UnexpectedPacketIsDropped)
{
    World w;
    w.set_pair();
    w.set(start_b, null_gate, null_gate, relay_a, null_gate); // B does not listen to the relay
    w.start(start_a, 1, 10);
    w.start(start_b, 1, 5);
    w.expect_end(start_a, 1, 15);
    uint64_t value = 0;
    EXPECT_EQ(w.end(start_b, 1, value), Fetched::not_yet);
}

TEST(Circuit, PullDoesWhatAKilledPusherLeft)
{
    World w;
    w.set_pair();
    for (uint32_t round = 1; round < 5; round++) {
        w.start(start_a, round, 10, false);
        w.start(start_b, round, 5, false); // killed here
        EXPECT_EQ(w.circuit().pull(start_b, w.tag(start_b, round), true), Circuit::Pulled::progress);
        w.expect_end(start_b, round, 15);
        w.expect_end(start_a, round, 15); // the relay's other output too
    }
}

TEST(Circuit, HeldPacketsArriveWhenPulled)
{
    World w;
    w.hold = true;
    w.set_pair();
    uint64_t value = 0;
    w.start(start_a, 1, 10);
    w.start(start_b, 1, 5);
    EXPECT_EQ(w.end(start_a, 1, value), Fetched::not_yet);
    EXPECT_EQ(w.circuit().pull(start_a, w.tag(start_a, 1), false), Circuit::Pulled::progress);
    w.expect_end(start_a, 1, 15);
    EXPECT_EQ(w.circuit().pull(start_b, w.tag(start_b, 1), false), Circuit::Pulled::progress);
    w.expect_end(start_b, 1, 15);
}

TEST(Circuit, DeathBeforeTheStartBreaksTheRound)
{
    World w;
    w.set_pair();
    w.start(start_a, 1, 10);
    EXPECT_EQ(w.circuit().pull(start_a, w.tag(start_a, 1), true), Circuit::Pulled::nothing);
    w.dead.insert(start_b);
    EXPECT_EQ(w.circuit().pull(start_a, w.tag(start_a, 1), false), Circuit::Pulled::nothing);
    EXPECT_EQ(w.circuit().pull(start_a, w.tag(start_a, 1), true), Circuit::Pulled::broken);
}

TEST(Circuit, DeathAfterTheStartDoesNot)
{
    World w;
    w.set_pair();
    w.start(start_b, 1, 5, false);
    w.dead.insert(start_b);
    w.dead.insert(relay_a);
    w.start(start_a, 1, 10, false);
    EXPECT_EQ(w.circuit().pull(start_a, w.tag(start_a, 1), true), Circuit::Pulled::progress);
    w.expect_end(start_a, 1, 15);
}

TEST(Circuit, RingOfRelaysThatFeedEachOtherEnds)
{
    World w;
    const GateRef other = gate_ref(0, 0, 17);
    w.set(start_a, relay_a, null_gate, relay_a, null_gate);
    w.set(relay_a, other, other, other, other);
    w.set(other, relay_a, relay_a, relay_a, relay_a);
    // An output out of the blue, a round ahead: each now has what the other one needs, for ever.
    w.gates.publish_output(relay_a, w.tag(relay_a, 2), barrier_packet());
    w.circuit().push(relay_a, w.tag(relay_a, 2));
    w.start(start_a, 1, 1);
    EXPECT_EQ(w.circuit().pull(start_a, w.tag(start_a, 1), true), Circuit::Pulled::nothing);
}

TEST(Circuit, NonsenseInSharedMemoryDoesNoHarm)
{
    std::mt19937_64 random(5);
    World w;
    for (int i = 0; i < 300; i++) {
        w.set_pair();
        w.start(start_a, 1, 1, false);
        for (unsigned n = 1 + random() % 64; n != 0; n--) {
            const GateRef gates[] = {start_a, relay_a, start_b};
            const size_t at = size_t{gates[random() % 3] / gates_per_tni} * tni_gates_bytes;
            const size_t state = gates[random() % 3] % gates_per_tni * sizeof(GateState);
            const size_t offset = at + (state + random() % 160 * 4) % tni_gates_bytes;
            const auto value = static_cast<uint32_t>(random() >> (random() % 32));
            std::memcpy(w.memory.get() + offset, &value, sizeof value);
        }
        for (const GateRef gate : {start_a, relay_a, start_b}) {
            GateSetting setting;
            (void)w.gates.read(gate, setting);
            const Tag tag = Tag::of(setting.epoch, 1);
            w.circuit().push(gate, tag);
            (void)w.circuit().pull(gate, tag, true);
            Packet packet;
            (void)w.gates.fetch_output(gate, tag, packet);
            if (is_start_gate(gate))
                (void)w.gates.fetch_end(gate, tag, packet);
        }
    }
}

} // namespace
} // namespace tofu::sim
