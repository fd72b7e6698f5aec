// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Without memory: each allocation of the provider fails once, alone and with all that follow until a call has been
// refused. No call crashes, each answers -FI_ENOMEM (or that it is to be repeated), and repeated it works.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include <rdma/fi_collective.h>
#include <rdma/fi_trigger.h>

#include "lib/starving.h"
#include "prov/lib/descriptors.h"
#include "prov/lib/session.h"

namespace {

using namespace tofu::test;
using starving::heal;
using tofu::sim::test::expect_processes;
using tofu::sim::test::wait_until;

long told = 0; ///< error entries for want of memory since it became short

// --- calls that are repeated

/// Until the call is neither refused for want of memory nor to be repeated; what it answers then.
template <class Call>
ssize_t must(const char* what, Call&& call, fid_cq* cq = nullptr)
{
    ssize_t ret = 0;
    unsigned tries = 0;
    EXPECT_TRUE(wait_until([&] {
        ret = call();
        if (ret == -FI_ENOMEM || (ret == -FI_EAGAIN && ++tries > 64))
            heal();
        if (ret == -FI_EAGAIN && cq != nullptr)
            fi_cq_read(cq, nullptr, 0);
        return ret != -FI_ENOMEM && ret != -FI_EAGAIN;
    })) << what;
    EXPECT_GE(ret, 0) << what << ": " << fi_strerror(static_cast<int>(-ret));
    return ret;
}
template <class... Opened>
void open(const char* what, Opened&&... call)
{
    if (must(what, call...) < 0) {
        std::fprintf(stderr, "%s failed\n", what);
        std::_Exit(1);
    }
}
void close_all(std::initializer_list<struct fid*> fids)
{
    if (starving::is_lasting()) // what was accepted waits for memory, and the close for what was accepted
        heal();
    for (struct fid* f : fids)
        EXPECT_EQ(fi_close(f), 0);
}

/// Calls until `count` successes have come from each of the queues in `from`; an operation may fail for want of memory,
/// which ends the wait. False: so it was.
bool succeeded(std::initializer_list<fid_cq*> from, unsigned count = 1)
{
    bool good = true;
    for (fid_cq* cq : from) {
        unsigned found = 0, polls = 0;
        EXPECT_TRUE(wait_until([&] {
            fi_cq_tagged_entry entry{};
            fi_addr_t source = 0;
            for (fid_cq* other : from)
                if (other != cq)
                    fi_cq_read(other, nullptr, 0);
            const ssize_t got = fi_cq_readfrom(cq, &entry, 1, &source);
            if (got == 1) {
                found++;
            } else if (got == -FI_EAVAIL) {
                fi_cq_err_entry error{};
                EXPECT_EQ(fi_cq_readerr(cq, &error, 0), 1);
                // the receiver's want of memory comes back to the sender
                EXPECT_TRUE(error.err == FI_ENOMEM || error.err == FI_EOVERRUN ||
                            (error.err == FI_EREMOTEIO && error.prov_errno == FI_ENOMEM))
                    << fi_strerror(error.err) << ' ' << error.prov_errno;
                good = false;
                found++;
                if (++told == 8) // an immediate retry of a failed call must end at some time
                    heal();
            } else if (++polls > 1000) {
                heal();
            }
            return found >= count;
        }));
    }
    return good;
}

fi_info* info_for(std::uint64_t caps, int mr_mode, fi_progress progress, std::size_t tx_contexts = 1,
                  std::size_t rx_contexts = 1)
{
    return must_find([&](fi_info& hints) {
        hints.caps = caps;
        hints.ep_attr->tx_ctx_cnt = tx_contexts;
        hints.ep_attr->rx_ctx_cnt = rx_contexts;
        hints.domain_attr->mr_mode = mr_mode;
        hints.domain_attr->data_progress = progress;
    });
}

/// What every scenario has: an event queue, a wait set, a domain, addresses, a queue and a counter.
struct Objects {
    explicit Objects(fi_info* info, fi_wait_obj wait = FI_WAIT_NONE, int bits = 0) : info(info)
    {
        open("fi_fabric", [&] { return fi_fabric(info->fabric_attr, &fabric, nullptr); });
        fi_eq_attr eq_attr{};
        eq_attr.flags = FI_WRITE;
        open("fi_eq_open", [&] { return fi_eq_open(fabric, &eq_attr, &eq, nullptr); });
        open("fi_domain", [&] { return fi_domain(fabric, info, &domain, nullptr); });
        fi_av_attr av_attr{};
        av_attr.type = FI_AV_TABLE;
        av_attr.rx_ctx_bits = bits;
        open("fi_av_open", [&] { return fi_av_open(domain, &av_attr, &av, nullptr); });
        cq = queue(wait);
        fi_cntr_attr attr{};
        open("fi_cntr_open", [&] { return fi_cntr_open(domain, &attr, &counter, nullptr); });
    }
    ~Objects() { close_all({&counter->fid, &cq->fid, &av->fid, &domain->fid, &eq->fid, &fabric->fid}); }
    fid_cq* queue(fi_wait_obj wait = FI_WAIT_NONE, fid_wait* set = nullptr)
    {
        fi_cq_attr attr{};
        attr.format = FI_CQ_FORMAT_TAGGED;
        attr.size = 64;
        attr.wait_obj = wait;
        attr.wait_set = set;
        fid_cq* made = nullptr;
        open("fi_cq_open", [&] { return fi_cq_open(domain, &attr, &made, nullptr); });
        return made;
    }
    fi_addr_t insert(struct fid* endpoint)
    {
        char name[64];
        std::size_t length = sizeof name;
        open("fi_getname", [&] { return fi_getname(endpoint, name, &length); });
        fi_addr_t at = FI_ADDR_NOTAVAIL;
        open("fi_av_insert", [&] {
            const int inserted = fi_av_insert(av, name, 1, &at, 0, nullptr);
            return inserted == 1 ? 0 : inserted == 0 ? -FI_ENOMEM : inserted;
        });
        return at;
    }

