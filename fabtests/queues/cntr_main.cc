// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_cntr(3), and what fi_endpoint(3) and fi_mr(3) say of counters, statement by statement, between processes; any
// provider (-p). Run by make check and by hand.
#include <array>
#include <cstring>

#include "queue_checks.h"

namespace fabtests {
namespace {

constexpr fi_wait_obj kinds[] = {FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_YIELD};

/// A counter by itself. Null: this kind of wait object is not offered, which only others may say.
fid_cntr* open_counter(World& w, fi_wait_obj kind)
{
    fi_cntr_attr attr{};
    attr.events = FI_CNTR_EVENTS_COMP;
    attr.wait_obj = kind;
    fid_cntr* counter = nullptr;
    const int rc = fi_cntr_open(w.domain(), &attr, &counter, &w);
    CHECK(w, rc == 0 || !w.ours());
    return rc == 0 ? counter : nullptr;
}

/// fi_cntr_open, fi_close
void attributes(World& w)
{
    fid_cntr* counter = open_counter(w, FI_WAIT_NONE);
    CHECK(w, counter != nullptr);
    CHECK(w, counter->fid.fclass == FI_CLASS_CNTR && counter->fid.context == &w);
    CHECK(w, fi_cntr_read(counter) == 0 && fi_cntr_readerr(counter) == 0);
    CHECK(w, fi_close(&counter->fid) == 0);
    if (!w.ours())
        return;
    fi_cntr_attr attr{};
    attr.flags = 1; // "must be set to 0"
    CHECK(w, fi_cntr_open(w.domain(), &attr, &counter, nullptr) == -FI_EINVAL);
    attr = {};
    attr.wait_obj = FI_WAIT_SET; // "must reference an existing wait set object"
    CHECK(w, fi_cntr_open(w.domain(), &attr, &counter, nullptr) == -FI_EINVAL);
    attr = {};
    attr.events = static_cast<fi_cntr_events>(9);
    CHECK(w, fi_cntr_open(w.domain(), &attr, &counter, nullptr) < 0);
}

/// fi_cntr_add, fi_cntr_set, fi_cntr_adderr, fi_cntr_seterr: two values; "a final updated value will eventually be
/// reflected"
void values(World& w)
{
    fid_cntr* const c = open_counter(w, FI_WAIT_UNSPEC);
    if (c == nullptr)
        return;
    auto are = [&](std::uint64_t value, std::uint64_t errors) {
        return w.until([&] { return fi_cntr_read(c) == value && fi_cntr_readerr(c) == errors; });
    };
    CHECK(w, fi_cntr_add(c, 5) == 0 && are(5, 0));
    CHECK(w, fi_cntr_add(c, 0) == 0 && are(5, 0));
    CHECK(w, fi_cntr_adderr(c, 3) == 0 && are(5, 3));
    CHECK(w, fi_cntr_set(c, 100) == 0 && are(100, 3));
    CHECK(w, fi_cntr_seterr(c, 1) == 0 && are(100, 1));
    CHECK(w, fi_cntr_set(c, 0) == 0 && fi_cntr_seterr(c, 0) == 0 && are(0, 0));
    const std::uint64_t large = std::uint64_t{1} << 40;
    CHECK(w, fi_cntr_add(c, large) == 0 && are(large, 0));
    CHECK(w, fi_close(&c->fid) == 0);
}

/// "wait until the counter reaches the specified threshold": at once where it has, by the operations of others, by add
/// and set of another thread
void wait_reached(World& w)
{
    for (fi_wait_obj kind : kinds) {
        fid_cntr* const c = open_counter(w, kind);
        if (c == nullptr)
            continue;
        const int patience = static_cast<int>(1000 * w.patience());
        CHECK(w, fi_cntr_wait(c, 0, -1) == 0);
        CHECK(w, fi_cntr_set(c, 10) == 0);
        CHECK(w, fi_cntr_wait(c, 10, patience) == 0);
        CHECK(w, fi_cntr_wait(c, 3, -1) == 0);
        std::uint64_t to = 10;
        CHECK(w, in_thread(
                     w, [&] { return fi_cntr_wait(c, 15, -1); }, [&] { fi_cntr_add(c, 1); }) == 0);
        to = fi_cntr_read(c);
        CHECK(w, to >= 15);
        CHECK(w, in_thread(
                     w, [&] { return fi_cntr_wait(c, 1000, -1); }, [&] { fi_cntr_set(c, 2000); }) == 0);
        CHECK(w, fi_close(&c->fid) == 0);
    }
}

/// The same for messages of a peer: "Upon successful return from this call, the counter will be greater than or equal
/// to the input threshold value."
void wait_messages(World& w)
{
    for (fi_wait_obj kind : kinds) {
        Station s(w, {.counters = FI_RECV, .counter_wait = kind});
        if (!s.opened())
            continue;
        fid_cntr* const c = s.counter(FI_RECV);
        std::uint64_t reached = 0;
        for (unsigned round = 0; round < 6; ++round) {
            const unsigned count = 1 + round * 3;
            for (unsigned i = 0; i < count; ++i)
                CHECK(w, recv_any(w, s) == 0);
            w.barrier();
            const bool waits = (w.rank() + round) % 2 == 0 && w.ranks() > 1;
            auto wait = [&] {
                CHECK(w, fi_cntr_wait(c, reached + count, static_cast<int>(1000 * w.patience())) == 0);
                CHECK(w, fi_cntr_read(c) >= reached + count);
            };
            if (waits)
                wait();
            else
                dawdle(round / 2);
            for (unsigned i = 0; i < count; ++i)
                CHECK(w, send_to(w, s, next(w)) == 0);
            if (!waits)
                wait();
            w.barrier();
            reached += count;
            CHECK(w, fi_cntr_read(c) == reached);
            for (unsigned i = 0; i < count; ++i) {
                CHECK(w, s.wait(s.rx()).error.err == 0);
                CHECK(w, s.wait(s.tx()).error.err == 0);
            }
        }
    }
}

/// "If the call returns due to timeout, -FI_ETIMEDOUT will be returned. The error value ... remains unchanged."
void wait_timeout(World& w)
{
    for (fi_wait_obj kind : kinds) {
        fid_cntr* const c = open_counter(w, kind);
        if (c == nullptr)
            continue;
        CHECK(w, fi_cntr_adderr(c, 2) == 0);
        CHECK(w, w.until([&] { return fi_cntr_readerr(c) == 2; }));
        for (int timeout : {0, 1, 30}) {
            const std::uint64_t begin = World::now_ms();
            CHECK(w, fi_cntr_wait(c, 1, timeout) == -FI_ETIMEDOUT);
            CHECK(w, World::now_ms() + 2 >= begin + static_cast<unsigned>(timeout));
        }
        CHECK(w, fi_cntr_readerr(c) == 2);
        CHECK(w, fi_close(&c->fid) == 0);
    }
}

/// "Any change in a counter's error value will unblock any thread inside fi_cntr_wait."
void wait_error(World& w)
{
    for (fi_wait_obj kind : kinds) {
        fid_cntr* const c = open_counter(w, kind);
        if (c == nullptr)
            continue;
        CHECK(w, in_thread(
                     w, [&] { return fi_cntr_wait(c, 5, -1); }, [&] { fi_cntr_adderr(c, 1); }) == -FI_EAVAIL);
        std::uint64_t errors = 1000;
        CHECK(w, in_thread(
                     w, [&] { return fi_cntr_wait(c, 5, -1); }, [&] { fi_cntr_seterr(c, ++errors); }) == -FI_EAVAIL);
        CHECK(w, fi_cntr_read(c) == 0);
        CHECK(w, fi_close(&c->fid) == 0);
    }
}

/// "If an operation associated with the counter encounters an error, it will increment the error value": a receive that
/// is too short, taken back, and one that is well
void failed_operations(World& w)
{
    Station s(w, {.counters = FI_RECV, .counter_wait = FI_WAIT_UNSPEC});
    if (!s.opened())
        return;
    fid_cntr* const c = s.counter(FI_RECV);
    const int patience = static_cast<int>(1000 * w.patience());
    fi_context context;
    CHECK(w, recv_any(w, s, 3) == 0);
    CHECK(w, recv_any(w, s, 64) == 0);
    w.barrier();
    CHECK(w, send_to(w, s, next(w), 8) == 0);
    int rc = fi_cntr_wait(c, 1, patience);
    CHECK(w, rc == -FI_EAVAIL || fi_cntr_readerr(c) == 1); // it may have failed before
    CHECK(w, send_to(w, s, next(w), 8) == 0);
    CHECK(w, s.reaches(c, 1));
    CHECK(w, s.wait(s.rx()).error.err == FI_ETRUNC);
    CHECK(w, s.wait(s.rx()).error.err == 0);
    CHECK(w, recv_any(w, s, 64, &context) == 0);
    CHECK(w, fi_cancel(&s.ep()->fid, &context) == 0);
    CHECK(w, s.wait(s.rx()).error.err == FI_ECANCELED);
    CHECK(w, fi_cntr_read(c) == 1);
    CHECK(w, fi_cntr_readerr(c) >= 1);
    s.wait(s.tx());
    s.wait(s.tx());
}

/// A thread that waits leaves the processor to others.
void no_processor_time(World& w)
{
    for (fi_wait_obj kind : {FI_WAIT_UNSPEC, FI_WAIT_FD}) {
        Station s(w, {.counters = FI_RECV, .counter_wait = kind});
        if (!s.opened())
            continue;
        fid_cntr* const c = s.counter(FI_RECV);
        (void)fi_cntr_wait(c, 1, 10);
        const unsigned before_it = busy_ms();
        CHECK(w, fi_cntr_wait(c, 1, 400) == -FI_ETIMEDOUT);
        CHECK(w, busy_ms() - before_it < 100);
    }
}

/// FI_WAIT_FD and FI_WAIT_MUTEX_COND: the application sleeps by means of its own.
void wait_objects(World& w)
{
    for (fi_wait_obj kind : {FI_WAIT_FD, FI_WAIT_MUTEX_COND}) {
        Station s(w, {.counters = FI_RECV, .counter_wait = kind});
        if (!s.opened())
            continue;
        fid_cntr* const c = s.counter(FI_RECV);
        for (unsigned round = 1; round <= 4; ++round) {
            CHECK(w, recv_any(w, s) == 0);
            w.barrier();
            if (w.rank() % 2 == round % 2)
                CHECK(w, w.ranks() == 1 || sleep_on(w, &c->fid, kind, [&] { return fi_cntr_read(c) >= round; }));
            else
                dawdle(round);
            CHECK(w, send_to(w, s, next(w)) == 0);
            CHECK(w, sleep_on(w, &c->fid, kind, [&] { return fi_cntr_read(c) >= round; }));
            CHECK(w, s.wait(s.rx()).error.err == 0 && s.wait(s.tx()).error.err == 0);
            w.barrier();
        }
    }
}

/// fi_ep_bind(3): what each of FI_SEND, FI_RECV, FI_READ, FI_WRITE counts, injected and silent operations included
void bindings(World& w)
{
    Station s(w, {.selective = true, .counters = FI_SEND | FI_RECV | FI_READ | FI_WRITE});
    if (!s.opened() || !w.has(FI_RMA | FI_ATOMIC))
        return;
    const unsigned to = next(w);
    const fi_addr_t peer = s.peer(to);
    const std::uint64_t key = w.key(to), at = w.address(to, 0);
    for (unsigned i = 0; i < 3; ++i)
        CHECK(w, recv_any(w, s) == 0);
    w.barrier();
    auto ok = [&](auto call) { CHECK(w, s.post(call) == 0); };
    ok([&] { return fi_tsend(s.ep(), w.local(), 8, w.desc(), peer, 1, nullptr); });
    ok([&] { return fi_tinject(s.ep(), w.local(), 8, peer, 1); });
    ok([&] { return fi_tsenddata(s.ep(), w.local(), 8, w.desc(), 5, peer, 1, nullptr); });
    ok([&] { return fi_write(s.ep(), w.local(), 64, w.desc(), peer, at, key, nullptr); });
    ok([&] { return fi_inject_write(s.ep(), w.local(), 8, peer, at, key); });
    ok([&] { return fi_atomic(s.ep(), w.local(), 1, w.desc(), peer, at, key, FI_UINT64, FI_SUM, nullptr); });
    ok([&] { return fi_inject_atomic(s.ep(), w.local(), 1, peer, at, key, FI_UINT64, FI_SUM); });
    ok([&] { return fi_read(s.ep(), w.local(64), 64, w.desc(), peer, at, key, nullptr); });
    ok([&] {
        return fi_fetch_atomic(s.ep(), w.local(), 1, w.desc(), w.local(64), w.desc(), peer, at, key, FI_UINT64, FI_SUM,
                               nullptr);
    });
    ok([&] {
        return fi_compare_atomic(s.ep(), w.local(), 1, w.desc(), w.local(), w.desc(), w.local(64), w.desc(), peer, at,
                                 key, FI_UINT64, FI_CSWAP, nullptr);
    });
    CHECK(w, s.reaches(s.counter(FI_SEND), 3));
    CHECK(w, s.reaches(s.counter(FI_RECV), 3));
    CHECK(w, s.reaches(s.counter(FI_WRITE), 4));
    CHECK(w, s.reaches(s.counter(FI_READ), 3));
    CHECK(w, s.quiet(s.tx()) && s.quiet(s.rx()));
    w.barrier();
    const std::array<std::uint64_t, 4> wanted{3, 3, 3, 4};
    const std::array<std::uint64_t, 4> flags{FI_SEND, FI_RECV, FI_READ, FI_WRITE};
    for (unsigned i = 0; i < 4; ++i) {
        CHECK(w, fi_cntr_read(s.counter(flags[i])) == wanted[i]);
        CHECK(w, fi_cntr_readerr(s.counter(flags[i])) == 0);
    }
}

/// What others do to a region, in the ways that differ below: one ARMW, several, loops, locks, one and many elements.
/// `writes` and `reads` of them.
struct Deeds {
    static constexpr unsigned writes = 10, reads = 7;
    /// Of the reads, those that modify the target: a region's counter of FI_REMOTE_WRITE takes them (fi_mr_bind(3)).
    static constexpr unsigned both = 5;
    World& w;
    Station& s;
    fi_addr_t peer;
    std::uint64_t at, key;

