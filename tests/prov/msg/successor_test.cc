// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Writes that outlive their endpoint: a peer that was silent while an endpoint closed, or was killed, goes on as if
// nothing had happened, and a successor with the same VCQ ID must not notice ("Writes that outlive their endpoint" in
// docs/wire-protocol.md). Several processes.
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

#include "prov/lib/many_endpoints.h"

namespace tofu::test {
namespace {

using sim::test::expect_processes;

constexpr unsigned stage_word = 900, name_words = 901, count_word = 940; // of the board
constexpr unsigned settling = 20; // messages after which a sender surely has its ring

/// One life of a process: its objects, until it closes them or is killed.
class Life : public Session {
  public:
    explicit Life(const Rank& rank, std::uint64_t caps = FI_TAGGED) : Session(rank, options_of(caps))
    {
        check(fi_enable(ep), "fi_enable");
    }
    /// Says its address in place number `place`.
    void publish(unsigned place)
    {
        std::uint64_t words[4] = {};
        const EndpointAddress own = address_of(ep);
        std::memcpy(words, &own, sizeof own);
        for (unsigned i = 0; i < 4; i++)
            rank.set(name_words + place * 4 + i, words[i]);
    }
    [[nodiscard]] fi_addr_t peer(unsigned place)
    {
        std::uint64_t words[4];
        for (unsigned i = 0; i < 4; i++)
            words[i] = rank.get(name_words + place * 4 + i);
        fi_addr_t at = FI_ADDR_NOTAVAIL;
        EXPECT_EQ(fi_av_insert(av, words, 1, &at, 0, nullptr), 1);
        return at;
    }
    void poll() { (void)fi_cq_read(cq, nullptr, 0); }
    /// Waits until `step` has been reached, making progress meanwhile.
    void await(std::uint64_t step)
    {
        EXPECT_TRUE(sim::test::wait_until([&] {
            poll();
            return rank.get(stage_word) >= step;
        })) << step;
    }
    /// Sends messages to a peer that counts those it has received in `count_word`, one at a time.
    void settle(fi_addr_t to, std::uint64_t tag, std::uint64_t received_before = 0)
    {
        for (std::uint64_t i = 1; i <= settling; i++) {
            ASSERT_EQ(post([&] { return fi_tinject(ep, &i, sizeof i, to, tag); }), 0);
            ASSERT_TRUE(sim::test::wait_until([&] {
                poll();
                return rank.get(count_word) >= received_before + i;
            }));
        }
    }
    void receive(void* into, std::size_t size, std::uint64_t tag)
    {
        ASSERT_EQ(post([&] { return fi_trecv(ep, into, size, nullptr, FI_ADDR_UNSPEC, tag, 0, into); }), 0);
        expect(into, FI_RECV);
    }
    /// The other side of settle().
    void receive_settling(std::uint64_t tag, std::uint64_t received_before = 0)
    {
        for (std::uint64_t i = 1; i <= settling; i++) {
            std::uint64_t in = 0;
            receive(&in, sizeof in, tag);
            rank.set(count_word, received_before + i);
        }
    }

