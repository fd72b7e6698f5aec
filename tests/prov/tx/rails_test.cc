// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Long transfers with several peers, which go by several TNIs (Rails): faster by the virtual clock, and no other thing
// changes, whether there are TNIs left, a peer dies, or an endpoint is closed in the middle.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <tofu_sim.h>

#include "prov/lib/session.h"
#include "prov/lib/statistics.h"

namespace tofu::test {
namespace {

using sim::test::expect_processes;
using sim::test::run_processes;
using sim::test::wait_until;

constexpr std::size_t length = 1 << 18;

Options for_all(std::uint64_t order = 0)
{
    Options options;
    options.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_DIRECTED_RECV | FI_SOURCE;
    options.tx_order = order;
    return options;
}

/// What one rank has for each, so that a byte of another's is seen.
struct Buffers {
    explicit Buffers(const Rank& rank) : out(rank.size), in(rank.size)
    {
        for (unsigned r = 0; r < rank.size; r++) {
            out[r].assign(length, content(rank.number, r));
            in[r].assign(length, '-');
        }
    }
    static char content(unsigned from, unsigned to) { return static_cast<char>('A' + from * 7 + to); }
    void expect_from(unsigned from, unsigned to) const
    {
        EXPECT_EQ(in[from], std::vector<char>(length, content(from, to))) << from << " to " << to;
    }
    std::vector<std::vector<char>> out, in;
};

void take(Session& s, unsigned entries)
{
    for (fi_cq_data_entry entry{}; entries-- > 0;)
        ASSERT_TRUE(s.next(entry));
}

enum class Kind { send, receive, write, read };
constexpr Kind kinds[] = {Kind::send, Kind::receive, Kind::write, Kind::read};
constexpr bool comes_to_rank_0(Kind kind)
{
    return kind == Kind::receive || kind == Kind::read;
}

/// What rank 0 does with all others at the same time; `desc`: of its buffers.
void exchange(Session& s, Kind kind, Buffers& b, const std::vector<Window>& windows, void* desc = nullptr)
{
    const unsigned me = s.rank.number;
    const unsigned first = me == 0 ? 1 : 0, last = me == 0 ? s.rank.size - 1 : 0;
    const bool one_sided = kind == Kind::write || kind == Kind::read;
    const bool sends = comes_to_rank_0(kind) != (me == 0);
    for (unsigned r = first; r <= last && !one_sided && !sends; r++)
        ASSERT_EQ(fi_trecv(s.ep, b.in[r].data(), length, desc, r, 1, 0, &b), 0);
    s.barrier();
    for (unsigned r = first; r <= last && (one_sided ? me == 0 : sends); r++)
        ASSERT_EQ(s.post([&] {
            switch (kind) {
            case Kind::send:
            case Kind::receive: return fi_tsend(s.ep, b.out[r].data(), length, desc, r, 1, &b);
            case Kind::write:
                return fi_write(s.ep, b.out[r].data(), length, desc, r, windows[r].base, windows[r].key, &b);
            case Kind::read: break;
            }
            return fi_read(s.ep, b.in[r].data(), length, desc, r, windows[r].base, windows[r].key, &b);
        }),
                  0);
    s.barrier(); // so that all is under rail at the same time, by a virtual clock too
    if (!one_sided || me == 0)
        take(s, last - first + 1);
    s.barrier();
}

/// Rank 0 and its memory, and those that it deals with.
std::vector<Window> open_windows(Session& s, Buffers& b, Kind kind)
{
    return s.share((kind == Kind::read ? b.out[0] : b.in[0]).data(), length);
}

void expect_all(const Session& s, Kind kind, const Buffers& b)
{
    for (unsigned r = 1; r < s.rank.size && s.rank.number == 0 && comes_to_rank_0(kind); r++)
        b.expect_from(r, 0);
    if (s.rank.number != 0 && !comes_to_rank_0(kind))
        b.expect_from(0, s.rank.number);
}

/// `ranks` processes, so many of a node.
struct Run {
    unsigned ranks = 7;
    const char* ppn = "1";
    const char* tnis = "";
    bool clock = false;
    unsigned endpoints = 0; ///< of rank 0, that post from further TNIs
    std::uint64_t order = 0;
};
/// What became of it at rank 0: for each kind of transfer, by `kinds`, and in all.
struct Outcome {
    std::array<double, 4> microseconds{}; ///< of Tofu-D
    std::array<std::uint64_t, 4> left{};  ///< transfers that did not go by the own VCQ
    std::uint64_t rails = 0;
};
Outcome run(const Run& how)
{
    const auto exits = run_processes(how.ranks, [&](const Rank& rank) {
        setenv("TOFU_SIM_PPN", how.ppn, 1);
        if (how.clock) {
            setenv("TOFU_SIM_CLOCK", "tofud", 1);
            setenv("TOFU_SIM_CPU", "0", 1);
        }
        if (*how.tnis != '\0')
            setenv("FI_TOFU_TNIS", how.tnis, 1);
        Session s(rank, for_all(how.order));
        std::vector<fid_ep*> further(rank.number == 0 ? how.endpoints : 0);
        for (fid_ep*& ep : further)
            Session::check(fi_endpoint(s.domain, s.info, &ep, nullptr), "fi_endpoint");
        std::string said;
        for (const Kind kind : kinds) {
            Buffers b(rank);
            const std::vector<Window> windows = open_windows(s, b, kind);
            exchange(s, kind, b, windows); // first contact, keys
            const std::uint64_t before = tofu_sim_time(), left = counted(s.domain, "by_rail");
            exchange(s, kind, b, windows);
            said += std::to_string((tofu_sim_time() - before) / 1000) + " ";
            said += std::to_string(counted(s.domain, "by_rail") - left) + " ";
            expect_all(s, kind, b);
            s.barrier();
            EXPECT_EQ(fi_close(&s.regions.back()->fid), 0);
            s.regions.pop_back();
        }
        if (rank.number == 0)
            std::fprintf(stderr, "%s%llu", said.c_str(), static_cast<unsigned long long>(counted(s.domain, "rail")));
        for (fid_ep* ep : further)
            EXPECT_EQ(fi_close(&ep->fid), 0);
    });
    for (const sim::test::Exit& exit : exits)
        EXPECT_TRUE(exit.success()) << exit.errors;
    for (unsigned r = 1; r < how.ranks; r++) // no warning
        EXPECT_EQ(exits[r].errors, "");
    Outcome outcome;
    std::istringstream numbers(exits[0].errors);
    for (unsigned i = 0; i < 4; i++) {
        numbers >> outcome.microseconds[i] >> outcome.left[i];
        outcome.microseconds[i] /= 1e3;
    }
    numbers >> outcome.rails;
    EXPECT_TRUE(numbers.eof() && !numbers.fail()) << exits[0].errors;
    return outcome;
}
using Left = std::array<std::uint64_t, 4>;

TEST(Rails, ShortenTransfersWithSixPeers)
{
    const Outcome one = run({.tnis = "1", .clock = true});
    const Outcome six = run({.clock = true});
    EXPECT_EQ(one.rails, 0u);
    EXPECT_EQ(one.left, (Left{}));
    EXPECT_EQ(six.rails, 5u);
    EXPECT_EQ(six.left, (Left{5, 5, 5, 5}));
    // What is sent its receivers fetch, each by its own clock, and half of it goes by one port of rank 0's node, C: how
    // they come upon each other there is not rank 0's doing (1.0 to 4.2 times were seen). All else is at least 2.3
    // times.
    for (unsigned i = 0; i < 4; i++) {
        std::printf("%s: %.1f us by one TNI, %.1f us by six\n", std::array{"sent", "received", "written", "read"}[i],
                    one.microseconds[i], six.microseconds[i]);
        if (kinds[i] != Kind::send)
            EXPECT_GT(one.microseconds[i], six.microseconds[i] * 2);
    }
}

TEST(Rails, AreNotMadeForOnePeer)
{
    EXPECT_EQ(run({.ranks = 2}).rails, 0u) << "over one link they gain nothing";
}

TEST(Rails, AreNoMoreThanTheUserAllows)
{
    const Outcome three = run({.ranks = 5, .tnis = "3"});
    EXPECT_EQ(three.rails, 2u);
    EXPECT_EQ(three.left, (Left{2, 2, 2, 2})) << "of four";
}

TEST(Rails, AreOnUnusedTnisOnly)
{
    EXPECT_EQ(run({.ranks = 5, .endpoints = 3}).rails, 2u);
    EXPECT_EQ(run({.ranks = 3, .endpoints = 5}).rails, 0u);
    EXPECT_EQ(run({.ranks = 4, .ppn = "4"}).rails, 2u) << "four ranks post from four of six";
}

TEST(Rails, AreDoneWithoutWhereNoControlQueueIsLeft)
{
    EXPECT_EQ(run({.ranks = 3, .ppn = "48"}).rails, 0u);
}

TEST(Rails, CarryNoReadAndNoWriteThatIsOrdered)
{
    EXPECT_EQ(run({.ranks = 4, .order = FI_ORDER_SAS}).left, (Left{2, 2, 2, 2}));
    EXPECT_EQ(run({.ranks = 4, .order = FI_ORDER_SAS | FI_ORDER_RMA_WAW | FI_ORDER_RMA_RAR}).left, (Left{2, 2, 0, 0}))
        << "uTofu keeps no order between VCQs";
}

/// A node for each, as all below have it.
void one_a_node()
{
    setenv("TOFU_SIM_PPN", "1", 1);
}

TEST(RailsAtWork, ForgetRegionsThatAreClosed)
{
    expect_processes(3, [](const Rank& rank) {
        one_a_node();
        Session s(rank, for_all());
        Buffers b(rank);
        constexpr int regions = 300; // more than are kept
        for (int i = 0; i < regions; i++) {
            fid_mr* mr = nullptr;
            if (rank.number == 0)
                Session::check(fi_mr_reg(s.domain, b.out[2].data(), length, FI_SEND, 0, 0, 0, &mr, nullptr),
                               "fi_mr_reg");
            // Rank 1's comes first and has the own VCQ.
            for (unsigned r = 1; r <= 2; r++) {
                if (rank.number == r)
                    ASSERT_EQ(fi_trecv(s.ep, b.in[0].data(), length, nullptr, 0, 1, 0, &b), 0);
                if (rank.number == 0)
                    ASSERT_EQ(s.post([&] {
                        return fi_tsend(s.ep, b.out[r].data(), length, r == 2 ? fi_mr_desc(mr) : nullptr, r, 1, &b);
                    }),
                              0);
            }
            take(s, rank.number == 0 ? 2 : 1);
            if (mr != nullptr)
                ASSERT_EQ(fi_close(&mr->fid), 0);
        }
        if (rank.number == 0) {
            EXPECT_EQ(counted(s.domain, "rail"), 1u);
            EXPECT_EQ(counted(s.domain, "registration") + counted(s.domain, "cache_hit"), unsigned{regions})
                << "for rank 1 alone";
        } else {
            b.expect_from(0, rank.number);
        }
    });
}

constexpr unsigned victim = 3, count = 5;

/// Rank 0: a receive, a send and a write with each peer. Those with the victim have no context.
void post_with_all(Session& s, Buffers& b, const std::vector<Window>& windows)
{
    for (unsigned r = 1; r < count; r++) {
        void* const context = r == victim ? nullptr : &b;
        ASSERT_EQ(fi_trecv(s.ep, b.in[r].data(), length, nullptr, r, 1, 0, context), 0);
        ASSERT_EQ(s.post([&] { return fi_tsend(s.ep, b.out[r].data(), length, nullptr, r, 1, context); }), 0);
        ASSERT_EQ(s.post([&] {
            return fi_write(s.ep, b.out[r].data(), length, nullptr, r, windows[r].base, windows[r].key, context);
        }),
                  0);
    }
}

/// Reads an entry of the queue. An error is one of the victim's operations. Returns the result of the read.
ssize_t read_entry(Session& s, fi_cq_data_entry& entry)
{
    const ssize_t got = fi_cq_read(s.cq, &entry, 1);
    if (got == -FI_EAVAIL) {
        fi_cq_err_entry error{};
        EXPECT_EQ(fi_cq_readerr(s.cq, &error, 0), 1);
        EXPECT_EQ(error.op_context, nullptr) << "an operation with a survivor has failed";
    }
    return got;
}

/// Rank 0: three operations with each survivor complete. Some with the victim may complete, the others fail.
void expect_ends(Session& s, Buffers& b)
{
    unsigned good = 0, failed = 0;
    EXPECT_TRUE(wait_until([&] {
        fi_cq_data_entry entry{};
        const ssize_t got = read_entry(s, entry);
        good += got == 1 && entry.op_context != nullptr;
        failed += got == -FI_EAVAIL;
        return good >= 3 * (count - 2) && failed >= 1;
    })) << good
        << " ended, " << failed << " failed";
    EXPECT_GE(counted(s.domain, "rail"), 1u);
    for (unsigned r = 1; r < count; r++)
        if (r != victim)
            b.expect_from(r, 0);
}

/// The survivors continue to exchange messages.
void exchange_again(Session& s, Buffers& b, const Rank& rank)
{
    void* const context = &s;
    if (rank.number == 0) {
        for (unsigned r = 1; r < count; r++)
            if (r != victim)
                ASSERT_EQ(s.post([&] { return fi_tsend(s.ep, b.out[r].data(), length, nullptr, r, 2, context); }), 0);
    } else {
        ASSERT_EQ(fi_trecv(s.ep, b.in[0].data(), length, nullptr, 0, 2, 0, context), 0);
    }
    unsigned missing = rank.number == 0 ? count - 2 : 1;
    EXPECT_TRUE(wait_until([&] {
        fi_cq_data_entry entry{};
        missing -= read_entry(s, entry) == 1 && entry.op_context == context;
        return missing == 0;
    }));
}

TEST(RailsAtWork, EndWhatAPeerTakesIntoItsGrave)
{
    const auto exits = run_processes(count, [](const Rank& rank) {
        one_a_node();
        Options options = for_all();
        options.leaves_together = false;
        Session s(rank, options);
        Buffers b(rank);
        const std::vector<Window> windows = open_windows(s, b, Kind::write);
        if (rank.number == 0)
            post_with_all(s, b, windows);
        else
            ASSERT_EQ(s.post([&] { return fi_tsend(s.ep, b.out[0].data(), length, nullptr, 0, 1, &b); }), 0);
        s.barrier();
        if (rank.number == victim)
            raise(SIGKILL);
        if (rank.number != 0) { // its send, and what rank 0 sends it
            ASSERT_EQ(fi_trecv(s.ep, b.in[0].data(), length, nullptr, 0, 1, 0, &b), 0);
            take(s, 2);
            b.expect_from(0, rank.number);
        } else {
            expect_ends(s, b);
        }
        // The survivors continue.
        rank.set(1000 + rank.number, 1);
        EXPECT_TRUE(wait_until([&] {
            fi_cq_read(s.cq, nullptr, 0);
            return rank.get(1000) + rank.get(1001) + rank.get(1002) + rank.get(1004) == 4;
        }));
        for (unsigned again = 0; again < 2; again++)
            exchange_again(s, b, rank);
    });
    for (unsigned r = 0; r < count; r++)
        EXPECT_EQ(exits[r].success(), r != victim) << exits[r].errors;
    sim::test::clear_last_job();
}

TEST(RailsAtWork, AreClosedInTheMiddle)
{
    for (const char* seed : {"1", "2", "3"})
        expect_processes(5, [seed](const Rank& rank) {
            one_a_node();
            setenv("TOFU_SIM_CHAOS", seed, 1); // what is posted is carried out late
            Session s(rank, for_all());
            Buffers b(rank);
            const std::vector<Window> windows = open_windows(s, b, Kind::read);
            if (rank.number != 0)
                ASSERT_EQ(s.post([&] { return fi_tsend(s.ep, b.out[0].data(), length, nullptr, 0, 1, &b); }), 0);
            s.barrier();
            if (rank.number == 0) {
                for (unsigned r = 1; r < 3; r++)
                    ASSERT_EQ(s.post([&] {
                        return fi_read(s.ep, b.in[0].data(), length, nullptr, r, windows[r].base, windows[r].key, &b);
                    }),
                              0);
                for (unsigned r = 1; r < 5; r++)
                    ASSERT_EQ(fi_trecv(s.ep, b.in[r].data(), length, nullptr, r, 1, 0, &b), 0);
                for (int i = 0; i < 1000 && counted(s.domain, "by_rail") < 3; i++)
                    fi_cq_read(s.cq, nullptr, 0);
                EXPECT_GE(counted(s.domain, "rail"), 1u);
                EXPECT_EQ(fi_close(&s.ep->fid), 0);
                s.ep = nullptr;
                const auto before = b.in;
                rank.barrier();
                for (int i = 0; i < 1000; i++)
                    fi_cq_read(s.cq, nullptr, 0);
                EXPECT_EQ(before, b.in) << "written to after the end";
            } else {
                rank.barrier();
            }
        });
}

TEST(RailsAtWork, GoOnBehindACancel)
{
    expect_processes(4, [](const Rank& rank) {
        one_a_node();
        Session s(rank, for_all());
        Buffers b(rank);
        if (rank.number == 0)
            for (unsigned r = 1; r < 4; r++)
                ASSERT_EQ(fi_trecv(s.ep, b.in[r].data(), length, nullptr, r, 1, 0, &b.in[r]), 0);
        else if (rank.number != 3)
            ASSERT_EQ(s.post([&] { return fi_tsend(s.ep, b.out[0].data(), length, nullptr, 0, 1, &b); }), 0);
        s.barrier();
        if (rank.number == 0) {
            EXPECT_TRUE(wait_until([&] {
                fi_cq_read(s.cq, nullptr, 0);
                return counted(s.domain, "by_rail") != 0;
            }));
            for (unsigned r = 1; r < 4; r++) // those that are being fetched, or have been, and the one that waits
                EXPECT_EQ(fi_cancel(&s.ep->fid, &b.in[r]), r == 3 ? 0 : -FI_ENOENT);
            unsigned good = 0, cancelled = 0;
            EXPECT_TRUE(wait_until([&] {
                fi_cq_data_entry entry{};
                fi_cq_err_entry error{};
                const ssize_t got = fi_cq_read(s.cq, &entry, 1);
                good += got == 1;
                cancelled += got == -FI_EAVAIL && fi_cq_readerr(s.cq, &error, 0) == 1 && error.err == FI_ECANCELED;
                return good == 2 && cancelled == 1;
            }));
            b.expect_from(1, 0);
            b.expect_from(2, 0);
        } else if (rank.number != 3) {
            take(s, 1);
        }
    });
}

} // namespace
} // namespace tofu::test
