// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The endpoint's own calls: options, names, aliases, what it refuses before it is enabled and bound, and what becomes
// of operations at its close.
#include <vector>

#include <rdma/fi_eq.h>

#include "prov/lib/session.h"

namespace {

using namespace tofu::test;
using tofu::sim::test::expect_processes;

TEST(Endpoint, OptionsNamesAndAliases)
{
    expect_processes(1, [](const Rank& rank) {
        Options options;
        options.selective = true;
        Session s(rank, options);
        std::size_t value = 0, length = sizeof(value);
        ASSERT_EQ(fi_getopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &length), 0);
        value = 4096;
        ASSERT_EQ(fi_setopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, sizeof(value)), 0);
        value = 0;
        ASSERT_EQ(fi_getopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &length), 0);
        EXPECT_EQ(value, 4096u);
        EXPECT_EQ(fi_setopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, 4), -FI_EINVAL);
        length = 4;
        EXPECT_EQ(fi_getopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &length), -FI_ETOOSMALL);
        EXPECT_EQ(length, sizeof(value));
        EXPECT_EQ(fi_getopt(&s.ep->fid, FI_OPT_ENDPOINT, 4711, &value, &length), -FI_ENOPROTOOPT);

        length = 0;
        EXPECT_EQ(fi_getname(&s.ep->fid, nullptr, &length), -FI_ETOOSMALL);
        std::vector<char> name(length);
        EXPECT_EQ(fi_getname(&s.ep->fid, name.data(), &length), 0);
        length = 3;
        EXPECT_EQ(fi_getname(&s.ep->fid, name.data(), &length), -FI_ETOOSMALL);
        EXPECT_EQ(length, name.size());

        std::uint64_t memory = 0, one = 1;
        auto peers = s.share(&memory, 8);
        fid_ep* loud = nullptr;
        ASSERT_EQ(fi_ep_alias(s.ep, &loud, FI_TRANSMIT | FI_COMPLETION), 0);
        EXPECT_EQ(fi_close(&s.ep->fid), -FI_EBUSY);
        ASSERT_EQ(s.post([&] { return fi_write(s.ep, &one, 8, nullptr, 0, peers[0].base, peers[0].key, &s); }), 0);
        ASSERT_EQ(s.post([&] { return fi_write(loud, &one, 8, nullptr, 0, peers[0].base, peers[0].key, loud); }), 0);
        s.expect(loud, FI_RMA | FI_WRITE);
        s.expect_silence();
        ASSERT_EQ(fi_close(&loud->fid), 0);
    });
}

/// fi_endpoint(3), fi_ep_bind: FI_REMOTE_READ and FI_REMOTE_WRITE require FI_RMA_EVENT. Without it they are refused
/// where they are all that a counter is bound with, and count nothing where they are not: libfabric's fi_ubertest binds
/// with FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE, whatever it has asked for.
TEST(Endpoint, CountersOfRemoteAccessesNeedRmaEvents)
{
    expect_processes(1, [](const Rank& rank) {
        for (const std::uint64_t events : std::initializer_list<std::uint64_t>{0, FI_RMA_EVENT}) {
            Options options;
            options.caps |= events;
            options.enable = false;
            Session s(rank, options);
            std::vector<fid_cntr*> bound;
            const auto bind = [&](std::uint64_t flags) {
                fi_cntr_attr attr{};
                fid_cntr* counter = nullptr;
                Session::check(fi_cntr_open(s.domain, &attr, &counter, nullptr), "fi_cntr_open");
                const int ret = fi_ep_bind(s.ep, &counter->fid, flags);
                EXPECT_EQ(fi_close(&counter->fid), ret == 0 ? -FI_EBUSY : 0);
                if (ret == 0)
                    bound.push_back(counter);
                return ret;
            };
            const int expected = events != 0 ? 0 : -FI_EINVAL;
            EXPECT_EQ(bind(FI_REMOTE_READ), expected);
            EXPECT_EQ(bind(FI_REMOTE_WRITE), expected);
            EXPECT_EQ(bind(FI_REMOTE_READ | FI_REMOTE_WRITE), -FI_EINVAL); // has them, or not
            EXPECT_EQ(bind(FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE), events != 0 ? -FI_EINVAL : 0);
            EXPECT_EQ(bind(FI_READ | FI_WRITE), 0);
            EXPECT_EQ(fi_enable(s.ep), 0);
            EXPECT_EQ(fi_close(&s.ep->fid), 0);
            s.ep = nullptr;
            for (fid_cntr* counter : bound)
                EXPECT_EQ(fi_close(&counter->fid), 0);
        }
    });
}