  private:
    static Options options_of(std::uint64_t caps)
    {
        Options options;
        options.caps = caps;
        options.tx_order = FI_ORDER_SAS;
        options.enable = false;
        options.leaves_together = false;
        return options;
    }
};

void reached(const Rank& rank, std::uint64_t step)
{
    rank.set(stage_word, step);
}
/// Without a call of libfabric.
void sleep_until(const Rank& rank, std::uint64_t step)
{
    EXPECT_TRUE(sim::test::wait_until([&] { return rank.get(stage_word) >= step; })) << step;
}

// --- a sender whose ring is gone

constexpr unsigned told = 10; // messages that B sends while R does not look

/// The first life of R: until A has its ring.
void live_first(const Rank& rank, Life& life)
{
    life.publish(0);
    reached(rank, 1);
    life.receive_settling(1);
    life.await(2);
}

/// R's second life: B's messages must be as B has sent them, whatever A does.
void live_again(const Rank& rank, std::size_t size)
{
    Life life(rank);
    life.publish(1);
    reached(rank, 4);
    life.receive_settling(2, settling);
    life.await(5);
    sleep_until(rank, 7);
    std::string in(size, '\0');
    for (unsigned i = 0; i < told; i++) {
        in.assign(size, '\0');
        life.receive(in.data(), size, 2);
        EXPECT_EQ(in, std::string(size, static_cast<char>('a' + i)));
    }
    reached(rank, 8);
}

/// A: owns a ring at R's first life, sleeps through its end, and sends to the old address while R does not look.
void send_late(const Rank& rank, std::size_t size)
{
    sleep_until(rank, 1);
    Life life(rank);
    const fi_addr_t old = life.peer(0);
    life.settle(old, 1);
    reached(rank, 2);
    sleep_until(rank, 6);
    const std::string late(size, 'A');
    for (unsigned i = 0; i < told; i++) {
        fi_context2 context{};
        (void)fi_tsend(life.ep, late.data(), size, nullptr, old, 2, &context); // refused, or ends with an error
        for (unsigned round = 0; round < 100; round++) {
            fi_cq_tagged_entry entry{};
            fi_cq_err_entry error{};
            if (fi_cq_read(life.cq, &entry, 1) == -FI_EAVAIL)
                EXPECT_EQ(fi_cq_readerr(life.cq, &error, 0), 1);
        }
    }
    reached(rank, 7);
    life.await(8);
}

/// B: talks to R's second life.
void send_well(const Rank& rank, std::size_t size)
{
    sleep_until(rank, 4);
    Life life(rank);
    const fi_addr_t to = life.peer(1);
    life.settle(to, 2, settling);
    reached(rank, 5);
    for (unsigned i = 0; i < told; i++) {
        const std::string out(size, static_cast<char>('a' + i));
        ASSERT_EQ(life.post([&] { return fi_tsend(life.ep, out.data(), size, nullptr, to, 2, nullptr); }), 0);
        life.expect(nullptr, FI_SEND);
    }
    reached(rank, 6);
    life.await(8);
}

void live_in_turn(std::size_t size, bool killed)
{
    expect_processes(3, [=](const Rank& rank) {
        setenv("TOFU_SIM_PPN", "1", 1);
        if (rank.number == 1)
            return send_late(rank, size);
        if (rank.number == 2)
            return send_well(rank, size);
        if (!killed) {
            Life life(rank);
            live_first(rank, life);
        } else if (const pid_t child = fork(); child == 0) {
            Life life(rank);
            live_first(rank, life);
            kill(getpid(), SIGKILL);
        } else {
            int status = 0;
            ASSERT_EQ(waitpid(child, &status, 0), child);
            ASSERT_TRUE(WIFSIGNALED(status));
        }
        live_again(rank, size);
    });
}

TEST(Successor, NoPacketOfAnOldRingReachesAReopenedDomain)
{
    live_in_turn(8, false);
}
TEST(Successor, NoLongPacketOfAnOldRingReachesAReopenedDomain)
{
    live_in_turn(2000, false);
}
TEST(Successor, NoPacketOfAnOldRingReachesTheProcessAfterAKilledOne)
{
    live_in_turn(8, true);
}

// --- an answer that comes late

constexpr std::size_t late_size = 150000;

/// R keeps the message of S's first life, and takes or discards it in its second.
void take_late(const Rank& rank, bool discard)
{
    std::string bytes(late_size, '\0');
    Life life(rank);
    life.publish(0);
    reached(rank, 1);
    life.await(3);
    for (unsigned round = 0; round < 500; round++)
        life.poll(); // the message is kept
    reached(rank, 4);
    sleep_until(rank, 6);
    if (discard) {
        fi_msg_tagged msg{};
        fi_context2 context{};
        msg.addr = FI_ADDR_UNSPEC;
        msg.tag = 5;
        msg.context = &context;
        ASSERT_EQ(life.post([&] { return fi_trecvmsg(life.ep, &msg, FI_PEEK | FI_DISCARD); }), 0);
        life.expect(&context, FI_RECV);
    } else {
        life.receive(bytes.data(), 64, 5);
    }
    for (unsigned round = 0; round < 500; round++)
        life.poll();
    reached(rank, 7);
    life.await(8);
}

/// R2 receives from S's second life.
void take_well(const Rank& rank)
{
    std::string bytes(late_size, '\0');
    sleep_until(rank, 1);
    Life life(rank);
    life.publish(1);
    reached(rank, 2);
    life.await(5);
    for (unsigned round = 0; round < 500; round++)
        life.poll();
    reached(rank, 6);
    life.await(7);
    life.receive(bytes.data(), bytes.size(), 6);
    EXPECT_EQ(bytes, std::string(bytes.size(), 's'));
    life.await(8);
}

void live_twice(const Rank& rank, bool discard)
{
    std::string bytes(late_size, 's');
    sleep_until(rank, 2);
    {
        Life life(rank);
        const fi_addr_t to = life.peer(0);
        iovec iov{bytes.data(), 10};
        fi_msg_tagged msg{};
        msg.msg_iov = &iov;
        msg.iov_count = 1;
        msg.addr = to;
        msg.tag = 5;
        ASSERT_EQ(life.post([&] {
            return discard ? fi_tsend(life.ep, bytes.data(), 100000, nullptr, to, 5, nullptr)
                           : fi_tsendmsg(life.ep, &msg, FI_MATCH_COMPLETE);
        }),
                  0);
        for (unsigned round = 0; round < 500; round++)
            life.poll();
        reached(rank, 3);
        life.await(4);
    }
    Life life(rank);
    ASSERT_EQ(
        life.post([&] { return fi_tsend(life.ep, bytes.data(), bytes.size(), nullptr, life.peer(1), 6, nullptr); }), 0);
    for (unsigned round = 0; round < 500; round++)
        life.poll();
    reached(rank, 5);
    life.expect(nullptr, FI_SEND);
    reached(rank, 8);
}

/// S leaves a message at R that waits for its receive, closes, and opens a domain again, which sends a rendezvous to
/// R2. R then takes the old message: its completion word must not end, or destroy, what S waits for now.
void end_late(bool discard)
{
    expect_processes(3, [=](const Rank& rank) {
        setenv("TOFU_SIM_PPN", "1", 1);
        if (rank.number == 0)
            take_late(rank, discard);
        else if (rank.number == 1)
            take_well(rank);
        else
            live_twice(rank, discard);
    });
}

TEST(Successor, ALateAnswerToAKeptMessageIsNotTakenForItsOwn)
{
    end_late(false);
}
TEST(Successor, ALateAnswerToADiscardedMessageIsNotTakenForItsOwn)
{
    end_late(true);
}

/// S has a ring at R with packets that R has not read, closes, opens a domain again and asks R2 for a ring. R then
/// reads the packets, and its credit updates must not hide R2's answer.
TEST(Successor, ALateCreditUpdateHidesNoGrant)
{
    expect_processes(3, [](const Rank& rank) {
        constexpr unsigned unread = 60, more = 1000;
        setenv("TOFU_SIM_PPN", "1", 1);
        std::uint64_t word = 0;
        if (rank.number == 0) { // R
            Life life(rank);
            life.publish(0);
            reached(rank, 1);
            life.receive_settling(5);
            life.await(3);
            reached(rank, 4);
            sleep_until(rank, 6);
            for (unsigned round = 0; round < 500; round++)
                life.poll();
            reached(rank, 7);
            life.await(8);
        } else if (rank.number == 1) { // R2
            sleep_until(rank, 1);
            Life life(rank);
            life.publish(1);
            reached(rank, 2);
            for (unsigned i = 0; i < 5 + more; i++)
                life.receive(&word, sizeof word, 6);
            reached(rank, 8);
        } else { // S
            sleep_until(rank, 2);
            {
                Life life(rank);
                const fi_addr_t to = life.peer(0);
                life.settle(to, 5);
                reached(rank, 3);
                sleep_until(rank, 4);
                for (unsigned i = 0; i < unread; i++)
                    ASSERT_EQ(life.post([&] { return fi_tinject(life.ep, &word, sizeof word, to, 5); }), 0);
            }
            Life life(rank);
            const fi_addr_t to = life.peer(1);
            for (unsigned i = 0; i < 5; i++)
                ASSERT_EQ(life.post([&] { return fi_tinject(life.ep, &word, sizeof word, to, 6); }), 0);
            reached(rank, 6);
            sleep_until(rank, 7);
            for (unsigned i = 0; i < more; i++)
                ASSERT_EQ(life.post([&] { return fi_tinject(life.ep, &word, sizeof word, to, 6); }), 0) << i;
            life.await(8);
        }
    });
}

} // namespace
} // namespace tofu::test