    fi_info* info;
    fid_fabric* fabric = nullptr;
    fid_eq* eq = nullptr;
    fid_domain* domain = nullptr;
    fid_av* av = nullptr;
    fid_cq* cq = nullptr;
    fid_cntr* counter = nullptr;
};

void exchange(fid_ep* from, fid_ep* to, fid_cq* sent, fid_cq* came, fi_addr_t dest)
{
    static std::vector<char> out(300000, 'x'), in(300000);
    for (const std::size_t size : {std::size_t{8}, std::size_t{3000}, out.size()})
        for (const bool early : {false, true})
            for (bool done = false; !done && !testing::Test::HasFailure();) {
                in[size - 1] = 0;
                const auto receive = [&] {
                    must(
                        "fi_trecv", [&] { return fi_trecv(to, in.data(), size, nullptr, FI_ADDR_UNSPEC, 7, 0, &in); },
                        came);
                };
                const auto send = [&] {
                    must(
                        "fi_tsend", [&] { return fi_tsend(from, out.data(), size, nullptr, dest, 7, &out); }, sent);
                };
                early ? send() : receive();
                for (int i = 0; early && i < 100; i++) // so that it comes
                    fi_cq_read(came, nullptr, 0);
                early ? receive() : send();
                done = sent == came ? succeeded({sent}, 2) : succeeded({sent, came});
                if (done)
                    EXPECT_EQ(in[size - 1], 'x') << size;
            }
}

void access(fid_ep* ep, fid_cq* cq, fi_addr_t to, std::uint64_t base, std::uint64_t key)
{
    static std::vector<std::uint64_t> words(32768, 1), results(512);
    const auto each = [&](const char* what, const std::function<ssize_t()>& call) {
        while (must(what, call, cq) == 0 && !succeeded({cq}) && !testing::Test::HasFailure()) {
        }
    };
    for (const std::size_t size : {std::size_t{8}, std::size_t{4096}, words.size() * 8}) {
        each("fi_write", [&] { return fi_write(ep, words.data(), size, nullptr, to, base, key, nullptr); });
        each("fi_read", [&] { return fi_read(ep, words.data(), size, nullptr, to, base, key, nullptr); });
    }
    for (const fi_op op : {FI_SUM, FI_PROD})
        for (const std::size_t count : {std::size_t{1}, std::size_t{64}}) {
            each("fi_atomic",
                 [&] { return fi_atomic(ep, words.data(), count, nullptr, to, base, key, FI_UINT64, op, nullptr); });
            each("fi_fetch_atomic", [&] {
                return fi_fetch_atomic(ep, words.data(), count, nullptr, results.data(), nullptr, to, base, key,
                                       FI_UINT64, op, nullptr);
            });
        }
    must(
        "fi_inject_write", [&] { return fi_inject_write(ep, words.data(), 8, to, base, key); }, cq);
    must(
        "fi_inject_atomic", [&] { return fi_inject_atomic(ep, words.data(), 1, to, base, key, FI_UINT64, FI_PROD); },
        cq);
}

// --- the scenarios

/// One endpoint for everything; its queue fills beyond its size.
void one_endpoint(fi_info* info)
{
    const bool offsets = (info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) == 0;
    Objects o(info, FI_WAIT_FD);
    static std::vector<std::uint64_t> window(32768);
    fid_ep* ep = nullptr;
    open("fi_endpoint", [&] { return fi_endpoint(o.domain, info, &ep, nullptr); });
    open("bind", [&] { return fi_ep_bind(ep, &o.av->fid, 0); });
    open("bind", [&] { return fi_ep_bind(ep, &o.cq->fid, FI_TRANSMIT | FI_RECV); });
    open("bind", [&] { return fi_ep_bind(ep, &o.counter->fid, FI_READ | FI_WRITE); });
    open("fi_enable", [&] { return fi_enable(ep); });
    const fi_addr_t self = o.insert(&ep->fid);
    fid_mr* mr = nullptr;
    open("fi_mr_reg", [&] {
        return fi_mr_reg(o.domain, window.data(), window.size() * 8, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 5, 0, &mr,
                         nullptr);
    });
    const std::uint64_t base = offsets ? 0 : reinterpret_cast<std::uintptr_t>(window.data());
    exchange(ep, ep, o.cq, o.cq, self);
    access(ep, o.cq, self, base, fi_mr_key(mr));

    // No thread reads the queue: it grows, or reports a loss.
    std::uint64_t word = 1;
    for (unsigned i = 0; i < 100; i++)
        must("fi_write", [&] {
            fi_cntr_read(o.counter);
            return fi_write(ep, &word, 8, nullptr, self, base, fi_mr_key(mr), &word);
        });
    unsigned found = 0, injected = 0;
    bool lost = false;
    EXPECT_TRUE(wait_until([&] {
        fi_cq_tagged_entry entry{};
        fi_cq_err_entry error{};
        const ssize_t got = fi_cq_read(o.cq, &entry, 1);
        found += got == 1;
        if (got == -FI_EAVAIL) {
            EXPECT_EQ(fi_cq_readerr(o.cq, &error, 0), 1);
            EXPECT_TRUE(error.err == FI_EOVERRUN || error.err == FI_ENOMEM) << fi_strerror(error.err);
            lost |= error.err == FI_EOVERRUN;
            // Without a context: what was injected, whose failure takes a place in the queue as well.
            (error.op_context == &word ? found : injected) += error.err == FI_ENOMEM;
        }
        return found == 100 || (lost && got == -FI_EAGAIN && found + injected >= 63);
    })) << found
        << ' ' << injected;

    std::uint32_t event = 0;
    char text[8] = {};
    open("fi_eq_write", [&] { return fi_eq_write(o.eq, FI_NOTIFY, "event", 6, 0); });
    EXPECT_EQ(fi_eq_read(o.eq, &event, text, sizeof text, 0), 6);
    EXPECT_STREQ(text, "event");
    close_all({&mr->fid, &ep->fid});
}

/// Contexts of a scalable endpoint, shared contexts, wait and poll sets.
void contexts(fi_info* info)
{
    Objects o(info, FI_WAIT_NONE, 2);
    fid_ep *sep = nullptr, *tx = nullptr, *rx = nullptr;
    open("fi_scalable_ep", [&] { return fi_scalable_ep(o.domain, info, &sep, nullptr); });
    open("bind", [&] { return fi_scalable_ep_bind(sep, &o.av->fid, 0); });
    open("fi_tx_context", [&] { return fi_tx_context(sep, 0, nullptr, &tx, nullptr); });
    open("fi_rx_context", [&] { return fi_rx_context(sep, 0, nullptr, &rx, nullptr); });
    fid_wait* set = nullptr;
    fi_wait_attr wait_attr{};
    wait_attr.wait_obj = FI_WAIT_FD;
    open("fi_wait_open", [&] { return fi_wait_open(o.fabric, &wait_attr, &set); });
    fid_cq* came = o.queue(FI_WAIT_SET, set);
    fid_poll* poll = nullptr;
    fi_poll_attr poll_attr{};
    open("fi_poll_open", [&] { return fi_poll_open(o.domain, &poll_attr, &poll); });
    open("fi_poll_add", [&] { return fi_poll_add(poll, &came->fid, 0); });
    open("bind", [&] { return fi_ep_bind(tx, &o.cq->fid, FI_TRANSMIT); });
    open("bind", [&] { return fi_ep_bind(rx, &came->fid, FI_RECV); });
    open("fi_enable", [&] { return fi_enable(tx); });
    open("fi_enable", [&] { return fi_enable(rx); });
    open("fi_enable", [&] { return fi_enable(sep); });
    exchange(tx, rx, o.cq, came, fi_rx_addr(o.insert(&sep->fid), 0, 2));
    open("fi_poll_del", [&] { return fi_poll_del(poll, &came->fid, 0); });
    close_all({&tx->fid, &rx->fid, &sep->fid, &poll->fid, &came->fid, &set->fid});

    fi_info* shared = nullptr;
    open("fi_dupinfo", [&] { return (shared = fi_dupinfo(info)) != nullptr ? 0 : -FI_ENOMEM; }); // copies our fid_nic
    shared->ep_attr->tx_ctx_cnt = shared->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
    fid_stx* stx = nullptr;
    fid_ep *srx = nullptr, *ep = nullptr;
    open("fi_stx_context", [&] { return fi_stx_context(o.domain, nullptr, &stx, nullptr); });
    open("fi_srx_context", [&] { return fi_srx_context(o.domain, nullptr, &srx, nullptr); });
    open("fi_endpoint", [&] { return fi_endpoint(o.domain, shared, &ep, nullptr); });
    open("bind", [&] { return fi_ep_bind(ep, &stx->fid, 0); });
    open("bind", [&] { return fi_ep_bind(ep, &srx->fid, 0); });
    open("bind", [&] { return fi_ep_bind(ep, &o.av->fid, 0); });
    open("bind", [&] { return fi_ep_bind(ep, &o.cq->fid, FI_TRANSMIT | FI_RECV); });
    open("fi_enable", [&] { return fi_enable(ep); });
    exchange(ep, srx, o.cq, o.cq, o.insert(&ep->fid));
    close_all({&ep->fid, &srx->fid, &stx->fid});
    fi_freeinfo(shared);
}

/// Calls until the operation has ended without want of memory; each way it ends once.
template <class Call>
void until_done(const char* what, fid_cq* cq, unsigned ends, Call&& call)
{
    for (bool done = false; !done && !testing::Test::HasFailure();) {
        call(what);
        done = succeeded({cq}, ends);
    }
}

std::uint64_t window[64], words[64], results[64];

/// Work that waits for a counter, by requests and by calls with FI_TRIGGER, and a request that is cancelled.
void wait_for_a_counter(Objects& o, fid_ep* ep, fi_addr_t self, fid_mr* mr, fid_cntr* done)
{
    iovec iov{words, 64};
    fi_ioc from{words, 8}, landing{results, 8};
    fi_rma_iov remote{reinterpret_cast<std::uintptr_t>(window), 64, fi_mr_key(mr)};
    fi_rma_ioc counted{remote.addr, 8, remote.key};
    fi_op_rma write{ep, {&iov, nullptr, 1, self, &remote, 1, &iov, 0}, FI_COMPLETION};
    fi_op_fetch_atomic sum{
        ep, {&from, nullptr, 1, self, &counted, 1, FI_UINT64, FI_SUM, &from, 0}, {&landing, nullptr, 1}, FI_COMPLETION};
    fi_deferred_work first{}, second{}, never{};
    first.triggering_cntr = o.counter;
    first.completion_cntr = done;
    first.op_type = FI_OP_WRITE;
    first.op.rma = &write;
    never = second = first;
    second.op_type = FI_OP_FETCH_ATOMIC;
    second.op.fetch_atomic = &sum;
    never.threshold = ~0u;
    fi_triggered_context context{};
    context.event_type = FI_TRIGGER_THRESHOLD;
    std::uint64_t ends = 0;
    until_done("deferred", o.cq, 3, [&](const char* what) {
        ends += 2;
        first.threshold = second.threshold = fi_cntr_read(o.counter) + 1;
        context.trigger.threshold = {o.counter, first.threshold};
        fi_msg_rma msg = write.msg;
        msg.context = &context;
        for (fi_deferred_work* const work : {&first, &second, &never})
            must(what, [&] { return fi_control(&o.domain->fid, FI_QUEUE_WORK, work); });
        must(what, [&] { return fi_writemsg(ep, &msg, FI_TRIGGER | FI_INJECT | FI_COMPLETION); });
        EXPECT_EQ(fi_control(&o.domain->fid, FI_CANCEL_WORK, &never), 0);
        EXPECT_EQ(fi_control(&o.domain->fid, FI_CANCEL_WORK, &never), -FI_ENOENT);
        fi_cntr_add(o.counter, 1);
    });
    EXPECT_EQ(fi_cntr_read(done) + fi_cntr_readerr(done), ends);
    EXPECT_NE(window[0], 0u);
}

/// Joins a group of one member. `set` and the group are the caller's to close.
fid_mc* join_alone(Objects& o, fid_ep* ep, fi_addr_t self, fid_av_set*& set)
{
    fi_av_set_attr all{};
    all.count = 1;
    all.start_addr = all.end_addr = FI_ADDR_NOTAVAIL;
    open("fi_av_set", [&] { return fi_av_set(o.av, &all, &set, nullptr); });
    open("fi_av_set_insert", [&] { return fi_av_set_insert(set, self); });
    fid_mc* mc = nullptr;
    for (bool joined = false; !joined && !testing::Test::HasFailure();) {
        open("fi_join_collective", [&] { return fi_join_collective(ep, FI_ADDR_NOTAVAIL, set, 0, &mc, nullptr); });
        std::uint32_t event = 0;
        fi_eq_entry entry{};
        fi_eq_err_entry error{};
        ssize_t got = 0;
        unsigned polls = 0;
        EXPECT_TRUE(wait_until([&] {
            got = fi_eq_read(o.eq, &event, &entry, sizeof(entry), 0);
            if (got == -FI_EAGAIN && ++polls > 1000)
                heal();
            return got != -FI_EAGAIN;
        }));
        joined = got > 0;
        if (!joined) { // the join's end, or that it is lost
            EXPECT_EQ(fi_eq_readerr(o.eq, &error, 0), static_cast<ssize_t>(sizeof(error)));
            EXPECT_TRUE(error.err == FI_ENOMEM || error.err == FI_EOVERRUN) << error.err;
            EXPECT_EQ(fi_close(&mc->fid), 0);
        }
    }
    return mc;
}

/// Work that waits for a counter, and a group of one member.
void later(fi_info* info)
{
    Objects o(info);
    fid_ep* ep = nullptr;
    open("fi_endpoint", [&] { return fi_endpoint(o.domain, info, &ep, nullptr); });
    for (struct fid* const bound : {&o.av->fid, &o.eq->fid})
        open("bind", [&] { return fi_ep_bind(ep, bound, 0); });
    open("bind", [&] { return fi_ep_bind(ep, &o.cq->fid, FI_TRANSMIT | FI_RECV); });
    open("fi_enable", [&] { return fi_enable(ep); });
    const fi_addr_t self = o.insert(&ep->fid);
    fid_mr* mr = nullptr;
    open("fi_mr_reg",
         [&] { return fi_mr_reg(o.domain, window, 512, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 5, 0, &mr, nullptr); });
    fid_cntr* done = nullptr;
    fi_cntr_attr attr{};
    open("fi_cntr_open", [&] { return fi_cntr_open(o.domain, &attr, &done, nullptr); });

    std::fill(std::begin(window), std::end(window), 0);
    std::fill(std::begin(words), std::end(words), 1);
    wait_for_a_counter(o, ep, self, mr, done);
    iovec iov{};
    fid_av_set* set = nullptr;
    fid_mc* const mc = join_alone(o, ep, self, set);
    for (const fi_op op : {FI_SUM, FI_PROD})
        until_done("fi_allreduce", o.cq, 1, [&](const char* what) {
            must(
                what,
                [&] {
                    return fi_allreduce(ep, words, 8, nullptr, results, nullptr, fi_mc_addr(mc), FI_UINT64, op, 0,
                                        &iov);
                },
                o.cq);
        });
    close_all({&mc->fid, &set->fid, &mr->fid, &ep->fid, &done->fid});
}

/// Each allocation of a scenario fails.
void starve(void (*scenario)(fi_info*), fi_info* info)
{
    ASSERT_TRUE(starving::find("libtofu-fi.so"));
    long all = 0;
    const auto run = [&](long number, bool stays) {
        told = 0;
        starving::begin(number, stays);
        scenario(info);
        all = starving::end();
        if (testing::Test::HasFailure())
            std::fprintf(stderr, "when allocation %ld fails%s\n", number, stays ? " and those behind it" : "");
        return !testing::Test::HasFailure();
    };
    ASSERT_TRUE(run(starving::never, false)); // what is made once and for all is there
    ASSERT_TRUE(run(starving::never, false));
    ASSERT_GT(all, 20);
    for (long n = 1, last = all + 3; n <= last; n++)
        for (const bool stays : {false, true})
            ASSERT_TRUE(run(n, stays));
}

TEST(NoMemory, IsAnAnswerWhateverIsOpenedAndDone)
{
    expect_processes(1, [](const Rank&) {
        fi_info* info = info_for(FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SOURCE,
                                 FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY, FI_PROGRESS_MANUAL);
        starve(one_endpoint, info);
        fi_freeinfo(info);
    });
}

TEST(NoMemory, IsAnAnswerWithKeysOfTheUserEventsAndAThread)
{
    expect_processes(1, [](const Rank&) {
        fi_info* info = info_for(FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_RMA_EVENT, 0, FI_PROGRESS_AUTO);
        starve(one_endpoint, info);
        fi_freeinfo(info);
    });
}

TEST(NoMemory, IsAnAnswerOfWhatIsDoneLaterAndOfGroups)
{
    expect_processes(1, [](const Rank&) {
        fi_info* info = info_for(FI_RMA | FI_ATOMIC | FI_TRIGGER | FI_COLLECTIVE,
                                 FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY, FI_PROGRESS_MANUAL);
        starve(later, info);
        fi_freeinfo(info);
    });
}

TEST(NoMemory, IsAnAnswerOfContextsAndSets)
{
    expect_processes(1, [](const Rank&) {
        fi_info* info = info_for(FI_MSG | FI_TAGGED | FI_SOURCE, 0, FI_PROGRESS_MANUAL);
        starve(contexts, info);
        fi_freeinfo(info);
    });
}

/// The file of an area that cannot be mapped is closed.
TEST(NoMemory, LeavesNoDescriptorOpen)
{
    expect_processes(1, [](const Rank& rank) {
        setenv("FI_TOFU_RINGS", "4096", 1); // 128 MiB
        Options options;
        options.caps = FI_TAGGED;
        options.enable = false;
        Session s(rank, options);
        unsigned long pages = 0;
        std::ifstream("/proc/self/statm") >> pages;
        rlimit all{};
        ASSERT_EQ(getrlimit(RLIMIT_AS, &all), 0);
        const rlimit little{pages * static_cast<unsigned long>(sysconf(_SC_PAGESIZE)) + (64 << 20), all.rlim_max};
        ASSERT_EQ(setrlimit(RLIMIT_AS, &little), 0);
        const std::size_t before = open_descriptors();
        for (unsigned i = 0; i < 3; i++)
            EXPECT_EQ(fi_enable(s.ep), -FI_ENOMEM);
        EXPECT_EQ(open_descriptors(), before);
        ASSERT_EQ(setrlimit(RLIMIT_AS, &all), 0);
        EXPECT_EQ(fi_enable(s.ep), 0);
    });
}

} // namespace