    void atomic(fi_datatype type, fi_op op, std::size_t count)
    {
        CHECK(w, s.post([&] {
            return fi_atomic(s.ep(), w.local(), count, w.desc(), peer, at, key, type, op, nullptr);
        }) == 0);
    }
    void inject(fi_datatype type, fi_op op)
    {
        CHECK(w, s.post([&] { return fi_inject_atomic(s.ep(), w.local(), 1, peer, at, key, type, op); }) == 0);
    }
    void fetch(fi_datatype type, fi_op op, std::size_t count)
    {
        CHECK(w, s.post([&] {
            return fi_fetch_atomic(s.ep(), w.local(), count, w.desc(), w.local(4096), w.desc(), peer, at, key, type, op,
                                   nullptr);
        }) == 0);
    }
    void compare(fi_op op)
    {
        CHECK(w, s.post([&] {
            return fi_compare_atomic(s.ep(), w.local(), 1, w.desc(), w.local(), w.desc(), w.local(4096), w.desc(), peer,
                                     at, key, FI_UINT64, op, nullptr);
        }) == 0);
    }
    void once()
    {
        CHECK(w, s.post([&] { return fi_write(s.ep(), w.local(), 50000, w.desc(), peer, at, key, nullptr); }) == 0);
        CHECK(w, s.post([&] { return fi_inject_write(s.ep(), w.local(), 8, peer, at, key); }) == 0);
        atomic(FI_UINT64, FI_SUM, 1);
        atomic(FI_UINT64, FI_SUM, 16);
        atomic(FI_UINT64, FI_MIN, 4);
        atomic(FI_UINT64, FI_PROD, 1);
        atomic(FI_DOUBLE_COMPLEX, FI_SUM, 2);
        inject(FI_UINT64, FI_SUM);
        inject(FI_UINT64, FI_LXOR);
        inject(FI_UINT16, FI_SUM);
        CHECK(w, s.post([&] { return fi_read(s.ep(), w.local(4096), 64, w.desc(), peer, at, key, nullptr); }) == 0);
        fetch(FI_UINT64, FI_SUM, 1);
        fetch(FI_UINT64, FI_SUM, 16);
        fetch(FI_UINT64, FI_ATOMIC_READ, 1);
        fetch(FI_UINT8, FI_MAX, 5);
        compare(FI_CSWAP);
        compare(FI_CSWAP_NE);
    }
};

/// FI_REMOTE_READ and FI_REMOTE_WRITE with FI_RMA_EVENT: what others do to this endpoint
void remote_bindings(World& w)
{
    const bool has = w.has(FI_RMA_EVENT | FI_RMA | FI_ATOMIC);
    CHECK(w, has || !w.ours());
    if (!has)
        return;
    Station s(w, {.counters = FI_REMOTE_READ | FI_REMOTE_WRITE});
    if (!s.opened())
        return;
    // The region is the world's: with FI_MR_ENDPOINT it would be bound to an endpoint.
    const unsigned to = next(w);
    w.barrier();
    w.take_late_events();
    const std::uint64_t reads = fi_cntr_read(s.counter(FI_REMOTE_READ));
    const std::uint64_t writes = fi_cntr_read(s.counter(FI_REMOTE_WRITE));
    w.barrier();
    Deeds deeds{w, s, s.peer(to), w.address(to, 0), w.key(to)};
    for (unsigned i = 0; i < 5; ++i)
        deeds.once();
    CHECK(w, s.reaches(s.counter(FI_REMOTE_WRITE), writes + 5 * Deeds::writes));
    CHECK(w, s.reaches(s.counter(FI_REMOTE_READ), reads + 5 * Deeds::reads));
    unsigned ended = 0;
    CHECK(w, w.until([&] { // every end is reported here too: nothing follows
        fi_cq_tagged_entry entry;
        ended += fi_cq_read(s.tx(), &entry, 1) == 1;
        return ended == 5 * (Deeds::writes + Deeds::reads - 4);
    }));
    w.barrier();
    w.progress();
    CHECK(w, fi_cntr_read(s.counter(FI_REMOTE_WRITE)) == writes + 5 * Deeds::writes);
    CHECK(w, fi_cntr_read(s.counter(FI_REMOTE_READ)) == reads + 5 * Deeds::reads);
    CHECK(w, fi_cntr_readerr(s.counter(FI_REMOTE_WRITE)) == 0 && fi_cntr_readerr(s.counter(FI_REMOTE_READ)) == 0);
}

/// fi_mr_bind(3): two counters of one region, for what atomics do to it
void region_atomics(World& w)
{
    const bool has = w.has(FI_RMA_EVENT | FI_RMA | FI_ATOMIC);
    CHECK(w, has || !w.ours());
    if (!has)
        return;
    Station s(w);
    fid_cntr* const writes = open_counter(w, FI_WAIT_UNSPEC);
    fid_cntr* const reads = open_counter(w, FI_WAIT_UNSPEC);
    std::vector<std::uint64_t> memory(8192);
    fid_mr* mr = nullptr;
    CHECK(w, fi_mr_reg(w.domain(), memory.data(), 65536, FI_REMOTE_WRITE | FI_REMOTE_READ, 0, 0xa00 + w.rank(),
                       FI_RMA_EVENT, &mr, nullptr) == 0);
    const bool bound =
        fi_mr_bind(mr, &writes->fid, FI_REMOTE_WRITE) == 0 && fi_mr_bind(mr, &reads->fid, FI_REMOTE_READ) == 0;
    CHECK(w, bound || !w.ours());
    if (bound && (w.info().domain_attr->mr_mode & FI_MR_RMA_EVENT))
        CHECK(w, fi_mr_enable(mr) == 0);
    w.shared().word[w.rank()] = fi_mr_key(mr);
    w.shared().word[max_ranks / 2 + w.rank()] =
        w.info().domain_attr->mr_mode & FI_MR_VIRT_ADDR ? reinterpret_cast<std::uintptr_t>(memory.data()) : 0;
    w.barrier();
    const unsigned to = next(w);
    Deeds deeds{w, s, s.peer(to), w.shared().word[max_ranks / 2 + to], w.shared().word[to]};
    Deeds elsewhere{w, s, s.peer(to), w.address(to, 0), w.key(to)};
    for (unsigned i = 0; i < 3; ++i) {
        deeds.once();
        elsewhere.once(); // not counted here
    }
    CHECK(w, !bound || (s.reaches(writes, 3 * (Deeds::writes + Deeds::both)) && s.reaches(reads, 3 * Deeds::reads)));
    unsigned ended = 0;
    CHECK(w, w.until([&] {
        fi_cq_tagged_entry entry;
        ended += fi_cq_read(s.tx(), &entry, 1) == 1;
        return ended == 6 * (Deeds::writes + Deeds::reads - 4);
    }));
    w.barrier();
    w.progress();
    CHECK(w, !bound || (fi_cntr_read(writes) == 3 * (Deeds::writes + Deeds::both) &&
                        fi_cntr_read(reads) == 3 * Deeds::reads));
    w.barrier();
    CHECK(w, fi_close(&mr->fid) == 0);
    CHECK(w, fi_close(&writes->fid) == 0);
    CHECK(w, fi_close(&reads->fid) == 0);
}

/// fi_mr_bind(3): a counter of one region counts what is done to that one alone; it cannot be closed before
void region_binding(World& w)
{
    CHECK(w, w.has(FI_RMA_EVENT | FI_RMA) || !w.ours());
    if (!w.has(FI_RMA_EVENT | FI_RMA))
        return;
    Station s(w);
    fid_cntr* const c = open_counter(w, FI_WAIT_UNSPEC);
    std::vector<std::uint64_t> memory(1024);
    fid_mr* mr = nullptr;
    CHECK(w, fi_mr_reg(w.domain(), memory.data(), 8192, FI_REMOTE_WRITE | FI_REMOTE_READ, 0, 0x900 + w.rank(),
                       FI_RMA_EVENT, &mr, nullptr) == 0);
    const int bound = fi_mr_bind(mr, &c->fid, FI_REMOTE_WRITE);
    CHECK(w, bound == 0 || !w.ours());
    if (bound == 0 && (w.info().domain_attr->mr_mode & FI_MR_RMA_EVENT))
        CHECK(w, fi_mr_enable(mr) == 0);
    w.barrier();
    const std::uint64_t old_key = w.key(w.rank());
    const std::uint64_t old_base = w.shared().base[w.rank()];
    w.shared().word[w.rank()] = fi_mr_key(mr);
    const bool absolute = (w.info().domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
    w.shared().base[w.rank()] = absolute ? reinterpret_cast<std::uintptr_t>(memory.data()) : 0;
    w.barrier();
    const unsigned to = next(w);
    const std::uint64_t there = w.address(to, 0), key = w.shared().word[to];
    if (bound == 0) {
        for (unsigned i = 0; i < 7; ++i)
            CHECK(w,
                  s.post([&] { return fi_inject_write(s.ep(), w.local(), 8, s.peer(to), there + 8 * i, key); }) == 0);
        CHECK(w, fi_cntr_wait(c, 7, static_cast<int>(1000 * w.patience())) == 0);
        CHECK(w, fi_close(&c->fid) == -FI_EBUSY);
    }
    w.barrier();
    w.shared().base[w.rank()] = old_base;
    w.barrier();
    // Another region's are not counted, nor reads.
    for (unsigned i = 0; i < 3; ++i)
        CHECK(w, s.post([&] {
            return fi_write(s.ep(), w.local(), 8, w.desc(), s.peer(to), w.address(to, 0), w.key(to), nullptr);
        }) == 0);
    CHECK(w, s.post([&] { return fi_read(s.ep(), w.local(), 8, w.desc(), s.peer(to), there, key, nullptr); }) == 0);
    for (unsigned i = 0; i < 4; ++i)
        CHECK(w, s.wait(s.tx()).error.err == 0);
    w.barrier();
    CHECK(w, bound != 0 || fi_cntr_read(c) == 7);
    CHECK(w, old_key == w.key(w.rank()));
    w.barrier();
    CHECK(w, fi_close(&mr->fid) == 0);
    CHECK(w, fi_close(&c->fid) == 0);
}

/// One counter for several kinds of operation, and "An endpoint may only be bound to a single ... counter for a given
/// type of operation"; "If resources are still associated ..., the call will return -FI_EBUSY."
void several(World& w)
{
    if (!w.ours())
        return;
    fi_info* info = fi_dupinfo(&w.info());
    Station s(w, {.counters = FI_SEND});
    CHECK(w, fi_close(&s.counter(FI_SEND)->fid) == -FI_EBUSY);
    fid_cntr* const a = open_counter(w, FI_WAIT_NONE);
    fid_cntr* const b = open_counter(w, FI_WAIT_NONE);
    fid_ep* ep = nullptr;
    CHECK(w, fi_endpoint(w.domain(), info, &ep, nullptr) == 0);
    CHECK(w, fi_ep_bind(ep, &a->fid, FI_SEND | FI_RECV) == 0);
    CHECK(w, fi_ep_bind(ep, &b->fid, FI_RECV) == -FI_EINVAL);
    CHECK(w, fi_ep_bind(ep, &b->fid, FI_READ | FI_WRITE) == 0);
    CHECK(w, fi_close(&a->fid) == -FI_EBUSY);
    CHECK(w, fi_close(&ep->fid) == 0);
    CHECK(w, fi_close(&a->fid) == 0);
    CHECK(w, fi_close(&b->fid) == 0);
    fi_freeinfo(info);
}

constexpr Case cases[] = {
    {"attributes", attributes},
    {"values", values},
    {"wait_reached", wait_reached},
    {"wait_messages", wait_messages},
    {"wait_timeout", wait_timeout},
    {"wait_error", wait_error},
    {"failed_operations", failed_operations},
    {"no_processor_time", no_processor_time},
    {"wait_objects", wait_objects},
    {"bindings", bindings},
    {"remote_bindings", remote_bindings},
    {"region_binding", region_binding},
    {"region_atomics", region_atomics},
    {"several", several},
};

} // namespace

const Program program{{.ranks = 2, .caps = FI_TAGGED, .wished_caps = FI_RMA | FI_ATOMIC | FI_RMA_EVENT}, cases};

} // namespace fabtests
