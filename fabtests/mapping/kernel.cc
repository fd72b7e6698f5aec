// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// kfi_atomic(3) and kfi_cntr(3) by fi_* calls: the examples that docs/mapping.md names.
#include "desk.h"

namespace fabtests {
namespace {

struct Message {
    fi_ioc local;
    fi_rma_ioc remote;
    void* desc;
    fi_msg_atomic msg{};
    Message(Desk& d, std::size_t count, std::size_t offset, fi_op op, void* context)
        : local{d.mine(), count}, remote{d.at(offset), count, d.key()}, desc(d.desc())
    {
        msg.msg_iov = &local;
        msg.desc = &desc;
        msg.iov_count = 1;
        msg.addr = d.peer();
        msg.rma_iov = &remote;
        msg.rma_iov_count = 1;
        msg.datatype = FI_UINT64;
        msg.op = op;
        msg.context = context;
    }
    Message(const Message&) = delete;
};

constexpr std::uint64_t done = FI_COMPLETION | FI_DELIVERY_COMPLETE;

} // namespace

/// kfi_atomic, kfi_atomicv, kfi_atomicmsg: the same to the target by other parameters
void kfi_atomic_calls(World& w)
{
    Desk d(w);
    for (unsigned i = 0; i < 4; ++i)
        d.mine<std::uint64_t>()[i] = i + 1;
    CHECK(w, d.ok([&] {
        return fi_atomic(d.ep(), d.mine(), 4, d.desc(), d.peer(), d.at(0), d.key(), FI_UINT64, FI_SUM, nullptr);
    }));
    const fi_ioc halves[] = {{d.mine(), 2}, {d.mine(16), 2}};
    void* descs[] = {d.desc(), d.desc()};
    CHECK(w, d.ok([&] {
        return fi_atomicv(d.ep(), halves, descs, 2, d.peer(), d.at(0), d.key(), FI_UINT64, FI_SUM, nullptr);
    }));
    Message m(d, 4, 0, FI_SUM, &m);
    CHECK(w, d.ok([&] { return fi_atomicmsg(d.ep(), &m.msg, done); }));
    CHECK(w, d.sent().ok.op_context == &m);
    CHECK(w, d.flush(FI_WRITE, 3));
    w.barrier();
    for (unsigned i = 0; i < 4; ++i)
        CHECK(w, w.until([&] { return d.value<std::uint64_t>(8 * i) == 3 * (i + 1); }));
}

/// kfi_inject_atomic: the buffer is free at once, no entry even where all others have one
void kfi_inject_atomic(World& w)
{
    Desk d(w, {.counters = FI_WRITE});
    for (std::uint64_t i = 1; i <= 100; ++i) {
        std::uint64_t operand = i;
        CHECK(w, d.ok([&] {
            return fi_inject_atomic(d.ep(), &operand, 1, d.peer(), d.at(0), d.key(), FI_UINT64, FI_SUM);
        }));
        operand = 1 << 30;
    }
    CHECK(w, d.flush(FI_WRITE, 100));
    CHECK(w, d.quiet());
    w.barrier();
    CHECK(w, w.until([&] { return d.value<std::uint64_t>(0) == 5050; }));
}

/// kfi_fetch_atomic, -v, -msg: the initial value comes back
void kfi_fetch_calls(World& w)
{
    Desk d(w);
    *d.mine<std::uint64_t>() = 5;
    auto back = [&] { return *d.mine<std::uint64_t>(512); };
    CHECK(w, d.ok([&] {
        return fi_fetch_atomic(d.ep(), d.mine(), 1, d.desc(), d.mine(512), d.desc(), d.peer(), d.at(0), d.key(),
                               FI_UINT64, FI_SUM, nullptr);
    }));
    CHECK(w, d.flush(FI_READ, 1) && back() == 0);
    const fi_ioc operand{d.mine(), 1};
    fi_ioc result{d.mine(512), 1};
    void* desc = d.desc();
    CHECK(w, d.ok([&] {
        return fi_fetch_atomicv(d.ep(), &operand, &desc, 1, &result, &desc, 1, d.peer(), d.at(0), d.key(), FI_UINT64,
                                FI_SUM, nullptr);
    }));
    CHECK(w, d.flush(FI_READ, 2) && back() == 5);
    Message m(d, 1, 0, FI_SUM, &m);
    CHECK(w, d.ok([&] { return fi_fetch_atomicmsg(d.ep(), &m.msg, &result, &desc, 1, FI_COMPLETION); }));
    CHECK(w, d.sent().error.err == 0 && back() == 10);
    // KFI_ATOMIC_READ
    Message read(d, 1, 0, FI_ATOMIC_READ, nullptr);
    CHECK(w, d.ok([&] { return fi_fetch_atomicmsg(d.ep(), &read.msg, &result, &desc, 1, FI_COMPLETION); }));
    CHECK(w, d.sent().error.err == 0 && back() == 15);
}

/// kfi_compare_atomic, -v, -msg
void kfi_compare_calls(World& w)
{
    Desk d(w);
    auto set = [&](std::uint64_t swap, std::uint64_t compare) {
        *d.mine<std::uint64_t>() = swap;
        *d.mine<std::uint64_t>(256) = compare;
    };
    auto back = [&] { return *d.mine<std::uint64_t>(512); };
    set(7, 0);
    CHECK(w, d.ok([&] {
        return fi_compare_atomic(d.ep(), d.mine(), 1, d.desc(), d.mine(256), d.desc(), d.mine(512), d.desc(), d.peer(),
                                 d.at(0), d.key(), FI_UINT64, FI_CSWAP, nullptr);
    }));
    CHECK(w, d.flush(FI_READ, 1) && back() == 0);
    set(9, 8); // 7 <= 8
    const fi_ioc operand{d.mine(), 1}, compare{d.mine(256), 1};
    fi_ioc result{d.mine(512), 1};
    void* desc = d.desc();
    CHECK(w, d.ok([&] {
        return fi_compare_atomicv(d.ep(), &operand, &desc, 1, &compare, &desc, 1, &result, &desc, 1, d.peer(), d.at(0),
                                  d.key(), FI_UINT64, FI_CSWAP_GE, nullptr);
    }));
    CHECK(w, d.flush(FI_READ, 2) && back() == 7);
    set(0xff00, 0xf0f0);
    Message m(d, 1, 0, FI_MSWAP, &m);
    CHECK(w, d.ok([&] { return fi_compare_atomicmsg(d.ep(), &m.msg, &compare, &desc, 1, &result, &desc, 1, done); }));
    CHECK(w, d.sent().error.err == 0);
    const std::uint64_t before = back();
    CHECK(w, before == 9);
    w.barrier();
    CHECK(w, w.until(
                 [&] { return d.value<std::uint64_t>(0) == ((0xff00 & 0xf0f0) | (before & ~std::uint64_t{0xf0f0})); }));
}

/// kfi_atomicvalid and its two like: 0 and how many at once, or -FI_EOPNOTSUPP
void kfi_valid(World& w)
{
    Desk d(w);
    std::size_t count = 0;
    CHECK(w, fi_atomicvalid(d.ep(), FI_UINT64, FI_SUM, &count) == 0 && count > 0);
    CHECK(w, fi_fetch_atomicvalid(d.ep(), FI_UINT64, FI_ATOMIC_READ, &count) == 0 && count > 0);
    CHECK(w, fi_compare_atomicvalid(d.ep(), FI_UINT64, FI_CSWAP, &count) == 0 && count > 0);
    CHECK(w, fi_atomicvalid(d.ep(), FI_DOUBLE, FI_BOR, &count) == -FI_EOPNOTSUPP);
}

/// "the target process may be notified by the initiator sending a message after the atomic call completes"
void kfi_visibility(World& w)
{
    Desk d(w, {.counters = FI_WRITE});
    for (std::uint64_t round = 1; round <= 50; ++round) {
        CHECK(w, fi_trecv(d.ep(), d.mine(4096), 8, d.desc(), FI_ADDR_UNSPEC, round, 0, nullptr) == 0);
        *d.mine<std::uint64_t>() = round;
        Message m(d, 1, 8, FI_ATOMIC_WRITE, nullptr);
        CHECK(w, d.ok([&] { return fi_atomicmsg(d.ep(), &m.msg, done); }));
        CHECK(w, d.sent().error.err == 0);
        CHECK(w, d.ok([&] { return fi_tinject(d.ep(), d.mine(), 8, d.peer(), round); }));
        CHECK(w, d.received().error.err == 0);
        CHECK(w, d.value<std::uint64_t>(8) == round);
        w.barrier();
    }
}

/// "or sending a fenced message immediately after initiating the atomic operation"
void kfi_fenced_message(World& w)
{
    if (!w.has(FI_FENCE))
        return;
    Desk d(w);
    for (std::uint64_t round = 1; round <= 50; ++round) {
        const iovec in{d.mine(4096), 8}, out{d.mine(8192), 8};
        void* desc = d.desc();
        const fi_msg_tagged receive{&in, &desc, 1, FI_ADDR_UNSPEC, round, 0, nullptr, 0};
        CHECK(w, d.ok([&] { return fi_trecvmsg(d.ep(), &receive, FI_COMPLETION); }));
        w.barrier();
        for (unsigned i = 0; i < 8; ++i) {
            const std::uint64_t value = round;
            CHECK(w, d.ok([&] {
                return fi_inject_atomic(d.ep(), &value, 1, d.peer(), d.at(8 * i), d.key(), FI_UINT64,
                                        i % 2 ? FI_MAX : FI_ATOMIC_WRITE);
            }));
        }
        const fi_msg_tagged send{&out, &desc, 1, d.peer(), round, 0, nullptr, 0};
        CHECK(w, d.ok([&] { return fi_tsendmsg(d.ep(), &send, FI_FENCE); }));
        CHECK(w, d.received().error.err == 0);
        for (unsigned i = 0; i < 8; ++i)
            CHECK(w, d.value<std::uint64_t>(8 * i) == round);
        w.barrier();
    }
}

/// KFI_COMPLETION, KFI_MORE, KFI_INJECT, KFI_FENCE
void kfi_flags(World& w)
{
    Desk d(w);
    *d.mine<std::uint64_t>() = 2;
    Message m(d, 1, 0, FI_SUM, &m);
    CHECK(w, d.ok([&] { return fi_atomicmsg(d.ep(), &m.msg, FI_MORE); }));
    CHECK(w, d.ok([&] { return fi_atomicmsg(d.ep(), &m.msg, FI_INJECT | FI_MORE); }));
    CHECK(w, d.flush(FI_WRITE, 2));
    CHECK(w, d.quiet()); // no entry was requested
    CHECK(w, d.ok([&] { return fi_atomicmsg(d.ep(), &m.msg, FI_INJECT | FI_COMPLETION); }));
    *d.mine<std::uint64_t>() = 1000;
    CHECK(w, d.sent().ok.op_context == &m);
    // Fenced: behind the three.
    fi_ioc result{d.mine(512), 1};
    void* desc = d.desc();
    Message read(d, 1, 0, FI_ATOMIC_READ, &read);
    const std::uint64_t fence = w.has(FI_FENCE) ? FI_FENCE : 0;
    CHECK(w, d.ok([&] { return fi_fetch_atomicmsg(d.ep(), &read.msg, &result, &desc, 1, FI_COMPLETION | fence); }));
    CHECK(w, d.sent().ok.op_context == &read);
    CHECK(w, *d.mine<std::uint64_t>(512) == 6);
}

/// KFI_REMOTE_SIGNAL: the target hears of it: FI_RMA_EVENT and a counter bound with FI_REMOTE_WRITE; for a write
/// also an entry with data
void kfi_remote_signal(World& w)
{
    if (!w.has(FI_RMA_EVENT))
        return;
    Desk d(w, {.counters = FI_REMOTE_WRITE | FI_WRITE, .counter_wait = FI_WAIT_UNSPEC});
    fid_cntr* const signal = d.s.counter(FI_REMOTE_WRITE);
    w.take_late_events();
    const std::uint64_t before = fi_cntr_read(signal);
    w.barrier();
    for (unsigned i = 0; i < 10; ++i) {
        const std::uint64_t one = 1;
        CHECK(w,
              d.ok([&] { return fi_inject_atomic(d.ep(), &one, 1, d.peer(), d.at(0), d.key(), FI_UINT64, FI_SUM); }));
    }
    CHECK(w, fi_cntr_wait(signal, before + 10, static_cast<int>(1000 * w.patience())) == 0);
    CHECK(w, d.value<std::uint64_t>(0) == 10);
    w.barrier();
    CHECK(w, d.ok([&] {
        return fi_writedata(d.ep(), d.mine(), 8, d.desc(), 0x1234, d.peer(), d.at(64), d.key(), nullptr);
    }));
    const Entry e = d.received();
    CHECK(w, e.error.err == 0 && e.ok.data == 0x1234 && (e.ok.flags & FI_REMOTE_WRITE) != 0);
    CHECK(w, d.sent().error.err == 0);
}

/// -KFI_EOPNOTSUPP, -KFI_EMSGSIZE
void kfi_errors(World& w)
{
    if (!w.ours())
        return;
    Desk d(w);
    std::size_t most = 0;
    CHECK(w, fi_atomicvalid(d.ep(), FI_UINT64, FI_SUM, &most) == 0);
    CHECK(w, fi_atomic(d.ep(), d.mine(), most + 1, d.desc(), d.peer(), d.at(0), d.key(), FI_UINT64, FI_SUM, nullptr) ==
                 -FI_EMSGSIZE);
    CHECK(w, fi_atomic(d.ep(), d.mine(), 1, d.desc(), d.peer(), d.at(0), d.key(), FI_FLOAT, FI_BXOR, nullptr) ==
                 -FI_EOPNOTSUPP);
    CHECK(w, d.quiet());
}

/// "Counters can provide a light-weight completion mechanism by suppressing the generation of a full completion event"
void kfi_cntr_light(World& w)
{
    Desk d(w, {.selective = true, .counters = FI_WRITE, .counter_wait = FI_WAIT_UNSPEC});
    fid_cntr* const c = d.s.counter(FI_WRITE);
    for (unsigned round = 1; round <= 20; ++round) {
        for (unsigned i = 0; i < 50; ++i)
            CHECK(w, d.ok([&] {
                return fi_write(d.ep(), d.mine(), 64, d.desc(), d.peer(), d.at(64 * i), d.key(), nullptr);
            }));
        CHECK(w, fi_cntr_wait(c, 50 * round, static_cast<int>(1000 * w.patience())) == 0);
    }
    CHECK(w, fi_cntr_read(c) == 1000 && fi_cntr_readerr(c) == 0);
    CHECK(w, d.quiet());
}

/// "credit based flow control": a peer's receives are the credits, by thresholds that grow
void kfi_cntr_credits(World& w)
{
    Desk d(w, {.selective = true, .counters = FI_SEND | FI_RECV, .counter_wait = FI_WAIT_UNSPEC});
    constexpr unsigned window = 8, rounds = 20;
    const int patience = static_cast<int>(1000 * w.patience());
    auto receive = [&] {
        for (unsigned i = 0; i < window; ++i)
            CHECK(w, d.ok([&] { return fi_trecv(d.ep(), d.mine(4096), 64, d.desc(), FI_ADDR_UNSPEC, 1, 0, nullptr); }));
    };
    receive();
    w.barrier();
    for (unsigned round = 1; round <= rounds; ++round) {
        for (unsigned i = 0; i < window; ++i)
            CHECK(w, d.ok([&] { return fi_tsend(d.ep(), d.mine(), 64, d.desc(), d.peer(), 1, nullptr); }));
        CHECK(w, fi_cntr_wait(d.s.counter(FI_RECV), window * round, patience) == 0);
        if (round < rounds)
            receive();
    }
    CHECK(w, fi_cntr_wait(d.s.counter(FI_SEND), window * rounds, patience) == 0);
    w.barrier();
    CHECK(w, fi_cntr_read(d.s.counter(FI_RECV)) == window * rounds);
}

/// kfi_cntr_control: KFI_GETOPSFLAG, KFI_SETOPSFLAG: a counter has no flags; KFI_GETWAIT: the wait object
void kfi_cntr_control(World& w)
{
    if (!w.ours())
        return;
    Desk d(w, {.counters = FI_SEND, .counter_wait = FI_WAIT_FD});
    fid* const c = &d.s.counter(FI_SEND)->fid;
    std::uint64_t flags = 1;
    CHECK(w, fi_control(c, FI_GETOPSFLAG, &flags) == 0 && flags == 0);
    CHECK(w, fi_control(c, FI_SETOPSFLAG, &flags) == 0);
    flags = FI_COMPLETION;
    CHECK(w, fi_control(c, FI_SETOPSFLAG, &flags) < 0);
    int descriptor = -1;
    CHECK(w, fi_control(c, FI_GETWAIT, &descriptor) == 0 && descriptor >= 0);
}

} // namespace fabtests
