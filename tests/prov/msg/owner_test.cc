// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Receives, queues and counters of another provider (fi_peer(3)), which the test plays in one of two processes, as
// libfabric 2.1 has them and as 2.3 does: msg/receive_queue, cq/cq.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "prov/lib/base.h"
#include "prov/lib/library.h"
#include "prov/msg/owner.h"

namespace tofu::test {
namespace {

using sim::test::expect_processes;

constexpr std::uint64_t caps = FI_MSG | FI_TAGGED | FI_PEER | FI_AV_USER_ID;

fi_provider& loaded_by(unsigned minor)
{
    linked().fi_version = FI_VERSION(2, minor);
    return linked();
}

/// One rank: an endpoint whose receives, queue and counter are the owner's.
struct Side {
    explicit Side(unsigned minor = 1) : base((loaded_by(minor), caps), 0)
    {
        peer::Import<peer::Srx> receives{sizeof(receives), &owner.srx};
        fi_rx_attr rx{};
        rx.op_flags = FI_PEER;
        check(fi_srx_context(base.domain, &rx, &srx, &receives), "fi_srx_context");
        peer::Import<peer::Cq> queue{sizeof(queue), &owner.cq};
        fi_cq_attr attr{};
        attr.flags = FI_PEER;
        check(fi_cq_open(base.domain, &attr, &cq, &queue), "fi_cq_open");
        peer::Import<peer::Cntr> counter{sizeof(counter), &owner.cntr};
        fi_cntr_attr cntr_attr{};
        cntr_attr.flags = FI_PEER;
        check(fi_cntr_open(base.domain, &cntr_attr, &cntr, &counter), "fi_cntr_open");
        check(fi_endpoint(base.domain, base.info, &ep, nullptr), "fi_endpoint");
        check(fi_ep_bind(ep, &base.av->fid, 0), "bind av");
        check(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "bind cq");
        check(fi_ep_bind(ep, &cntr->fid, FI_RECV), "bind cntr");
        check(fi_ep_bind(ep, &srx->fid, 0), "bind srx");
        check(fi_enable(ep), "fi_enable");
    }
    ~Side()
    {
        close();
        EXPECT_EQ(fi_close(&srx->fid), 0);
        EXPECT_EQ(fi_close(&cq->fid), 0);
        EXPECT_EQ(fi_close(&cntr->fid), 0);
        EXPECT_TRUE(owner.with_peer.empty()); // all was given back
    }
    void close()
    {
        if (ep != nullptr)
            EXPECT_EQ(fi_close(&ep->fid), 0);
        ep = nullptr;
    }
    void progress() { EXPECT_EQ(fi_cq_read(cq, nullptr, 0), -FI_EAGAIN); }
    /// Until the owner has been notified of so many.
    [[nodiscard]] bool told(std::size_t count)
    {
        return wait_until([&] { return progress(), owner.told.size() >= count; });
    }
    [[nodiscard]] bool keeps(std::size_t count)
    {
        return wait_until([&] { return progress(), owner.kept.size() >= count; });
    }
    template <class Call>
    void send(Call&& call)
    {
        ASSERT_EQ(post(cq, call), 0);
    }

