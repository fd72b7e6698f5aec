// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Deferred work and triggered calls at their edges: threads that queue, raise and cancel at once, a peer that is dead
// when the time has come. Worth a run under TSan.
#include "prov/lib/session.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <thread>

#include <rdma/fi_trigger.h>

namespace tofu::test {
namespace {

using sim::test::expect_processes;
using sim::test::run_processes;
using sim::test::wait_until;

Options with_triggers()
{
    Options options;
    options.caps = FI_RMA | FI_ATOMIC | FI_TRIGGER;
    return options;
}

struct Count {
    explicit Count(fid_domain* domain)
    {
        fi_cntr_attr attr{};
        Session::check(fi_cntr_open(domain, &attr, &fid, nullptr), "fi_cntr_open");
    }
    Count(const Count&) = delete;
    ~Count() { EXPECT_EQ(fi_close(&fid->fid), 0); }
    std::uint64_t ends() const { return fi_cntr_read(fid) + fi_cntr_readerr(fid); }
    fid_cntr* fid = nullptr;
};

/// A write or a fetching sum of 8 bytes to a window, and the request that does it later.
struct Later {
    Later(Session& s, fi_addr_t to, const Window& window, fi_op_type type, const Count& trigger,
          std::uint64_t threshold, const Count& done)
        : remote{window.base, 8, window.key}, word{window.base, 1, window.key}
    {
        work.threshold = threshold;
        work.triggering_cntr = trigger.fid;
        work.completion_cntr = done.fid;
        work.op_type = type;
        if (type == FI_OP_FETCH_ATOMIC) {
            work.op.fetch_atomic = &fetch;
            fetch = {s.ep, {&from, nullptr, 1, to, &word, 1, FI_UINT64, FI_SUM, this, 0}, {&landing, nullptr, 1}, 0};
        } else {
            work.op.rma = &rma;
            rma = {s.ep, {&iov, nullptr, 1, to, &remote, 1, this, 0}, 0};
        }
        context.event_type = FI_TRIGGER_THRESHOLD;
        context.trigger.threshold = {trigger.fid, threshold};
    }
    Later(const Later&) = delete;
    /// The same with FI_TRIGGER, in place of the request.
    ssize_t write(fid_ep* ep)
    {
        fi_msg_rma msg = rma.msg;
        msg.context = &context;
        return fi_writemsg(ep, &msg, FI_TRIGGER | FI_COMPLETION);
    }

