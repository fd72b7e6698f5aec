// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What fi_cq(3) says of waiting.
#include "queue_checks.h"

namespace fabtests {
namespace {

/// Each round one rank after the other waits in `wait`, which ends with one entry, and its neighbour sends.
template <class Wait>
void be_woken(World& w, Station& s, Wait wait)
{
    for (unsigned round = 0; round < 4; ++round)
        for (unsigned sleeper = 0; sleeper < w.ranks(); ++sleeper) {
            if (w.rank() == sleeper)
                CHECK(w, recv_any(w, s) == 0);
            w.barrier();
            if (w.rank() == sleeper && w.ranks() > 1)
                wait();
            if (next(w) == sleeper) {
                dawdle(round);
                CHECK(w, send_to(w, s, sleeper) == 0);
                CHECK(w, s.wait(s.tx()).error.err == 0);
            }
            if (w.rank() == sleeper && w.ranks() == 1)
                wait();
            w.barrier();
        }
}

bool sread_works(World& w, Station& s)
{
    fi_cq_tagged_entry entry{};
    const ssize_t n = fi_cq_sread(s.rx(), &entry, 1, nullptr, static_cast<int>(1000 * w.patience()));
    return n == 1 && (entry.flags & FI_RECV) != 0;
}

} // namespace

/// "the calls will not return until either a completion has been read from the CQ or an error or timeout occurs"
void cq_blocking_read(World& w)
{
    Station s(w, {.wait = FI_WAIT_UNSPEC});
    if (!s.opened())
        return;
    fi_cq_tagged_entry entries[4];
    // "If the timeout expires ... returns -FI_EAGAIN"
    for (int timeout : {0, 1, 40}) {
        const std::uint64_t begin = World::now_ms();
        CHECK(w, fi_cq_sread(s.rx(), entries, 4, nullptr, timeout) == -FI_EAGAIN);
        CHECK(w, World::now_ms() + 2 >= begin + static_cast<unsigned>(timeout));
    }
    be_woken(w, s, [&] { CHECK(w, sread_works(w, s)); });
    // "A negative value indicates infinite timeout"; what is there is read at once, as much as there is room for
    for (unsigned i = 0; i < 4; ++i)
        CHECK(w, recv_any(w, s) == 0);
    w.barrier();
    for (unsigned i = 0; i < 4; ++i)
        CHECK(w, send_to(w, s, next(w)) == 0);
    ssize_t got = 0;
    while (got < 4) {
        fi_addr_t sources[4];
        const ssize_t n = fi_cq_sreadfrom(s.rx(), entries, static_cast<std::size_t>(4 - got), sources, nullptr, -1);
        if (!CHECK(w, n >= 1 && n <= 4 - got))
            return;
        CHECK(w, !w.has(FI_SOURCE) || sources[0] == s.peer(before(w)));
        got += n;
    }
    // "If the topmost completion is for a failed transfer (an error entry), returns -FI_EAVAIL."
    CHECK(w, recv_any(w, s, 3) == 0);
    w.barrier();
    CHECK(w, send_to(w, s, next(w), 8) == 0);
    CHECK(w, fi_cq_sread(s.rx(), entries, 4, nullptr, static_cast<int>(1000 * w.patience())) == -FI_EAVAIL);
    CHECK(w, s.wait(s.rx()).error.err == FI_ETRUNC);
    for (unsigned i = 0; i < 5; ++i)
        s.wait(s.tx());
    CHECK(w, s.quiet(s.tx()) && s.quiet(s.rx()));
}

/// "the number of entries that are to be queued before at the CQ before the wait is satisfied"; "Applications should
/// not rely on the condition necessarily being true"
void cq_threshold(World& w)
{
    Station s(w, {.wait = FI_WAIT_UNSPEC, .condition = FI_CQ_COND_THRESHOLD});
    if (!s.opened())
        return;
    for (unsigned round = 0; round < 4; ++round) {
        for (unsigned i = 0; i < 8; ++i)
            CHECK(w, recv_any(w, s) == 0);
        w.barrier();
        for (unsigned i = 0; i < 8; ++i) {
            dawdle(i % 4 == 3 ? round : 0);
            CHECK(w, send_to(w, s, next(w)) == 0);
        }
        ssize_t got = 0;
        while (got < 8) {
            fi_cq_tagged_entry entries[8];
            const std::size_t least = 4;
            const ssize_t n = fi_cq_sread(s.rx(), entries, static_cast<std::size_t>(8 - got),
                                          reinterpret_cast<void*>(least), static_cast<int>(1000 * w.patience()));
            if (!CHECK(w, n >= 1))
                return;
            CHECK(w, !w.ours() || n >= 4 || got + n == 8);
            got += n;
        }
        for (unsigned i = 0; i < 8; ++i)
            CHECK(w, s.wait(s.tx()).error.err == 0);
    }
    // Too few of them: the timeout ends it.
    fi_cq_tagged_entry entries[8];
    CHECK(w, fi_cq_sread(s.rx(), entries, 8, reinterpret_cast<void*>(std::size_t{4}), 20) == -FI_EAGAIN);
}

/// "The fi_cq_signal call will unblock any thread waiting in fi_cq_sread or fi_cq_sreadfrom."
void cq_signal(World& w)
{
    for (fi_wait_obj kind : {FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_YIELD}) {
        Station s(w, {.wait = kind});
        if (!s.opened())
            continue;
        for (unsigned round = 0; round < 3; ++round) {
            fi_cq_tagged_entry entry{};
            const long n = in_thread(
                w, [&] { return fi_cq_sread(s.rx(), &entry, 1, nullptr, -1); },
                [&] { CHECK(w, fi_cq_signal(s.rx()) == 0); });
            // "If ... the calling thread is signaled and no data is available ..., returns -FI_EAGAIN."
            CHECK(w, n == -FI_EAGAIN);
        }
        // The queue is as good as before.
        CHECK(w, recv_any(w, s) == 0);
        w.barrier();
        CHECK(w, send_to(w, s, next(w)) == 0);
        CHECK(w, s.wait(s.rx()).error.err == 0);
        CHECK(w, s.wait(s.tx()).error.err == 0);
    }
}

/// A thread that waits leaves the processor to others: measured by what it used, not by the clock.
void cq_no_processor_time(World& w)
{
    for (fi_wait_obj kind : {FI_WAIT_UNSPEC, FI_WAIT_FD}) {
        Station s(w, {.wait = kind});
        if (!s.opened())
            continue;
        fi_cq_tagged_entry entry{};
        (void)fi_cq_sread(s.rx(), &entry, 1, nullptr, 10); // whatever happens first
        const unsigned before_it = busy_ms();
        CHECK(w, fi_cq_sread(s.rx(), &entry, 1, nullptr, 400) == -FI_EAGAIN);
        CHECK(w, busy_ms() - before_it < 100);
    }
}

/// "When FI_WAIT_NONE is specified, the application may not call fi_cq_sread or fi_cq_sreadfrom."
void cq_wait_none(World& w)
{
    Station s(w, {.wait = FI_WAIT_NONE});
    fi_cq_tagged_entry entry{};
    int descriptor = -1;
    if (w.ours()) {
        CHECK(w, fi_cq_sread(s.rx(), &entry, 1, nullptr, 0) == -FI_EINVAL);
        CHECK(w, fi_control(&s.rx()->fid, FI_GETWAIT, &descriptor) < 0);
        CHECK(w, fi_cq_signal(s.rx()) < 0); // "only available if the CQ was configured with a wait object"
        fi_wait_obj kind = FI_WAIT_FD;
        CHECK(w, fi_control(&s.rx()->fid, FI_GETWAITOBJ, &kind) == 0 && kind == FI_WAIT_NONE);
    }
    CHECK(w, fi_cq_read(s.rx(), &entry, 1) == -FI_EAGAIN);
}

/// "A file descriptor wait object must be usable in select, poll, and epoll routines."
void cq_wait_fd(World& w)
{
    Station s(w, {.wait = FI_WAIT_FD});
    if (!s.opened())
        return;
    fi_wait_obj kind = FI_WAIT_NONE;
    const int known = fi_control(&s.rx()->fid, FI_GETWAITOBJ, &kind);
    CHECK(w, (known == 0 && kind == FI_WAIT_FD) || (known == -FI_ENOSYS && !w.ours()));
    be_woken(w, s, [&] { CHECK(w, sread_works(w, s)); });
    auto look = [&] {
        fi_cq_tagged_entry entry{};
        return fi_cq_read(s.rx(), &entry, 1) == 1;
    };
    be_woken(w, s, [&] { CHECK(w, sleep_on(w, &s.rx()->fid, FI_WAIT_FD, look)); });
    // "-FI_EAGAIN if there are events queued on the fabric descriptor"
    CHECK(w, recv_any(w, s) == 0);
    w.barrier();
    CHECK(w, send_to(w, s, next(w)) == 0);
    fid* object = &s.rx()->fid;
    CHECK(w, w.until([&] { return fi_trywait(w.fabric(), &object, 1) == -FI_EAGAIN; }));
    CHECK(w, s.wait(s.rx()).error.err == 0);
    CHECK(w, s.wait(s.tx()).error.err == 0);
    CHECK(w, w.until([&] { return fi_trywait(w.fabric(), &object, 1) == 0; }));
}

/// "the CQ should use a pthread mutex and cond variable as a wait object"
void cq_wait_mutex_cond(World& w)
{
    Station s(w, {.wait = FI_WAIT_MUTEX_COND});
    if (!s.opened())
        return;
    auto look = [&] {
        fi_cq_tagged_entry entry{};
        return fi_cq_read(s.rx(), &entry, 1) == 1;
    };
    be_woken(w, s, [&] { CHECK(w, sleep_on(w, &s.rx()->fid, FI_WAIT_MUTEX_COND, look)); });
    be_woken(w, s, [&] { CHECK(w, sread_works(w, s)); });
}

/// "yield on every wait. Allows usage of fi_cq_sread and fi_cq_sreadfrom through a spin."
void cq_wait_yield(World& w)
{
    Station s(w, {.wait = FI_WAIT_YIELD});
    if (!s.opened())
        return;
    fi_cq_tagged_entry entry{};
    CHECK(w, fi_cq_sread(s.rx(), &entry, 1, nullptr, 10) == -FI_EAGAIN);
    be_woken(w, s, [&] { CHECK(w, sread_works(w, s)); });
}

} // namespace fabtests