    Owner owner;
    Base base;
    fid_ep* srx = nullptr;
    fid_cq* cq = nullptr;
    fid_cntr* cntr = nullptr;
    fid_ep* ep = nullptr;
};

/// Of every way that a message takes: in the descriptor, a slot, several, and fetched. The first ones go as anonymous
/// packets.
constexpr std::size_t sizes[] = {8, 0, 100, 3000, 12000, 70000, 3, 200, 4000, 20000, 1 << 20};
constexpr std::size_t kinds = std::size(sizes);

std::uint8_t byte(std::size_t kind, std::size_t at)
{
    return static_cast<std::uint8_t>(kind * 31 + at * 7 + at / 251);
}

/// Rank 0 sends one of each to rank 1, whose owner posts its receives before or after that.
void exchange(const Rank& rank, unsigned minor, bool tagged, bool early)
{
    Side side(minor);
    side.base.exchange(rank, &side.ep->fid);
    std::vector<std::vector<std::uint8_t>> bytes;
    for (const std::size_t size : sizes)
        bytes.emplace_back(size);
    if (rank.number == 0) {
        for (std::size_t k = 0; k < kinds; k++)
            for (std::size_t i = 0; i < sizes[k]; i++)
                bytes[k][i] = byte(k, i);
        if (!early)
            rank.barrier();
        for (std::size_t k = 0; k < kinds; k++)
            side.send([&] {
                return tagged ? fi_tsenddata(side.ep, bytes[k].data(), sizes[k], nullptr, 1000 + k, 1, k, &bytes[k])
                              : fi_send(side.ep, bytes[k].data(), sizes[k], nullptr, 1, &bytes[k]);
            });
        ASSERT_TRUE(side.told(kinds));
        for (const Told& t : side.owner.told)
            EXPECT_EQ(t.err, 0);
        if (early)
            rank.barrier();
    } else {
        if (early) {
            ASSERT_TRUE(side.keeps(kinds));
            std::size_t k = 0;
            for (const auto& item : side.owner.kept) { // as they were sent
                EXPECT_EQ(item->fields().size, sizes[k]);
                EXPECT_EQ(item->fields().source, 0u);
                EXPECT_EQ(item->fields().data, tagged ? 1000 + k : 0);
                EXPECT_EQ((item->fields().flags & FI_REMOTE_CQ_DATA) != 0, tagged);
                k++;
            }
        }
        for (std::size_t k = 0; k < kinds; k++)
            EXPECT_EQ(side.owner.receive(tagged, bytes[k].data(), sizes[k], &bytes[k], tagged ? k : 0), 0);
        if (!early)
            rank.barrier();
        ASSERT_TRUE(side.told(kinds));
        EXPECT_EQ(fi_cntr_read(side.cntr), 0u);
        EXPECT_EQ(side.owner.count, kinds);
        for (const Told& t : side.owner.told) {
            const auto k = static_cast<std::size_t>(static_cast<std::vector<std::uint8_t>*>(t.context) - bytes.data());
            ASSERT_LT(k, kinds);
            EXPECT_EQ(t.err, 0);
            EXPECT_EQ(t.length, sizes[k]);
            EXPECT_EQ(t.flags, tagged ? FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA : FI_RECV | FI_MSG);
            EXPECT_EQ(t.tag, tagged ? k : 0);
            EXPECT_EQ(t.data, tagged ? 1000 + k : 0);
            EXPECT_EQ(t.source, 0u);
            for (std::size_t i = 0; i < sizes[k]; i++)
                ASSERT_EQ(bytes[k][i], byte(k, i)) << k << " " << i;
        }
        if (early)
            rank.barrier();
    }
    rank.barrier();
}

TEST(PeerReceives, EveryMessageFindsTheOwnersReceive)
{
    for (const unsigned minor : {1u, 3u})
        for (const bool tagged : {true, false})
            expect_processes(2, [=](const Rank& rank) { exchange(rank, minor, tagged, false); });
}

TEST(PeerReceives, EveryMessageThatCameEarlyIsStartedByTheOwner)
{
    for (const unsigned minor : {1u, 3u})
        for (const bool tagged : {true, false})
            expect_processes(2, [=](const Rank& rank) { exchange(rank, minor, tagged, true); });
}

/// Sends one tagged message of each size from rank 0, and waits there for their ends.
void send_all(Side& side, const std::vector<std::size_t>& lengths, std::uint64_t flags = 0)
{
    static std::vector<std::uint8_t> bytes(1 << 20, 7);
    for (std::size_t i = 0; i < lengths.size(); i++) {
        const iovec iov{bytes.data(), lengths[i]};
        const fi_msg_tagged message{&iov, nullptr, 1, 1, i, 0, nullptr, 0};
        side.send([&] { return fi_tsendmsg(side.ep, &message, flags | FI_COMPLETION); });
    }
    EXPECT_TRUE(side.told(lengths.size()));
}

/// The lnx of libfabric 2.0 and 2.1 hands a region's desc on as the array of descs; up to 2.6 it has one for several
/// segments.
TEST(PeerReceives, ItsOwnersDescsAreNotLookedAt)
{
    expect_processes(2, [](const Rank& rank) {
        Side side;
        side.base.exchange(rank, &side.ep->fid);
        std::vector<std::uint8_t> bytes(100000);
        for (std::size_t i = 0; i < bytes.size(); i++)
            bytes[i] = byte(0, i);
        if (rank.number == 0) {
            fid_mr* mr = nullptr;
            ASSERT_EQ(fi_mr_reg(side.base.domain, bytes.data(), bytes.size(), FI_SEND, 0, 1, 0, &mr, nullptr), 0);
            const iovec iov[] = {{bytes.data(), 60000}, {bytes.data() + 60000, 40000}};
            const fi_msg_tagged message{iov, static_cast<void**>(fi_mr_desc(mr)), 2, 1, 7, 0, nullptr, 0};
            side.send([&] { return fi_tsendmsg(side.ep, &message, FI_COMPLETION); });
            EXPECT_TRUE(side.told(1));
            EXPECT_EQ(fi_close(&mr->fid), 0);
        } else {
            std::vector<std::uint8_t> in(bytes.size());
            EXPECT_EQ(side.owner.receive(true, in.data(), in.size(), &in, 7), 0);
            ASSERT_TRUE(side.told(1));
            EXPECT_EQ(side.owner.told.front().err, 0);
            EXPECT_EQ(in, bytes);
        }
        rank.barrier();
    });
}

TEST(PeerReceives, WhatIsTooLongIsTruncated)
{
    expect_processes(2, [](const Rank& rank) {
        Side side;
        side.base.exchange(rank, &side.ep->fid);
        if (rank.number == 0) {
            send_all(side, {100, 100000});
        } else {
            std::vector<std::uint8_t> in(64);
            EXPECT_EQ(side.owner.receive(true, in.data(), 64, &in, 0), 0);
            EXPECT_EQ(side.owner.receive(true, in.data(), 64, &in, 1), 0);
            ASSERT_TRUE(side.told(2));
            for (const Told& t : side.owner.told) {
                EXPECT_EQ(t.err, FI_ETRUNC);
                EXPECT_EQ(t.length, 64u);
                EXPECT_EQ(t.overflow, t.tag == 0 ? 36u : 99936u);
                EXPECT_EQ(t.source, 0u);
            }
            EXPECT_EQ(fi_cntr_read(side.cntr), 0u);
            EXPECT_EQ(side.owner.errors, 2u);
        }
        rank.barrier();
    });
}

TEST(PeerReceives, TheSenderOfADiscardedMessageIsInformed)
{
    expect_processes(2, [](const Rank& rank) {
        Side side;
        side.base.exchange(rank, &side.ep->fid);
        if (rank.number == 0) {
            send_all(side, {8, 300000, 100}, FI_DELIVERY_COMPLETE);
            for (const Told& t : side.owner.told)
                EXPECT_EQ(t.err, 0);
            rank.set(20, 1);
        } else {
            ASSERT_TRUE(side.keeps(3));
            for (int i = 0; i < 3; i++)
                EXPECT_EQ(side.owner.discard(), 0);
            EXPECT_TRUE(wait_until([&] { return side.progress(), rank.get(20) == 1; }));
            EXPECT_TRUE(side.owner.told.empty());
        }
        rank.barrier();
    });
}

TEST(PeerReceives, MessagesOfAKindThatTheOwnerLacksMatchNoReceive)
{
    expect_processes(2, [](const Rank& rank) {
        Side side;
        side.base.exchange(rank, &side.ep->fid);
        std::vector<std::uint8_t> bytes(100000);
        if (rank.number == 0) {
            for (const std::size_t size : {8u, 100000u})
                side.send([&] { return fi_send(side.ep, bytes.data(), size, nullptr, 1, nullptr); });
            side.send([&] { return fi_tsend(side.ep, bytes.data(), 8, nullptr, 1, 5, nullptr); });
            EXPECT_TRUE(side.told(3));
            rank.set(20, 1);
        } else {
            side.owner.has_untagged = false;
            EXPECT_EQ(side.owner.receive(true, bytes.data(), 8, &bytes, 5), 0);
            EXPECT_TRUE(side.told(1));
            EXPECT_TRUE(wait_until([&] { return side.progress(), rank.get(20) == 1; }));
            EXPECT_EQ(side.owner.told.size(), 1u);
        }
        rank.barrier();
    });
}

TEST(PeerReceives, ASourceIsKnownOnceItsAddressIs)
{
    expect_processes(2, [](const Rank& rank) {
        Side side;
        std::uint64_t words[4] = {};
        std::size_t length = sizeof words;
        check(fi_getname(&side.ep->fid, words, &length), "fi_getname");
        for (unsigned i = 0; i < 4; i++)
            rank.set(rank.number * 4 + i, words[i]);
        rank.barrier();
        for (unsigned i = 0; i < 4; i++)
            words[i] = rank.get((1 - rank.number) * 4 + i);
        constexpr fi_addr_t named = 0xabcdef;
        if (rank.number == 0) {
            fi_addr_t at = 0;
            std::uint64_t own[4] = {};
            length = sizeof own;
            check(fi_getname(&side.ep->fid, own, &length), "fi_getname");
            ASSERT_EQ(fi_av_insert(side.base.av, own, 1, &at, 0, nullptr), 1);
            for (int i = 0; i < 2; i++) {
                ASSERT_EQ(fi_av_insert(side.base.av, words, 1, &at, 0, nullptr), 1);
                EXPECT_EQ(at, 1u); // again: owners compare places
            }
            ASSERT_EQ(fi_av_remove(side.base.av, &at, 1, 0), 0); // once less
            send_all(side, {8, 8});
        } else {
            ASSERT_TRUE(side.keeps(2));
            for (const auto& item : side.owner.kept)
                EXPECT_EQ(item->fields().source, FI_ADDR_UNSPEC);
            fi_addr_t at = named;
            ASSERT_EQ(fi_av_insert(side.base.av, words, 1, &at, FI_AV_USER_ID, nullptr), 1);
            EXPECT_EQ(at, 0u);
            for (const auto& item : side.owner.kept)
                EXPECT_EQ(item->fields().source, named);
            std::uint64_t in = 0;
            EXPECT_EQ(side.owner.receive(true, &in, 8, &in, 1, 0, 77), 0); // of another owner: posted
            EXPECT_EQ(side.owner.receive(true, &in, 8, &in, 1, 0, named), 0);
            EXPECT_TRUE(side.told(1));
            EXPECT_EQ(side.owner.told[0].source, named);
            EXPECT_EQ(side.owner.posted.size(), 1u);
        }
        rank.barrier();
    });
}

TEST(PeerReceives, AnEndpointIsClosedWithMessagesThatWait)
{
    expect_processes(2, [](const Rank& rank) {
        Side side;
        side.base.exchange(rank, &side.ep->fid);
        if (rank.number == 0) {
            send_all(side, {8, 2000});
        } else {
            ASSERT_TRUE(side.keeps(2));
            side.close();
            std::uint64_t in = 0;
            EXPECT_EQ(side.owner.receive(true, &in, 8, &in, 0), -FI_ECANCELED);
            side.owner.with_peer.clear(); // what was not started stays the owner's
            EXPECT_EQ(side.owner.discard(), 0);
            EXPECT_TRUE(side.owner.told.empty());
        }
        rank.barrier();
    });
}

unsigned busy = 0; ///< so many completion words find no room

/// Behind them the owner's receive waits in our hands, while others' messages go on.
TEST(PeerReceives, WhatFindsNoRoomGoesOnLater)
{
    for (const bool early : {false, true})
        expect_processes(2, [early](const Rank& rank) {
            linked();
            constexpr auto refuse = [](auto go_on, utofu_vcq_hdl_t vcq, auto... rest) {
                return busy != 0 && busy-- != 0 ? int{UTOFU_ERR_BUSY} : go_on(vcq, rest...);
            };
            surround<refuse, &vcq::Functions::put_piggyback>(library_functions());
            Side side;
            side.base.exchange(rank, &side.ep->fid);
            if (rank.number == 0) {
                send_all(side, {100, 100, 100}, FI_MATCH_COMPLETE);
                rank.set(20, 1);
            } else {
                std::uint64_t in[3][16];
                if (early)
                    ASSERT_TRUE(side.keeps(3));
                busy = 5;
                for (std::size_t i = 0; i < 3; i++)
                    EXPECT_EQ(side.owner.receive(true, in[i], 128, in[i], i), 0);
                ASSERT_TRUE(side.told(3));
                EXPECT_EQ(busy, 0u);
                for (const Told& t : side.owner.told)
                    EXPECT_EQ(t.context, in[t.tag]);
                EXPECT_TRUE(wait_until([&] { return side.progress(), rank.get(20) == 1; }));
            }
            rank.barrier();
        });
}

/// The endpoint goes while a receive of the owner's waits for room: it ends, for the owner has it no more.
TEST(PeerReceives, WhatFoundNoRoomIsCancelledWithTheEndpoint)
{
    for (const bool early : {false, true})
        expect_processes(2, [early](const Rank& rank) {
            linked();
            constexpr auto refuse = [](auto go_on, utofu_vcq_hdl_t vcq, auto... rest) {
                return busy != 0 ? int{UTOFU_ERR_BUSY} : go_on(vcq, rest...);
            };
            surround<refuse, &vcq::Functions::put_piggyback>(library_functions());
            Side side;
            side.base.exchange(rank, &side.ep->fid);
            if (rank.number == 0) {
                std::uint64_t word = 0;
                const iovec iov{&word, sizeof word};
                const fi_msg_tagged message{&iov, nullptr, 1, 1, 0, 0, nullptr, 0};
                side.send([&] { return fi_tsendmsg(side.ep, &message, FI_MATCH_COMPLETE | FI_COMPLETION); });
                EXPECT_TRUE(wait_until([&] { return side.progress(), rank.get(20) == 1; }));
            } else {
                std::uint64_t in = 0;
                if (early)
                    ASSERT_TRUE(side.keeps(1));
                busy = 1;
                EXPECT_EQ(side.owner.receive(true, &in, 8, &in, 0), 0);
                EXPECT_TRUE(wait_until([&] { return side.progress(), side.owner.with_peer.size() == 1; }));
                EXPECT_TRUE(side.owner.told.empty());
                side.close();
                busy = 0;
                ASSERT_TRUE(side.told(1));
                EXPECT_EQ(side.owner.told[0].err, FI_ECANCELED);
                EXPECT_EQ(side.owner.told[0].context, &in);
                rank.set(20, 1);
            }
            rank.barrier();
        });
}

TEST(PeerQueue, KeepsItsOrderWhileTheOwnerHasNoRoom)
{
    expect_processes(1, [](const Rank& rank) {
        Side side;
        side.base.exchange(rank, &side.ep->fid);
        std::uint64_t words[8] = {};
        for (std::uint64_t& word : words)
            EXPECT_EQ(side.owner.receive(true, &word, 8, &word, static_cast<std::uint64_t>(&word - words)), 0);
        side.owner.refusals = 3;
        for (std::uint64_t i = 0; i < 8; i++)
            side.send([&] { return fi_tinject(side.ep, &i, 8, 0, i); });
        ASSERT_TRUE(side.told(8));
        for (std::size_t i = 0; i < 8; i++)
            EXPECT_EQ(side.owner.told[i].context, &words[i]);
        fi_cq_err_entry error{};
        EXPECT_EQ(fi_cq_readerr(side.cq, &error, 0), -FI_ENOSYS);
        EXPECT_EQ(fi_cq_sread(side.cq, nullptr, 0, nullptr, 0), -FI_ENOSYS);
        EXPECT_EQ(fi_cntr_set(side.cntr, 1), -FI_ENOSYS);
        EXPECT_EQ(fi_recv(side.srx, words, 8, nullptr, FI_ADDR_UNSPEC, nullptr), -FI_EOPNOTSUPP);
        EXPECT_EQ(fi_trecv(side.ep, words, 8, nullptr, FI_ADDR_UNSPEC, 0, 0, nullptr), -FI_EOPNOTSUPP);
        EXPECT_EQ(fi_cancel(&side.ep->fid, words), -FI_ENOENT);
        EXPECT_EQ(fi_close(&side.cq->fid), -FI_EBUSY);
        EXPECT_EQ(fi_close(&side.srx->fid), -FI_EBUSY);
    });
}

TEST(PeerInfo, IsGivenOnRequestOnly)
{
    expect_processes(1, [](const Rank&) {
        loaded_by(1);
        Info plain = ask([](fi_info& h) { h.caps = FI_TAGGED; });
        ASSERT_NE(plain, nullptr);
        EXPECT_EQ((plain->caps | plain->domain_attr->caps) & (FI_PEER | FI_AV_USER_ID), 0u);
        Info owners = ask([](fi_info& h) { h.caps = FI_TAGGED | FI_PEER | FI_AV_USER_ID; });
        ASSERT_NE(owners, nullptr);
        EXPECT_NE(owners->caps & FI_PEER, 0u);
        EXPECT_NE(owners->caps & FI_AV_USER_ID, 0u);
        EXPECT_NE(owners->domain_attr->caps & FI_PEER, 0u);
        Info anything = ask([](fi_info& h) { h.caps = FI_PEER; });
        ASSERT_NE(anything, nullptr);
        EXPECT_NE(anything->caps & FI_TAGGED, 0u);
        Info by_domain = ask([](fi_info& h) { h.domain_attr->caps = FI_PEER; });
        ASSERT_NE(by_domain, nullptr);
        EXPECT_NE(by_domain->caps & FI_PEER, 0u);
        EXPECT_EQ(ask([](fi_info& h) {
                      h.caps = FI_TAGGED | FI_PEER;
                      h.domain_attr->data_progress = FI_PROGRESS_AUTO;
                  }),
                  nullptr);
        for (const unsigned version : {FI_VERSION(1, 17), FI_VERSION(2, 7), FI_VERSION(3, 0)}) {
            linked().fi_version = version; // whose interface we have not seen
            EXPECT_EQ(ask([](fi_info& h) { h.caps = FI_TAGGED | FI_PEER; }), nullptr);
        }
    });
}

/// FI_SOURCE_ERR of an endpoint that owns its receives, and reports to another provider's queue.
TEST(PeerQueue, ReportsAnUnknownSourceWithItsAddress)
{
    expect_processes(1, [](const Rank&) {
        loaded_by(1);
        Base base(FI_MSG | FI_SOURCE | FI_SOURCE_ERR, 0);
        Owner owner;
        peer::Import<peer::Cq> import{sizeof(import), &owner.cq};
        fi_cq_attr attr{};
        attr.flags = FI_PEER;
        fid_cq* told = nullptr;
        check(fi_cq_open(base.domain, &attr, &told, &import), "fi_cq_open");
        fid_cq* const sent = base.queue();
        fi_av_attr empty{};
        fid_av* nobody = nullptr;
        check(fi_av_open(base.domain, &empty, &nobody, nullptr), "fi_av_open");
        const auto endpoint = [&](fid_cq* cq, fid_av* av) {
            fid_ep* made = nullptr;
            check(fi_endpoint(base.domain, base.info, &made, nullptr), "fi_endpoint");
            check(fi_ep_bind(made, &av->fid, 0), "bind av");
            check(fi_ep_bind(made, &cq->fid, FI_TRANSMIT | FI_RECV), "bind cq");
            check(fi_enable(made), "fi_enable");
            return made;
        };
        fid_ep* const from = endpoint(sent, base.av);
        fid_ep* const to = endpoint(told, nobody);
        char name[64];
        std::size_t length = sizeof(name);
        check(fi_getname(&from->fid, name, &length), "fi_getname");

        std::uint64_t word = 0x5eed, room = 0;
        ASSERT_EQ(fi_recv(to, &room, sizeof room, nullptr, FI_ADDR_UNSPEC, &room), 0);
        const fi_addr_t target = base.insert(&to->fid);
        ASSERT_EQ(post(sent, [&] { return fi_send(from, &word, sizeof word, nullptr, target, nullptr); }), 0);
        ASSERT_TRUE(wait_until([&] {
            fi_cq_read(sent, nullptr, 0);
            return fi_cq_read(told, nullptr, 0), !owner.told.empty();
        }));
        const Told& entry = owner.told.front();
        EXPECT_EQ(entry.err, FI_EADDRNOTAVAIL);
        EXPECT_EQ(entry.context, &room);
        EXPECT_EQ(entry.source, FI_ADDR_NOTAVAIL);
        EXPECT_EQ(entry.overflow, 0u);
        EXPECT_EQ(entry.error_data, std::string(name, length));
        EXPECT_EQ(room, word);
        for (struct fid* object : {&from->fid, &to->fid, &told->fid, &sent->fid, &nobody->fid})
            EXPECT_EQ(fi_close(object), 0);
    });
}

TEST(PeerInfo, ImportsOnlyWhatHasAnOwner)
{
    expect_processes(1, [](const Rank&) {
        loaded_by(1);
        Base base(caps, 0);
        Owner owner;
        fi_rx_attr rx{};
        rx.op_flags = FI_PEER;
        fi_cq_attr attr{};
        attr.flags = FI_PEER;
        fid_ep* srx = nullptr;
        fid_cq* cq = nullptr;
        EXPECT_EQ(fi_srx_context(base.domain, &rx, &srx, nullptr), -FI_EINVAL);
        EXPECT_EQ(fi_cq_open(base.domain, &attr, &cq, nullptr), -FI_EINVAL);
        peer::Import<peer::Cq> queue{sizeof(queue), nullptr};
        EXPECT_EQ(fi_cq_open(base.domain, &attr, &cq, &queue), -FI_EINVAL);
        peer::CqOwnerOps short_ops = *owner.cq.owner;
        short_ops.size -= sizeof(void*);
        owner.cq.owner = &short_ops;
        queue.object = &owner.cq;
        EXPECT_EQ(fi_cq_open(base.domain, &attr, &cq, &queue), -FI_EINVAL);
        linked().fi_version = FI_VERSION(2, 7);
        peer::Import<peer::Srx> receives{sizeof(receives), &owner.srx};
        EXPECT_EQ(fi_srx_context(base.domain, &rx, &srx, &receives), -FI_EINVAL);
        fi_av_attr shared{};
        shared.name = "tofu-peer-test";
        fid_av* av = nullptr;
        check(fi_av_open(base.domain, &shared, &av, nullptr), "fi_av_open");
        std::uint64_t words[4] = {};
        fi_addr_t at = 1;
        EXPECT_EQ(fi_av_insert(av, words, 1, &at, FI_AV_USER_ID, nullptr), -FI_ENOSYS);
        EXPECT_EQ(fi_av_insert(base.av, words, 1, nullptr, FI_AV_USER_ID, nullptr), -FI_EINVAL);
        EXPECT_EQ(fi_close(&av->fid), 0);
    });
}

} // namespace
} // namespace tofu::test
