// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_cq(3), statement by statement, between processes; any provider (-p). Run by make check and by hand.
#include <cstring>

#include "queue_checks.h"

namespace fabtests {
namespace {

/// "The format of the completion event is determined using the fi_cq_format option": the fields of each
void formats(World& w)
{
    const std::uint64_t data = w.info().domain_attr->cq_data_size >= 8 ? 0xfeedfacecafe0123 : 0x0123;
    for (fi_cq_format format : {FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_MSG, FI_CQ_FORMAT_DATA, FI_CQ_FORMAT_TAGGED}) {
        Station s(w, {.format = format});
        if (!s.opened())
            return;
        constexpr unsigned count = 4;
        int contexts[count], sent = 0;
        for (int& context : contexts)
            CHECK(w, recv_any(w, s, 64, &context) == 0);
        w.barrier();
        for (unsigned i = 0; i < count; ++i)
            CHECK(w, s.post([&] {
                return fi_tsenddata(s.ep(), w.local(), 10 + i, w.desc(), data + i, s.peer(next(w)), 0x70 + i, &sent);
            }) == 0);
        // Several are read into an array of the format's structure; each lies where the one before ends.
        const std::size_t sizes[] = {0, sizeof(fi_cq_entry), sizeof(fi_cq_msg_entry), sizeof(fi_cq_data_entry),
                                     sizeof(fi_cq_tagged_entry)};
        alignas(8) unsigned char entries[(count + 1) * sizeof(fi_cq_tagged_entry)];
        std::memset(entries, 0x5a, sizeof entries);
        unsigned got = 0;
        w.until([&] {
            const ssize_t n = fi_cq_read(s.rx(), entries + got * sizes[format], count - got);
            got += n > 0 ? static_cast<unsigned>(n) : 0;
            return got == count;
        });
        CHECK(w, got == count);
        CHECK(w, entries[count * sizes[format]] == 0x5a);
        for (unsigned i = 0; i < count; ++i) {
            fi_cq_tagged_entry e{};
            std::memcpy(&e, entries + i * sizes[format], sizes[format]);
            CHECK(w, e.op_context == &contexts[i]);
            if (format == FI_CQ_FORMAT_CONTEXT)
                continue;
            CHECK(w,
                  (e.flags & (FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA)) == (FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA));
            CHECK(w, e.len == 10 + i);
            CHECK(w, format == FI_CQ_FORMAT_MSG || e.data == data + i);
            CHECK(w, format != FI_CQ_FORMAT_TAGGED || e.tag == 0x70 + i);
        }
        got = 0;
        w.until([&] {
            const ssize_t n = fi_cq_read(s.tx(), entries, count - got);
            got += n > 0 ? static_cast<unsigned>(n) : 0;
            return got == count;
        });
        CHECK(w, got == count);
    }
}

/// "The maximum number of entries to return is limited to the specified count parameter", "If no completions are
/// available to read from the CQ, returns -FI_EAGAIN", "A count value of 0 may be used to drive progress"
void reading(World& w)
{
    Station s(w);
    fi_cq_tagged_entry entries[16];
    fi_cq_err_entry error{};
    CHECK(w, fi_cq_read(s.rx(), entries, 16) == -FI_EAGAIN);
    CHECK(w, fi_cq_readerr(s.rx(), &error, 0) == -FI_EAGAIN);
    for (unsigned i = 0; i < 10; ++i)
        CHECK(w, recv_any(w, s) == 0);
    w.barrier();
    for (unsigned i = 0; i < 10; ++i)
        CHECK(w, send_to(w, s, next(w), i) == 0);
    // Progress by reads of none: nothing is taken by them.
    w.until([&] {
        const ssize_t n = fi_cq_read(s.rx(), nullptr, 0);
        CHECK(w, n == 0 || n == -FI_EAGAIN);
        (void)fi_cq_read(s.tx(), nullptr, 0);
        return s.quiet(s.tx()) == false; // the first send has ended
    });
    unsigned got = 0;
    w.until([&] {
        const ssize_t n = fi_cq_read(s.rx(), entries, 3);
        CHECK(w, n <= 3);
        for (ssize_t i = 0; i < n; ++i)
            CHECK(w, entries[i].len == got++);
        return got == 10;
    });
    CHECK(w, got == 10);
    CHECK(w, fi_cq_readerr(s.rx(), &error, 0) == -FI_EAGAIN);
    for (unsigned i = 0; i < 9; ++i)
        CHECK(w, s.wait(s.tx()).error.err == 0);
    CHECK(w, s.quiet(s.tx()) && s.quiet(s.rx()));
}

/// "Attempting to read from a CQ while an item is in the error queue results in fi_cq_read failing with a return code
/// of -FI_EAVAIL"; the fields of struct fi_cq_err_entry; fi_cq_strerror
void errors(World& w)
{
    Station s(w);
    int contexts[3];
    CHECK(w, recv_any(w, s, 64, &contexts[0]) == 0);
    CHECK(w, recv_any(w, s, 5, &contexts[1]) == 0);
    CHECK(w, recv_any(w, s, 64, &contexts[2]) == 0);
    w.barrier();
    for (unsigned i = 0; i < 3; ++i)
        CHECK(w, send_to(w, s, next(w), 12) == 0);
    unsigned good = 0, bad = 0;
    fi_cq_tagged_entry entry{};
    w.until([&] {
        const ssize_t n = fi_cq_read(s.rx(), &entry, 1);
        if (n == 1) {
            CHECK(w, entry.op_context == &contexts[0] || entry.op_context == &contexts[2]);
            ++good;
        } else if (n == -FI_EAVAIL) {
            CHECK(w, fi_cq_read(s.rx(), &entry, 1) == -FI_EAVAIL); // until it is read
            char data[64];
            fi_cq_err_entry error{};
            error.err_data = data;
            error.err_data_size = sizeof data;
            // "On success, returns the positive value 1"
            CHECK(w, fi_cq_readerr(s.rx(), &error, 0) == 1);
            CHECK(w, error.err == FI_ETRUNC);
            CHECK(w, error.op_context == &contexts[1]);
            CHECK(w, (error.flags & FI_RECV) != 0);
            CHECK(w, error.len == 5);
            CHECK(w, error.olen == 7);
            CHECK(w, error.tag == 1);
            // "err_data_size will be set to the number of bytes copied to the err_data buffer"
            CHECK(w, error.err_data_size <= sizeof data);
            // "Converts provider specific error information into a printable string"
            char text[8];
            std::memset(text, 0x5a, sizeof text);
            const char* said = fi_cq_strerror(s.rx(), error.prov_errno, error.err_data, text, 6);
            CHECK(w, said != nullptr && said[0] != 0);
            CHECK(w, std::memchr(text, 0, 6) != nullptr && text[6] == 0x5a);
            CHECK(w, fi_cq_strerror(s.rx(), error.prov_errno, error.err_data, nullptr, 0) != nullptr);
            ++bad;
        } else {
            CHECK(w, n == -FI_EAGAIN);
        }
        return good == 2 && bad == 1;
    });
    CHECK(w, good == 2 && bad == 1);
    for (unsigned i = 0; i < 3; ++i)
        s.wait(s.tx());
    CHECK(w, s.quiet(s.tx()) && s.quiet(s.rx()));
}

/// Each failed operation has one error entry with its context: a read of an unknown key.
void failed_operations(World& w)
{
    Station s(w, {.selective = true, .counters = FI_READ | FI_WRITE});
    if (!w.has(FI_RMA) || !w.ours()) // others take such keys for addresses
        return;
    const std::uint64_t key = w.key(next(w)) + (std::uint64_t{0x7355} << 40);
    constexpr unsigned count = 20;
    int contexts[count];
    for (unsigned i = 0; i < count; ++i)
        CHECK(w, s.post([&] {
            return i % 2 ? fi_read(s.ep(), w.local(), 64, w.desc(), s.peer(next(w)), w.address(next(w), 0), key,
                                   &contexts[i])
                         : fi_write(s.ep(), w.local(), 64, w.desc(), s.peer(next(w)), w.address(next(w), 0), key,
                                    &contexts[i]);
        }) == 0);
    unsigned seen[count] = {};
    for (unsigned k = 0; k < count; ++k) {
        const Entry e = s.wait(s.tx());
        CHECK(w, e.error.err > 0);
        unsigned i = 0;
        while (i + 1 < count && e.error.op_context != &contexts[i])
            ++i;
        ++seen[i];
        CHECK(w, (e.error.flags & (i % 2 ? FI_READ : FI_WRITE)) != 0);
        CHECK(w, std::strlen(fi_cq_strerror(s.tx(), e.error.prov_errno, nullptr, nullptr, 0)) > 3);
    }
    for (unsigned n : seen)
        CHECK(w, n == 1);
    CHECK(w, s.quiet(s.tx()));
    CHECK(w, fi_cntr_read(s.counter(FI_WRITE)) == 0 && fi_cntr_readerr(s.counter(FI_WRITE)) == count / 2);
    CHECK(w, fi_cntr_read(s.counter(FI_READ)) == 0 && fi_cntr_readerr(s.counter(FI_READ)) == count / 2);
}

/// "If fi_cq_readfrom is called on an endpoint for which source addressing data is not available, the source address
/// will be set to FI_ADDR_NOTAVAIL."
void read_from(World& w)
{
    Station s(w);
    CHECK(w, recv_any(w, s) == 0);
    w.barrier();
    CHECK(w, send_to(w, s, next(w)) == 0);
    const Entry received = s.wait(s.rx());
    CHECK(w, received.source == (w.has(FI_SOURCE) ? s.peer(before(w)) : FI_ADDR_NOTAVAIL));
    const Entry sent = s.wait(s.tx());
    CHECK(w, !w.ours() || sent.source == FI_ADDR_NOTAVAIL);
    fi_cq_tagged_entry entry{};
    fi_addr_t source = 0;
    CHECK(w, fi_cq_readfrom(s.rx(), &entry, 1, &source) == -FI_EAGAIN);
}

/// COMPLETION FIELDS and COMPLETION FLAGS of RMA and atomics at their initiator
void flags(World& w)
{
    Station s(w);
    if (!w.has(FI_RMA | FI_ATOMIC))
        return;
    const unsigned to = next(w);
    int context = 0;
    auto expect = [&](std::uint64_t wanted) {
        const Entry e = s.wait(s.tx());
        CHECK(w, e.error.err == 0 && e.ok.op_context == &context);
        CHECK(w, (e.ok.flags & wanted) == wanted);
        CHECK(w, (e.ok.flags & (FI_SEND | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE)) == 0);
    };
    CHECK(w, s.post([&] {
        return fi_write(s.ep(), w.local(), 8, w.desc(), s.peer(to), w.address(to, 0), w.key(to), &context);
    }) == 0);
    expect(FI_RMA | FI_WRITE);
    CHECK(w, s.post([&] {
        return fi_read(s.ep(), w.local(), 8, w.desc(), s.peer(to), w.address(to, 0), w.key(to), &context);
    }) == 0);
    expect(FI_RMA | FI_READ);
    CHECK(w, s.post([&] {
        return fi_atomic(s.ep(), w.local(), 1, w.desc(), s.peer(to), w.address(to, 64), w.key(to), FI_UINT64, FI_SUM,
                         &context);
    }) == 0);
    expect(FI_ATOMIC | FI_WRITE);
    CHECK(w, s.post([&] {
        return fi_fetch_atomic(s.ep(), w.local(), 1, w.desc(), w.local(64), w.desc(), s.peer(to), w.address(to, 64),
                               w.key(to), FI_UINT64, FI_SUM, &context);
    }) == 0);
    expect(FI_ATOMIC | FI_READ);
    CHECK(w, s.quiet(s.tx()) && s.quiet(s.rx()));
}

/// "completions generated at the target in response to RMA write operations that carry CQ data": NULL context, the
/// data, and the bytes are there
void remote_data(World& w)
{
    Station s(w);
    if (!w.has(FI_RMA))
        return;
    const unsigned to = next(w);
    const std::size_t width = w.info().domain_attr->cq_data_size;
    const std::uint64_t mask = width >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * width)) - 1;
    for (unsigned round = 0; round < 30; ++round) {
        const std::size_t size = round % 3 == 0 ? 8 : round % 3 == 1 ? 3000 : 60000;
        fill(w.local(), size, w.rank(), round);
        w.barrier();
        CHECK(w, s.post([&] {
            return fi_writedata(s.ep(), w.local(), size, w.desc(), (0xabcdef0987654321 + round) & mask, s.peer(to),
                                w.address(to, 8192), w.key(to), &w);
        }) == 0);
        const Entry e = s.wait(s.rx());
        CHECK(w, e.error.err == 0);
        CHECK(w, e.ok.op_context == nullptr || !w.ours()); // with FI_RX_CQ_DATA it would be a receive's
        CHECK(w, (e.ok.flags & (FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA)) ==
                     (FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA));
        CHECK(w, e.ok.data == ((0xabcdef0987654321 + round) & mask));
        CHECK(w, wrong(w.region() + 8192, size, before(w), round) == 0);
        CHECK(w, s.wait(s.tx()).ok.op_context == &w);
    }
    CHECK(w, s.quiet(s.tx()) && s.quiet(s.rx()));
}

