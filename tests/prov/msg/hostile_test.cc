// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A peer that writes nonsense into the rings and words of an endpoint's message area: dropped, counted, logged once,
// and no other peer is harmed.
#include <cstdlib>
#include <random>

#include "prov/lib/raw.h"

namespace tofu::test {
namespace {

using namespace proto;

constexpr unsigned packets = 6000;
constexpr std::size_t guard = 256;
constexpr std::uint16_t asked_at = 900; ///< a credit block that its owner does not use

/// A slot with a packet that is mostly near to being one.
void make_packet(std::mt19937_64& random, std::uint32_t seq, std::uint8_t* slot)
{
    for (std::size_t i = 0; i < slot_size; i += 8) {
        const std::uint64_t v = random() % 3 ? random() : random() % 5;
        std::memcpy(slot + i, &v, 8);
    }
    Control control{};
    control.type = static_cast<Type>(random() % 16 ? random() % 6 : random());
    control.flags = static_cast<std::uint8_t>(random() % 4 ? random() % 16 : random());
    control.length = static_cast<std::uint16_t>(random() % 2 ? random() % 5 : random() % 5000);
    control.seq = seq;
    std::memcpy(slot + slot_size - sizeof control, &control, sizeof control);
}

/// An anonymous packet of nonsense, in our name or in another. Asks for a ring where `serial` says so.
void send_anonymously(Session& s, RawPeer& raw, std::mt19937_64& random, std::uint16_t serial = 0)
{
    const std::uint64_t word = raw.add(slot_counter_offset, slot_counter_step);
    if (slot_counter_next(word) >= slot_counter_end(word))
        return;
    std::uint8_t slot[slot_size];
    make_packet(random, anon_seq(word), slot);
    const EndpointAddress own = address_of(s.ep);
    Envelope envelope{own.target_vcq,
                      own.nonce,
                      raw.victim().nonce,
                      wire_version,
                      0,
                      static_cast<std::uint8_t>(own.index),
                      static_cast<std::uint8_t>(random()),
                      serial != 0 ? asked_at : no_credit_block,
                      serial};
    if (serial == 0) {
        envelope.target_vcq = random() % 3 ? envelope.target_vcq : random();
        envelope.nonce = random() % 4 ? envelope.nonce : random();
        envelope.target_nonce = random() % 8 ? envelope.target_nonce : random();
        envelope.index = random() % 4 ? envelope.index : static_cast<std::uint8_t>(random());
        envelope.credit_index = random() % 64 ? no_credit_block : static_cast<std::uint16_t>(random());
    }
    std::memcpy(slot + slot_size - sizeof(Control) - sizeof envelope, &envelope, sizeof envelope);
    raw.put(anon_slots_offset + std::uint64_t{slot_counter_next(word)} * slot_size, slot, slot_size);
}

/// Wins a ring and fills it. The numbers of slots are right as far as a writer can know.
void fill_a_ring(Session& s, RawPeer& raw, RawPeer& self, std::mt19937_64& random, std::uint16_t serial)
{
    send_anonymously(s, raw, random, serial);
    CreditBlock block{};
    for (unsigned n = 0; n < 200 && block.check != serial; n++)
        self.get(credit_offset(asked_at), &block, sizeof block);
    const Grant grant = read_grant(block.consumed, self.victim().index);
    if (block.check != serial || grant.slots == 0 || grant.is_further())
        return; // a process that writes into another's ring can send anything in its name
    std::uint8_t slot[slot_size];
    for (std::uint32_t i = 0; i < grant.slots; i++) {
        make_packet(random, seq_base(raw.victim().nonce) + 1 + i, slot);
        raw.put((std::uint64_t{grant.first} + i) * slot_size, slot, slot_size);
    }
}

/// The victim: exchanges tagged messages with the honest rank, and has receives for any sender.
void be_the_victim(Session& s, unsigned honest)
{
    std::vector<std::vector<std::uint8_t>> open(8, std::vector<std::uint8_t>(6000 + 2 * guard, 0xee));
    auto post_open = [&](std::vector<std::uint8_t>& b) {
        EXPECT_EQ(fi_recv(s.ep, b.data() + guard, b.size() - 2 * guard, nullptr, FI_ADDR_UNSPEC, &b), 0);
    };
    for (auto& b : open)
        post_open(b);
    std::uint64_t in = 0, rounds = 0;
    std::uint64_t enough = ~std::uint64_t{0}; // as many again behind the attack, which must have been looked at
    bool waiting = false;
    EXPECT_TRUE(sim::test::wait_until([&] {
        if (!waiting) {
            EXPECT_EQ(fi_trecv(s.ep, &in, 8, nullptr, honest, 0x1234567, 0, &in), 0);
            waiting = true;
        }
        fi_cq_data_entry entry{};
        fi_cq_err_entry error{};
        void* context = nullptr;
        const ssize_t got = fi_cq_read(s.cq, &entry, 1);
        if (got == 1)
            context = entry.op_context;
        else if (got == -FI_EAVAIL && fi_cq_readerr(s.cq, &error, 0) == 1)
            context = error.op_context;
        if (context == &in) {
            EXPECT_EQ(got, 1);
            EXPECT_EQ(in, rounds++);
            waiting = false;
            s.rank.set(1002, rounds);
        } else {
            for (auto& b : open)
                if (context == &b)
                    post_open(b);
        }
        if (enough == ~std::uint64_t{0} && s.rank.get(1000) == 1)
            enough = rounds + 200;
        return rounds >= enough;
    })) << "after "
        << rounds << " rounds";
    s.rank.set(1001, 1);
    for (const auto& b : open)
        for (std::size_t i = 0; i < guard; i++) {
            ASSERT_EQ(b[i], 0xee);
            ASSERT_EQ(b[b.size() - 1 - i], 0xee);
        }
}

/// How often the victim has logged that it dropped something: once, or not at all where it happened to refuse
/// every ring at its first packet.
std::size_t attack(unsigned seed)
{
    setenv("FI_LOG_LEVEL", "warn", 1);
    const auto exits = sim::test::run_processes(3, [seed](const sim::test::Rank& rank) {
        setenv("FI_TOFU_RINGS", "64", 1);
        setenv("FI_TOFU_UNEXPECTED_BYTES", "1048576", 1);
        Session s(rank, many_options());
        if (rank.number == 0) {
            be_the_victim(s, 1);
        } else if (rank.number == 1) {
            for (std::uint64_t i = 0; rank.get(1001) != 1; i++) {
                const bool sent = sim::test::wait_until([&] {
                    const ssize_t ret = fi_tinject(s.ep, &i, 8, 0, 0x1234567);
                    EXPECT_TRUE(ret == 0 || ret == -FI_EAGAIN) << fi_strerror(static_cast<int>(-ret));
                    fi_cq_read(s.cq, nullptr, 0);
                    return ret != -FI_EAGAIN || rank.get(1001) == 1;
                });
                ASSERT_TRUE(sent);
            }
        } else {
            std::mt19937_64 random(seed);
            RawPeer raw(s, 0), self(s, 2);
            // The honest rank has its ring: a ring that is taken from us while we fill it must not become its.
            ASSERT_TRUE(sim::test::wait_until([&] { return rank.get(1002) > 50; }));
            std::uint16_t serial = 0;
            for (unsigned sent = 0; sent < packets; sent += raw.geometry().ring_slots) {
                fill_a_ring(s, raw, self, random, ++serial);
                for (unsigned n = 0; n < 32; n++)
                    send_anonymously(s, raw, random);
                const std::uint64_t nonsense = random();
                raw.put(doorbells_offset, &nonsense, 8, true);
                // Words of peers that the victim does not talk to.
                raw.put(credit_offset(500 + random() % 500), &nonsense, 8, true);
                raw.put(completion_offset(500 + random() % 500), &nonsense, 8, true);
            }
            rank.set(1000, 1);
        }
    });
    unsetenv("FI_LOG_LEVEL");
    for (unsigned r = 0; r < 3; r++)
        EXPECT_TRUE(exits[r].success()) << r << ": " << exits[r].errors;
    std::size_t logged = 0;
    for (std::size_t at = 0; (at = exits[0].errors.find("dropped a packet", at)) != std::string::npos; at++)
        logged++;
    EXPECT_LE(logged, 1u) << exits[0].errors;
    return logged;
}

TEST(Hostile, NonsenseInRingsHarmsNoOtherPeer)
{
    const char* more = std::getenv("TOFU_TEST_SEEDS"); // by hand: hundreds
    const unsigned seeds = more != nullptr ? static_cast<unsigned>(std::atoi(more)) : 3;
    std::size_t logged = 0;
    for (unsigned seed = 1; seed <= seeds && !testing::Test::HasFailure(); seed++)
        logged += attack(seed);
    EXPECT_NE(logged, 0u);
}

/// Everything in the area is overwritten: all the victim can do is stay alive and close.
TEST(Hostile, RandomBytesAllOverTheAreaAreSurvived)
{
    setenv("FI_LOG_LEVEL", "none", 1);
    const auto exits = sim::test::run_processes(2, [](const sim::test::Rank& rank) {
        setenv("FI_TOFU_RINGS", "8", 1);
        setenv("FI_TOFU_UNEXPECTED_BYTES", "1048576", 1);
        Session s(rank, many_options());
        if (rank.number == 0) {
            for (unsigned i = 0; i < 200; i++) { // outgoing channels, too
                const std::uint64_t word = i;
                (void)fi_inject(s.ep, &word, 8, i % 2);
            }
            EXPECT_TRUE(sim::test::wait_until([&] {
                (void)fi_cq_read(s.cq, nullptr, 0);
                return rank.get(1000) == 1;
            }));
            return;
        }
        std::mt19937_64 random(7);
        RawPeer raw(s, 0, 8);
        for (unsigned i = 0; i < 4000; i++) {
            std::uint8_t bytes[slot_size];
            make_packet(random, seq_base(raw.victim().nonce) + 1 + static_cast<std::uint32_t>(random() % 64), bytes);
            const std::uint64_t slots = raw.geometry().size() / slot_size;
            const std::uint64_t slot = random() % 2 ? random() % slots : random() % 400;
            raw.put(slot * slot_size, bytes, slot_size, random() % 2 == 0);
        }
        rank.set(1000, 1);
    });
    unsetenv("FI_LOG_LEVEL");
    for (const auto& exit : exits)
        EXPECT_TRUE(exit.success()) << exit.errors;
}

} // namespace
} // namespace tofu::test
