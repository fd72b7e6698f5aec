// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Rings that change hands: more senders than rings, more receivers than channels, and the cases of
// prov/tofu/src/msg/rx_ring.cc that need a death or a silent peer.
#include <chrono>
#include <cstdlib>
#include <utility>

#include <sys/wait.h>

#include "prov/lib/many_endpoints.h"
#include "prov/lib/raw.h"

namespace tofu::test {
namespace {

using sim::test::expect_processes;

/// The content of a message: the rank of its sender, its number, and as many more bytes as the length asks for.
struct Note {
    std::uint32_t sender;
    std::uint32_t number;
};

constexpr std::size_t note_sizes[] = {8, 300, 3000, 20000};

/// Each of the endpoints sends `each` notes to `to`, all of them in turn.
void send_notes(ManyEndpoints& many, fi_addr_t to, std::uint32_t first, std::uint32_t each)
{
    std::vector<std::uint8_t> buffer(note_sizes[3]);
    for (std::uint32_t number = 0; number < each; number++)
        for (std::uint32_t e = 0; e < many.endpoints.size(); e++) {
            const Note note{first + e, number};
            const std::size_t size = note_sizes[(number + e) % 4];
            std::memcpy(buffer.data(), &note, sizeof note);
            const ssize_t ret = many.session.post(
                [&] { return fi_send(many.endpoints[e], buffer.data(), size, nullptr, to, &buffer); });
            ASSERT_EQ(ret, 0) << fi_strerror(static_cast<int>(-ret)) << " endpoint " << e;
            many.session.expect(&buffer, FI_SEND);
        }
}

/// Takes notes of `senders` senders until all have sent `each`; `skip` says whose do not matter.
void take_notes(Session& s, std::uint32_t senders, std::uint32_t each, std::uint64_t silent = 0)
{
    std::vector<std::uint32_t> next(senders);
    std::vector<std::uint8_t> in(note_sizes[3]);
    for (std::uint64_t left = std::uint64_t{senders} * each - silent; left > 0; left--) {
        ASSERT_EQ(fi_recv(s.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in), 0);
        fi_cq_data_entry entry{};
        ASSERT_TRUE(s.next(entry)) << left << " are missing";
        Note note;
        std::memcpy(&note, in.data(), sizeof note);
        ASSERT_LT(note.sender, senders);
        ASSERT_EQ(note.number, next[note.sender]++) << "out of order, sender " << note.sender;
    }
}

/// Rank 0 has few rings; all endpoints of the others send to it.
void many_to_one(const Rank& rank, unsigned per_process, unsigned each, const char* rings)
{
    setenv("FI_TOFU_RINGS", rank.number == 0 ? rings : "1", 1);
    setenv("TOFU_SIM_PPN", "1", 1);
    Session s(rank, many_options());
    if (rank.number == 0) {
        take_notes(s, (rank.size - 1) * per_process, each);
        return;
    }
    ManyEndpoints many(s, per_process);
    send_notes(many, 0, (rank.number - 1) * per_process, each);
}

TEST(RingLeases, MoreSendersThanRingsAllGetThrough)
{
    expect_processes(4, [](const Rank& rank) { many_to_one(rank, 10, 12, "4"); });
}

TEST(RingLeases, SixHundredSendersWithTheDefaultRings)
{
    expect_processes(4, [](const Rank& rank) { many_to_one(rank, 200, 2, "512"); });
}

TEST(RingLeases, OneEndpointSendsToMorePeersThanItHasChannels)
{
    expect_processes(7, [](const Rank& rank) {
        constexpr unsigned per_process = 190; // 6 * 190 = 1140 of 1024
        constexpr unsigned rounds = 2;
        setenv("FI_TOFU_RINGS", "2", 1);
        setenv("TOFU_SIM_PPN", "1", 1);
        Session s(rank, many_options());
        if (rank.number != 0) {
            ManyEndpoints many(s, per_process);
            many.publish();
            std::vector<std::uint64_t> in(per_process * rounds, ~0ull);
            for (unsigned i = 0; i < in.size(); i++)
                ASSERT_EQ(fi_recv(many.endpoints[i / rounds], &in[i], 8, nullptr, FI_ADDR_UNSPEC, &in[i]), 0);
            for (unsigned i = 0; i < in.size(); i++) {
                fi_cq_data_entry entry{};
                ASSERT_TRUE(s.next(entry));
                EXPECT_EQ(entry.flags, FI_RECV | FI_MSG);
            }
            for (unsigned i = 0; i < in.size(); i++) // each endpoint's in order
                EXPECT_EQ(in[i], i % rounds * 10000 + (rank.number - 1) * per_process + i / rounds);
            return;
        }
        const std::vector<fi_addr_t> peers = insert_many(s, per_process);
        ASSERT_EQ(peers.size(), 6 * per_process);
        for (std::uint64_t round = 0; round < rounds; round++)
            for (std::uint64_t p = 0; p < peers.size(); p++) {
                const std::uint64_t word = round * 10000 + p;
                ASSERT_EQ(s.post([&] { return fi_inject(s.ep, &word, 8, peers[p]); }), 0) << p;
            }
    });
}

/// What senders ask of an endpoint that gets no processor must not pile up in its receive queue, whose overflow would
/// end its process (guide, chapter 7).
TEST(RingLeases, AnonymousSendersDoNotFillTheReceiveQueueOfAStoppedPeer)
{
    expect_processes(2, [](const Rank& rank) {
        constexpr unsigned senders = 100;
        setenv("FI_TOFU_RINGS", "1", 1);
        setenv("TOFU_SIM_PPN", "1", 1);
        setenv("UTOFU_NUM_MRQ_ENTRIES", "2048", 1);
        Session s(rank, many_options());
        if (rank.number == 0) {
            ASSERT_TRUE(sim::test::wait_until([&] { return rank.get(1000) == 1; }));
            take_notes(s, senders, 1);
            return;
        }
        ManyEndpoints many(s, senders);
        RawPeer raw(s, 0); // all that anonymous senders could have is taken
        std::uint64_t open = 0;
        raw.get(proto::slot_counter_offset, &open, sizeof open);
        const std::uint64_t full = proto::slot_counter_word(raw.victim().nonce, 1024, 1024);
        raw.put(proto::slot_counter_offset, &full, sizeof full);
        // 100 looks at the slot counter each 5 ms: would they leave notices, a queue of 2048 entries lasted for 100 ms.
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(600);
        std::uint32_t through = 0;
        while (std::chrono::steady_clock::now() < end)
            for (std::uint32_t e = through; e < senders; e++) {
                const Note note{through, 0};
                const ssize_t ret = fi_inject(many.endpoints[e], &note, sizeof note, 0);
                ASSERT_TRUE(ret == 0 || ret == -FI_EAGAIN) << fi_strerror(static_cast<int>(-ret));
                if (ret == 0)
                    std::swap(many.endpoints[e], many.endpoints[through++]);
            }
        EXPECT_LT(through, senders);
        raw.put(proto::slot_counter_offset, &open, sizeof open);
        rank.set(1000, 1);
        for (; through < senders; through++) {
            const Note note{through, 0};
            ASSERT_EQ(s.post([&] { return fi_inject(many.endpoints[through], &note, sizeof note, 0); }), 0);
        }
    });
}

/// Case 3: unused rings of a living sender that makes no progress; they are revoked without an answer.
TEST(RingLeases, RingsOfAStoppedPeerBlockNoOther)
{
    expect_processes(3, [](const Rank& rank) {
        setenv("FI_TOFU_RINGS", "1", 1);
        Session s(rank, many_options());
        constexpr std::uint32_t notes = 400;
        if (rank.number == 1) {
            RawPeer raw(s, 0);
            const std::uint64_t word = raw.add(proto::slot_counter_offset, proto::slot_counter_step);
            const EndpointAddress own = address_of(s.ep);
            const struct {
                proto::Envelope envelope;
                proto::Control control;
            } asks{{own.target_vcq, own.nonce, raw.victim().nonce, wire_version, 0,
                    static_cast<std::uint8_t>(own.index), static_cast<std::uint8_t>(own.index), 900, 1},
                   {proto::Type::eager, 0, 0, proto::anon_seq(word)}};
            raw.put(proto::anon_slots_offset + (proto::slot_counter_next(word) + 1) * proto::slot_size - sizeof asks,
                    &asks, sizeof asks);
            rank.set(1000, 1);
        } else if (rank.number == 2) {
            ASSERT_TRUE(sim::test::wait_until([&] { return rank.get(1001) == 1; }));
            ManyEndpoints many(s, 1);
            send_notes(many, 0, 0, notes);
        } else {
            std::uint64_t word = 0;
            ASSERT_EQ(fi_recv(s.ep, &word, 8, nullptr, FI_ADDR_UNSPEC, &word), 0);
            s.expect(&word, FI_RECV);
            rank.set(1001, 1);
            take_notes(s, 1, notes);
        }
    });
}

/// Cases A2 and A3 of docs/wire-protocol.md: slots that are taken at the slot counter and not filled, for as long as
/// others fill many times as many as there are; then one of them is filled after all.
TEST(RingLeases, SlotsOfStoppedAnonymousSendersAreSetAside)
{
    expect_processes(3, [](const Rank& rank) {
        constexpr std::uint32_t notes = 5000;
        constexpr unsigned stopped = 100;
        setenv("FI_TOFU_RINGS", "1", 1);
        Session s(rank, many_options());
        if (rank.number == 0) {
            s.barrier();
            take_notes(s, 4, notes / 4);
            rank.set(1000, 1);
            std::uint64_t word = 0;
            ASSERT_EQ(fi_recv(s.ep, &word, 8, nullptr, FI_ADDR_UNSPEC, &word), 0);
            s.expect(&word, FI_RECV);
            EXPECT_EQ(word, 77u);
        } else if (rank.number == 1) {
            RawPeer raw(s, 0);
            std::uint64_t word = 0;
            for (unsigned i = 0; i < stopped; i++)
                word = raw.add(proto::slot_counter_offset, proto::slot_counter_step);
            s.barrier();
            ASSERT_TRUE(sim::test::wait_until([&] { return rank.get(1000) == 1; }));
            const EndpointAddress own = address_of(s.ep);
            const struct {
                std::uint64_t body = 77;
                proto::Envelope envelope;
                proto::Control control;
            } late{77,
                   {own.target_vcq, own.nonce, raw.victim().nonce, wire_version, 0,
                    static_cast<std::uint8_t>(own.index), static_cast<std::uint8_t>(own.index), proto::no_credit_block,
                    0},
                   {proto::Type::eager, 0, 8, proto::anon_seq(word)}};
            static_assert(sizeof late == 48);
            raw.put(proto::anon_slots_offset + (proto::slot_counter_next(word) + 1) * proto::slot_size - sizeof late,
                    &late, sizeof late);
        } else {
            s.barrier();
            ManyEndpoints many(s, 4);
            for (std::uint32_t number = 0; number < notes / 4; number++)
                for (std::uint32_t e = 0; e < 4; e++) {
                    const Note note{e, number};
                    ASSERT_EQ(s.post([&] { return fi_inject(many.endpoints[e], &note, sizeof note, 0); }), 0);
                }
        }
    });
}

/// Cases 4 to 6: owners of rings die at any instant of a change of owner; the living get their rings.
void kill_owners(unsigned delay_us)
{
    const auto exits = sim::test::run_processes(4, [delay_us](const Rank& rank) {
        constexpr unsigned per_process = 6;
        setenv("FI_TOFU_RINGS", rank.number == 0 ? "4" : "1", 1);
        Session s(rank, many_options());
        if (rank.number == 3) {
            ManyEndpoints many(s, per_process);
            rank.set(1000, 1);
            die_after(delay_us);
            std::uint64_t dead = ~0ull;
            for (unsigned i = 0;; i++) // rank 0 takes them or not, until the end
                if (fi_inject(many.endpoints[i % per_process], &dead, 8, 0) != 0)
                    fi_cq_read(s.cq, nullptr, 0);
        }
        while (rank.get(1000) != 1)
            fi_cq_read(s.cq, nullptr, 0);
        if (rank.number == 0) {
            std::vector<std::uint32_t> next(2 * per_process);
            for (unsigned left = 2 * per_process * 8; left > 0;) {
                std::uint8_t in[20000];
                ASSERT_EQ(fi_recv(s.ep, in, sizeof in, nullptr, FI_ADDR_UNSPEC, in), 0);
                fi_cq_data_entry entry{};
                ASSERT_TRUE(s.next(entry)) << left << " are missing";
                Note note;
                std::memcpy(&note, in, sizeof note);
                if (note.sender == ~0u)
                    continue;
                ASSERT_LT(note.sender, next.size());
                ASSERT_EQ(note.number, next[note.sender]++);
                left--;
            }
        } else {
            ManyEndpoints many(s, per_process);
            send_notes(many, 0, (rank.number - 1) * per_process, 8);
        }
        leave_without(s, 3);
    });
    for (unsigned r = 0; r < 3; r++)
        EXPECT_TRUE(exits[r].success()) << r << ", " << delay_us << " us: " << exits[r].errors;
    EXPECT_TRUE(WIFSIGNALED(exits[3].status));
}

TEST(RingLeases, OwnersOfRingsAreKilledAtManyInstants)
{
    const char* more = std::getenv("TOFU_TEST_KILLS"); // by hand: hundreds
    const unsigned kills = more != nullptr ? static_cast<unsigned>(std::atoi(more)) : 3;
    for (unsigned i = 0; i < kills && !testing::Test::HasFailure(); i++)
        kill_owners(i * 3471 % 20000);
    sim::test::clear_last_job();
}

} // namespace
} // namespace tofu::test