/// "Specifies the minimum size of a completion queue": with FI_RM_ENABLED nothing is lost when it is full
void overrun(World& w)
{
    Station s(w, {.queue_size = 16});
    constexpr unsigned wanted = 3000;
    for (unsigned i = 0; i < wanted; ++i)
        CHECK(w, recv_any(w, s, 64, reinterpret_cast<void*>(std::uintptr_t{i + 1})) == 0);
    w.barrier();
    // No queue is read; a full one refuses (-FI_EAGAIN).
    unsigned posted = 0, refused = 0;
    while (posted < wanted && refused < 2000) {
        const ssize_t rc = fi_tsend(s.ep(), w.local(), 8, w.desc(), s.peer(next(w)), 1,
                                    reinterpret_cast<void*>(std::uintptr_t{posted + 1}));
        CHECK(w, rc == 0 || rc == -FI_EAGAIN);
        posted += rc == 0;
        refused += rc != 0;
        w.progress();
    }
    CHECK(w, posted >= 16);
    w.shared().word[w.rank()] = posted;
    w.barrier();
    const std::uint64_t coming = w.shared().word[before(w)];
    for (unsigned i = 0; i < posted; ++i) {
        const Entry e = s.wait(s.tx());
        CHECK(w, e.error.err == 0 && e.ok.op_context == reinterpret_cast<void*>(std::uintptr_t{i + 1}));
    }
    for (std::uint64_t i = 0; i < coming; ++i) {
        const Entry e = s.wait(s.rx());
        CHECK(w, e.error.err == 0 && e.ok.op_context == reinterpret_cast<void*>(i + 1));
    }
    CHECK(w, s.quiet(s.tx()) && s.quiet(s.rx()));
}