/// Objects that another provider would make look like ours but for what stands behind them.
struct Stranger {
    explicit Stranger(std::size_t fclass)
    {
        ops.size = sizeof(ops);
        ops.close = [](struct fid*) { return 0; };
        fid.fclass = fclass;
        fid.ops = &ops;
    }
    fi_ops ops{};
    struct fid fid {};
    std::uint64_t behind[256] = {}; ///< which nothing of ours may read
};

TEST(Endpoint, ObjectsOfOthersAreRefused)
{
    expect_processes(1, [](const Rank& rank) {
        Options options;
        options.caps |= FI_MSG | FI_COLLECTIVE | FI_RMA_EVENT;
        options.enable = false;
        Session s(rank, options);
        fid_fabric* fabric = nullptr;
        fid_eq *own = nullptr, *foreign = nullptr;
        ASSERT_EQ(fi_fabric(s.info->fabric_attr, &fabric, nullptr), 0);
        fi_eq_attr attr{};
        attr.wait_obj = FI_WAIT_NONE;
        ASSERT_EQ(fi_eq_open(fabric, &attr, &foreign, nullptr), 0);
        ASSERT_EQ(fi_eq_open(s.fabric, &attr, &own, nullptr), 0);
        EXPECT_EQ(fi_ep_bind(s.ep, &foreign->fid, 0), -FI_EINVAL); // of another fabric
        EXPECT_EQ(fi_domain_bind(s.domain, &foreign->fid, 0), -FI_EINVAL);
        EXPECT_EQ(fi_ep_bind(s.ep, &own->fid, FI_TRANSMIT), -FI_EBADFLAGS);
        EXPECT_EQ(fi_ep_bind(s.ep, &own->fid, 0), 0);
        std::uint64_t memory[8] = {};
        fid_mr* const mr = s.reg(memory, sizeof(memory));
        fi_poll_attr no_flags{};
        fid_poll* polls = nullptr;
        ASSERT_EQ(fi_poll_open(s.domain, &no_flags, &polls), 0);
        for (std::size_t fclass : {FI_CLASS_CQ, FI_CLASS_CNTR, FI_CLASS_AV, FI_CLASS_EQ, FI_CLASS_STX_CTX,
                                   FI_CLASS_SRX_CTX, FI_CLASS_EP, FI_CLASS_WAIT, FI_CLASS_POLL}) {
            Stranger stranger(fclass);
            for (const std::uint64_t flags :
                 std::initializer_list<std::uint64_t>{0, FI_TRANSMIT, FI_RECV, FI_WRITE, FI_REMOTE_WRITE})
                EXPECT_EQ(fi_ep_bind(s.ep, &stranger.fid, flags), -FI_EINVAL) << fclass;
            EXPECT_EQ(fi_mr_bind(mr, &stranger.fid, FI_REMOTE_WRITE), -FI_EINVAL) << fclass;
            EXPECT_EQ(fi_domain_bind(s.domain, &stranger.fid, 0), -FI_EINVAL) << fclass;
            EXPECT_EQ(fi_av_bind(s.av, &stranger.fid, 0), -FI_EINVAL) << fclass;
            EXPECT_EQ(fi_poll_add(polls, &stranger.fid, 0), -FI_EINVAL) << fclass;
            struct fid* list[] = {&stranger.fid};
            EXPECT_EQ(fi_trywait(s.fabric, list, 1), -FI_EINVAL) << fclass;
        }
        Stranger set(FI_CLASS_WAIT);
        fi_cq_attr of_set{};
        of_set.wait_obj = FI_WAIT_SET;
        of_set.wait_set = reinterpret_cast<fid_wait*>(&set.fid);
        fid_cq* cq = nullptr;
        EXPECT_EQ(fi_cq_open(s.domain, &of_set, &cq, nullptr), -FI_EINVAL);
        EXPECT_EQ(fi_mr_bind(mr, &s.ep->fid, FI_REMOTE_WRITE), -FI_EBADFLAGS);
        EXPECT_EQ(fi_mr_bind(mr, &s.ep->fid, 0), 0);
        EXPECT_EQ(fi_close(&polls->fid), 0);
        EXPECT_EQ(fi_close(&s.ep->fid), 0);
        s.ep = nullptr;
        EXPECT_EQ(fi_close(&own->fid), 0);
        EXPECT_EQ(fi_close(&foreign->fid), 0);
        EXPECT_EQ(fi_close(&fabric->fid), 0);
    });
}

