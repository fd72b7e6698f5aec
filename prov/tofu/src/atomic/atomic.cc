// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How a call becomes an atomic operation: it is checked, its keys and targets are found, and the runner takes it over;
// and what happens to an operation that has failed on the short way (armw.h). See atomic.h.
#include "atomic/atomic.h"

#include <utility>

#include <rdma/fi_errno.h>

#include "atomic/armw.h"

namespace tofu {

namespace {

using Call = AtomicEngine::Call;

constexpr bool uses_operand(fi_op op) { return op != FI_ATOMIC_READ; }

/// The flags of the completion entry (fi_cq(3)).
constexpr std::uint64_t entry_flags(Family family) { return FI_ATOMIC | (family == Family::base ? FI_WRITE : FI_READ); }

void add_all(Pieces& pieces, const AtomicEngine::List& list, std::size_t size)
{
    for (std::size_t i = 0; i < list.n; ++i)
        pieces.add(list.at[i].addr, list.at[i].count * size);
}

AtomicKind kind_of(Family family, fi_op op, fi_datatype type) noexcept
{
    const Method method = lookup(family, op, type);
    return {.kernel = kernel_of(op, type),
            .method = method,
            .op = op,
            .size = datatypes[type].size,
            .integer = is_integer(datatypes[type].kind),
            .multi = method == Method::loop || method == Method::wide || type == FI_FLOAT_COMPLEX,
            .reads_operand = uses_operand(op),
            .reads_compare = family == Family::compare,
            .fetches = family != Family::base};
}

void fill_in(AtomicOp& op, TxContext& tx, const Call& call, const Peer& peer, ssize_t total)
{
    const fi_msg_atomic& msg = call.msg;
    op.report_to(tx.reports(), entry_flags(call.family), msg.context,
                 !call.silent && tx.reports().binding.reports(call.flags));
    const Datatype& type = datatypes[msg.datatype];
    op.peer = peer;
    op.line.key = Pending::line_of(peer);
    op.call = AtomicEngine::of(tx).runner().ops.waiting().next_call();
    op.access = access_of(call.family, msg.op);
    op.align = type.align;
    static_cast<AtomicKind&>(op) = kind_of(call.family, msg.op, msg.datatype);
    // submit() waits for signaled operations before a fence; the strong order flag orders it behind unsignaled ones.
    op.strong = (call.flags & FI_FENCE) || AtomicEngine::of(tx).runner().ordered;
    op.event = !peer.counts_events             ? AtomicEvent::none
               : call.family == Family::base   ? AtomicEvent::write
               : msg.op == FI_ATOMIC_READ      ? AtomicEvent::read
                                               : AtomicEvent::fetch;
    op.total = static_cast<std::size_t>(total);
    if (op.reads_operand)
        add_all(op.operand, call.operand(), type.size);
    if (op.reads_compare)
        add_all(op.compare, call.compare, type.size);
    if (op.fetches)
        add_all(op.result, call.result, type.size);
    for (std::size_t i = 0; i < msg.rma_iov_count; ++i)
        AtomicEngine::of(tx).access().add(op, msg.rma_iov[i].addr, msg.rma_iov[i].count * type.size, msg.rma_iov[i].key);
    if (op.event != AtomicEvent::none && op.targets > 1)
        op.find_further(0, op.event != AtomicEvent::write, op.event != AtomicEvent::read);
}

/// Rounds of progress that an injected operation of several round trips gets before its call returns.
constexpr unsigned inject_polls = 64;

/// Makes progress for an injected operation, whose caller waits for no completion and may not call again for long:
/// without contention, loops end here as if they were ARMWs. Bounded: with a slow peer or a rival they go on in later
/// rounds.
[[gnu::noinline]] void submit_injected(TxContext& tx, AtomicOp& op) noexcept
{
    bool ended = false;
    op.ended = &ended;
    AtomicEngine::of(tx).runner().submit(&op, true);
    for (unsigned i = 0; i < inject_polls && !ended; ++i)
        tx.progress();
    if (!ended)
        op.ended = nullptr;
}

} // namespace

AtomicEngine::AtomicEngine(TxContext& tx) noexcept
    : tx_(tx),
      short_inject_(tx.reports().counters.write == nullptr && !tx.plan().shares_vcq),
      access_(tx.vcq(), tx.peers(), tx.peer_memory()),
      runner_(tx.vcq(), tx.pending(), access_)
{
    constexpr std::uint64_t orders = FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW |
                                     FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW | FI_ORDER_RAR |
                                     FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW;
    runner_.ordered = (tx.plan().attr.msg_order & orders) != 0;
    if (runner_.ordered)
        access_.order_regions();
    native_flags_ = vcq::delivered_flags(runner_.ordered, false);
    inject_flags_ = vcq::flags_of(runner_.ordered, false);
}

// --- taking a call in

ssize_t AtomicEngine::elements_of(const List& list) noexcept
{
    if (!list.at || list.n == 0 || list.n > max_atomic_iov)
        return -FI_EINVAL;
    std::size_t total = 0;
    for (std::size_t i = 0; i < list.n; ++i) {
        if (!list.at[i].addr && list.at[i].count)
            return -FI_EINVAL;
        if (list.at[i].count > max_atomic_bytes)
            return -FI_EMSGSIZE;
        total += list.at[i].count;
    }
    return static_cast<ssize_t>(total);
}

ssize_t AtomicEngine::check(const Call& call) const noexcept
{
    if (lookup(call.family, call.msg.op, call.msg.datatype) == Method::none)
        return -FI_EOPNOTSUPP;
    if (call.flags & ~AtomicEngine::known_flags)
        return call.flags & FI_TAGGED ? -FI_EOPNOTSUPP : -FI_EBADFLAGS;
    const fi_msg_atomic& msg = call.msg;
    if (!msg.rma_iov || msg.rma_iov_count == 0 || msg.rma_iov_count > max_atomic_iov)
        return -FI_EINVAL;
    std::size_t total = 0;
    for (std::size_t i = 0; i < msg.rma_iov_count; ++i) {
        if (msg.rma_iov[i].count > max_atomic_bytes)
            return -FI_EMSGSIZE;
        total += msg.rma_iov[i].count;
    }
    const auto n = static_cast<ssize_t>(total);
    const std::pair<bool, ssize_t> lists[] = {
        {uses_operand(msg.op), AtomicEngine::elements_of(call.operand())},
        {call.family != Family::base, AtomicEngine::elements_of(call.result)},
        {call.family == Family::compare, AtomicEngine::elements_of(call.compare)}};
    for (const auto& [used, elements] : lists)
        if (used && elements != n)
            return elements == -FI_EMSGSIZE ? -FI_EMSGSIZE : -FI_EINVAL;
    if (total == 0) // the page: between 1 and the maximum
        return -FI_EINVAL;
    if (total > max_count(msg.datatype))
        return -FI_EMSGSIZE;
    if ((call.flags & FI_INJECT) && uses_operand(msg.op) &&
        total * datatypes[msg.datatype].size > tx_.plan().attr.inject_size)
        return -FI_EMSGSIZE;
    return n;
}

ssize_t AtomicEngine::submit(const Call& call) noexcept
{
    TxContext& tx = tx_;
    const ssize_t total = check(call);
    if (total < 0)
        return total;
    const Peer* const peer = tx.peers().find(call.msg.addr);
    if (!peer)
        return -FI_EINVAL;
    if ((call.flags & FI_FENCE) && !tx.fence().passed(call.msg.addr, call.flags))
        return -FI_EAGAIN;
    AtomicOp* const op = runner_.ops.alloc();
    if (!op) {
        tx.progress();
        return tx.again(Stat::again_operations);
    }
    fill_in(*op, tx, call, *peer, total);
    int rc = access_.resolve_now(*op, [&] { tx.progress(); });
    if (rc == misaligned) [[unlikely]] {
        runner_.ops.release(op);
        return -FI_EINVAL;
    }
    if (rc == 0 && op->event != AtomicEvent::none) [[unlikely]]
        rc = access_.pay_now(*op, op->prov_errno, [&] { tx.progress(); });
    if (rc == 0) [[likely]] {
        if (call.flags & FI_INJECT)
            submit_injected(tx, *op);
        else
            runner_.submit(op, false);
        return 0;
    }
    if (!refuses_call(rc)) { // the operation fails, not the call
        op->err = -std::exchange(rc, 0);
        complete(*op);
    }
    runner_.ops.release(op);
    return rc;
}

/// Makes an operation of the long way from one that has failed on the short way. Null: there is no room for it.
AtomicOp* AtomicEngine::lengthen(const QuickOp& quick, bool entry) noexcept
{
    const Peer* const known = tx_.peers().find(quick.to);
    AtomicOp* const op = known != nullptr ? runner_.ops.alloc() : nullptr;
    if (op == nullptr)
        return nullptr;
    op->copy.reset(new (std::nothrow) std::byte[16]); // the buffers of an injected operation are gone
    if (!op->copy) {
        runner_.ops.release(op);
        return nullptr;
    }
    std::memcpy(op->copy.get(), &quick.operand, 8);
    std::memcpy(op->copy.get() + 8, &quick.compare, 8);
    const fi_ioc operand{op->copy.get(), 1};
    const fi_ioc compare{op->copy.get() + 8, 1};
    const fi_ioc result{quick.result, 1};
    const fi_rma_ioc remote{quick.address, 1, quick.key};
    const fi_msg_atomic msg{&operand, nullptr, 1, FI_ADDR_UNSPEC, &remote, 1, static_cast<fi_datatype>(quick.type),
                            static_cast<fi_op>(quick.op), quick.user_context, 0};
    Peer peer = *known;
    peer.home = quick.home;
    fill_in(*op, tx_, {Family{quick.family}, msg, {&compare, 1}, {&result, 1}, 0, false}, peer, 1);
    op->wants_entry = entry;
    op->call = quick.call;
    op->target[0].at = {quick.vcq, quick.stadd};
    return op;
}

void AtomicEngine::native_failed(const QuickOp& failed, bool base, bool entry, int code) noexcept
{
    const QuickOp quick = failed; // a copy, since its place is free already
    const bool reads = quick.kept && quick.op == FI_ATOMIC_READ;
    if (quick.kept && (reads || doubts_target(code)) && !tx_.vcq().is_closing())
        if (AtomicOp* const op = lengthen(quick, entry)) {
            if (reads) { // memory for reading only refuses an ARMW (guide 3.6.2.1), not a Get
                op->by_get = true;
                runner_.submit(op, false);
                return;
            }
            (void)access_.refuted(*op);
            if (says_stale(code)) {
                op->refuse(0, code);
                runner_.ops.begin_again(*op);
                return;
            }
            op->err = fi_error_of(code);
            op->prov_errno = code;
            runner_.ops.end(*op);
            return;
        }
    report_failure(tx_.reports(), entry_flags(base ? Family::base : Family::fetch), quick.user_context, code);
}

} // namespace tofu