/// One queue for both directions, and for several endpoints.
void shared_queue(World& w)
{
    Station s(w, {.one_queue = true});
    int sent = 0, received = 0;
    CHECK(w, recv_any(w, s, 64, &received) == 0);
    w.barrier();
    CHECK(w, send_to(w, s, next(w), 8, &sent) == 0);
    unsigned sends = 0, receives = 0;
    for (unsigned i = 0; i < 2; ++i) {
        const Entry e = s.wait(s.tx());
        CHECK(w, e.error.err == 0);
        sends += e.ok.op_context == &sent && (e.ok.flags & FI_SEND) != 0;
        receives += e.ok.op_context == &received && (e.ok.flags & FI_RECV) != 0;
    }
    CHECK(w, sends == 1 && receives == 1);
    CHECK(w, s.quiet(s.tx()));
}

/// "If resources are still associated with the CQ when attempting to close, the call will return -FI_EBUSY."
void busy(World& w)
{
    Station s(w);
    CHECK(w, fi_close(&s.tx()->fid) == -FI_EBUSY);
    CHECK(w, fi_close(&s.rx()->fid) == -FI_EBUSY);
    // Still there.
    CHECK(w, recv_any(w, s) == 0);
    w.barrier();
    CHECK(w, send_to(w, s, next(w)) == 0);
    CHECK(w, s.wait(s.rx()).error.err == 0);
    CHECK(w, s.wait(s.tx()).error.err == 0);
}

