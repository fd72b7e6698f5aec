// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// UCX's active messages, streams, tagged messages and requests by fi_* calls: the examples that docs/mapping.md names.
#include <vector>

#include "desk.h"

namespace fabtests {
namespace {

bool tsend(Desk& d, const void* buffer, std::size_t length, std::uint64_t tag, void* request,
           std::uint64_t flags = FI_COMPLETION | FI_INJECT_COMPLETE)
{
    const iovec iov{const_cast<void*>(buffer), length};
    void* desc = d.desc();
    const fi_msg_tagged msg{&iov, &desc, 1, d.peer(), tag, 0, request, 0};
    return d.ok([&] { return fi_tsendmsg(d.ep(), &msg, flags); });
}

/// `mask` as in UCX: the bits that must match.
bool trecv(Desk& d, void* buffer, std::size_t length, std::uint64_t tag, std::uint64_t mask, void* request,
           std::uint64_t flags = FI_COMPLETION)
{
    const iovec iov{buffer, length};
    void* desc = d.desc();
    const fi_msg_tagged msg{&iov, &desc, 1, FI_ADDR_UNSPEC, tag, ~mask, request, 0};
    return d.ok([&] { return fi_trecvmsg(d.ep(), &msg, flags); });
}

bool multi_recv(Desk& d, void* buffer, std::size_t length, void* context)
{
    const iovec iov{buffer, length};
    void* desc = d.desc();
    const fi_msg msg{&iov, &desc, 1, FI_ADDR_UNSPEC, context, 0};
    return d.ok([&] { return fi_recvmsg(d.ep(), &msg, FI_MULTI_RECV | FI_COMPLETION); });
}

constexpr std::uint64_t whole = ~std::uint64_t{0};

/// A request as UCX's users know it: it is what op_context points to, and reading the queue completes it.
struct Request {
    fi_context internal;
    bool completed = false;
    int status = 0; ///< 0 or FI_E*
    std::size_t length = 0;
    std::uint64_t tag = 0;
};

void progress(Desk& d)
{
    for (fid_cq* cq : {d.s.tx(), d.s.rx()}) {
        fi_cq_tagged_entry entry{};
        fi_cq_err_entry error{};
        const ssize_t n = fi_cq_read(cq, &entry, 1);
        if (n == 1 && entry.op_context != nullptr) {
            auto& r = *static_cast<Request*>(entry.op_context);
            r.completed = true;
            r.length = entry.len;
            r.tag = entry.tag;
        } else if (n == -FI_EAVAIL && fi_cq_readerr(cq, &error, 0) == 1 && error.op_context != nullptr) {
            auto& r = *static_cast<Request*>(error.op_context);
            r.completed = true;
            r.status = error.err;
            r.length = error.len;
        }
    }
}

bool wait(Desk& d, Request& r)
{
    return d.w.until([&] {
        progress(d);
        return r.completed;
    });
}

const StationOptions with_buffers{.selective = true, .counters = FI_SEND | FI_RECV, .min_multi_recv = 2048};

} // namespace

/// ucp_am_send_nb: the id goes as CQ data, the receiver's queue loop calls the handler of that id.
void ucx_am(World& w)
{
    Desk d(w, with_buffers);
    unsigned calls[4] = {};
    std::size_t bad = 0;
    auto handler = [&](std::uint64_t id, unsigned char* data, std::size_t length) {
        bad += wrong(data, length, d.from(), static_cast<unsigned>(id) + 4 * calls[id]);
        ++calls[id];
    };
    unsigned char* const pool = d.mine(1 << 19);
    constexpr std::size_t size = 1 << 17;
    int context = 0;
    CHECK(w, multi_recv(d, pool, size, &context));
    w.barrier();
    for (unsigned i = 0; i < 40; ++i) {
        const std::size_t length = 8 + i * 50;
        fill(d.mine(i * 4096), length, w.rank(), i);
        CHECK(w,
              d.ok([&] { return fi_senddata(d.ep(), d.mine(i * 4096), length, d.desc(), i % 4, d.peer(), nullptr); }));
    }
    for (unsigned i = 0; i < 40; ++i) {
        const Entry e = d.received();
        CHECK(w, e.error.err == 0 && (e.ok.flags & FI_REMOTE_CQ_DATA) != 0);
        handler(e.ok.data, static_cast<unsigned char*>(e.ok.buf), e.ok.len);
    }
    CHECK(w, bad == 0);
    for (unsigned n : calls)
        CHECK(w, n == 10);
    CHECK(w, d.flush(FI_SEND, 40));
}

/// ucp_am_data_release: data that the handler keeps stays in its buffer; releasing the last piece posts the buffer
/// anew.
void ucx_am_keep(World& w)
{
    Desk d(w, with_buffers);
    unsigned char* const pool = d.mine(1 << 19);
    constexpr std::size_t size = 10000;
    int contexts[2] = {};
    for (unsigned i = 0; i < 2; ++i)
        CHECK(w, multi_recv(d, pool + i * size, size, &contexts[i]));
    w.barrier();
    struct Kept {
        unsigned char* data;
        std::size_t length;
        unsigned number;
    };
    std::vector<Kept> kept[2];
    unsigned posted[2] = {1, 1}, got = 0;
    for (unsigned i = 0; i < 30; ++i) {
        fill(d.mine(), 1500, w.rank(), i);
        CHECK(w, d.ok([&] { return fi_senddata(d.ep(), d.mine(), 1500, d.desc(), 1, d.peer(), nullptr); }));
        CHECK(w, d.flush(FI_SEND, i + 1));
        const Entry e = d.received();
        CHECK(w, e.error.err == 0);
        const unsigned b = e.ok.op_context == &contexts[1];
        kept[b].push_back({static_cast<unsigned char*>(e.ok.buf), e.ok.len, got++});
        if ((e.ok.flags & FI_MULTI_RECV) == 0)
            continue;
        // The buffer is full: what it holds is still as it came; then it is returned.
        for (const Kept& k : kept[b])
            CHECK(w, wrong(k.data, k.length, d.from(), k.number) == 0);
        kept[b].clear();
        CHECK(w, multi_recv(d, pool + b * size, size, &contexts[b]));
        ++posted[b];
    }
    CHECK(w, posted[0] + posted[1] > 4);
}

/// ucp_stream_send_nb, ucp_stream_recv_nb with WAITALL: sends are in order, so the pieces of a receive are, too.
void ucx_stream(World& w)
{
    Desk d(w, with_buffers);
    // The pieces are sent as they are; the receiver wants 6000 bytes, however they are cut.
    constexpr std::size_t cuts[] = {1000, 3000, 2000};
    fill(d.mine(), 6000, w.rank(), 1);
    std::size_t at = 0, have = 0;
    int context = 0;
    unsigned char* const stream = d.mine(1 << 19);
    CHECK(w, multi_recv(d, stream, 6000 + 2048, &context));
    w.barrier();
    for (std::size_t length : cuts) {
        CHECK(w, d.ok([&] { return fi_send(d.ep(), d.mine(at), length, d.desc(), d.peer(), nullptr); }));
        at += length;
    }
    while (have < 6000) { // FI_MULTI_RECV puts one behind the other
        const Entry e = d.received();
        CHECK(w, e.error.err == 0);
        have += e.ok.len;
    }
    CHECK(w, have == 6000);
    CHECK(w, wrong(stream, 6000, d.from(), 1) == 0);
    CHECK(w, d.flush(FI_SEND, 3));
}

/// ucp_stream_recv_data_nb, ucp_stream_data_release: whatever has come, where it lies.
void ucx_stream_data(World& w)
{
    Desk d(w, with_buffers);
    int context = 0;
    CHECK(w, multi_recv(d, d.mine(1 << 19), 60000, &context));
    fi_cq_tagged_entry entry{};
    CHECK(w, fi_cq_read(d.s.rx(), &entry, 1) == -FI_EAGAIN); // nothing yet: UCX answers NULL
    w.barrier();
    fill(d.mine(), 777, w.rank(), 2);
    CHECK(w, d.ok([&] { return fi_send(d.ep(), d.mine(), 777, d.desc(), d.peer(), nullptr); }));
    const Entry e = d.received();
    CHECK(w, e.error.err == 0 && e.ok.len == 777);
    CHECK(w, wrong(static_cast<unsigned char*>(e.ok.buf), 777, d.from(), 2) == 0);
    CHECK(w, d.flush(FI_SEND, 1));
}

/// ucp_tag_send_nb: complete "when it is safe to reuse the source buffer"
void ucx_tag_send(World& w)
{
    Desk d(w);
    for (std::size_t size : {0u, 8u, 2000u, 50000u}) {
        int request = 0;
        CHECK(w, trecv(d, d.mine(1 << 19), size, size, whole, nullptr));
        fill(d.mine(), size, w.rank(), 1);
        CHECK(w, tsend(d, d.mine(), size, size, &request));
        // In place, for what UCX answers with UCS_OK, would be fi_tinject.
        const Entry e = d.sent();
        CHECK(w, e.error.err == 0 && e.ok.op_context == &request);
        std::memset(d.mine(), 0, size);
        CHECK(w, d.received().error.err == 0);
        CHECK(w, wrong(d.mine(1 << 19), size, d.from(), 1) == 0);
    }
}

/// ucp_tag_send_nbr: the request is the user's memory; a blocking send.
void ucx_tag_send_nbr(World& w)
{
    Desk d(w);
    Request sent, received;
    CHECK(w, trecv(d, d.mine(1 << 19), 50000, 1, whole, &received));
    fill(d.mine(), 50000, w.rank(), 1);
    CHECK(w, tsend(d, d.mine(), 50000, 1, &sent));
    CHECK(w, wait(d, sent) && sent.status == 0);
    CHECK(w, wait(d, received) && received.length == 50000);
    CHECK(w, wrong(d.mine(1 << 19), 50000, d.from(), 1) == 0);
}

/// ucp_tag_send_sync_nb: "completes only after there is a remote tag match on the message"
void ucx_tag_send_sync(World& w)
{
    if (!w.ours())
        return;
    Desk d(w);
    for (std::size_t size : {0u, 8u, 50000u}) {
        int request = 0;
        CHECK(w, tsend(d, d.mine(), size, 3, &request, FI_COMPLETION | FI_MATCH_COMPLETE));
        fi_context look;
        Entry seen;
        w.until([&] { // the message is there; it is not matched by a look
            CHECK(w, trecv(d, nullptr, 0, 3, whole, &look, FI_PEEK | FI_COMPLETION));
            seen = d.received();
            return seen.error.err == 0;
        });
        w.barrier();
        CHECK(w, d.s.quiet(d.s.tx()));
        w.barrier();
        CHECK(w, trecv(d, d.mine(1 << 19), size, 3, whole, nullptr));
        const Entry e = d.sent();
        CHECK(w, e.error.err == 0 && e.ok.op_context == &request);
        CHECK(w, d.received().error.err == 0);
    }
}

/// ucp_tag_recv_nb: tag and mask choose, the info comes with the entry.
void ucx_tag_recv(World& w)
{
    Desk d(w);
    int requests[2] = {};
    CHECK(w, trecv(d, d.mine(1 << 19), 100, 0xab00, 0xff00, &requests[0])); // these bits must match
    CHECK(w, trecv(d, d.mine((1 << 19) + 100), 100, 0, 0, &requests[1]));   // mask 0: any
    w.barrier();
    fill(d.mine(), 80, w.rank(), 1);
    CHECK(w, tsend(d, d.mine(), 40, 0xcd12, nullptr));
    CHECK(w, tsend(d, d.mine(), 80, 0xab34, nullptr));
    Entry e = d.received();
    CHECK(w, e.ok.op_context == &requests[1] && e.ok.tag == 0xcd12 && e.ok.len == 40);
    e = d.received();
    CHECK(w, e.ok.op_context == &requests[0] && e.ok.tag == 0xab34 && e.ok.len == 80);
    CHECK(w, wrong(d.mine(1 << 19), 80, d.from(), 1) == 0);
    d.sent();
    d.sent();
}

/// ucp_tag_recv_nbr, ucp_tag_recv_request_test
void ucx_tag_recv_nbr(World& w)
{
    Desk d(w);
    Request r;
    CHECK(w, trecv(d, d.mine(1 << 19), 500, 9, whole, &r));
    progress(d);
    CHECK(w, !r.completed); // in progress
    w.barrier();
    CHECK(w, tsend(d, d.mine(), 300, 9, nullptr));
    CHECK(w, wait(d, r));
    CHECK(w, r.status == 0 && r.length == 300 && r.tag == 9);
    CHECK(w, d.flush(FI_SEND, 1));
}

/// ucp_tag_recv_callback_t: UCS_ERR_MESSAGE_TRUNCATED is FI_ETRUNC, UCS_ERR_CANCELED is FI_ECANCELED.
void ucx_tag_recv_errors(World& w)
{
    Desk d(w);
    Request short_one, canceled;
    CHECK(w, trecv(d, d.mine(1 << 19), 10, 9, whole, &short_one));
    CHECK(w, trecv(d, d.mine(1 << 20), 10, 10, whole, &canceled));
    w.barrier();
    CHECK(w, tsend(d, d.mine(), 300, 9, nullptr, 0));
    CHECK(w, wait(d, short_one) && short_one.status == FI_ETRUNC && short_one.length == 10);
    CHECK(w, fi_cancel(&d.ep()->fid, &canceled) == 0);
    CHECK(w, wait(d, canceled) && canceled.status == FI_ECANCELED);
}

/// ucp_tag_probe_nb, remove 0: only a look.
void ucx_tag_probe(World& w)
{
    Desk d(w);
    fi_context look;
    CHECK(w, trecv(d, nullptr, 0, 0x70, 0xf0, &look, FI_PEEK | FI_COMPLETION));
    CHECK(w, d.received().error.err == FI_ENOMSG); // UCX: NULL
    w.barrier();
    CHECK(w, tsend(d, d.mine(), 123, 0x7f, nullptr, 0));
    Entry e;
    w.until([&] {
        CHECK(w, trecv(d, nullptr, 0, 0x70, 0xf0, &look, FI_PEEK | FI_COMPLETION));
        e = d.received();
        return e.error.err == 0;
    });
    CHECK(w, e.ok.tag == 0x7f && e.ok.len == 123);                // ucp_tag_recv_info_t
    CHECK(w, trecv(d, d.mine(1 << 19), 123, 0x7f, whole, &look)); // it was left where it was
    CHECK(w, d.received().ok.len == 123);
}

/// ucp_tag_probe_nb, remove 1, and ucp_tag_msg_recv_nb: the context is the handle of the message.
void ucx_tag_probe_remove(World& w)
{
    Desk d(w);
    for (std::size_t size : {0u, 123u, 50000u}) {
        fill(d.mine(), size, w.rank(), 1);
        CHECK(w, tsend(d, d.mine(), size, 0x7f, nullptr, 0));
        fi_context message, other;
        Entry e;
        w.until([&] {
            CHECK(w, trecv(d, nullptr, 0, 0x7f, whole, &message, FI_PEEK | FI_CLAIM | FI_COMPLETION));
            e = d.received();
            return e.error.err == 0;
        });
        CHECK(w, e.ok.len == size);
        CHECK(w, trecv(d, nullptr, 0, 0x7f, whole, &other, FI_PEEK | FI_COMPLETION)); // no other receive gets it
        CHECK(w, d.received().error.err == FI_ENOMSG);
        std::vector<unsigned char> fitting(size + 1);
        CHECK(w, trecv(d, d.mine(1 << 19), e.ok.len, 0x7f, whole, &message, FI_CLAIM | FI_COMPLETION));
        e = d.received();
        CHECK(w, e.error.err == 0 && e.ok.op_context == &message && e.ok.len == size);
        CHECK(w, wrong(d.mine(1 << 19), size, d.from(), 1) == 0);
        w.barrier();
    }
}

/// ucp_request_check_status, ucp_request_is_completed
void ucx_request_status(World& w)
{
    Desk d(w);
    Request r[3];
    for (unsigned i = 0; i < 3; ++i)
        CHECK(w, trecv(d, d.mine((1 << 19) + i * 64), 64, i, whole, &r[i]));
    w.barrier();
    CHECK(w, tsend(d, d.mine(), 8, 1, nullptr, 0));
    CHECK(w, wait(d, r[1]) && r[1].status == 0);
    CHECK(w, !r[0].completed && !r[2].completed);
    w.barrier();
    CHECK(w, tsend(d, d.mine(), 8, 2, nullptr, 0));
    CHECK(w, tsend(d, d.mine(), 8, 0, nullptr, 0));
    CHECK(w, wait(d, r[0]) && wait(d, r[2]));
}

/// ucp_request_cancel: "in completed or canceled (but not both) state"
void ucx_request_cancel(World& w)
{
    Desk d(w);
    constexpr unsigned count = 100;
    std::vector<Request> r(count);
    for (unsigned i = 0; i < count; ++i)
        CHECK(w, trecv(d, d.mine((1 << 19) + i * 64), 64, 5, whole, &r[i]));
    w.barrier();
    for (unsigned i = 0; i < count / 2; ++i)
        CHECK(w, tsend(d, d.mine(), 8, 5, nullptr, 0));
    for (unsigned i = count; i-- > 0;) // while they arrive
        (void)fi_cancel(&d.ep()->fid, &r[i]);
    unsigned done = 0, canceled = 0;
    for (Request& one : r) {
        CHECK(w, wait(d, one));
        done += one.status == 0;
        canceled += one.status == FI_ECANCELED;
    }
    CHECK(w, done + canceled == count && done <= count / 2);
    CHECK(w, d.flush(FI_SEND, count / 2));
    w.barrier();
    // What came too late for them is for others.
    for (unsigned i = done; i < count / 2; ++i) {
        Request late;
        CHECK(w, trecv(d, d.mine(1 << 19), 64, 5, whole, &late));
        CHECK(w, wait(d, late) && late.status == 0);
    }
    CHECK(w, d.quiet());
}

/// ucp_request_free: the operation goes on, it has no entry: without FI_COMPLETION.
void ucx_request_free(World& w)
{
    Desk d(w);
    CHECK(w, trecv(d, d.mine(1 << 19), 50000, 5, whole, nullptr, 0));
    fill(d.mine(), 50000, w.rank(), 1);
    CHECK(w, tsend(d, d.mine(), 50000, 5, nullptr, 0));
    CHECK(w, d.flush(FI_SEND, 1) && d.flush(FI_RECV, 1));
    CHECK(w, wrong(d.mine(1 << 19), 50000, d.from(), 1) == 0);
    CHECK(w, d.quiet());
}

/// ucp_err_handler: what fails says so by an error entry of its own, with code and text.
void ucx_err_handler(World& w)
{
    if (!w.ours() || !w.has(FI_RMA))
        return;
    Desk d(w);
    int request = 0;
    CHECK(w, d.ok([&] {
        return fi_write(d.ep(), d.mine(), 8, d.desc(), d.peer(), d.at(0), d.key() + (std::uint64_t{0x7355} << 40),
                        &request);
    }));
    const Entry e = d.sent();
    CHECK(w, e.error.err > 0 && e.error.op_context == &request);
    CHECK(w, std::strlen(fi_strerror(e.error.err)) > 3);
    CHECK(w, std::strlen(fi_cq_strerror(d.s.tx(), e.error.prov_errno, nullptr, nullptr, 0)) > 3);
    // The endpoint lives on, and reaches the same peer.
    CHECK(w, trecv(d, d.mine(1 << 19), 8, 1, whole, nullptr));
    CHECK(w, tsend(d, d.mine(), 8, 1, &request));
    CHECK(w, d.sent().error.err == 0 && d.received().error.err == 0);
}

} // namespace fabtests