/// An info is the application's, and may have been changed since fi_getinfo returned it.
TEST(Endpoint, AnInfoWithValuesThatAreNoneIsRefused)
{
    expect_processes(1, [](const Rank& rank) {
        Options options;
        options.enable = false;
        Session s(rank, options);
        fid_domain* domain = nullptr;
        fid_ep* ep = nullptr;
        fi_domain_attr& of_domain = *s.info->domain_attr;
        const fi_domain_attr before = of_domain;
        of_domain.threading = static_cast<fi_threading>(99);
        EXPECT_EQ(fi_domain(s.fabric, s.info, &domain, nullptr), -FI_EINVAL);
        of_domain = before;
        of_domain.data_progress = static_cast<fi_progress>(-1);
        EXPECT_EQ(fi_domain(s.fabric, s.info, &domain, nullptr), -FI_EINVAL);
        of_domain = before;
        fi_tx_attr& tx = *s.info->tx_attr;
        for (const std::uint64_t flag :
             std::initializer_list<std::uint64_t>{FI_COMMIT_COMPLETE, FI_MULTICAST, std::uint64_t{1} << 63}) {
            tx.op_flags |= flag;
            EXPECT_EQ(fi_endpoint(s.domain, s.info, &ep, nullptr), -FI_EINVAL) << flag;
            tx.op_flags &= ~flag;
        }
        const std::size_t inject = tx.inject_size;
        tx.inject_size = 1 << 20;
        EXPECT_EQ(fi_endpoint(s.domain, s.info, &ep, nullptr), -FI_EINVAL);
        tx.inject_size = inject;
        ASSERT_EQ(fi_endpoint(s.domain, s.info, &ep, nullptr), 0);
        EXPECT_EQ(fi_close(&ep->fid), 0);
    });
}

/// fi_endpoint(3), fi_close: "Discarded operations will silently be dropped, with no completions reported."
TEST(Endpoint, AtomicsThatItsCloseDiscardsAreNotReported)
{
    expect_processes(1, [](const Rank& rank) {
        Options options;
        options.caps |= FI_ATOMIC;
        options.counters = true;
        Session s(rank, options);
        constexpr std::size_t count = 300; // words for a loop of CSWAPs each: more than a window has places
        std::vector<std::uint64_t> memory(count, 1), operand(count, 3);
        auto peers = s.share(memory.data(), count * 8);
        constexpr int posts = 40;
        for (int i = 0; i < posts; i++)
            ASSERT_EQ(s.post([&] {
                return fi_atomic(s.ep, operand.data(), count, nullptr, 0, peers[0].base, peers[0].key, FI_UINT64,
                                 FI_PROD, &s);
            }),
                      0);
        ASSERT_EQ(fi_close(&s.ep->fid), 0);
        s.ep = nullptr;
        int reported = 0;
        std::uint64_t product = 1; // of those reported, which each word has been multiplied by
        for (fi_cq_data_entry entry{}; fi_cq_read(s.cq, &entry, 1) == 1; reported++)
            product *= 3;
        s.expect_silence();         // no error either
        EXPECT_LE(reported, posts); // all, where they need less than the second that a close lets them have
        for (std::uint64_t word : memory)
            EXPECT_EQ(word % product, 0u);
        EXPECT_EQ(fi_cntr_read(s.counter[write_counter]), static_cast<std::uint64_t>(reported));
        EXPECT_EQ(fi_cntr_readerr(s.counter[write_counter]), 0u);
    });
}

