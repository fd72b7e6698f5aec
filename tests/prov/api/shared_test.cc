// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Shared contexts (fi_endpoint(3)): one queue of receives for several endpoints, one VCQ for several senders, and what
// becomes of them when an endpoint goes.
#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <thread>

#include "prov/lib/base.h"

namespace tofu::test {
namespace {

using sim::test::expect_processes;

constexpr std::uint64_t caps = FI_MSG | FI_TAGGED | FI_RMA | FI_SOURCE | FI_DIRECTED_RECV;

/// Endpoints that share, each with a queue of its own for either side.
struct Group {
    Group(const Base& base, unsigned count) : base(base)
    {
        if (base.info->ep_attr->tx_ctx_cnt == FI_SHARED_CONTEXT)
            check(fi_stx_context(base.domain, base.info->tx_attr, &stx, nullptr), "fi_stx_context");
        if (base.info->ep_attr->rx_ctx_cnt == FI_SHARED_CONTEXT)
            check(fi_srx_context(base.domain, base.info->rx_attr, &srx, nullptr), "fi_srx_context");
        for (unsigned i = 0; i < count; i++)
            add();
    }
    ~Group()
    {
        while (!ep.empty())
            drop();
        if (stx != nullptr)
            EXPECT_EQ(fi_close(&stx->fid), 0);
        if (srx != nullptr)
            EXPECT_EQ(fi_close(&srx->fid), 0);
    }
    void add()
    {
        fid_ep* made = nullptr;
        check(fi_endpoint(base.domain, base.info, &made, nullptr), "fi_endpoint");
        tx_cq.push_back(base.queue());
        rx_cq.push_back(base.queue());
        check(fi_ep_bind(made, &base.av->fid, 0), "bind av");
        check(fi_ep_bind(made, &tx_cq.back()->fid, FI_TRANSMIT), "bind tx");
        check(fi_ep_bind(made, &rx_cq.back()->fid, FI_RECV), "bind rx");
        if (stx != nullptr)
            check(fi_ep_bind(made, &stx->fid, 0), "bind stx");
        if (srx != nullptr)
            check(fi_ep_bind(made, &srx->fid, 0), "bind srx");
        check(fi_enable(made), "fi_enable");
        ep.push_back(made);
    }
    void drop()
    {
        EXPECT_EQ(fi_close(&ep.back()->fid), 0);
        EXPECT_EQ(fi_close(&tx_cq.back()->fid), 0);
        EXPECT_EQ(fi_close(&rx_cq.back()->fid), 0);
        ep.pop_back();
        tx_cq.pop_back();
        rx_cq.pop_back();
    }
    /// Sends from one to another, both ends of this process, and waits for the sender's end.
    void send(unsigned from, fi_addr_t to, std::uint64_t& word)
    {
        ASSERT_EQ(post(tx_cq[from], [&] { return fi_send(ep[from], &word, sizeof word, nullptr, to, &word); }), 0);
        fi_cq_tagged_entry entry{};
        ASSERT_TRUE(next(tx_cq[from], entry));
        EXPECT_EQ(entry.op_context, &word);
    }

    /// All of its endpoints, into the address vector.
    [[nodiscard]] std::vector<fi_addr_t> insert() const
    {
        std::vector<fi_addr_t> at;
        for (fid_ep* one : ep)
            at.push_back(base.insert(&one->fid));
        return at;
    }

