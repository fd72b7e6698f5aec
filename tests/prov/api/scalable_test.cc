// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Scalable endpoints (fi_endpoint(3)): contexts by name, by thread and by direction; what is refused; one address for
// all.
#include <algorithm>
#include <array>
#include <thread>

#include "prov/lib/base.h"

namespace tofu::test {
namespace {

using sim::test::expect_processes;

constexpr std::uint64_t all_caps =
    FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV | FI_SOURCE | FI_NAMED_RX_CTX;

/// A scalable endpoint with all its contexts, each with a queue of its own.
struct Scalable {
    explicit Scalable(const Base& base)
    {
        check(fi_scalable_ep(base.domain, base.info, &sep, nullptr), "fi_scalable_ep");
        check(fi_scalable_ep_bind(sep, &base.av->fid, 0), "fi_scalable_ep_bind");
        tx.resize(base.info->ep_attr->tx_ctx_cnt);
        rx.resize(base.info->ep_attr->rx_ctx_cnt);
        for (int i = 0; i < static_cast<int>(tx.size()); i++) {
            check(fi_tx_context(sep, i, nullptr, &tx[i], nullptr), "fi_tx_context");
            tx_cq.push_back(base.queue());
            check(fi_ep_bind(tx[i], &tx_cq[i]->fid, FI_TRANSMIT), "bind");
            check(fi_enable(tx[i]), "fi_enable");
        }
        for (int i = 0; i < static_cast<int>(rx.size()); i++) {
            check(fi_rx_context(sep, i, nullptr, &rx[i], nullptr), "fi_rx_context");
            rx_cq.push_back(base.queue());
            check(fi_ep_bind(rx[i], &rx_cq[i]->fid, FI_RECV), "bind");
            check(fi_enable(rx[i]), "fi_enable");
        }
        check(fi_enable(sep), "fi_enable");
    }
    ~Scalable()
    {
        for (auto* list : {&tx, &rx})
            for (fid_ep* ep : *list)
                EXPECT_EQ(fi_close(&ep->fid), 0);
        for (auto* list : {&tx_cq, &rx_cq})
            for (fid_cq* cq : *list)
                EXPECT_EQ(fi_close(&cq->fid), 0);
        EXPECT_EQ(fi_close(&sep->fid), 0);
    }
    fid_ep* sep = nullptr;
    std::vector<fid_ep*> tx;
    std::vector<fid_ep*> rx;
    std::vector<fid_cq*> tx_cq;
    std::vector<fid_cq*> rx_cq;
};

TEST(ScalableEndpoint, EachMessageReachesTheContextItNames)
{
    expect_processes(1, [](const Rank&) {
        Base base(all_caps, 3, 3, 5);
        Scalable s(base);
        const fi_addr_t self = base.insert(&s.sep->fid);
        for (unsigned t = 0; t < 3; t++)
            for (unsigned r = 0; r < 5; r++) {
                const fi_addr_t to = fi_rx_addr(self, static_cast<int>(r), 3);
                std::uint64_t out = t * 16 + r, in = 0;
                ASSERT_EQ(fi_trecv(s.rx[r], &in, sizeof in, nullptr, self, 5, 0, &in), 0);
                ASSERT_EQ(post(s.tx_cq[t], [&] { return fi_tsend(s.tx[t], &out, sizeof out, nullptr, to, 5, &out); }),
                          0);
                fi_cq_tagged_entry entry{};
                fi_addr_t source = 0;
                // Manual progress: the sender's queue is read, too, or what it has yet to post stays where it is.
                bool sent = false, received = false;
                ASSERT_TRUE(wait_until([&] {
                    fi_cq_tagged_entry done{};
                    if (fi_cq_read(s.tx_cq[t], &done, 1) == 1) {
                        EXPECT_EQ(done.op_context, &out);
                        sent = true;
                    }
                    received |= fi_cq_readfrom(s.rx_cq[r], &entry, 1, &source) == 1;
                    return sent && received;
                }));
                EXPECT_EQ(entry.op_context, &in);
                EXPECT_EQ(in, out);
                EXPECT_EQ(source, self); // whichever context sent
            }
        for (unsigned r = 0; r < 5; r++)
            EXPECT_TRUE(empty(s.rx_cq[r]));
    });
}

/// Both contexts have the address of the scalable endpoint, and each waits for its own messages only: context 0 need
/// not wait for the message of context 1, whose receive is posted last.
TEST(ScalableEndpoint, FencesOfTwoContextsAtOneReceiverAreAnsweredEachForItself)
{
    expect_processes(1, [](const Rank&) {
        Base base(all_caps, 3, 2, 1);
        Scalable s(base);
        const fi_addr_t to = fi_rx_addr(base.insert(&s.sep->fid), 0, 3);
        std::uint64_t out = 7, in[2][2] = {};
        bool sent[2] = {}, ended[2] = {};
        unsigned received = 0;
        const auto poll = [&] {
            fi_cq_tagged_entry entry{};
            for (unsigned t = 0; t < 2; t++)
                if (fi_cq_read(s.tx_cq[t], &entry, 1) == 1)
                    ended[t] = true;
            received += fi_cq_read(s.rx_cq[0], &entry, 1) == 1;
        };
        const auto fence = [&](unsigned t) {
            iovec iov{&out, sizeof out};
            fi_msg_tagged msg{};
            msg.msg_iov = &iov;
            msg.iov_count = 1;
            msg.addr = to;
            msg.tag = 10 + t;
            if (!sent[t])
                sent[t] = fi_tsendmsg(s.tx[t], &msg, FI_FENCE | FI_MATCH_COMPLETE | FI_COMPLETION) == 0;
        };
        const auto receive = [&](unsigned t, std::uint64_t tag, void* into) {
            ASSERT_EQ(fi_trecv(s.rx[0], into, 8, nullptr, FI_ADDR_UNSPEC, tag + t, 0, into), 0);
        };
        for (unsigned t = 0; t < 2; t++)
            ASSERT_EQ(post(s.tx_cq[t], [&] { return fi_tinject(s.tx[t], &out, sizeof out, to, t); }), 0);
        for (unsigned round = 0; round < 1000; round++) {
            fence(0);
            fence(1);
            poll();
        }
        EXPECT_FALSE(ended[0] || ended[1]);
        for (unsigned t = 0; t < 2; t++) {
            receive(t, 0, &in[t][0]);
            receive(t, 10, &in[t][1]);
            ASSERT_TRUE(wait_until([&] {
                fence(0);
                fence(1);
                poll();
                return ended[t] && received == 2 * t + 2;
            })) << t;
        }
    });
}

TEST(ScalableEndpoint, ThreadsWithAContextEachDoNotDisturbEachOther)
{
    expect_processes(2, [](const Rank& rank) {
        constexpr unsigned threads = 4;
        Base base(all_caps, 2, threads, threads);
        Scalable s(base);
        base.exchange(rank, &s.sep->fid);
        const fi_addr_t peer = 1 - rank.number;
        std::vector<std::thread> crew;
        for (unsigned t = 0; t < threads; t++)
            crew.emplace_back([&, t] {
                const fi_addr_t to = fi_rx_addr(peer, static_cast<int>(t), 2);
                const std::size_t sizes[] = {8, 200, 3000, 70000};
                std::vector<std::uint64_t> out(70000 / 8), in(70000 / 8);
                for (unsigned i = 0; i < 200; i++) {
                    const std::size_t size = sizes[i % 4];
                    for (std::size_t w = 0; w < size / 8; w++)
                        out[w] = (std::uint64_t{rank.number} << 48) + (t << 24) + i + w;
                    ASSERT_EQ(fi_recv(s.rx[t], in.data(), size, nullptr, peer, &in), 0);
                    ASSERT_EQ(post(s.tx_cq[t], [&] { return fi_send(s.tx[t], out.data(), size, nullptr, to, &out); }),
                              0);
                    // Both queues in turn: manual progress, each context for itself.
                    bool sent = false, received = false;
                    ASSERT_TRUE(wait_until([&] {
                        fi_cq_tagged_entry entry{};
                        if (fi_cq_read(s.tx_cq[t], &entry, 1) == 1)
                            sent = true;
                        if (fi_cq_read(s.rx_cq[t], &entry, 1) == 1) {
                            received = true;
                            EXPECT_EQ(entry.len, size);
                        }
                        return sent && received;
                    })) << t
                        << " " << i;
                    for (std::size_t w = 0; w < size / 8; w++)
                        ASSERT_EQ(in[w], (std::uint64_t{1 - rank.number} << 48) + (t << 24) + i + w);
                }
            });
        for (std::thread& thread : crew)
            thread.join();
        rank.barrier();
    });
}

TEST(ScalableEndpoint, RemoteMemoryByAnyContextAndDataToTheOneNamed)
{
    expect_processes(2, [](const Rank& rank) {
        Base base(all_caps, 4, 2, 2);
        Scalable s(base);
        base.exchange(rank, &s.sep->fid);
        const fi_addr_t peer = 1 - rank.number;
        std::array<std::uint64_t, 8> window{};
        fid_mr* mr = nullptr;
        check(fi_mr_reg(base.domain, window.data(), sizeof(window), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 7, 0, &mr,
                        nullptr),
              "fi_mr_reg");
        rank.barrier();
        fi_cq_tagged_entry entry{};
        for (unsigned t = 0; t < 2; t++) {
            std::uint64_t value = 100 + t;
            ASSERT_EQ(post(s.tx_cq[t],
                           [&] {
                               return fi_writedata(s.tx[t], &value, 8, nullptr, 0xfeed0000 + t,
                                                   fi_rx_addr(peer, static_cast<int>(t), 4), 8 * t, 7, &value);
                           }),
                      0);
            ASSERT_TRUE(next(s.tx_cq[t], entry));
            EXPECT_EQ(entry.flags, FI_RMA | FI_WRITE);
            ASSERT_TRUE(next(s.rx_cq[t], entry));
            EXPECT_EQ(entry.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
            EXPECT_EQ(entry.data, 0xfeed0000u + t);
            EXPECT_EQ(window[t], 100 + t);
            std::uint64_t one = 1;
            ASSERT_EQ(
                post(s.tx_cq[t],
                     [&] { return fi_atomic(s.tx[t], &one, 1, nullptr, peer, 8 * 4, 7, FI_UINT64, FI_SUM, &one); }),
                0);
            ASSERT_TRUE(next(s.tx_cq[t], entry));
            EXPECT_EQ(entry.op_context, &one);
        }
        rank.barrier();
        EXPECT_EQ(window[4], 2u);
        EXPECT_EQ(fi_close(&mr->fid), 0);
    });
}

/// Bits for contexts that no endpoint has cost no memory, however many peers there are.
TEST(ScalableEndpoint, AllBitsForContextsMayBeAskedFor)
{
    expect_processes(1, [](const Rank&) {
        Base base(all_caps, 32, 1, 2);
        Scalable s(base);
        fi_addr_t self = FI_ADDR_NOTAVAIL;
        for (unsigned i = 0; i < 4000; i++)
            self = base.insert(&s.sep->fid);
        ASSERT_EQ(self, 3999u);
        for (int r = 0; r < 2; r++) {
            std::uint64_t out = 7, in = 0;
            fi_cq_tagged_entry entry{};
            const fi_addr_t to = fi_rx_addr(self, r, 32);
            ASSERT_EQ(fi_trecv(s.rx[r], &in, sizeof in, nullptr, FI_ADDR_UNSPEC, 5, 0, &in), 0);
            ASSERT_EQ(post(s.tx_cq[0], [&] { return fi_tsend(s.tx[0], &out, sizeof out, nullptr, to, 5, &out); }), 0);
            bool sent = false, received = false;
            ASSERT_TRUE(wait_until([&] {
                sent |= fi_cq_read(s.tx_cq[0], &entry, 1) == 1;
                received |= fi_cq_read(s.rx_cq[r], &entry, 1) == 1;
                return sent && received;
            }));
            EXPECT_EQ(in, 7u);
        }
        std::uint64_t word = 0;
        EXPECT_EQ(fi_send(s.tx[0], &word, 8, nullptr, fi_rx_addr(self, 2, 32), nullptr), -FI_EINVAL);
        EXPECT_EQ(fi_send(s.tx[0], &word, 8, nullptr, fi_rx_addr(self, 256, 32), nullptr), -FI_EINVAL);
        fid_av* av = nullptr;
        fi_av_attr attr{};
        attr.rx_ctx_bits = 33;
        EXPECT_EQ(fi_av_open(base.domain, &attr, &av, nullptr), -FI_EINVAL);
    });
}

TEST(ScalableEndpoint, ContextsThatDoNotExistAreRefused)
{
    expect_processes(1, [](const Rank&) {
        Base base(all_caps, 4, 1, 2);
        Scalable s(base);
        const fi_addr_t self = base.insert(&s.sep->fid);
        // A plain endpoint takes the next numbers of the domain: no peer reaches it by adding to another number.
        fid_ep* plain = nullptr;
        base.info->ep_attr->tx_ctx_cnt = base.info->ep_attr->rx_ctx_cnt = 1;
        check(fi_endpoint(base.domain, base.info, &plain, nullptr), "fi_endpoint");
        fid_cq* cq = base.queue();
        check(fi_ep_bind(plain, &cq->fid, FI_TRANSMIT | FI_RECV), "bind");
        check(fi_ep_bind(plain, &base.av->fid, 0), "bind");
        check(fi_enable(plain), "fi_enable");
        const fi_addr_t other = base.insert(&plain->fid);
        std::uint64_t word = 0;
        EXPECT_EQ(fi_send(s.tx[0], &word, 8, nullptr, fi_rx_addr(self, 2, 4), nullptr), -FI_EINVAL);
        EXPECT_EQ(fi_send(s.tx[0], &word, 8, nullptr, fi_rx_addr(self, 15, 4), nullptr), -FI_EINVAL);
        EXPECT_EQ(fi_send(s.tx[0], &word, 8, nullptr, fi_rx_addr(other, 1, 4), nullptr), -FI_EINVAL);
        EXPECT_EQ(fi_send(s.tx[0], &word, 8, nullptr, self + 2, nullptr), -FI_EINVAL);
        EXPECT_EQ(fi_send(s.tx[0], &word, 8, nullptr, FI_ADDR_NOTAVAIL, nullptr), -FI_EINVAL);
        fid_ep* ep = nullptr;
        EXPECT_EQ(fi_tx_context(s.sep, 1, nullptr, &ep, nullptr), -FI_EINVAL);
        EXPECT_EQ(fi_tx_context(s.sep, -1, nullptr, &ep, nullptr), -FI_EINVAL);
        EXPECT_EQ(fi_rx_context(s.sep, 2, nullptr, &ep, nullptr), -FI_EINVAL);
        EXPECT_EQ(fi_rx_context(s.sep, 1, nullptr, &ep, nullptr), -FI_EBUSY);
        EXPECT_EQ(fi_close(&plain->fid), 0);
        EXPECT_EQ(fi_close(&cq->fid), 0);
    });
}

TEST(ScalableEndpoint, AContextHasOneDirection)
{
    expect_processes(1, [](const Rank&) {
        Base base(all_caps, 1, 1, 1);
        Scalable s(base);
        const fi_addr_t self = base.insert(&s.sep->fid);
        std::uint64_t word = 0;
        EXPECT_EQ(fi_recv(s.tx[0], &word, 8, nullptr, self, nullptr), -FI_EOPNOTSUPP);
        EXPECT_EQ(fi_trecv(s.tx[0], &word, 8, nullptr, self, 0, 0, nullptr), -FI_EOPNOTSUPP);
        EXPECT_EQ(fi_send(s.rx[0], &word, 8, nullptr, self, nullptr), -FI_EOPNOTSUPP);
        EXPECT_EQ(fi_tinject(s.rx[0], &word, 8, self, 0), -FI_EOPNOTSUPP);
        EXPECT_EQ(fi_write(s.rx[0], &word, 8, nullptr, self, 0, 0, nullptr), -FI_EOPNOTSUPP);
        EXPECT_EQ(fi_send(s.sep, &word, 8, nullptr, self, nullptr), -FI_EOPNOTSUPP);
        EXPECT_EQ(fi_close(&s.sep->fid), -FI_EBUSY);
    });
}

TEST(ScalableEndpoint, BindingsAndStatesAreChecked)
{
    expect_processes(1, [](const Rank&) {
        Base base(all_caps, 1, 1, 1);
        fid_ep* sep = nullptr;
        fid_ep* tx = nullptr;
        fid_ep* rx = nullptr;
        fid_cq* cq = base.queue();
        check(fi_scalable_ep(base.domain, base.info, &sep, nullptr), "fi_scalable_ep");
        EXPECT_EQ(fi_scalable_ep_bind(sep, &cq->fid, FI_TRANSMIT), -FI_EINVAL);
        EXPECT_EQ(fi_enable(sep), -FI_ENOAV);

        fi_tx_attr wanted{};
        wanted.caps = FI_MSG | FI_SEND;
        wanted.op_flags = FI_DELIVERY_COMPLETE;
        check(fi_tx_context(sep, 0, &wanted, &tx, nullptr), "fi_tx_context");
        EXPECT_EQ(wanted.caps, FI_MSG | FI_SEND);
        EXPECT_EQ(wanted.op_flags, static_cast<std::uint64_t>(FI_DELIVERY_COMPLETE));
        EXPECT_GE(wanted.inject_size, 64u);
        fi_rx_attr too_much{};
        too_much.caps = FI_MSG | FI_RECV | FI_HMEM;
        EXPECT_EQ(fi_rx_context(sep, 0, &too_much, &rx, nullptr), -FI_EINVAL);
        check(fi_rx_context(sep, 0, nullptr, &rx, nullptr), "fi_rx_context");

        EXPECT_EQ(fi_ep_bind(tx, &base.av->fid, 0), -FI_EINVAL);
        EXPECT_EQ(fi_ep_bind(tx, &cq->fid, FI_RECV), -FI_EINVAL);
        EXPECT_EQ(fi_ep_bind(rx, &cq->fid, FI_TRANSMIT), -FI_EINVAL);
        check(fi_ep_bind(tx, &cq->fid, FI_TRANSMIT), "bind");
        check(fi_ep_bind(rx, &cq->fid, FI_RECV), "bind");
        EXPECT_EQ(fi_enable(tx), -FI_ENOAV);
        check(fi_scalable_ep_bind(sep, &base.av->fid, 0), "fi_scalable_ep_bind");
        check(fi_enable(tx), "fi_enable");
        check(fi_enable(rx), "fi_enable");
        std::uint64_t word = 0;
        EXPECT_EQ(fi_tsend(tx, &word, 8, nullptr, 0, 0, nullptr), -FI_EOPNOTSUPP); // not among its caps

        EXPECT_EQ(fi_close(&base.av->fid), -FI_EBUSY);
        EXPECT_EQ(fi_close(&tx->fid), 0);
        EXPECT_EQ(fi_close(&rx->fid), 0);
        EXPECT_EQ(fi_rx_context(sep, 0, nullptr, &rx, nullptr), -FI_EOPBADSTATE); // peers may still write to it
        check(fi_tx_context(sep, 0, nullptr, &tx, nullptr), "fi_tx_context");     // no peer writes to it
        EXPECT_EQ(fi_close(&tx->fid), 0);
        EXPECT_EQ(fi_close(&sep->fid), 0);
        EXPECT_EQ(fi_close(&cq->fid), 0);

        base.info->ep_attr->tx_ctx_cnt = 65;
        EXPECT_EQ(fi_scalable_ep(base.domain, base.info, &sep, nullptr), -FI_EINVAL);
        base.info->ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT;
        EXPECT_EQ(fi_scalable_ep(base.domain, base.info, &sep, nullptr), -FI_EINVAL);
    });
}

/// fi_endpoint takes one context of its own of each kind at most, and fi_scalable_ep none that is shared.
TEST(ScalableEndpoint, EachNumberOfContextsThatIsGrantedCanBeOpened)
{
    expect_processes(1, [](const Rank&) {
        const std::size_t counts[] = {0, 1, 2, FI_SHARED_CONTEXT};
        const auto is_several = [](std::size_t count) { return count > 1 && count != FI_SHARED_CONTEXT; };
        for (const std::size_t tx_count : counts)
            for (const std::size_t rx_count : counts) {
                const auto hint = [&](fi_info& hints) {
                    hints.caps = FI_TAGGED;
                    hints.ep_attr->tx_ctx_cnt = tx_count;
                    hints.ep_attr->rx_ctx_cnt = rx_count;
                };
                const bool scalable = is_several(tx_count) || is_several(rx_count);
                const bool shared = std::max(tx_count, rx_count) == FI_SHARED_CONTEXT;
                EXPECT_EQ(refused(hint), scalable && shared) << tx_count << " and " << rx_count;
                if (refused(hint))
                    continue;
                Base base(FI_TAGGED, 1, tx_count, rx_count);
                fid_ep* ep = nullptr;
                check((scalable ? fi_scalable_ep : fi_endpoint)(base.domain, base.info, &ep, nullptr), "open");
                EXPECT_EQ(fi_close(&ep->fid), 0);
            }
    });
}

/// As MPICH's netmod ofi does: the endpoint enabled first, each context with the capabilities of both directions'
/// naming, one queue and one counter for both, and completions for those operations alone that ask for one.
TEST(ScalableEndpoint, ContextsAsMpichOpensThem)
{
    expect_processes(1, [](const Rank&) {
        Base base(all_caps | FI_MULTI_RECV, 8, 1, 1, FI_THREAD_DOMAIN);
        fid_ep *sep = nullptr, *tx = nullptr, *rx = nullptr;
        check(fi_scalable_ep(base.domain, base.info, &sep, nullptr), "fi_scalable_ep");
        check(fi_scalable_ep_bind(sep, &base.av->fid, 0), "fi_scalable_ep_bind");
        check(fi_enable(sep), "fi_enable");
        fi_cntr_attr counts{};
        counts.wait_obj = FI_WAIT_UNSPEC;
        fid_cntr* cntr = nullptr;
        check(fi_cntr_open(base.domain, &counts, &cntr, nullptr), "fi_cntr_open");
        fid_cq* cq = base.queue();

        fi_tx_attr sends = *base.info->tx_attr;
        sends.op_flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
        sends.caps = FI_TAGGED | FI_RMA | FI_ATOMIC | FI_MSG | FI_NAMED_RX_CTX;
        check(fi_tx_context(sep, 0, &sends, &tx, nullptr), "fi_tx_context");
        check(fi_ep_bind(tx, &cq->fid, FI_SEND | FI_SELECTIVE_COMPLETION), "bind cq");
        check(fi_ep_bind(tx, &cntr->fid, FI_WRITE | FI_READ), "bind cntr");
        check(fi_enable(tx), "fi_enable");
        fi_rx_attr takes = *base.info->rx_attr;
        takes.caps = FI_TAGGED | FI_DIRECTED_RECV | FI_RMA | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_ATOMIC | FI_MSG |
                     FI_MULTI_RECV | FI_NAMED_RX_CTX;
        check(fi_rx_context(sep, 0, &takes, &rx, nullptr), "fi_rx_context");
        check(fi_ep_bind(rx, &cq->fid, FI_RECV), "bind cq");
        check(fi_enable(rx), "fi_enable");

        const fi_addr_t self = fi_rx_addr(base.insert(&sep->fid), 0, 8);
        std::uint64_t out = 17, in = 0;
        ASSERT_EQ(fi_trecv(rx, &in, sizeof in, nullptr, self, 5, 0, &in), 0);
        ASSERT_EQ(post(cq, [&] { return fi_tsenddata(tx, &out, 8, nullptr, 3, self, 5, &out); }), 0);
        fi_cq_tagged_entry entries[2];
        for (fi_cq_tagged_entry& entry : entries)
            ASSERT_TRUE(next(cq, entry));
        EXPECT_EQ(in, out);
        EXPECT_NE(entries[0].op_context, entries[1].op_context);
        for (struct fid* object : {&tx->fid, &rx->fid, &cq->fid, &sep->fid, &cntr->fid})
            EXPECT_EQ(fi_close(object), 0);
    });
}

TEST(ScalableEndpoint, NumbersComeBack)
{
    expect_processes(1, [](const Rank&) {
        Base base(FI_MSG | FI_NAMED_RX_CTX, 6, 1, 60);
        for (int round = 0; round < 30; round++) {
            std::array<fid_ep*, 4> seps{};
            for (fid_ep*& sep : seps)
                check(fi_scalable_ep(base.domain, base.info, &sep, nullptr), "fi_scalable_ep");
            fid_ep* fifth = nullptr;
            EXPECT_EQ(fi_scalable_ep(base.domain, base.info, &fifth, nullptr), -FI_ENOSPC);
            for (fid_ep* sep : seps)
                EXPECT_EQ(fi_close(&sep->fid), 0);
        }
    });
}

} // namespace
} // namespace tofu::test
