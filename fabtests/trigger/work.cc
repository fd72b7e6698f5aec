// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The second half of fi_trigger(3): deferred work queues.
#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "../common/station.h"
#include "trigger_checks.h"

namespace fabtests {
namespace {

int queue(World& w, fi_deferred_work& work)
{
    return fi_control(&w.domain()->fid, FI_QUEUE_WORK, &work);
}

fi_deferred_work counter_work(const Count& trigger, std::uint64_t threshold, fi_op_type type, fi_op_cntr& op)
{
    fi_deferred_work request{};
    request.threshold = threshold;
    request.triggering_cntr = trigger.get();
    request.op_type = type;
    request.op.cntr = &op;
    return request;
}

} // namespace

/// "it will remain on the queue until the triggering counter (success plus error counter values) has reached the
/// indicated threshold. [...] On the completion of a deferred data transfer, the specified completion counter will be
/// incremented by one. [...] completed operations are not written to the EP's completion queue or update the EP
/// counter"
void check_every_work(World& w)
{
    for (const bool by_error : {false, true})
        for (const fi_op_type type : transfers) {
            Count trigger(w), done(w);
            int context = 0;
            Operation op(w, type, &context);
            const std::uint64_t writes = fi_cntr_read(w.writes()), reads = fi_cntr_read(w.reads());
            op.meet();
            w.barrier();
            fi_deferred_work work = op.work(trigger, 2, done.get());
            CHECK(w, queue(w, work) == 0);
            trigger.add(1);
            op.answer();
            w.barrier();
            CHECK(w, op.untouched() && fi_cntr_read(done.get()) == 0);
            w.barrier();
            (void)(by_error ? fi_cntr_adderr(trigger.get(), 1) : fi_cntr_add(trigger.get(), 1));
            CHECK(w, done.reaches(1)); // by this counter alone, to which no endpoint is bound
            CHECK(w, op.happened());
            CHECK(w, fi_cntr_read(done.get()) == 1 && fi_cntr_readerr(done.get()) == 0);
            CHECK(w, fi_cntr_read(w.writes()) == writes && fi_cntr_read(w.reads()) == reads);
            CHECK(w, w.quiet());
            w.barrier();
        }
    // "If the triggering condition has already been met at the time the work request is queued, the operation will be
    // initiated immediately." "An application may request EP completions by specifying the FI_COMPLETION flag"
    for (const fi_op_type type : transfers) {
        Count trigger(w), done(w);
        int context = 0;
        Operation op(w, type, &context);
        op.meet();
        w.barrier();
        fi_deferred_work work = op.work(trigger, 0, done.get(), FI_COMPLETION);
        CHECK(w, queue(w, work) == 0);
        op.answer();
        void* ended = nullptr;
        CHECK(w, w.wait(&ended) == 0 && ended == &context);
        CHECK(w, done.reaches(1));
        CHECK(w, op.happened());
        w.barrier();
    }
}

/// "deferred counter operations do not update the completion counter; only the counter specified through the fi_op_cntr
/// is modified. The completion_cntr field must be NULL for counter operations."
void check_counter_work(World& w)
{
    Count a(w), b(w), c(w);
    fi_op_cntr add_b{b.get(), 3}, set_c{c.get(), 77}, add_c{c.get(), 5};
    fi_deferred_work first = counter_work(a, 1, FI_OP_CNTR_ADD, add_b);
    fi_deferred_work second = counter_work(b, 3, FI_OP_CNTR_SET, set_c); // which the first one lets go
    fi_deferred_work third = counter_work(c, 77, FI_OP_CNTR_ADD, add_c);
    CHECK(w, queue(w, third) == 0 && queue(w, second) == 0 && queue(w, first) == 0);
    CHECK(w, fi_cntr_read(b.get()) == 0 && fi_cntr_read(c.get()) == 0);
    a.add(1);
    CHECK(w, c.reaches(82) && fi_cntr_read(c.get()) == 82 && fi_cntr_read(b.get()) == 3 && fi_cntr_read(a.get()) == 1);
    first.completion_cntr = a.get();
    CHECK(w, !w.ours() || queue(w, first) == -FI_EINVAL);
    // The highest threshold that there is; behind it the counter begins anew.
    if (!w.ours())
        return;
    constexpr std::uint64_t most = ~std::uint64_t{0};
    (void)fi_cntr_set(a.get(), most - 1);
    (void)fi_cntr_set(b.get(), 0);
    (void)fi_cntr_set(c.get(), 0);
    fi_op_cntr one{b.get(), 1}, ten{c.get(), 10};
    fi_deferred_work last = counter_work(a, most, FI_OP_CNTR_ADD, one);
    fi_deferred_work anew = counter_work(a, 2, FI_OP_CNTR_ADD, ten);
    CHECK(w, queue(w, last) == 0);
    CHECK(w, w.quiet() && fi_cntr_read(b.get()) == 0);
    a.add(1);
    CHECK(w, b.reaches(1));
    a.add(2);
    CHECK(w, fi_cntr_read(a.get()) == 1);
    CHECK(w, queue(w, anew) == 0);
    CHECK(w, w.quiet() && fi_cntr_read(c.get()) == 0);
    a.add(1);
    CHECK(w, c.reaches(10) && fi_cntr_read(b.get()) == 1);
}

/// "primitive constructs that can be used to implement application-level collective operations": a ring in which each
/// rank hands on what it has received, with no call in between but the one that waits for the end.
void check_chain(World& w)
{
    const unsigned next = (w.rank() + 1) % w.ranks();
    constexpr std::size_t size = std::size_t{1} << 16;
    for (unsigned round = 0; round < 4; ++round) {
        const std::size_t length = round < 2 ? 16 : size;
        Count start(w), received(w), sent(w);
        unsigned char* const buffer = w.local();
        if (w.rank() == 0)
            fill(buffer, length, 0, round);
        else
            std::memset(buffer, 0, length);
        unsigned char* const into = w.rank() == 0 ? w.local(size) : buffer;
        iovec from{buffer, length}, to{into, length};
        void* desc = w.desc();
        fi_op_tagged take{w.ep(), {&to, &desc, 1, FI_ADDR_UNSPEC, 5, 0, nullptr, 0}, 0};
        fi_op_tagged hand_on{w.ep(), {&from, &desc, 1, w.peer(next), 5, 0, nullptr, 0}, 0};
        fi_deferred_work receive{}, send{};
        receive.triggering_cntr = start.get();
        receive.completion_cntr = received.get();
        receive.op_type = FI_OP_TRECV;
        receive.op.tagged = &take;
        send.triggering_cntr = w.rank() == 0 ? start.get() : received.get();
        send.threshold = 1;
        send.completion_cntr = sent.get();
        send.op_type = FI_OP_TSEND;
        send.op.tagged = &hand_on;
        CHECK(w, queue(w, receive) == 0 && queue(w, send) == 0);
        w.barrier();
        if (w.rank() == 0)
            start.add(1);
        CHECK(w, sent.reaches(1) && received.reaches(1));
        CHECK(w, wrong(into, length, 0, round) == 0);
        w.barrier();
    }
}

/// "To cancel a deferred work request, use fi_control with command FI_CANCEL_WORK [...] FI_FLUSH_WORK will cancel all
/// queued work requests. FI_FLUSH_WORK may be used to flush all work queued to the domain, or may be used to cancel all
/// requests waiting on a specific triggering_cntr."
void check_cancel_and_flush(World& w)
{
    fid* const domain = &w.domain()->fid;
    Count a(w), b(w), result(w);
    fi_op_cntr ones{result.get(), 1}, tens{result.get(), 10}, hundreds{result.get(), 100};
    fi_deferred_work one = counter_work(a, 1, FI_OP_CNTR_ADD, ones);
    fi_deferred_work ten = counter_work(a, 1, FI_OP_CNTR_ADD, tens);
    fi_deferred_work hundred = counter_work(b, 1, FI_OP_CNTR_ADD, hundreds);
    CHECK(w, queue(w, one) == 0 && queue(w, ten) == 0 && queue(w, hundred) == 0);
    CHECK(w, fi_control(domain, FI_CANCEL_WORK, &ten) == 0);
    CHECK(w, !w.ours() || fi_control(domain, FI_CANCEL_WORK, &ten) == -FI_ENOENT);
    a.add(1);
    CHECK(w, result.reaches(1) && fi_cntr_read(result.get()) == 1);
    CHECK(w, !w.ours() || fi_control(domain, FI_CANCEL_WORK, &one) == -FI_ENOENT); // it has been
    // One counter's.
    one.threshold = ten.threshold = 2;
    CHECK(w, queue(w, one) == 0 && queue(w, ten) == 0);
    fi_deferred_work which{};
    which.triggering_cntr = a.get();
    CHECK(w, fi_control(domain, FI_FLUSH_WORK, &which) == 0);
    a.add(1);
    b.add(1);
    CHECK(w, result.reaches(101) && fi_cntr_read(result.get()) == 101);
    // All.
    one.threshold = ten.threshold = hundred.threshold = 9;
    CHECK(w, queue(w, one) == 0 && queue(w, hundred) == 0);
    // fi_close(3): counters that work waits for, or would report to, are in use.
    CHECK(w, !w.ours() || fi_close(&a.get()->fid) == -FI_EBUSY);
    CHECK(w, !w.ours() || fi_close(&result.get()->fid) == -FI_EBUSY);
    CHECK(w, fi_control(domain, FI_FLUSH_WORK, nullptr) == 0);
    a.add(20);
    b.add(20);
    w.progress();
    CHECK(w, fi_cntr_read(result.get()) == 101);
    // Transfers as well: nothing of them is seen.
    for (const fi_op_type type : transfers) {
        int context = 0;
        Operation op(w, type, &context);
        w.barrier();
        fi_deferred_work work = op.work(a, 1000, result.get(), FI_COMPLETION);
        CHECK(w, queue(w, work) == 0);
        CHECK(w, (type & 1) != 0 ? fi_control(domain, FI_CANCEL_WORK, &work) == 0
                                 : fi_control(domain, FI_FLUSH_WORK, nullptr) == 0);
        (void)fi_cntr_set(a.get(), 2000);
        w.barrier();
        CHECK(w, op.untouched() && w.quiet());
        (void)fi_cntr_set(a.get(), 0);
        w.barrier();
    }
    CHECK(w, fi_cntr_read(result.get()) == 101);
}

/// "if a work request is dependent upon the successful completion of a data transfer operation, which fails, then the
/// application must cancel the work request": the failure counts as an error of the completion counter.
void check_failures(World& w)
{
    for (const fi_op_type type : {FI_OP_WRITE, FI_OP_READ, FI_OP_ATOMIC, FI_OP_FETCH_ATOMIC, FI_OP_COMPARE_ATOMIC}) {
        Count trigger(w), done(w);
        int context = 0;
        Operation op(w, type, &context);
        op.remote.key = op.word.key = ~w.key(w.rank()); // of no region
        fi_deferred_work work = op.work(trigger, 1, done.get());
        CHECK(w, queue(w, work) == 0);
        trigger.add(1);
        CHECK(w, w.until([&] { return fi_cntr_readerr(done.get()) == 1; }));
        CHECK(w, fi_cntr_read(done.get()) == 0);
        void* failed = nullptr;
        CHECK(w, w.wait(&failed) > 0 && failed == &context); // fi_cq(3): errors are always reported
    }
    // To no peer.
    for (const fi_op_type type : {FI_OP_SEND, FI_OP_TSEND, FI_OP_WRITE, FI_OP_ATOMIC}) {
        Count trigger(w), done(w);
        int context = 0;
        Operation op(w, type, &context);
        op.msg.addr = op.tagged.addr = op.rma.addr = op.atomic.addr = 12345;
        fi_deferred_work work = op.work(trigger, 1, done.get());
        const int rc = queue(w, work);
        CHECK(w, rc == 0 || !w.ours());
        if (rc != 0)
            continue;
        trigger.add(1);
        CHECK(w, w.until([&] { return fi_cntr_readerr(done.get()) == 1; }));
        CHECK(w, w.wait() > 0);
    }
    w.barrier();
}

/// What is queued for an endpoint goes with it, and a deferred receive that has been posted, too; fi_cancel(3) ends
/// one.
void check_closing(World& w)
{
    Count trigger(w), done(w);
    {
        Station station(w);
        CHECK(w, station.opened());
        int context = 0;
        Operation op(w, FI_OP_RECV, &context);
        for (const std::uint64_t threshold : {0u, 0u, 5u}) {
            fi_deferred_work work = op.work(trigger, threshold, done.get());
            op.op_msg.ep = station.ep();
            CHECK(w, queue(w, work) == 0);
        }
        CHECK(w, fi_cancel(&station.ep()->fid, &context) == 0); // one that waits for its message
        CHECK(w, w.until([&] { return fi_cntr_readerr(done.get()) == 1; }));
        const Entry entry = station.wait(station.rx());
        CHECK(w, entry.error.err == FI_ECANCELED && entry.error.op_context == &context);
        CHECK(w, !w.ours() || fi_close(&done.get()->fid) == -FI_EBUSY);
        w.barrier();
    }
    trigger.add(5);
    w.progress();
    CHECK(w, fi_cntr_read(done.get()) == 0 && fi_cntr_readerr(done.get()) == 1);
    w.barrier();
}

void check_bad_work(World& w)
{
    if (!w.ours())
        return;
    Count counter(w);
    const Foreign foreign(w);
    fid* const domain = &w.domain()->fid;
    CHECK(w, fi_control(domain, FI_QUEUE_WORK, nullptr) == -FI_EINVAL);
    CHECK(w, fi_control(domain, FI_CANCEL_WORK, nullptr) == -FI_EINVAL);
    for (const fi_op_type type : transfers) {
        int context = 0;
        Operation op(w, type, &context);
        const fi_deferred_work good = op.work(counter, 1, counter.get());
        fi_deferred_work bad = good;
        bad.op_type = static_cast<fi_op_type>(99);
        CHECK(w, queue(w, bad) == -FI_EINVAL);
        bad = good;
        bad.op.msg = nullptr;
        CHECK(w, queue(w, bad) == -FI_EINVAL);
        bad = good;
        bad.triggering_cntr = nullptr;
        CHECK(w, queue(w, bad) == -FI_EINVAL);
        bad = good;
        bad.triggering_cntr = foreign.counter;
        CHECK(w, queue(w, bad) == -FI_EDOMAIN);
        bad = good;
        bad.completion_cntr = foreign.counter;
        CHECK(w, queue(w, bad) == -FI_EDOMAIN);
        bad = op.work(counter, 1, counter.get(), FI_MULTICAST);
        CHECK(w, queue(w, bad) == -FI_EBADFLAGS);
        CHECK(w, fi_control(&foreign.domain->fid, FI_QUEUE_WORK, &bad) == -FI_EDOMAIN);
        bad = op.work(counter, 1, counter.get());
        op.op_msg.ep = op.op_tagged.ep = op.op_rma.ep = op.op_atomic.ep = op.op_fetch.ep = op.op_compare.ep = nullptr;
        CHECK(w, queue(w, bad) == -FI_EINVAL);
        op.msg.iov_count = op.tagged.iov_count = op.rma.iov_count = op.atomic.iov_count = 99;
        bad = op.work(counter, 1, counter.get());
        CHECK(w, queue(w, bad) == -FI_EINVAL);
    }
    // A receive that would end more than once, and what looks instead of receiving.
    Operation op(w, FI_OP_RECV, nullptr);
    fi_deferred_work bad = op.work(counter, 1, counter.get(), FI_MULTI_RECV);
    CHECK(w, queue(w, bad) == -FI_ENOSYS);
    bad = op.work(counter, 1, counter.get(), FI_PEEK);
    CHECK(w, queue(w, bad) == -FI_EBADFLAGS);
    // An endpoint that is not enabled.
    fid_ep* ep = nullptr;
    CHECK(w, fi_endpoint(w.domain(), foreign.info, &ep, nullptr) == 0);
    bad = op.work(counter, 1, counter.get());
    op.op_msg.ep = ep;
    CHECK(w, queue(w, bad) == -FI_EOPBADSTATE);
    CHECK(w, fi_close(&ep->fid) == 0);
    fi_op_cntr none{nullptr, 1}, theirs{foreign.counter, 1};
    bad = counter_work(counter, 1, FI_OP_CNTR_ADD, none);
    CHECK(w, queue(w, bad) == -FI_EINVAL);
    bad = counter_work(counter, 1, FI_OP_CNTR_SET, theirs);
    CHECK(w, queue(w, bad) == -FI_EDOMAIN);
    fi_deferred_work which{};
    which.triggering_cntr = foreign.counter;
    CHECK(w, fi_control(domain, FI_FLUSH_WORK, &which) == -FI_EDOMAIN);
    counter.add(1); // of all that, nothing waits
    w.progress();
    CHECK(w, fi_cntr_read(counter.get()) == 1 && fi_cntr_readerr(counter.get()) == 0 && w.quiet());
}

/// More than there is room for, on counters that move at random: each message comes once, and those of one counter in
/// the order of their thresholds.
void check_many(World& w)
{
    const unsigned next = (w.rank() + 1) % w.ranks();
    constexpr unsigned counters = 3, each = 600, highest = 50;
    struct Note {
        std::uint32_t counter, threshold, number, empty;
    };
    std::mt19937 random(w.seed() * 131 + w.rank());
    Count done(w);
    std::vector<Note> out(counters * each), in(counters * each, Note{~0u, 0, 0, 0});
    for (Note& note : in)
        CHECK(w, w.post([&] { return fi_recv(w.ep(), &note, sizeof note, w.desc(), FI_ADDR_UNSPEC, nullptr); }) == 0);
    w.barrier();
    {
        Count triggers[counters] = {Count(w), Count(w), Count(w)};
        for (std::uint32_t i = 0; i < out.size(); ++i) {
            const auto c = static_cast<std::uint32_t>(random() % counters);
            out[i] = {c, static_cast<std::uint32_t>(1 + random() % highest), i, 0};
            iovec iov{&out[i], sizeof out[i]};
            void* desc = w.desc();
            fi_op_msg op{w.ep(), {&iov, &desc, 1, w.peer(next), nullptr, 0}, 0};
            fi_deferred_work work{};
            work.threshold = out[i].threshold;
            work.triggering_cntr = triggers[c].get();
            work.completion_cntr = done.get();
            work.op_type = FI_OP_SEND;
            work.op.msg = &op;
            CHECK(w, queue(w, work) == 0);
        }
        unsigned left[counters] = {highest, highest, highest};
        while (left[0] + left[1] + left[2] != 0) {
            const unsigned c = random() % counters;
            const unsigned step = std::min<unsigned>(left[c], random() % 9);
            triggers[c].add(step);
            left[c] -= step;
        }
        CHECK(w, done.reaches(out.size()));
    }
    CHECK(w, w.until([&] { return in.back().counter != ~0u; }));
    std::vector<bool> seen(in.size(), false);
    std::uint32_t last[counters] = {}, number[counters] = {};
    unsigned bad = 0;
    for (const Note& note : in) {
        if (note.counter >= counters || note.number >= seen.size() || seen[note.number]) {
            ++bad;
            continue;
        }
        seen[note.number] = true;
        bad += note.threshold < last[note.counter] ||
               (note.threshold == last[note.counter] && note.number < number[note.counter]);
        last[note.counter] = note.threshold;
        number[note.counter] = note.number;
    }
    CHECK(w, bad == 0);
    w.barrier();
}

} // namespace fabtests