    const Base& base;
    fid_stx* stx = nullptr;
    fid_ep* srx = nullptr;
    std::vector<fid_ep*> ep;
    std::vector<fid_cq*> tx_cq;
    std::vector<fid_cq*> rx_cq;
};

TEST(SharedContexts, AReceiveServesWhicheverEndpointIsSentTo)
{
    expect_processes(1, [](const Rank&) {
        Base base(caps, 0, FI_SHARED_CONTEXT, FI_SHARED_CONTEXT);
        Group g(base, 3);
        const auto at = g.insert();
        std::array<std::uint64_t, 9> in{};
        for (std::uint64_t& word : in)
            ASSERT_EQ(fi_recv(g.srx, &word, sizeof word, nullptr, FI_ADDR_UNSPEC, &word), 0);
        for (unsigned i = 0; i < 9; i++) {
            std::uint64_t out = 1000 + i;
            g.send(i / 3, at[i % 3], out);
            fi_cq_tagged_entry entry{};
            fi_addr_t source = 0;
            ASSERT_TRUE(next(g.rx_cq[i % 3], entry, &source)); // the queue of its receiver
            EXPECT_EQ(entry.op_context, &in[i]);               // in the order of posting
            EXPECT_EQ(in[i], out);
            EXPECT_EQ(source, at[i / 3]);
        }
        EXPECT_EQ(fi_recv(g.ep[0], in.data(), 8, nullptr, FI_ADDR_UNSPEC, nullptr), -FI_EOPNOTSUPP);
        EXPECT_EQ(fi_send(g.srx, in.data(), 8, nullptr, at[0], nullptr), -FI_EOPNOTSUPP);
    });
}

TEST(SharedContexts, MessagesThatCameEarlyAreGivenThroughTheirEndpoint)
{
    expect_processes(2, [](const Rank& rank) {
        Base base(caps, 0, 1, rank.number == 1 ? FI_SHARED_CONTEXT : 1);
        Group g(base, rank.number == 1 ? 2 : 1);
        // Addresses: 0 the sender, 1 and 2 the receivers.
        for (unsigned i = 0; i < 3; i++) {
            std::array<std::uint64_t, 4> words{};
            if ((i == 0) == (rank.number == 0)) {
                std::size_t length = sizeof words;
                check(fi_getname(&g.ep[i == 0 ? 0 : i - 1]->fid, words.data(), &length), "fi_getname");
                for (unsigned w = 0; w < 4; w++)
                    rank.set(i * 4 + w, words[w]);
            }
            rank.barrier();
            for (unsigned w = 0; w < 4; w++)
                words[w] = rank.get(i * 4 + w);
            ASSERT_EQ(fi_av_insert(base.av, words.data(), 1, nullptr, 0, nullptr), 1);
        }
        constexpr unsigned count = 24;
        const std::size_t sizes[] = {8, 1000, 100000};
        std::vector<std::uint8_t> bytes(100000);
        fi_cq_tagged_entry entry{};
        if (rank.number == 0) {
            for (unsigned i = 0; i < count; i++) {
                std::fill(bytes.begin(), bytes.end(), static_cast<std::uint8_t>(i));
                ASSERT_EQ(
                    post(g.tx_cq[0],
                         [&] { return fi_tsend(g.ep[0], bytes.data(), sizes[i % 3], nullptr, 1 + i % 2, i, nullptr); }),
                    0);
                if (sizes[i % 3] == 8)
                    rank.set(20, i + 1);
                ASSERT_TRUE(next(g.tx_cq[0], entry));
            }
        } else {
            ASSERT_TRUE(wait_until([&] {
                fi_cq_read(g.rx_cq[0], nullptr, 0);
                fi_cq_read(g.rx_cq[1], nullptr, 0);
                return rank.get(20) >= 1;
            }));
            for (unsigned i = 0; i < count; i++) {
                std::fill(bytes.begin(), bytes.end(), std::uint8_t{0xee});
                ASSERT_EQ(fi_trecv(g.srx, bytes.data(), bytes.size(), nullptr, 0, i, 0, &bytes), 0);
                ASSERT_TRUE(next(g.rx_cq[i % 2], entry));
                EXPECT_EQ(entry.len, sizes[i % 3]);
                EXPECT_EQ(entry.tag, i);
                for (std::size_t b = 0; b < sizes[i % 3]; b++)
                    ASSERT_EQ(bytes[b], static_cast<std::uint8_t>(i));
            }
        }
        rank.barrier();
    });
}

TEST(SharedContexts, ThreadsShareAVcq)
{
    expect_processes(2, [](const Rank& rank) {
        Base base(caps, 0, FI_SHARED_CONTEXT, 1, FI_THREAD_SAFE);
        Group g(base, 2);
        for (unsigned i = 0; i < 2; i++) { // addresses 0, 1: endpoint i of the other
            std::array<std::uint64_t, 4> words{};
            std::size_t length = sizeof words;
            check(fi_getname(&g.ep[i]->fid, words.data(), &length), "fi_getname");
            for (unsigned w = 0; w < 4; w++)
                rank.set(rank.number * 4 + w, words[w]);
            rank.barrier();
            for (unsigned w = 0; w < 4; w++)
                words[w] = rank.get((1 - rank.number) * 4 + w);
            ASSERT_EQ(fi_av_insert(base.av, words.data(), 1, nullptr, 0, nullptr), 1);
            rank.barrier();
        }
        std::vector<std::thread> crew;
        for (unsigned t = 0; t < 2; t++)
            crew.emplace_back([&, t] {
                std::vector<std::uint64_t> out(6000), in(6000);
                for (unsigned i = 0; i < 100; i++) {
                    const std::size_t size = i % 2 != 0 ? 48000 : 64;
                    out[0] = out[size / 8 - 1] = i * 2 + t;
                    ASSERT_EQ(fi_recv(g.ep[t], in.data(), size, nullptr, FI_ADDR_UNSPEC, &in), 0);
                    ASSERT_EQ(post(g.tx_cq[t], [&] { return fi_send(g.ep[t], out.data(), size, nullptr, t, &out); }),
                              0);
                    bool sent = false, received = false;
                    ASSERT_TRUE(wait_until([&] {
                        fi_cq_tagged_entry entry{};
                        sent |= fi_cq_read(g.tx_cq[t], &entry, 1) == 1;
                        received |= fi_cq_read(g.rx_cq[t], &entry, 1) == 1;
                        return sent && received;
                    }));
                    ASSERT_EQ(in[0], i * 2 + t);
                    ASSERT_EQ(in[size / 8 - 1], i * 2 + t);
                }
            });
        for (std::thread& thread : crew)
            thread.join();
        rank.barrier();
    });
}

TEST(SharedContexts, AnEndpointThatGoesTakesNothingFromTheOthers)
{
    expect_processes(1, [](const Rank&) {
        Base base(caps, 0, FI_SHARED_CONTEXT, FI_SHARED_CONTEXT);
        Group g(base, 3);
        const auto at = g.insert();
        EXPECT_EQ(fi_close(&g.stx->fid), -FI_EBUSY);
        EXPECT_EQ(fi_close(&g.srx->fid), -FI_EBUSY);
        // Messages through all three come early; one long, whose bytes are still the sender's.
        std::array<std::uint64_t, 3> out{70, 71, 72};
        for (unsigned i = 0; i < 3; i++)
            g.send(0, at[i], out[i]);
        std::vector<std::uint8_t> block(50000, 5), target(50000);
        ASSERT_EQ(
            post(g.tx_cq[0], [&] { return fi_send(g.ep[0], block.data(), block.size(), nullptr, at[2], nullptr); }), 0);
        for (int i = 0; i < 1000; i++)
            for (fid_cq* cq : g.rx_cq)
                fi_cq_read(cq, nullptr, 0);
        g.drop();
        std::array<std::uint64_t, 3> in{};
        fi_cq_tagged_entry entry{};
        for (unsigned i = 0; i < 2; i++)
            ASSERT_EQ(fi_recv(g.srx, &in[i], 8, nullptr, FI_ADDR_UNSPEC, &in[i]), 0);
        for (unsigned i = 0; i < 2; i++)
            ASSERT_TRUE(next(g.rx_cq[i], entry));
        // Which came first is open: they went to two endpoints.
        EXPECT_EQ(std::minmax(in[0], in[1]), std::minmax(out[0], out[1]));
        // What came through the third is gone: this one waits for the next message.
        ASSERT_EQ(fi_recv(g.srx, &in[2], 8, nullptr, FI_ADDR_UNSPEC, &in[2]), 0);
        EXPECT_TRUE(empty(g.rx_cq[0]));
        std::uint64_t last = 99;
        g.send(1, at[0], last);
        ASSERT_TRUE(next(g.rx_cq[0], entry));
        EXPECT_EQ(in[2], last);
    });
}

/// The TOQ has no room for all of an atomic of many elements, and only so many results may be under way.
TEST(SharedContexts, AnEndpointThatGoesDoesNotEndTheHalfPostedAtomicOfAnother)
{
    expect_processes(1, [](const Rank&) {
        Base base(caps | FI_ATOMIC, 0, FI_SHARED_CONTEXT, 1);
        Group g(base, 3);
        const auto at = g.insert();
        std::vector<std::uint64_t> target(60000), operand(target.size(), 3), result(target.size(), 9);
        fid_mr* mr = nullptr;
        check(fi_mr_reg(base.domain, target.data(), target.size() * 8, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr,
                        nullptr),
              "fi_mr_reg");
        const bool by_address = (base.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
        const auto remote = by_address ? reinterpret_cast<std::uint64_t>(target.data()) : 0;
        for (const bool fetches : {true, false}) {
            ASSERT_EQ(post(g.tx_cq[0],
                           [&] {
                               return fetches ? fi_fetch_atomic(g.ep[0], operand.data(), operand.size(), nullptr,
                                                                result.data(), nullptr, at[1], remote, fi_mr_key(mr),
                                                                FI_UINT64, FI_SUM, nullptr)
                                              : fi_atomic(g.ep[0], operand.data(), operand.size(), nullptr, at[1],
                                                          remote, fi_mr_key(mr), FI_UINT64, FI_SUM, nullptr);
                           }),
                      0);
            const auto before = std::chrono::steady_clock::now();
            g.drop();
            EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::milliseconds(1500));
            fi_cq_tagged_entry entry{};
            EXPECT_TRUE(next(g.tx_cq[0], entry)) << (fetches ? "fetching" : "plain");
            fi_cq_err_entry error{};
            if (fi_cq_readerr(g.tx_cq[0], &error, 0) == 1)
                ADD_FAILURE() << fi_strerror(error.err);
        }
        EXPECT_EQ(result, std::vector<std::uint64_t>(target.size(), 0));
        EXPECT_EQ(target, std::vector<std::uint64_t>(target.size(), 6));
        EXPECT_EQ(fi_close(&mr->fid), 0);
    });
}

TEST(SharedContexts, ReceivesAreCancelledPeekedAtAndClaimed)
{
    expect_processes(1, [](const Rank&) {
        Base base(caps, 0, 1, FI_SHARED_CONTEXT);
        Group g(base, 2);
        ASSERT_EQ(base.insert(&g.ep[0]->fid), 0u);
        const fi_addr_t second = base.insert(&g.ep[1]->fid);
        std::uint64_t word = 0;
        ASSERT_EQ(fi_recv(g.srx, &word, 8, nullptr, FI_ADDR_UNSPEC, &word), 0);
        EXPECT_EQ(fi_cancel(&g.srx->fid, &base), -FI_ENOENT);
        ASSERT_EQ(fi_cancel(&g.srx->fid, &word), 0);
        fi_cq_tagged_entry entry{};
        EXPECT_EQ(fi_cq_read(g.rx_cq[0], &entry, 1), -FI_EAVAIL); // the first that shares answers
        fi_cq_err_entry error{};
        ASSERT_EQ(fi_cq_readerr(g.rx_cq[0], &error, 0), 1);
        EXPECT_EQ(error.err, FI_ECANCELED);
        EXPECT_EQ(error.op_context, &word);

        std::uint64_t out = 4711;
        ASSERT_EQ(post(g.tx_cq[0], [&] { return fi_tsend(g.ep[0], &out, 8, nullptr, second, 9, &out); }), 0);
        ASSERT_TRUE(next(g.tx_cq[0], entry));
        fi_context context{};
        fi_msg_tagged look{};
        look.addr = FI_ADDR_UNSPEC;
        look.tag = 9;
        look.context = &context;
        bool found = false;
        ASSERT_TRUE(wait_until([&] {
            EXPECT_EQ(fi_trecvmsg(g.srx, &look, FI_PEEK | FI_CLAIM), 0);
            found = fi_cq_read(g.rx_cq[1], &entry, 1) == 1; // the endpoint it came to
            if (!found && fi_cq_readerr(g.rx_cq[0], &error, 0) == 1)
                EXPECT_EQ(error.err, FI_ENOMSG);
            return found;
        }));
        EXPECT_EQ(entry.len, 8u);
        const iovec into{&word, 8};
        look.msg_iov = &into;
        look.iov_count = 1;
        ASSERT_EQ(fi_trecvmsg(g.srx, &look, FI_CLAIM), 0);
        ASSERT_TRUE(next(g.rx_cq[1], entry));
        EXPECT_EQ(word, out);
    });
}

/// Without attributes a shared context can do what the provider can: a receive that names its source is held to it.
TEST(SharedContexts, ReceiveFromNamedSourcesWithoutAttributes)
{
    expect_processes(1, [](const Rank&) {
        Base base(caps | FI_DIRECTED_RECV, 0, 1, FI_SHARED_CONTEXT);
        Group g(base, 0);
        EXPECT_EQ(fi_close(&g.srx->fid), 0);
        check(fi_srx_context(base.domain, nullptr, &g.srx, nullptr), "fi_srx_context");
        g.add();
        std::uint64_t word = 0;
        const fi_addr_t nobody = 1000000;
        EXPECT_EQ(fi_trecv(g.srx, &word, 8, nullptr, nobody, 9, 0, &word), -FI_EINVAL);
        EXPECT_EQ(fi_trecv(g.srx, &word, 8, nullptr, FI_ADDR_UNSPEC, 9, 0, &word), 0);
    });
}

TEST(SharedContexts, WhatDoesNotFitIsRefused)
{
    expect_processes(1, [](const Rank&) {
        Base base(caps, 0, FI_SHARED_CONTEXT, FI_SHARED_CONTEXT);
        Group g(base, 1);
        fid_cq* cq = base.queue();
        fid_ep* ep = nullptr;
        check(fi_endpoint(base.domain, base.info, &ep, nullptr), "fi_endpoint");
        check(fi_ep_bind(ep, &base.av->fid, 0), "bind");
        check(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "bind");
        EXPECT_EQ(fi_enable(ep), -FI_EOPBADSTATE); // its contexts are missing
        check(fi_ep_bind(ep, &g.stx->fid, 0), "bind");
        EXPECT_EQ(fi_ep_bind(ep, &g.stx->fid, 0), -FI_EINVAL);
        check(fi_ep_bind(ep, &g.srx->fid, 0), "bind");
        check(fi_enable(ep), "fi_enable");
        EXPECT_EQ(fi_close(&ep->fid), 0);

        fi_av_attr attr{};
        fid_av* av = nullptr;
        check(fi_av_open(base.domain, &attr, &av, nullptr), "fi_av_open");
        check(fi_endpoint(base.domain, base.info, &ep, nullptr), "fi_endpoint");
        check(fi_ep_bind(ep, &av->fid, 0), "bind");
        check(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "bind");
        check(fi_ep_bind(ep, &g.stx->fid, 0), "bind");
        check(fi_ep_bind(ep, &g.srx->fid, 0), "bind");
        EXPECT_EQ(fi_enable(ep), -FI_EINVAL); // another address vector than the others'
        EXPECT_EQ(fi_close(&ep->fid), 0);
        EXPECT_EQ(fi_close(&av->fid), 0);

        base.info->ep_attr->tx_ctx_cnt = base.info->ep_attr->rx_ctx_cnt = 1;
        check(fi_endpoint(base.domain, base.info, &ep, nullptr), "fi_endpoint");
        EXPECT_EQ(fi_ep_bind(ep, &g.stx->fid, 0), -FI_EINVAL); // it has its own
        EXPECT_EQ(fi_ep_bind(ep, &g.srx->fid, 0), -FI_EINVAL);
        EXPECT_EQ(fi_close(&ep->fid), 0);
        EXPECT_EQ(fi_close(&cq->fid), 0);
        fi_tx_attr wish{};
        wish.inject_size = 1 << 20;
        fid_stx* stx = nullptr;
        EXPECT_EQ(fi_stx_context(base.domain, &wish, &stx, nullptr), -FI_EINVAL);
    });
}

/// The address vector of endpoints that are closed binds no others.
TEST(SharedContexts, AnotherAddressVectorMayFollowTheLastEndpoint)
{
    expect_processes(1, [](const Rank&) {
        Base base(caps, 0, 1, FI_SHARED_CONTEXT);
        Group g(base, 1);
        fi_av_attr attr{};
        fid_av* av = nullptr;
        check(fi_av_open(base.domain, &attr, &av, nullptr), "fi_av_open");
        fid_cq* cq = base.queue();
        fid_ep* later[2] = {};
        for (fid_ep*& ep : later) {
            check(fi_endpoint(base.domain, base.info, &ep, nullptr), "fi_endpoint");
            check(fi_ep_bind(ep, &av->fid, 0), "bind");
            check(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "bind");
            check(fi_ep_bind(ep, &g.srx->fid, 0), "bind");
            EXPECT_EQ(fi_enable(ep), -FI_EINVAL);
        }
        g.drop();
        for (fid_ep* ep : later)
            EXPECT_EQ(fi_enable(ep), 0);
        for (fid_ep* ep : later)
            EXPECT_EQ(fi_close(&ep->fid), 0);
        EXPECT_EQ(fi_close(&cq->fid), 0);
        EXPECT_EQ(fi_close(&av->fid), 0);
    });
}

/// How long it takes to close all endpoints of a group, in milliseconds.
double close_all(Group& group, bool backwards)
{
    const auto start = std::chrono::steady_clock::now();
    if (!backwards) { // drop() takes the last
        std::ranges::reverse(group.ep);
        std::ranges::reverse(group.tx_cq);
        std::ranges::reverse(group.rx_cq);
    }
    while (!group.ep.empty())
        group.drop();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

/// While a process closes one endpoint it answers peers that close those to which its other ones have written.
TEST(SharedContexts, ProcessesThatCloseInAnotherOrderDoNotWaitForEachOther)
{
    expect_processes(2, [](const Rank& rank) {
        constexpr unsigned count = 8;
        bool in_time = false;
        for (unsigned round = 0; round < 60 && !in_time; round++) { // a busy machine delays most answers
            Base base(caps, 0, FI_SHARED_CONTEXT, 1);
            Group g(base, count);
            std::array<std::uint64_t, 8> out{};
            for (unsigned i = 0; i < count; i++)
                base.exchange(rank, &g.ep[i]->fid, 2 * i);
            const fi_addr_t peer = 1 - rank.number;
            for (unsigned n = 0; n < 300; n++) // so many that each has a ring at the other
                for (unsigned i = 0; i < count; i++) {
                    (void)fi_inject(g.ep[i], out.data(), sizeof out, 2 * i + peer);
                    (void)fi_cq_read(g.rx_cq[i], nullptr, 0);
                }
            rank.barrier();
            if (close_all(g, rank.number == 1) < 10 * count / 4) // each would wait 10 ms for all peers
                rank.set(16 + rank.number, 1);
            rank.barrier();
            in_time = rank.get(16) != 0 && rank.get(17) != 0;
        }
        EXPECT_TRUE(in_time);
    });
}

/// All endpoints have the same peer, and it does not run: a second for the first of them, less for each other.
TEST(SharedContexts, APeerThatDoesNotRunIsNotWaitedForAgainAndAgain)
{
    expect_processes(2, [](const Rank& rank) {
        constexpr unsigned count = 8;
        Base base(caps, 0, FI_SHARED_CONTEXT, 1);
        Group g(base, count);
        for (unsigned i = 0; i < count; i++)
            base.exchange(rank, &g.ep[i]->fid, 2 * i);
        if (rank.number == 0) {
            static std::array<std::uint64_t, 1024> out{};
            for (unsigned i = 0; i < count; i++)
                for (unsigned refused = 0; refused < 1000;)
                    refused += fi_send(g.ep[i], out.data(), sizeof out, nullptr, 2 * i + 1, nullptr) != 0;
            EXPECT_LT(close_all(g, false), 1000 * count / 2);
        }
        rank.barrier();
    });
}

} // namespace
} // namespace tofu::test