TEST(Endpoint, NothingWorksBeforeItIsEnabledAndBound)
{
    expect_processes(1, [](const Rank& rank) {
        Options options;
        options.enable = false;
        Session s(rank, options);
        char byte = 0;
        EXPECT_EQ(fi_write(s.ep, &byte, 1, nullptr, 0, 0, 0, nullptr), -FI_EOPBADSTATE);
        EXPECT_EQ(fi_send(s.ep, &byte, 1, nullptr, 0, nullptr), -FI_EOPBADSTATE);
        EXPECT_EQ(fi_ep_bind(s.ep, &s.cq->fid, FI_TRANSMIT), -FI_EINVAL); // is bound already
        EXPECT_EQ(fi_ep_bind(s.ep, &s.cq->fid, std::uint64_t{1} << 62), -FI_EBADFLAGS);
        EXPECT_EQ(fi_close(&s.cq->fid), -FI_EBUSY);
        EXPECT_EQ(fi_close(&s.av->fid), -FI_EBUSY);
        fid_ep* bare = nullptr;
        ASSERT_EQ(fi_endpoint(s.domain, s.info, &bare, nullptr), 0);
        EXPECT_EQ(fi_enable(bare), -FI_ENOAV);
        ASSERT_EQ(fi_ep_bind(bare, &s.av->fid, 0), 0);
        EXPECT_EQ(fi_enable(bare), -FI_ENOCQ);
        ASSERT_EQ(fi_close(&bare->fid), 0);
        ASSERT_EQ(fi_enable(s.ep), 0);
        EXPECT_EQ(fi_enable(s.ep), -FI_EOPBADSTATE);
        EXPECT_EQ(fi_tsend(s.ep, &byte, 1, nullptr, 0, 0, nullptr), -FI_EOPNOTSUPP);
        EXPECT_EQ(fi_write(s.ep, &byte, 1, nullptr, 17, 0, 0, nullptr), -FI_EINVAL); // no such peer
    });
}

/// fi_atomic(3): the queries say what is supported; they transfer nothing.
TEST(Endpoint, AtomicsCanBeAskedForBeforeItIsEnabled)
{
    for (std::uint64_t caps : {FI_ATOMIC, FI_RMA})
        expect_processes(1, [caps](const Rank& rank) {
            Options options;
            options.caps = caps;
            options.enable = false;
            Session s(rank, options);
            const int answer = caps == FI_ATOMIC ? 0 : -FI_EOPBADSTATE;
            std::size_t count = 0, fetching = 0, comparing = 0;
            EXPECT_EQ(fi_atomicvalid(s.ep, FI_UINT64, FI_SUM, &count), answer);
            EXPECT_EQ(fi_fetch_atomicvalid(s.ep, FI_DOUBLE, FI_MIN, &fetching), answer);
            EXPECT_EQ(fi_compare_atomicvalid(s.ep, FI_UINT32, FI_CSWAP, &comparing), answer);
            EXPECT_EQ(count != 0 && fetching != 0 && comparing != 0, answer == 0);
            std::uint64_t word = 0;
            EXPECT_EQ(fi_atomic(s.ep, &word, 1, nullptr, 0, 0, 0, FI_UINT64, FI_SUM, nullptr), -FI_EOPBADSTATE);
        });
}

} // namespace
