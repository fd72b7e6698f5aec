// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_eq(3), statement by statement; any provider (-p). The events are the application's own, and those of address
// vectors and memory regions. Run by make check and by hand.
#include <cstring>

#include "waiting.h"

// fi_av_bind: deprecated since libfabric 2, and still there.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace fabtests {
namespace {

/// An event queue of its own, closed at the end. Null: not offered, which only others may say.
struct Queue {
    World& w;
    fid_eq* eq = nullptr;
    Queue(World& world, fi_wait_obj kind, std::uint64_t flags = FI_WRITE, std::size_t size = 64) : w(world)
    {
        fi_eq_attr attr{};
        attr.size = size;
        attr.flags = flags;
        attr.wait_obj = kind;
        const int rc = fi_eq_open(w.fabric(), &attr, &eq, &w);
        CHECK(w, rc == 0 || !w.ours());
    }
    Queue(const Queue&) = delete;
    ~Queue()
    {
        if (eq != nullptr)
            CHECK(w, fi_close(&eq->fid) == 0);
    }
    explicit operator bool() const { return eq != nullptr; }

    /// An event that says `number`.
    ssize_t write(std::uint64_t number, std::uint32_t event = FI_NOTIFY)
    {
        fi_eq_entry entry{&eq->fid, this, number};
        return fi_eq_write(eq, event, &entry, sizeof entry, 0);
    }
    ssize_t read(std::uint64_t& number, std::uint64_t flags = 0)
    {
        fi_eq_entry entry{};
        std::uint32_t event = 0;
        const ssize_t n = fi_eq_read(eq, &event, &entry, sizeof entry, flags);
        number = entry.data;
        return n;
    }
    ssize_t sread(std::uint64_t& number, int timeout)
    {
        fi_eq_entry entry{};
        std::uint32_t event = 0;
        const ssize_t n = fi_eq_sread(eq, &event, &entry, sizeof entry, timeout, 0);
        number = entry.data;
        return n;
    }
    bool empty()
    {
        std::uint64_t number;
        return read(number) == -FI_EAGAIN;
    }
};

constexpr std::uint64_t reg_mr = std::uint64_t{1} << 59; // FI_REG_MR: libfabric 2 deprecates the name
constexpr ssize_t whole = sizeof(fi_eq_entry);
constexpr fi_wait_obj kinds[] = {FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_YIELD};

/// fi_eq_open
void attributes(World& w)
{
    {
        Queue q(w, FI_WAIT_NONE, 0);
        CHECK(w, q.eq->fid.fclass == FI_CLASS_EQ && q.eq->fid.context == &w);
        CHECK(w, q.empty());
    }
    fid_eq* eq = nullptr;
    fi_eq_attr attr{}; // "the default if no wait object is specified"
    CHECK(w, fi_eq_open(w.fabric(), &attr, &eq, nullptr) == 0 && fi_close(&eq->fid) == 0);
    attr.flags = FI_AFFINITY; // "should be treated as a hint"
    const int with_hint = fi_eq_open(w.fabric(), &attr, &eq, nullptr);
    CHECK(w, with_hint == 0 || !w.ours());
    if (with_hint == 0)
        CHECK(w, fi_close(&eq->fid) == 0);
    if (!w.ours())
        return;
    attr.flags = FI_MORE;
    CHECK(w, fi_eq_open(w.fabric(), &attr, &eq, nullptr) == -FI_EINVAL);
    attr.flags = 0;
    attr.wait_obj = FI_WAIT_SET; // "must reference an existing wait set object"
    CHECK(w, fi_eq_open(w.fabric(), &attr, &eq, nullptr) == -FI_EINVAL);
    attr.wait_obj = static_cast<fi_wait_obj>(99);
    CHECK(w, fi_eq_open(w.fabric(), &attr, &eq, nullptr) < 0);
}

/// fi_eq_write, fi_eq_read: bytes and code of an event, one for each read, in order; "-FI_EAGAIN"
void write_and_read(World& w)
{
    Queue q(w, FI_WAIT_NONE);
    if (!q)
        return;
    for (std::uint64_t i = 0; i < 50; ++i)
        CHECK(w, q.write(i, i % 2 ? FI_CONNECTED : FI_NOTIFY) == whole);
    for (std::uint64_t i = 0; i < 50; ++i) {
        fi_eq_entry entries[2] = {};
        std::uint32_t event = 99;
        CHECK(w, fi_eq_read(q.eq, &event, entries, sizeof entries, 0) == whole);
        CHECK(w, event == (i % 2 ? FI_CONNECTED : FI_NOTIFY));
        CHECK(w, entries[0].fid == &q.eq->fid && entries[0].context == &q && entries[0].data == i);
        CHECK(w, entries[1].fid == nullptr);
    }
    CHECK(w, q.empty());
    if (!w.ours())
        return;
    std::uint32_t event = 0;
    char small[8], large[1000];
    CHECK(w, q.write(7) == whole);
    CHECK(w, fi_eq_read(q.eq, &event, small, sizeof small, 0) == -FI_ETOOSMALL);
    std::uint64_t number = 0;
    CHECK(w, q.read(number) == whole && number == 7); // it was not lost
    CHECK(w, q.write(8) == whole); // without a buffer, as libfabric's queues and its fi_multinode_coll have it
    CHECK(w, fi_eq_read(q.eq, &event, nullptr, 0, FI_PEEK) == 0 && event == FI_NOTIFY);
    CHECK(w, fi_eq_read(q.eq, nullptr, nullptr, 0, 0) == 0 && q.empty());
    std::memset(large, 'l', sizeof large);
    CHECK(w, fi_eq_write(q.eq, FI_NOTIFY, large, sizeof large, 0) == sizeof large);
    CHECK(w, fi_eq_write(q.eq, FI_NOTIFY, nullptr, 0, 0) == 0);
    CHECK(w, fi_eq_write(q.eq, FI_NOTIFY, nullptr, 1, 0) == -FI_EINVAL);
    CHECK(w, fi_eq_read(q.eq, &event, large, sizeof large, 0) == sizeof large && large[999] == 'l');
    CHECK(w, fi_eq_read(q.eq, &event, large, sizeof large, 0) == 0);
}

/// FI_WRITE: "If the FI_WRITE flag is not set, then the application may not invoke fi_eq_write."
void not_writable(World& w)
{
    Queue q(w, FI_WAIT_NONE, 0);
    if (w.ours())
        CHECK(w, q.write(1) < 0 && q.empty());
}

/// FI_PEEK: "read from the EQ without being consumed"
void peek(World& w)
{
    Queue q(w, FI_WAIT_NONE);
    std::uint64_t number = 0;
    if (!q)
        return;
    CHECK(w, q.write(1) == whole && q.write(2) == whole);
    for (unsigned i = 0; i < 3; ++i)
        CHECK(w, q.read(number, FI_PEEK) == whole && number == 1);
    CHECK(w, q.read(number) == whole && number == 1);
    CHECK(w, q.read(number, FI_PEEK) == whole && number == 2);
    CHECK(w, q.read(number) == whole && number == 2);
    CHECK(w, q.read(number, FI_PEEK) == -FI_EAGAIN);
}

/// size: "the minimum size of an event queue"; fi_close: events that remain are lost, and no more
void size(World& w)
{
    for (std::size_t wanted : {1u, 100u, 3000u}) {
        Queue q(w, FI_WAIT_NONE, FI_WRITE, wanted);
        if (!q)
            continue;
        for (std::size_t i = 0; i < wanted; ++i)
            CHECK(w, q.write(i) == whole);
    }
}

/// fi_eq_sread: until an event or the timeout; "A negative timeout means an infinite timeout"
void blocking_read(World& w)
{
    for (fi_wait_obj kind : kinds) {
        Queue q(w, kind);
        if (!q)
            continue;
        std::uint64_t number = 0;
        for (int timeout : {0, 1, 30}) {
            const std::uint64_t begin = World::now_ms();
            CHECK(w, q.sread(number, timeout) == -FI_EAGAIN);
            CHECK(w, World::now_ms() + 2 >= begin + static_cast<unsigned>(timeout));
        }
        CHECK(w, q.write(5) == whole && q.sread(number, -1) == whole && number == 5);
        for (unsigned round = 0; round < 4; ++round) {
            unsigned written = 0;
            CHECK(w, in_thread(
                         w, [&] { return q.sread(number, -1); },
                         [&] {
                             written += round % 2 == 0 || World::now_ms() % 3 == 0 ? q.write(round) == whole : 0;
                         }) == whole);
            CHECK(w, number == round);
            while (q.read(number) == whole) // what came after it
                CHECK(w, number == round && written > 1);
        }
        const unsigned before = busy_ms();
        CHECK(w, q.sread(number, 200) == -FI_EAGAIN);
        CHECK(w, kind == FI_WAIT_YIELD || busy_ms() - before < 100 || !w.ours());
    }
}

/// "It is invalid ... if the EQ has been configured with a wait object of FI_WAIT_NONE"
void wait_none(World& w)
{
    Queue q(w, FI_WAIT_NONE);
    std::uint64_t number = 0;
    fi_wait_obj kind = FI_WAIT_FD;
    if (!w.ours())
        return;
    CHECK(w, q.write(1) == whole && q.sread(number, 0) == -FI_EINVAL);
    CHECK(w, q.read(number) == whole);
    CHECK(w, fi_control(&q.eq->fid, FI_GETWAIT, &kind) < 0);
    CHECK(w, fi_control(&q.eq->fid, FI_GETWAITOBJ, &kind) == 0 && kind == FI_WAIT_NONE);
}

/// fi_control, FI_GETWAIT: the application sleeps by means of its own
void wait_objects(World& w)
{
    for (fi_wait_obj kind : {FI_WAIT_FD, FI_WAIT_MUTEX_COND}) {
        Queue q(w, kind);
        if (!q)
            continue;
        fi_wait_obj said = FI_WAIT_NONE;
        const int known = fi_control(&q.eq->fid, FI_GETWAITOBJ, &said);
        CHECK(w, (known == 0 && said == kind) || (known == -FI_ENOSYS && !w.ours()));
        for (std::uint64_t round = 0; round < 4; ++round) {
            std::uint64_t number = ~std::uint64_t{0};
            bool written = false;
            auto look = [&] { return q.read(number) == whole; };
            const long slept = in_thread(
                w, [&] { return sleep_on(w, &q.eq->fid, kind, look) ? 1L : 0L; },
                [&] {
                    dawdle(static_cast<unsigned>(round));
                    if (!written)
                        CHECK(w, q.write(round) == whole);
                    written = true;
                });
            CHECK(w, slept == 1 && number == round);
        }
        // fi_trywait(3): "if there are events queued"
        fid* object = &q.eq->fid;
        std::uint64_t number = 0;
        CHECK(w, fi_trywait(w.fabric(), &object, 1) == 0);
        CHECK(w, q.write(1) == whole && fi_trywait(w.fabric(), &object, 1) == -FI_EAGAIN);
        CHECK(w, q.read(number) == whole && fi_trywait(w.fabric(), &object, 1) == 0);
    }
}

/// Many threads write, many read: each event is read once.
void threads(World& w)
{
    Queue q(w, FI_WAIT_UNSPEC, FI_WRITE, 4000);
    if (!q)
        return;
    constexpr unsigned each = 500, writers = 4;
    std::atomic<std::uint64_t> sum{0}, count{0};
    std::vector<std::thread> all;
    for (unsigned t = 0; t < writers; ++t)
        all.emplace_back([&, t] {
            for (unsigned i = 0; i < each; ++i)
                CHECK(w, q.write(t * each + i) == whole);
        });
    for (unsigned t = 0; t < 2; ++t)
        all.emplace_back([&] {
            std::uint64_t number;
            const std::uint64_t end = World::now_ms() + 1000 * w.patience();
            while (count.load() < writers * each && World::now_ms() < end)
                if (q.sread(number, 20) == whole) {
                    sum.fetch_add(number);
                    count.fetch_add(1);
                }
        });
    for (std::thread& thread : all)
        thread.join();
    constexpr std::uint64_t total = writers * each;
    CHECK(w, count == total && sum == total * (total - 1) / 2);
    CHECK(w, q.empty());
}

/// A domain beside the world's, bound to a queue.
fid_domain* bound_domain(World& w, fid_eq* eq, std::uint64_t flags)
{
    fi_info* info = fi_dupinfo(&w.info());
    fid_domain* domain = nullptr;
    CHECK(w, fi_domain(w.fabric(), info, &domain, nullptr) == 0);
    fi_freeinfo(info);
    if (domain == nullptr)
        return nullptr;
    const int bound = fi_domain_bind(domain, &eq->fid, flags);
    CHECK(w, bound == 0 || !w.ours());
    if (bound == 0)
        return domain;
    CHECK(w, fi_close(&domain->fid) == 0);
    return nullptr;
}

/// A vector that reports its insertions to the queue.
fid_av* vector_of(World& w, const Queue& q)
{
    fi_av_attr attr{};
    attr.type = FI_AV_TABLE;
    attr.flags = FI_EVENT;
    fid_av* av = nullptr;
    CHECK(w, fi_av_open(w.domain(), &attr, &av, nullptr) == 0);
    CHECK(w, fi_av_bind(av, &q.eq->fid, 0) == 0);
    return av;
}

/// fi_close: "must not be bound to any other objects prior to being closed ... -FI_EBUSY"
void busy_vector(World& w)
{
    Queue q(w, FI_WAIT_NONE);
    fid_av* const av = vector_of(w, q);
    if (!CHECK(w, fi_close(&q.eq->fid) == -FI_EBUSY))
        q.eq = nullptr; // it is gone
    CHECK(w, q.eq == nullptr || fi_close(&av->fid) == 0);
}

void busy_domain(World& w)
{
    Queue q(w, FI_WAIT_NONE);
    fid_domain* const domain = bound_domain(w, q.eq, 0);
    if (domain == nullptr)
        return;
    if (!CHECK(w, fi_close(&q.eq->fid) == -FI_EBUSY))
        q.eq = nullptr;
    CHECK(w, q.eq == nullptr || fi_close(&domain->fid) == 0);
}

void busy_endpoint(World& w)
{
    Queue q(w, FI_WAIT_NONE);
    fi_info* info = w.further_info();
    fid_ep* ep = nullptr;
    const int made = fi_endpoint(w.domain(), info, &ep, nullptr);
    fi_freeinfo(info);
    if (!CHECK(w, made == 0 || !w.ours()) || made != 0)
        return;
    CHECK(w, fi_ep_bind(ep, &q.eq->fid, 0) == 0);
    if (!CHECK(w, fi_close(&q.eq->fid) == -FI_EBUSY))
        q.eq = nullptr;
    CHECK(w, q.eq == nullptr || fi_close(&ep->fid) == 0);
}

/// "Attempting to read from an EQ while an item is in the error queue results in an FI_EAVAIL failure"; the fields of
/// the entry; fi_eq_strerror
void errors(World& w)
{
    Queue q(w, FI_WAIT_UNSPEC);
    fi_eq_err_entry error{};
    CHECK(w, fi_eq_readerr(q.eq, &error, 0) == -FI_EAGAIN); // "a non-blocking call"
    char text[64] = {};
    const char* said = fi_eq_strerror(q.eq, FI_EINVAL, nullptr, text, sizeof text);
    CHECK(w, said != nullptr && said[0] != '\0');
    CHECK(w, fi_eq_strerror(q.eq, FI_EINVAL, nullptr, nullptr, 0) != nullptr || !w.ours()); // "an optional buffer"
    if (!w.ours())
        return; // the addresses that fail are the provider's choice
    fid_av* const av = vector_of(w, q);
    unsigned char garbage[64];
    std::memset(garbage, 0xa5, sizeof garbage);
    std::uint64_t number = 0;
    for (bool blocking : {false, true}) {
        CHECK(w, fi_av_insert(av, garbage, 1, nullptr, 0, &w) == 0);
        for (unsigned i = 0; i < 2; ++i)
            CHECK(w, (blocking ? q.sread(number, -1) : q.read(number)) == -FI_EAVAIL);
        char room[16] = {'r'};
        error = {};
        error.err_data = room;
        error.err_data_size = sizeof room;
        CHECK(w, fi_eq_readerr(q.eq, &error, 0) == sizeof error);
        CHECK(w, error.fid == &av->fid && error.context == &w && error.data == 0);
        CHECK(w, error.err == FI_EINVAL);
        CHECK(w, error.err_data == room && error.err_data_size == 0 && room[0] == 'r'); // the bytes copied: none
        CHECK(w, fi_eq_strerror(q.eq, error.prov_errno, error.err_data, text, sizeof text) != nullptr);
        CHECK(w, fi_eq_readerr(q.eq, &error, 0) == -FI_EAGAIN);
        CHECK(w, q.read(number) == whole && number == 0);
    }
    // "if err_data_size is 0 on input", err_data is the provider's: it has nothing.
    CHECK(w, fi_av_insert(av, garbage, 1, nullptr, 0, &w) == 0);
    error = {};
    error.err_data = garbage;
    CHECK(w, fi_eq_readerr(q.eq, &error, 0) == sizeof error);
    CHECK(w, error.err_data == nullptr && error.err_data_size == 0);
    CHECK(w, fi_close(&av->fid) == 0); // events of it "are left untouched" (fi_av(3))
    CHECK(w, q.read(number) == whole && q.empty());
}

/// FI_MR_COMPLETE: registrations of a domain that is bound with FI_REG_MR (fi_domain(3), fi_mr(3))
void registrations(World& w)
{
    Queue q(w, FI_WAIT_NONE);
    fid_domain* const domain = bound_domain(w, q.eq, reg_mr);
    if (domain == nullptr)
        return;
    static unsigned char memory[4096];
    int context = 0;
    fid_mr* mr = nullptr;
    CHECK(w, fi_mr_reg(domain, memory, sizeof memory, FI_SEND, 0, 0x7000 + w.rank(), 0, &mr, &context) == 0);
    std::uint32_t event = 0;
    fi_eq_entry entry{};
    CHECK(w, w.until([&] { return fi_eq_read(q.eq, &event, &entry, sizeof entry, 0) == whole; }));
    CHECK(w, event == FI_MR_COMPLETE && entry.fid == &mr->fid && entry.context == &context);
    // "An asynchronous event will not be generated unless the registration call returns success"
    fid_mr* none = nullptr;
    if (w.ours())
        CHECK(w, fi_mr_reg(domain, memory, 0, FI_SEND, 0, 0x7100, ~std::uint64_t{0}, &none, nullptr) < 0);
    CHECK(w, q.empty());
    CHECK(w, mr == nullptr || fi_close(&mr->fid) == 0);
    CHECK(w, fi_close(&domain->fid) == 0);
}

constexpr Case cases[] = {
    {"attributes", attributes},
    {"write_and_read", write_and_read},
    {"not_writable", not_writable},
    {"peek", peek},
    {"size", size},
    {"blocking_read", blocking_read},
    {"wait_none", wait_none},
    {"wait_objects", wait_objects},
    {"threads", threads},
    {"busy_vector", busy_vector},
    {"busy_domain", busy_domain},
    {"busy_endpoint", busy_endpoint},
    {"errors", errors},
    {"registrations", registrations},
};

} // namespace

const Program program{{.ranks = 1, .caps = FI_TAGGED}, cases};

} // namespace fabtests