    std::uint64_t value = 1, old = 0;
    iovec iov{&value, 8};
    fi_ioc from{&value, 1}, landing{&old, 1};
    fi_rma_iov remote;
    fi_rma_ioc word;
    fi_op_rma rma{};
    fi_op_fetch_atomic fetch{};
    fi_deferred_work work{};
    fi_triggered_context context{};
};

struct Totals {
    std::atomic<unsigned> canceled{0}, calls{0}, entries{0}, errors{0};
};

/// Reads an entry of the queue, if there is one, and counts it.
void read_and_count(Session& s, Totals& totals)
{
    fi_cq_data_entry entry{};
    fi_cq_err_entry error{};
    const ssize_t got = fi_cq_read(s.cq, &entry, 1);
    if (got == 1) {
        totals.entries++;
    } else if (got == -FI_EAVAIL && fi_cq_readerr(s.cq, &error, 0) == 1) {
        EXPECT_EQ(error.err, FI_ECANCELED);
        totals.errors++;
    }
}

/// Queues one operation, as work or by a call with FI_TRIGGER, and cancels most of them.
void queue_and_cancel(Session& s, Later& later, unsigned i, Totals& totals)
{
    if (i % 4 == 2) { // a call with FI_TRIGGER: one entry, of one kind or the other
        EXPECT_EQ(later.write(s.ep), 0);
        totals.calls++;
        const ssize_t ret = fi_cancel(&s.ep->fid, &later.context);
        EXPECT_TRUE(ret == 0 || ret == -FI_ENOENT) << ret;
    } else {
        EXPECT_EQ(fi_control(&s.domain->fid, FI_QUEUE_WORK, &later.work), 0);
        const int ret = i % 5 != 0 ? fi_control(&s.domain->fid, FI_CANCEL_WORK, &later.work) : -FI_ENOENT;
        EXPECT_TRUE(ret == 0 || ret == -FI_ENOENT) << ret;
        totals.canceled += ret == 0;
    }
}

/// Each ends once: by its counter or its entry, or by a cancel that says so.
TEST(DeferredWork, IsDoneOrCanceledOnceWhateverThreadsDo)
{
    expect_processes(1, [](const Rank& rank) {
        constexpr unsigned crews = 2, each = 300;
        Session s(rank, with_triggers());
        alignas(8) std::uint64_t words[2] = {};
        const std::vector<Window> windows = s.share(words, sizeof(words));
        Count trigger(s.domain), done(s.domain);
        std::array<std::deque<Later>, crews> all;
        Totals totals;
        std::atomic<unsigned> crews_left{crews};
        std::atomic<bool> over{false};
        std::vector<std::thread> threads;
        for (unsigned c = 0; c < crews; c++)
            threads.emplace_back([&, c] {
                for (unsigned i = 0; i < each; i++) {
                    const std::uint64_t at = fi_cntr_read(trigger.fid) + i % 3;
                    const fi_op_type type = i % 2 == 0 ? FI_OP_WRITE : FI_OP_FETCH_ATOMIC;
                    Window window = windows[0];
                    window.base += type == FI_OP_WRITE ? 8 : 0;
                    Later& later = all[c].emplace_back(s, 0, window, type, trigger, at, done);
                    queue_and_cancel(s, later, i, totals);
                }
                crews_left--;
            });
        threads.emplace_back([&] {
            while (crews_left != 0)
                (void)fi_cntr_add(trigger.fid, 1);
            (void)fi_cntr_add(trigger.fid, 3);
        });
        threads.emplace_back([&] {
            while (!over)
                read_and_count(s, totals);
        });
        for (unsigned t = 0; t <= crews; t++)
            threads[t].join();
        const auto expected = [&] { return crews * each - totals.calls - totals.canceled; };
        EXPECT_TRUE(
            wait_until([&] { return done.ends() >= expected() && totals.entries + totals.errors >= totals.calls; }));
        over = true;
        threads.back().join();
        for (unsigned i = 0; i < 1000; i++)
            read_and_count(s, totals);
        EXPECT_EQ(fi_cntr_read(done.fid), expected());
        EXPECT_EQ(fi_cntr_readerr(done.fid), 0u);
        EXPECT_EQ(totals.entries + totals.errors, totals.calls);
        std::uint64_t sums = 0;
        for (const auto& crew : all)
            for (const Later& later : crew)
                sums += later.work.op_type == FI_OP_FETCH_ATOMIC && later.old + 1 > sums ? later.old + 1 - sums : 0;
        EXPECT_EQ(words[0], sums); // the last sum's old value, and its own
    });
}

/// A change of a counter by another one's value.
struct Change {
    Change(const Session& s, const Count& trigger, std::uint64_t threshold, fi_op_type type, const Count& of,
           std::uint64_t value)
        : cntr{of.fid, value}
    {
        work.threshold = threshold;
        work.triggering_cntr = trigger.fid;
        work.op_type = type;
        work.op.cntr = &cntr;
        Session::check(fi_control(&s.domain->fid, FI_QUEUE_WORK, &work), "FI_QUEUE_WORK");
    }
    fi_op_cntr cntr;
    fi_deferred_work work{};
};

/// fi_trigger(3): it waits until the counter has reached the threshold, whatever the counter is then set to.
TEST(DeferredWork, BeginsOnceItsCounterHasReachedItsThreshold)
{
    expect_processes(1, [](const Rank& rank) {
        Session s(rank, with_triggers());
        Count trigger(s.domain), done(s.domain);
        const Change back(s, trigger, 2, FI_OP_CNTR_SET, trigger, 0), same(s, trigger, 2, FI_OP_CNTR_ADD, done, 1),
            more(s, trigger, 3, FI_OP_CNTR_ADD, done, 10);
        EXPECT_EQ(fi_cntr_add(trigger.fid, 2), 0);
        EXPECT_TRUE(wait_until([&] { return done.ends() == 1; }));
        EXPECT_EQ(trigger.ends(), 0u);
        EXPECT_EQ(fi_cntr_add(trigger.fid, 3), 0);
        EXPECT_TRUE(wait_until([&] { return done.ends() == 11; }));

        // Successes and errors together are more than 64 bits hold.
        EXPECT_EQ(fi_cntr_set(trigger.fid, UINT64_MAX), 0);
        EXPECT_EQ(fi_cntr_seterr(trigger.fid, 1), 0);
        const Change last(s, trigger, 5, FI_OP_CNTR_ADD, done, 100);
        EXPECT_TRUE(wait_until([&] { return done.ends() == 111; }));
        EXPECT_EQ(fi_control(&s.domain->fid, FI_FLUSH_WORK, nullptr), 0);
    });
}

/// What its endpoint has no capability for is refused when it is queued.
TEST(DeferredWork, OfMessagesNeedsTheirCapability)
{
    expect_processes(1, [](const Rank& rank) {
        for (const std::uint64_t kind : {FI_MSG, FI_TAGGED}) {
            Options options = with_triggers();
            options.caps |= kind;
            Session s(rank, options);
            const Count trigger(s.domain), done(s.domain);
            char bytes[8] = {};
            const iovec iov{bytes, sizeof bytes};
            fi_op_msg plain{s.ep, {&iov, nullptr, 1, 0, nullptr, 0}, 0};
            fi_op_tagged tagged{s.ep, {&iov, nullptr, 1, 0, 1, 0, nullptr, 0}, 0};
            fi_deferred_work work{};
            work.threshold = 1;
            work.triggering_cntr = trigger.fid;
            work.completion_cntr = done.fid;
            for (const fi_op_type type : {FI_OP_SEND, FI_OP_RECV, FI_OP_TSEND, FI_OP_TRECV}) {
                const bool is_tagged = type == FI_OP_TSEND || type == FI_OP_TRECV;
                work.op_type = type;
                if (is_tagged)
                    work.op.tagged = &tagged;
                else
                    work.op.msg = &plain;
                const bool may = is_tagged == (kind == FI_TAGGED);
                EXPECT_EQ(fi_control(&s.domain->fid, FI_QUEUE_WORK, &work), may ? 0 : -FI_EOPNOTSUPP) << type;
                if (may)
                    EXPECT_EQ(fi_control(&s.domain->fid, FI_CANCEL_WORK, &work), 0) << type;
            }
        }
    });
}

/// An endpoint takes no work before it is enabled: it has no engine that could begin it.
TEST(DeferredWork, NeedsAnEnabledEndpoint)
{
    expect_processes(1, [](const Rank& rank) {
        Options options = with_triggers();
        options.caps |= FI_MSG | FI_TAGGED;
        options.enable = false;
        Session s(rank, options);
        const Count trigger(s.domain), done(s.domain);
        std::uint64_t bytes = 0;
        const iovec iov{&bytes, sizeof bytes};
        const fi_rma_iov remote{0, sizeof bytes, 0};
        fi_op_msg plain{s.ep, {&iov, nullptr, 1, 0, nullptr, 0}, 0};
        fi_op_tagged tagged{s.ep, {&iov, nullptr, 1, 0, 1, 0, nullptr, 0}, 0};
        fi_op_rma rma{s.ep, {&iov, nullptr, 1, 0, &remote, 1, nullptr, 0}, 0};
        fi_deferred_work work{};
        work.triggering_cntr = trigger.fid;
        work.completion_cntr = done.fid;
        for (const fi_op_type type : {FI_OP_SEND, FI_OP_RECV, FI_OP_TSEND, FI_OP_TRECV, FI_OP_WRITE, FI_OP_READ}) {
            work.op_type = type;
            work.op.rma = &rma;
            if (type == FI_OP_SEND || type == FI_OP_RECV)
                work.op.msg = &plain;
            else if (type == FI_OP_TSEND || type == FI_OP_TRECV)
                work.op.tagged = &tagged;
            EXPECT_EQ(fi_control(&s.domain->fid, FI_QUEUE_WORK, &work), -FI_EOPBADSTATE) << type;
        }
        EXPECT_EQ(done.ends(), 0u);
    });
}

/// Work that is due while its endpoint is being closed is begun before that, or not at all: another thread makes
/// progress meanwhile and finds it in the queue.
TEST(DeferredWork, IsNotBegunByAnEndpointThatCloses)
{
    expect_processes(1, [](const Rank& rank) {
        constexpr unsigned rounds = 60, each = 400;
        Session s(rank, with_triggers());
        alignas(8) std::uint64_t words[2] = {};
        const Window there = s.share(words, sizeof(words))[0];
        Count trigger(s.domain), done(s.domain);
        std::atomic<bool> over{false};
        std::thread another([&] {
            while (!over)
                (void)fi_cntr_add(trigger.fid, 1);
        });
        for (unsigned round = 0; round < rounds; round++) {
            fid_ep* const before = s.ep;
            Session::check(fi_endpoint(s.domain, s.info, &s.ep, nullptr), "fi_endpoint");
            Session::check(fi_ep_bind(s.ep, &s.av->fid, 0), "bind av");
            Session::check(fi_ep_bind(s.ep, &s.cq->fid, FI_TRANSMIT | FI_RECV), "bind cq");
            Session::check(fi_enable(s.ep), "fi_enable");
            std::deque<Later> all;
            const std::uint64_t now = fi_cntr_read(trigger.fid);
            for (unsigned i = 0; i < each; i++) {
                Later& later = all.emplace_back(s, 0, there, FI_OP_WRITE, trigger, now + 200 * i, done);
                EXPECT_EQ(fi_control(&s.domain->fid, FI_QUEUE_WORK, &later.work), 0);
            }
            EXPECT_EQ(fi_close(&s.ep->fid), 0);
            s.ep = before;
        }
        over = true;
        another.join();
        EXPECT_EQ(fi_cntr_readerr(done.fid), 0u);
        EXPECT_LE(fi_cntr_read(done.fid), std::uint64_t{rounds} * each);
        s.expect_silence();
    });
}

/// What its time finds without its peer ends with an error; what is still to come goes with the endpoint.
TEST(DeferredWork, TowardsAPeerThatHasDiedEndsWithAnError)
{
    const auto ends = run_processes(2, [](const Rank& rank) {
        Options options = with_triggers();
        options.leaves_together = false;
        Session s(rank, options);
        alignas(8) std::uint64_t words[2] = {};
        const Window there = s.share(words, sizeof(words))[1];
        Count trigger(s.domain), done(s.domain);
        std::deque<Later> all;
        for (const fi_op_type type : {FI_OP_WRITE, FI_OP_READ, FI_OP_FETCH_ATOMIC, FI_OP_WRITE})
            all.emplace_back(s, 1, there, type, trigger, 1, done);
        all.emplace_back(s, 1, there, FI_OP_WRITE, trigger, 1000, done);
        for (unsigned i = 0; i < 5; i++)
            EXPECT_EQ(i == 3 ? 0 : fi_control(&s.domain->fid, FI_QUEUE_WORK, &all[i].work), 0);
        EXPECT_EQ(all[3].write(s.ep), 0);
        s.barrier();
        if (rank.number == 1)
            std::_Exit(0);
        std::uint64_t word = 1;
        fi_cq_data_entry entry{};
        fi_cq_err_entry error{};
        EXPECT_TRUE(wait_until([&] { // until it has gone
            EXPECT_EQ(s.post([&] { return fi_write(s.ep, &word, 8, nullptr, 1, there.base, there.key, nullptr); }), 0);
            ssize_t got = 0;
            EXPECT_TRUE(wait_until([&] { return (got = fi_cq_read(s.cq, &entry, 1)) != -FI_EAGAIN; }));
            return got == -FI_EAVAIL && fi_cq_readerr(s.cq, &error, 0) == 1;
        }));
        (void)fi_cntr_add(trigger.fid, 1);
        for (unsigned i = 0; i < 4; i++) { // errors are always reported
            EXPECT_TRUE(s.next(entry, &error));
            EXPECT_NE(error.err, 0);
        }
        EXPECT_EQ(fi_cntr_read(done.fid), 0u);
        EXPECT_EQ(fi_cntr_readerr(done.fid), 3u);
        s.expect_silence();
        EXPECT_EQ(fi_close(&trigger.fid->fid), -FI_EBUSY); // the last one waits for it
        EXPECT_EQ(fi_close(&s.ep->fid), 0);
        s.ep = nullptr;
        (void)fi_cntr_add(trigger.fid, 1000);
        EXPECT_EQ(done.ends(), 3u);
        if (testing::Test::HasFailure())
            std::_Exit(1);
    });
    for (const auto& end : ends)
        EXPECT_TRUE(end.success()) << end.errors;
}

} // namespace
} // namespace tofu::test
