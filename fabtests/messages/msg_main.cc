// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_msg(3), statement by statement, between processes; any provider (-p). Run by make check and by hand.
#include <cstring>

#include "mail.h"

namespace fabtests {
namespace {

constexpr unsigned count = 90;
constexpr std::size_t least = 4096; ///< FI_OPT_MIN_MULTI_RECV
std::size_t size_of(unsigned i)
{
    return i % 3 == 2 ? 3000 : i % 7 * 30;
}
unsigned char* place_of(Mail& m, unsigned i)
{
    return m.out(i * 4096);
}

void send_all(Mail& m)
{
    for (unsigned i = 0; i < count; ++i) {
        fill(place_of(m, i), size_of(i), m.w.rank(), i);
        CHECK(m.w, m.send(place_of(m, i), size_of(i), m.next()) == 0);
    }
}

ssize_t post(Mail& m, std::size_t at, std::size_t length, void* context, std::uint64_t flags = FI_COMPLETION)
{
    return m.recv(Form::msg, {{m.in(at), length}}, FI_ADDR_UNSPEC, 0, 0, context, flags | FI_MULTI_RECV);
}

/// The buffer is released: the flag says so. Where a receive is cancelled, libfabric before 2.1 does not ask for that.
bool released(World& w, const Entry& entry)
{
    const std::uint64_t flags = entry.error.err != 0 ? entry.error.flags : entry.ok.flags;
    return (flags & FI_MULTI_RECV) != 0 || (!w.ours() && entry.error.err == FI_ECANCELED);
}

/// FI_MULTI_RECV: "Received messages will be packed into the receive buffer until the buffer has been consumed."
void multi_recv(World& w)
{
    Mail m(w, false, {.min_multi_recv = least});
    if (!w.has(FI_MULTI_RECV))
        return;
    std::size_t room = least + count * 64;
    for (unsigned i = 0; i < count; ++i)
        room += size_of(i);
    fi_context context;
    CHECK(w, post(m, 0, room, &context) == 0);
    w.barrier();
    send_all(m);
    unsigned char* behind = m.in();
    for (unsigned i = 0; i < count; ++i) {
        const Entry r = m.received();
        CHECK(w, r.error.err == 0 && r.ok.op_context == &context && r.ok.len == size_of(i));
        CHECK(w, (r.ok.flags & FI_MULTI_RECV) == 0);
        // "buf points to the starting location where the receive data was placed": one behind the other
        auto* const where = static_cast<unsigned char*>(r.ok.buf);
        CHECK(w, (r.ok.len == 0 && !w.ours()) || (where >= behind && where + r.ok.len <= m.in(room)));
        CHECK(w, wrong(where, r.ok.len, m.before(), i) == 0);
        if (where != nullptr)
            behind = where + r.ok.len;
        CHECK(w, m.sent().error.err == 0);
    }
    CHECK(w, fi_cancel(&m.station.ep()->fid, &context) == 0);
    const Entry r = m.received();
    CHECK(w, released(w, r));
    CHECK(w, !w.ours() || r.error.err == FI_ECANCELED);
    CHECK(w, (r.error.err != 0 ? r.error.op_context : r.ok.op_context) == &context);
    CHECK(w, m.quiet());
}

/// "The buffer will be released by the provider when the available buffer space falls below the specified minimum"
void multi_recv_release(World& w)
{
    for (bool before : {true, false}) {
        Mail m(w, false, {.min_multi_recv = least});
        if (!w.has(FI_MULTI_RECV))
            return;
        constexpr std::size_t length = 12000;
        fi_context contexts[2];
        if (before)
            CHECK(w, post(m, 0, length, &contexts[0]) == 0);
        w.barrier();
        send_all(m);
        if (!before)
            CHECK(w, post(m, 0, length, &contexts[0]) == 0);
        unsigned buffers = 0, got = 0;
        std::size_t used = 0;
        while (got < count) {
            const Entry r = m.received();
            if (!CHECK(w, r.error.err == 0))
                return;
            CHECK(w, r.ok.op_context == &contexts[buffers % 2]);
            if (r.ok.flags & FI_RECV) {
                CHECK(w, r.ok.len == size_of(got));
                CHECK(w, wrong(static_cast<unsigned char*>(r.ok.buf), r.ok.len, m.before(), got) == 0);
                used += r.ok.len;
                ++got;
            }
            if (r.ok.flags & FI_MULTI_RECV) {
                // Not earlier than the minimum says: alignment may cost 64 bytes a message.
                CHECK(w, length - used < least + 64 * count);
                CHECK(w, !w.ours() || length - used < least);
                used = 0;
                ++buffers;
                CHECK(w, post(m, buffers % 2 * length, length, &contexts[buffers % 2]) == 0);
            }
            CHECK(w, !w.ours() || length - used >= least);
        }
        CHECK(w, buffers >= 90000 / length);
        for (unsigned i = 0; i < count; ++i)
            CHECK(w, m.sent().error.err == 0);
        w.barrier();
        CHECK(w, fi_cancel(&m.station.ep()->fid, &contexts[buffers % 2]) == 0);
        Entry last = m.received();
        if (!released(w, last)) // the release of the one before, as a separate entry
            last = m.received();
        CHECK(w, released(w, last));
        CHECK(w, m.quiet());
    }
}

/// "an entry to the associated receive completion queue will always be generated when the buffer has been consumed,
/// even if other receive completions have been suppressed"
void multi_recv_selective(World& w)
{
    Mail m(w, false, {.selective = true, .counters = FI_RECV, .min_multi_recv = least});
    if (!w.has(FI_MULTI_RECV))
        return;
    int context = 0;
    CHECK(w, post(m, 0, 10 * 1000 + least - 1, &context, 0) == 0);
    w.barrier();
    for (unsigned i = 0; i < 10; ++i)
        CHECK(w, m.send(m.out(), 1000, m.next()) == 0);
    CHECK(w, m.station.reaches(m.station.counter(FI_RECV), 10));
    const Entry r = m.received();
    CHECK(w, r.error.err == 0 && r.ok.op_context == &context);
    CHECK(w, (r.ok.flags & FI_MULTI_RECV) != 0);
    CHECK(w, m.quiet());
}

/// A multi-receive buffer takes what fits; what does not is truncated, and that is its end.
void multi_recv_truncation(World& w)
{
    Mail m(w, false, {.min_multi_recv = 100});
    if (!w.has(FI_MULTI_RECV))
        return;
    int context = 0;
    CHECK(w, post(m, 0, 1000, &context) == 0);
    w.barrier();
    fill(m.out(), 2000, w.rank(), 1);
    CHECK(w, m.send(m.out(), 600, m.next()) == 0);
    CHECK(w, m.send(m.out(), 2000, m.next()) == 0);
    Entry r = m.received();
    CHECK(w, r.error.err == 0 && r.ok.len == 600 && (r.ok.flags & FI_MULTI_RECV) == 0);
    r = m.received();
    CHECK(w, r.error.err == FI_ETRUNC);
    CHECK(w, r.error.len == 400 && r.error.olen == 1600);
    CHECK(w, r.error.op_context == &context);
    // "always be generated when the buffer has been consumed": with the error entry, or by itself
    if ((r.error.flags & FI_MULTI_RECV) == 0)
        CHECK(w, released(w, m.received()));
    CHECK(w, m.sent().error.err == 0);
    m.sent();
    CHECK(w, m.quiet());
}

constexpr auto cases = both_and<false>({
    {"multi_recv", multi_recv},
    {"multi_recv_release", multi_recv_release},
    {"multi_recv_selective", multi_recv_selective},
    {"multi_recv_truncation", multi_recv_truncation},
});

} // namespace

const Program program{{.ranks = 3,
                       .caps = FI_MSG,
                       .wished_caps = FI_RMA | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE | FI_FENCE,
                       .msg_order = FI_ORDER_SAS,
                       .region_size = std::size_t{4} << 20},
                      cases};

} // namespace fabtests
