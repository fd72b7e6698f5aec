// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_poll(3), statement by statement: poll sets, wait sets and fi_trywait, between processes; any provider (-p). Run by
// make check and by hand.
#include "queue_checks.h"

// Wait sets and poll sets: deprecated since libfabric 2, and still there.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace fabtests {
namespace {

/// A poll set of its own. Null: not offered, which only others may say.
struct Set {
    World& w;
    fid_poll* set = nullptr;
    explicit Set(World& world) : w(world)
    {
        fi_poll_attr attr{};
        const int rc = fi_poll_open(w.domain(), &attr, &set);
        CHECK(w, rc == 0 || !w.ours());
    }
    Set(const Set&) = delete;
    ~Set()
    {
        if (set != nullptr)
            CHECK(w, fi_close(&set->fid) == 0);
    }
    explicit operator bool() const { return set != nullptr; }
    void add(fid* object) { CHECK(w, fi_poll_add(set, object, 0) == 0); }
    void remove(fid* object) { CHECK(w, fi_poll_del(set, object, 0) == 0); }
    /// What fi_poll answers; the contexts are in found.
    int poll(int room = 8) { return fi_poll(set, found, room); }
    /// Polls until something is found, by fi_poll alone.
    bool finds(const void* context)
    {
        const std::uint64_t end = World::now_ms() + 1000 * w.patience();
        while (World::now_ms() < end) {
            const int n = poll();
            for (int i = 0; i < n; ++i)
                if (found[i] == context)
                    return true;
        }
        return false;
    }
    void* found[8] = {};
};

/// A counter by itself.
struct Count {
    World& w;
    fid_cntr* counter = nullptr;
    explicit Count(World& world, fid_wait* wait_set = nullptr) : w(world)
    {
        fi_cntr_attr attr{};
        attr.wait_obj = wait_set != nullptr ? FI_WAIT_SET : FI_WAIT_UNSPEC;
        attr.wait_set = wait_set;
        const int rc = fi_cntr_open(w.domain(), &attr, &counter, this);
        CHECK(w, rc == 0 || !w.ours());
    }
    Count(const Count&) = delete;
    ~Count()
    {
        if (counter != nullptr)
            CHECK(w, fi_close(&counter->fid) == 0);
    }
};

/// fi_poll_open, fi_poll_add, fi_poll_del, fi_close
void poll_members(World& w)
{
    fid_poll* set = nullptr;
    fi_poll_attr attr{};
    attr.flags = 1; // "must be set to 0 by the caller"
    if (w.ours()) {
        CHECK(w, fi_poll_open(w.domain(), &attr, &set) == -FI_EINVAL);
        CHECK(w, fi_poll_open(w.domain(), nullptr, &set) == 0 && fi_close(&set->fid) == 0);
    }
    Set p(w);
    if (!p)
        return;
    CHECK(w, p.set->fid.fclass == FI_CLASS_POLL);
    CHECK(w, p.poll() == 0);
    {
        Count c(w);
        p.add(&c.counter->fid);
        if (w.ours()) {
            CHECK(w, fi_close(&p.set->fid) == -FI_EBUSY); // "must not be associated with any other resources"
            CHECK(w, fi_close(&c.counter->fid) == -FI_EBUSY);
            CHECK(w, fi_poll_add(p.set, &c.counter->fid, 1) < 0);
            CHECK(w, fi_poll_add(p.set, &w.domain()->fid, 0) == -FI_EINVAL); // neither queue nor counter
            CHECK(w, fi_poll_del(p.set, &w.cq()->fid, 0) == -FI_EINVAL);     // not a member
        }
        p.remove(&c.counter->fid);
    }
}

/// fi_poll: "Completion queues will return their context if they are not empty", and it makes progress itself
void poll_queues(World& w)
{
    Station s(w);
    Set p(w);
    if (!s.opened() || !p)
        return;
    p.add(&s.rx()->fid);
    for (unsigned round = 0; round < 3; ++round) {
        for (unsigned i = 0; i < 2; ++i)
            CHECK(w, recv_any(w, s) == 0);
        w.barrier();
        CHECK(w, !w.ours() || p.poll() == 0);
        w.barrier();
        dawdle(round);
        for (unsigned i = 0; i < 2; ++i)
            CHECK(w, send_to(w, s, next(w)) == 0);
        CHECK(w, p.finds(&s));
        CHECK(w, s.wait(s.rx()).error.err == 0);
        CHECK(w, p.finds(&s)); // the other one
        CHECK(w, p.poll() == 1);
        CHECK(w, s.wait(s.rx()).error.err == 0);
        CHECK(w, p.poll() == 0 || !w.ours()); // false positives are allowed
        for (unsigned i = 0; i < 2; ++i)
            CHECK(w, s.wait(s.tx()).error.err == 0);
    }
    // An error is an event as well.
    CHECK(w, recv_any(w, s, 3) == 0);
    w.barrier();
    CHECK(w, send_to(w, s, next(w), 8) == 0);
    CHECK(w, p.finds(&s));
    CHECK(w, s.wait(s.rx()).error.err == FI_ETRUNC);
    s.wait(s.tx());
    p.remove(&s.rx()->fid);
}

/// "if the counter's success value or error value have changed since the last time fi_poll, fi_cntr_set, or fi_cntr_add
/// were called"
void poll_counters(World& w)
{
    Station s(w, {.counters = FI_RECV, .counter_wait = FI_WAIT_UNSPEC});
    Set p(w);
    if (!s.opened() || !p)
        return;
    fid_cntr* const c = s.counter(FI_RECV);
    p.add(&c->fid);
    for (unsigned round = 0; round < 3; ++round) {
        const std::size_t room = round == 1 ? 3 : 64; // too short: the error value
        CHECK(w, recv_any(w, s, room) == 0);
        w.barrier();
        CHECK(w, send_to(w, s, next(w), 8) == 0);
        CHECK(w, p.finds(&s));
        CHECK(w, !w.ours() || p.poll() == 0); // once for each change
        CHECK(w, s.wait(s.rx()).error.err == (round == 1 ? FI_ETRUNC : 0));
        CHECK(w, s.wait(s.tx()).error.err == 0);
        w.barrier();
    }
    CHECK(w, fi_cntr_read(c) == 2 && fi_cntr_readerr(c) == 1);
    if (w.ours()) {
        CHECK(w, fi_cntr_add(c, 5) == 0 && p.poll() == 0);
        CHECK(w, fi_cntr_set(c, 100) == 0 && p.poll() == 0);
        CHECK(w, fi_cntr_adderr(c, 1) == 0 && p.poll() == 1 && p.found[0] == &s); // not named among them
    }
    p.remove(&c->fid);
}

/// "The number of contexts is limited to the size of the context array", and the rest is reported next time
void poll_room(World& w)
{
    Set p(w);
    if (!p)
        return;
    Count a(w), b(w), c(w);
    for (Count* count : {&a, &b, &c}) {
        p.add(&count->counter->fid);
        CHECK(w, fi_cntr_adderr(count->counter, 1) == 0);
    }
    p.found[1] = &w;
    int told = 0;
    bool seen[3] = {};
    for (unsigned i = 0; i < 100 && told < 3; ++i) {
        const int n = p.poll(1);
        CHECK(w, n == 0 || n == 1);
        CHECK(w, p.found[1] == &w);
        for (Count* count : {&a, &b, &c})
            if (n == 1 && p.found[0] == count)
                seen[count == &b ? 1 : count == &c ? 2 : 0] = true;
        told += n;
    }
    CHECK(w, seen[0] && seen[1] && seen[2]);
    for (Count* count : {&a, &b, &c})
        p.remove(&count->counter->fid);
}

/// "Progresses all completion queues", those whose context finds no room as well: a long message comes in by fi_poll
/// alone.
void poll_progress(World& w)
{
    if (w.ranks() != 2)
        return;
    Station full(w), other(w);
    Set p(w);
    if (!full.opened() || !other.opened() || !p)
        return;
    constexpr std::size_t size = 512 << 10;
    std::uint64_t& told = w.shared().word[0];
    std::atomic_ref(told).store(0, std::memory_order_relaxed);
    p.add(&full.rx()->fid);
    p.add(&other.rx()->fid);
    CHECK(w, recv_any(w, full) == 0 && send_to(w, full, next(w)) == 0);
    CHECK(w, full.wait(full.tx()).error.err == 0 && p.finds(&full));
    if (w.rank() == 1)
        CHECK(w, recv_any(w, other, size) == 0);
    w.barrier();
    if (w.rank() == 0) {
        CHECK(w, send_to(w, other, 1, size) == 0);
        CHECK(w, other.wait(other.tx()).error.err == 0);
        std::atomic_ref(told).store(1, std::memory_order_release);
    }
    const std::uint64_t end = World::now_ms() + 1000 * w.patience();
    while (std::atomic_ref(told).load(std::memory_order_acquire) == 0 && World::now_ms() < end)
        CHECK(w, p.poll(1) == 1);
    CHECK(w, std::atomic_ref(told).load(std::memory_order_acquire) == 1);
    w.barrier();
    CHECK(w, full.wait(full.rx()).error.err == 0);
    if (w.rank() == 1)
        CHECK(w, other.wait(other.rx()).ok.len == size);
    p.remove(&full.rx()->fid);
    p.remove(&other.rx()->fid);
}

/// A wait set of its own.
struct Waiting {
    World& w;
    fid_wait* set = nullptr;
    Waiting(World& world, fi_wait_obj kind) : w(world)
    {
        fi_wait_attr attr{};
        attr.wait_obj = kind;
        const int rc = fi_wait_open(w.fabric(), &attr, &set);
        CHECK(w, rc == 0 || !w.ours());
        if (rc != 0)
            set = nullptr;
    }
    Waiting(const Waiting&) = delete;
    ~Waiting()
    {
        if (set != nullptr)
            CHECK(w, fi_close(&set->fid) == 0);
    }
    explicit operator bool() const { return set != nullptr; }
};

constexpr fi_wait_obj kinds[] = {FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_YIELD};

/// fi_wait_open, fi_close, fi_control
void wait_attributes(World& w)
{
    for (fi_wait_obj kind : kinds) {
        Waiting s(w, kind);
        if (!s)
            continue;
        CHECK(w, s.set->fid.fclass == FI_CLASS_WAIT);
        fi_wait_obj said = FI_WAIT_NONE;
        const int known = fi_control(&s.set->fid, FI_GETWAITOBJ, &said);
        CHECK(w, (known == 0 && said == kind) || !w.ours());
        fi_mutex_cond object{};
        if (kind == FI_WAIT_FD || kind == FI_WAIT_MUTEX_COND)
            CHECK(w, fi_control(&s.set->fid, FI_GETWAIT, &object) == 0 || !w.ours());
        else if (w.ours())
            CHECK(w, fi_control(&s.set->fid, FI_GETWAIT, &object) < 0);
        if (!w.ours())
            continue;
        Count c(w, s.set);
        CHECK(w, fi_close(&s.set->fid) == -FI_EBUSY); // "must not be bound to any other opened resources"
    }
    if (!w.ours())
        return;
    fid_wait* set = nullptr;
    fi_wait_attr attr{};
    attr.wait_obj = FI_WAIT_POLLFD; // not offered, and said so
    CHECK(w, fi_wait_open(w.fabric(), &attr, &set) == -FI_ENOSYS);
    attr.wait_obj = FI_WAIT_FD;
    attr.flags = 1; // "must be set to 0 by the caller"
    CHECK(w, fi_wait_open(w.fabric(), &attr, &set) == -FI_EINVAL);
}

/// The members of a wait set, of each kind that there is.
struct Members {
    World& w;
    fid_cq* cq = nullptr;
    fid_eq* eq = nullptr;
    Count count;
    Members(World& world, fid_wait* set) : w(world), count(world, set)
    {
        fi_cq_attr queue{};
        queue.format = FI_CQ_FORMAT_TAGGED;
        queue.wait_obj = FI_WAIT_SET;
        queue.wait_set = set;
        CHECK(w, fi_cq_open(w.domain(), &queue, &cq, this) == 0);
        fi_eq_attr events{};
        events.flags = FI_WRITE;
        events.wait_obj = FI_WAIT_SET;
        events.wait_set = set;
        CHECK(w, fi_eq_open(w.fabric(), &events, &eq, this) == 0);
    }
    Members(const Members&) = delete;
    ~Members()
    {
        CHECK(w, eq == nullptr || fi_close(&eq->fid) == 0);
        CHECK(w, cq == nullptr || fi_close(&cq->fid) == 0);
    }
    void write()
    {
        const fi_eq_entry entry{&eq->fid, nullptr, 1};
        CHECK(w, fi_eq_write(eq, FI_NOTIFY, &entry, sizeof entry, 0) == sizeof entry);
    }
    bool read()
    {
        fi_eq_entry entry{};
        std::uint32_t event;
        return fi_eq_read(eq, &event, &entry, sizeof entry, 0) == sizeof entry;
    }
};

/// fi_wait: "until one or more of its underlying wait objects is signaled", or the timeout
void wait_members(World& w)
{
    if (!w.ours())
        return; // which objects may join is theirs; the next case asks what all should do
    for (fi_wait_obj kind : kinds) {
        Waiting s(w, kind);
        Members m(w, s.set);
        for (int timeout : {0, 1, 30}) {
            const std::uint64_t begin = World::now_ms();
            CHECK(w, fi_wait(s.set, timeout) == -FI_ETIMEDOUT);
            CHECK(w, World::now_ms() + 2 >= begin + static_cast<unsigned>(timeout));
        }
        const unsigned used = busy_ms();
        CHECK(w, fi_wait(s.set, 200) == -FI_ETIMEDOUT);
        CHECK(w, kind == FI_WAIT_YIELD || busy_ms() - used < 100);
        // a counter's error, then an event, by another thread
        bool done = false;
        CHECK(w, in_thread(
                     w, [&] { return fi_wait(s.set, -1); },
                     [&] {
                         if (!done)
                             CHECK(w, fi_cntr_adderr(m.count.counter, 1) == 0);
                         done = true;
                     }) == 0);
        CHECK(w, fi_cntr_readerr(m.count.counter) == 1 && fi_cntr_read(m.count.counter) == 0);
        CHECK(w, fi_wait(s.set, 0) == -FI_ETIMEDOUT); // it has been seen
        done = false;
        CHECK(w, in_thread(
                     w, [&] { return fi_wait(s.set, -1); },
                     [&] {
                         if (!done)
                             m.write();
                         done = true;
                     }) == 0);
        CHECK(w, fi_wait(s.set, 0) == 0); // still there
        CHECK(w, m.read() && !m.read());
        CHECK(w, fi_wait(s.set, 0) == -FI_ETIMEDOUT);
        // "It is invalid" to block on a member itself (fi_cq(3), fi_eq(3))
        fi_cq_tagged_entry entry;
        std::uint32_t event;
        CHECK(w, fi_cq_sread(m.cq, &entry, 1, nullptr, 0) == -FI_EINVAL);
        CHECK(w, fi_eq_sread(m.eq, &event, &entry, sizeof entry, 0, 0) == -FI_EINVAL);
    }
}

/// An endpoint whose queues are in the set: messages of a peer end the wait, by fi_wait and by native means.
void wait_messages(World& w)
{
    for (fi_wait_obj kind : {FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_MUTEX_COND}) {
        Waiting set(w, kind);
        if (!set)
            continue;
        Station s(w, {.wait = FI_WAIT_SET, .wait_set = set.set});
        if (!s.opened())
            continue;
        for (unsigned round = 0; round < 6; ++round) {
            CHECK(w, recv_any(w, s) == 0);
            w.barrier();
            const bool sleeps = (w.rank() + round) % 2 == 0 && w.ranks() > 1;
            auto look = [&] {
                fi_cq_tagged_entry entry{};
                return fi_cq_read(s.rx(), &entry, 1) == 1;
            };
            auto wait = [&] {
                if (kind != FI_WAIT_UNSPEC && round % 3 == 2) {
                    CHECK(w, sleep_on(w, &set.set->fid, kind, look));
                    return;
                }
                bool some = false;
                for (std::uint64_t end = World::now_ms() + 1000 * w.patience(); !some && World::now_ms() < end;) {
                    const int rc = fi_wait(set.set, 1000);
                    CHECK(w, rc == 0 || rc == -FI_ETIMEDOUT);
                    some = look();
                }
                CHECK(w, some);
            };
            if (sleeps)
                wait();
            dawdle(sleeps ? 0 : round);
            CHECK(w, send_to(w, s, next(w)) == 0);
            if (!sleeps)
                wait();
            CHECK(w, s.wait(s.tx()).error.err == 0);
            w.barrier();
        }
    }
}

/// fi_trywait of a queue, a counter, an event queue and a wait set, alone and together
void try_wait(World& w)
{
    if (!w.ours())
        return; // one object at a time on any provider: fi_cq_pages, fi_cntr_pages, fi_eq_pages
    Waiting set(w, FI_WAIT_FD);
    Members m(w, set.set);
    Station s(w, {.wait = FI_WAIT_FD, .counters = FI_RECV, .counter_wait = FI_WAIT_FD});
    fid* all[] = {&s.rx()->fid, &s.counter(FI_RECV)->fid, &set.set->fid};
    CHECK(w, fi_trywait(w.fabric(), all, 3) == 0 && fi_trywait(w.fabric(), all, 0) == 0);
    m.write(); // of the set's member only the set needs to be asked
    CHECK(w, fi_trywait(w.fabric(), all, 3) == -FI_EAGAIN && fi_trywait(w.fabric(), all, 2) == 0);
    CHECK(w, m.read() && fi_trywait(w.fabric(), all, 3) == 0);
    CHECK(w, recv_any(w, s) == 0);
    w.barrier();
    CHECK(w, send_to(w, s, next(w)) == 0);
    CHECK(w, w.until([&] { return fi_trywait(w.fabric(), all, 1) == -FI_EAGAIN; }));
    CHECK(w, fi_trywait(w.fabric(), all + 1, 1) == -FI_EAGAIN);
    CHECK(w, fi_cntr_read(s.counter(FI_RECV)) == 1 && fi_trywait(w.fabric(), all + 1, 2) == 0);
    CHECK(w, s.wait(s.rx()).error.err == 0 && fi_trywait(w.fabric(), all, 3) == 0);
    CHECK(w, s.wait(s.tx()).error.err == 0);
    fid* wrong = &w.domain()->fid;
    CHECK(w, fi_trywait(w.fabric(), &wrong, 1) == -FI_EINVAL);
    wrong = nullptr;
    CHECK(w, fi_trywait(w.fabric(), &wrong, 1) == -FI_EINVAL);
}

constexpr Case cases[] = {
    {"poll_members", poll_members}, {"poll_queues", poll_queues},     {"poll_counters", poll_counters},
    {"poll_room", poll_room},       {"poll_progress", poll_progress}, {"wait_attributes", wait_attributes},
    {"wait_members", wait_members}, {"wait_messages", wait_messages}, {"try_wait", try_wait},
};

} // namespace

const Program program{{.ranks = 2, .caps = FI_TAGGED}, cases};

} // namespace fabtests
