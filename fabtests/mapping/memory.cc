// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// UCX's put, get and atomics by fi_* calls: the examples that docs/mapping.md names.
#include "desk.h"

namespace fabtests {
namespace {

template <class T>
constexpr fi_datatype type_of = sizeof(T) == 4 ? FI_UINT32 : FI_UINT64;

fi_msg_rma rma(Desk& d, iovec& iov, fi_rma_iov& remote, void*& desc, void* context)
{
    desc = d.desc();
    remote.key = d.key();
    remote.len = iov.iov_len;
    fi_msg_rma msg{};
    msg.msg_iov = &iov;
    msg.desc = &desc;
    msg.iov_count = 1;
    msg.addr = d.peer();
    msg.rma_iov = &remote;
    msg.rma_iov_count = 1;
    msg.context = context;
    return msg;
}

/// One operation by fi_writemsg or fi_readmsg.
bool put(Desk& d, void* buffer, std::size_t length, std::size_t offset, std::uint64_t flags, void* context = nullptr)
{
    iovec iov{buffer, length};
    fi_rma_iov remote{d.at(offset), 0, 0};
    void* desc;
    const fi_msg_rma msg = rma(d, iov, remote, desc, context);
    return d.ok([&] { return fi_writemsg(d.ep(), &msg, flags); });
}
bool get(Desk& d, void* buffer, std::size_t length, std::size_t offset, std::uint64_t flags, void* context = nullptr)
{
    iovec iov{buffer, length};
    fi_rma_iov remote{d.at(offset), 0, 0};
    void* desc;
    const fi_msg_rma msg = rma(d, iov, remote, desc, context);
    return d.ok([&] { return fi_readmsg(d.ep(), &msg, flags); });
}

/// A blocking fetch: posted, and the counter waited for.
template <class T>
T fetch(Desk& d, fi_op op, T operand, std::size_t offset)
{
    const std::uint64_t done = fi_cntr_read(d.s.counter(FI_READ));
    *d.mine<T>(0) = operand;
    CHECK(d.w, d.ok([&] {
        return fi_fetch_atomic(d.ep(), d.mine(0), 1, d.desc(), d.mine(64), d.desc(), d.peer(), d.at(offset), d.key(),
                               type_of<T>, op, nullptr);
    }));
    CHECK(d.w, d.flush(FI_READ, done + 1));
    return *d.mine<T>(64);
}

template <class T>
T compare_swap(Desk& d, T compare, T swap, std::size_t offset)
{
    const std::uint64_t done = fi_cntr_read(d.s.counter(FI_READ));
    *d.mine<T>(0) = swap;
    *d.mine<T>(128) = compare;
    CHECK(d.w, d.ok([&] {
        return fi_compare_atomic(d.ep(), d.mine(0), 1, d.desc(), d.mine(128), d.desc(), d.mine(64), d.desc(), d.peer(),
                                 d.at(offset), d.key(), type_of<T>, FI_CSWAP, nullptr);
    }));
    CHECK(d.w, d.flush(FI_READ, done + 1));
    return *d.mine<T>(64);
}

} // namespace

/// ucp_put_nbi, ucp_ep_flush: many puts without a request each; the flush waits for all, and then they are there.
void ucx_put_nbi_flush(World& w)
{
    Desk d(w);
    constexpr unsigned count = 200;
    for (unsigned i = 0; i < count; ++i) {
        fill(d.mine(i * 256), 200, w.rank(), i);
        CHECK(w, put(d, d.mine(i * 256), 200, i * 256, FI_DELIVERY_COMPLETE));
    }
    CHECK(w, d.flush(FI_WRITE, count));
    CHECK(w, d.quiet());
    w.barrier();
    std::size_t bad = 0;
    for (unsigned i = 0; i < count; ++i)
        bad += wrong(w.region() + i * 256, 200, d.from(), i);
    CHECK(w, bad == 0);
}

/// ucp_put_nb: one entry with the request when the local buffer can be modified.
void ucx_put_nb(World& w)
{
    Desk d(w);
    for (std::size_t size : {8u, 3000u, 60000u}) {
        int request = 0;
        fill(d.mine(), size, w.rank(), 1);
        CHECK(w, put(d, d.mine(), size, 0, FI_COMPLETION | FI_INJECT_COMPLETE, &request));
        const Entry e = d.sent();
        CHECK(w, e.error.err == 0 && e.ok.op_context == &request);
        std::memset(d.mine(), 0, size); // ours again
        CHECK(w, get(d, d.mine(1 << 17), size, 0, FI_COMPLETION | FI_FENCE));
        CHECK(w, d.sent().error.err == 0);
        CHECK(w, wrong(d.mine(1 << 17), size, w.rank(), 1) == 0);
    }
}

/// ucp_put: returns when the source buffer can be used again.
void ucx_put(World& w)
{
    Desk d(w);
    unsigned posted = 0;
    for (unsigned i = 0; i < 50; ++i, ++posted) { // small: the call itself
        fill(d.mine(), 32, w.rank(), i);
        CHECK(w, d.ok([&] { return fi_inject_write(d.ep(), d.mine(), 32, d.peer(), d.at(i * 32), d.key()); }));
        std::memset(d.mine(), 0, 32);
    }
    for (unsigned i = 0; i < 10; ++i, ++posted) { // any size: the entry
        fill(d.mine(), 5000, w.rank(), i);
        CHECK(w, put(d, d.mine(), 5000, 2000 + i * 5000, FI_COMPLETION | FI_INJECT_COMPLETE));
        CHECK(w, d.sent().error.err == 0);
        std::memset(d.mine(), 0, 5000);
    }
    CHECK(w, d.flush(FI_WRITE, posted));
    // A fenced read behind them has them all take effect first.
    CHECK(w, get(d, d.mine(), 8, 0, FI_COMPLETION | FI_FENCE));
    CHECK(w, d.sent().error.err == 0);
    w.barrier();
    std::size_t bad = 0;
    for (unsigned i = 0; i < 50; ++i)
        bad += wrong(w.region() + i * 32, 32, d.from(), i);
    for (unsigned i = 0; i < 10; ++i)
        bad += wrong(w.region() + 2000 + i * 5000, 5000, d.from(), i);
    CHECK(w, bad == 0);
}

/// ucp_get_nbi, ucp_ep_flush
void ucx_get_nbi_flush(World& w)
{
    Desk d(w);
    fill(w.region(), 51200, w.rank(), 4);
    w.barrier();
    for (unsigned i = 0; i < 200; ++i)
        CHECK(w, get(d, d.mine(i * 256), 256, i * 256, 0));
    CHECK(w, d.flush(FI_READ, 200));
    CHECK(w, wrong(d.mine(), 51200, d.to(), 4) == 0);
    CHECK(w, d.quiet());
}

/// ucp_get_nb: "completed and the data is visible to the local process"
void ucx_get_nb(World& w)
{
    Desk d(w);
    fill(w.region(), 60000, w.rank(), 5);
    w.barrier();
    for (std::size_t size : {8u, 3000u, 60000u}) {
        int request = 0;
        std::memset(d.mine(), 0, size);
        CHECK(w, get(d, d.mine(), size, 0, FI_COMPLETION, &request));
        const Entry e = d.sent();
        CHECK(w, e.error.err == 0 && e.ok.op_context == &request);
        CHECK(w, wrong(d.mine(), size, d.to(), 5) == 0);
    }
}

/// ucp_get
void ucx_get(World& w)
{
    Desk d(w);
    fill(w.region(), 60000, w.rank(), 6);
    w.barrier();
    for (unsigned i = 1; i <= 20; ++i) {
        CHECK(w,
              d.ok([&] { return fi_read(d.ep(), d.mine(), i * 3000, d.desc(), d.peer(), d.at(0), d.key(), nullptr); }));
        CHECK(w, d.flush(FI_READ, i));
        CHECK(w, wrong(d.mine(), i * 3000, d.to(), 6) == 0);
    }
}

namespace {
template <class T>
void post_all(Desk& d, std::size_t offset)
{
    const fi_op ops[] = {FI_SUM, FI_BAND, FI_BOR, FI_BXOR};
    const T start = static_cast<T>(0xf0f0f0f0f0f0f0f0), operand = static_cast<T>(0x123456789abcdef0);
    for (unsigned i = 0; i < 4; ++i)
        std::memcpy(d.w.region() + offset + 8 * i, &start, sizeof start);
    d.w.barrier();
    const std::uint64_t done = fi_cntr_read(d.s.counter(FI_WRITE));
    for (unsigned i = 0; i < 4; ++i)
        CHECK(d.w, d.ok([&] {
            return fi_inject_atomic(d.ep(), &operand, 1, d.peer(), d.at(offset + 8 * i), d.key(), type_of<T>, ops[i]);
        }));
    CHECK(d.w, d.flush(FI_WRITE, done + 4));
    d.w.barrier();
    // The counter says that the operations are on their way; when they have taken effect shows here.
    CHECK(d.w, d.w.until([&] { return d.value<T>(offset + 24) != start && d.value<T>(offset) != start; }));
    CHECK(d.w, d.w.until([&] { return d.value<T>(offset + 8) != start && d.value<T>(offset + 16) != start; }));
    CHECK(d.w, d.value<T>(offset) == static_cast<T>(start + operand));
    CHECK(d.w, d.value<T>(offset + 8) == (start & operand));
    CHECK(d.w, d.value<T>(offset + 16) == (start | operand));
    CHECK(d.w, d.value<T>(offset + 24) == (start ^ operand));
    d.w.barrier();
}

template <class T>
void fetch_all(Desk& d, std::size_t offset)
{
    const T start = static_cast<T>(0xf0f0f0f0f0f0f0f0), operand = static_cast<T>(0x123456789abcdef0);
    std::memcpy(d.w.region() + offset, &start, sizeof start);
    d.w.barrier();
    T now = start;
    auto step = [&](fi_op op, T after) {
        CHECK(d.w, fetch<T>(d, op, operand, offset) == now);
        now = after;
    };
    step(FI_SUM, static_cast<T>(now + operand));
    step(FI_BXOR, now ^ operand);
    step(FI_BOR, now | operand);
    step(FI_BAND, now & operand);
    step(FI_ATOMIC_WRITE, operand); // swap
    CHECK(d.w, compare_swap<T>(d, operand, 77, offset) == operand);
    CHECK(d.w, compare_swap<T>(d, operand, 88, offset) == 77); // no match: unchanged
    d.w.barrier();
    CHECK(d.w, d.value<T>(offset) == 77);
    d.w.barrier();
}

/// All ranks add to rank 0's word; every old value is seen once.
template <class T>
void add_all(Desk& d, std::size_t offset, bool fetching)
{
    World& w = d.w;
    constexpr unsigned each = 200;
    const std::uint64_t at = w.address(0, offset), key = w.key(0);
    T last = 0;
    for (unsigned i = 0; i < each; ++i) {
        const std::uint64_t kind = fetching ? FI_READ : FI_WRITE;
        const std::uint64_t done = fi_cntr_read(d.s.counter(kind));
        *d.mine<T>(0) = 3;
        CHECK(w, d.ok([&] {
            return fetching
                       ? fi_fetch_atomic(d.ep(), d.mine(0), 1, d.desc(), d.mine(64), d.desc(), d.s.peer(0), at, key,
                                         type_of<T>, FI_SUM, nullptr)
                       : fi_atomic(d.ep(), d.mine(0), 1, d.desc(), d.s.peer(0), at, key, type_of<T>, FI_SUM, nullptr);
        }));
        CHECK(w, d.flush(kind, done + 1));
        if (fetching) { // grows by all additions
            const T old = *d.mine<T>(64);
            CHECK(w, old % 3 == 0 && (i == 0 || old > last));
            last = old;
        }
    }
    w.barrier();
    // Blocking means done: with a barrier after the flush all of it is in place.
    CHECK(w, w.rank() != 0 || w.until([&] { return d.value<T>(offset) == static_cast<T>(3 * each * w.ranks()); }));
    w.barrier();
}
} // namespace

/// ucp_atomic_post: ADD, AND, OR, XOR of 32 and 64 bits, and a flush
void ucx_atomic_post(World& w)
{
    Desk d(w);
    post_all<std::uint32_t>(d, 0);
    post_all<std::uint64_t>(d, 64);
}

/// ucp_atomic_fetch_nb: FADD, FXOR, FOR, FAND, SWAP, CSWAP of 32 and 64 bits
void ucx_atomic_fetch(World& w)
{
    Desk d(w);
    fetch_all<std::uint32_t>(d, 0);
    fetch_all<std::uint64_t>(d, 64);
}

/// ucp_atomic_add32, ucp_atomic_add64
void ucx_atomic_add(World& w)
{
    Desk d(w);
    add_all<std::uint32_t>(d, 0, false);
    add_all<std::uint64_t>(d, 64, false);
}

/// ucp_atomic_fadd32, ucp_atomic_fadd64
void ucx_atomic_fadd(World& w)
{
    Desk d(w);
    add_all<std::uint32_t>(d, 0, true);
    add_all<std::uint64_t>(d, 64, true);
}

/// ucp_atomic_swap32, ucp_atomic_swap64
void ucx_atomic_swap(World& w)
{
    Desk d(w);
    for (unsigned i = 0; i < 50; ++i) {
        CHECK(w, fetch<std::uint32_t>(d, FI_ATOMIC_WRITE, i + 1, 0) == i);
        CHECK(w, fetch<std::uint64_t>(d, FI_ATOMIC_WRITE, (i + 1) * 0x100000001ull, 64) == i * 0x100000001ull);
    }
}

/// ucp_atomic_cswap32, ucp_atomic_cswap64
void ucx_atomic_cswap(World& w)
{
    Desk d(w);
    for (unsigned i = 0; i < 50; ++i) {
        CHECK(w, compare_swap<std::uint32_t>(d, i, i + 1, 4) == i);
        CHECK(w, compare_swap<std::uint32_t>(d, i, 99999, 4) == i + 1);
        CHECK(w,
              compare_swap<std::uint64_t>(d, i * 0x100000001ull, (i + 1) * 0x100000001ull, 64) == i * 0x100000001ull);
        CHECK(w, compare_swap<std::uint64_t>(d, i, 99999, 64) == (i + 1) * 0x100000001ull);
    }
    w.barrier();
    CHECK(w, d.value<std::uint32_t>(4) == 50 && d.value<std::uint32_t>(0) == 0); // its neighbour is untouched
    CHECK(w, d.value<std::uint64_t>(64) == 50 * 0x100000001ull);
}

} // namespace fabtests