/// struct fi_cq_attr
void attributes(World& w)
{
    fid_cq* cq = nullptr;
    int context = 0;
    fi_cq_attr attr{};
    attr.format = FI_CQ_FORMAT_UNSPEC; // "a provider selected default format"
    CHECK(w, fi_cq_open(w.domain(), &attr, &cq, &context) == 0);
    CHECK(w, cq->fid.fclass == FI_CLASS_CQ && cq->fid.context == &context);
    CHECK(w, fi_close(&cq->fid) == 0);
    attr.format = FI_CQ_FORMAT_DATA;
    attr.flags = FI_AFFINITY; // "should be treated as a hint"
    attr.signaling_vector = 0;
    attr.size = 100000;
    CHECK(w, fi_cq_open(w.domain(), &attr, &cq, nullptr) == 0 || !w.ours());
    if (cq != nullptr && w.ours())
        CHECK(w, fi_close(&cq->fid) == 0);
    if (!w.ours())
        return;
    attr.flags = FI_MORE;
    CHECK(w, fi_cq_open(w.domain(), &attr, &cq, nullptr) == -FI_EINVAL);
    attr.flags = 0;
    attr.format = static_cast<fi_cq_format>(17);
    CHECK(w, fi_cq_open(w.domain(), &attr, &cq, nullptr) < 0);
    attr.format = FI_CQ_FORMAT_DATA;
    attr.wait_obj = FI_WAIT_SET; // "must reference an existing wait set object"
    CHECK(w, fi_cq_open(w.domain(), &attr, &cq, nullptr) == -FI_EINVAL);
}

constexpr Case cases[] = {
    {"formats", formats},
    {"reading", reading},
    {"errors", errors},
    {"failed_operations", failed_operations},
    {"read_from", read_from},
    {"flags", flags},
    {"remote_data", remote_data},
    {"overrun", overrun},
    {"shared_queue", shared_queue},
    {"busy", busy},
    {"attributes", attributes},
    {"blocking_read", cq_blocking_read},
    {"threshold", cq_threshold},
    {"signal", cq_signal},
    {"no_processor_time", cq_no_processor_time},
    {"wait_none", cq_wait_none},
    {"wait_fd", cq_wait_fd},
    {"wait_mutex_cond", cq_wait_mutex_cond},
    {"wait_yield", cq_wait_yield},
};

} // namespace

const Program program{{.ranks = 2, .caps = FI_TAGGED, .wished_caps = FI_RMA | FI_ATOMIC | FI_SOURCE}, cases};

} // namespace fabtests
