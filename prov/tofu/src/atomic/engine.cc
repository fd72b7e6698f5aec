// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How an atomic operation is taken in: checked, its keys and targets found, and handed to the runner; and what becomes
// of one that failed on the short way (native.h). See engine.h.
#include "atomic/engine.h"

#include <utility>

#include <rdma/fi_errno.h>

#include "atomic/native.h"

namespace tofu {

namespace {

using Call = AtomicEngine::Call;

constexpr bool uses_operand(fi_op op) { return op != FI_ATOMIC_READ; }

/// Of the entry (fi_cq(3)).
constexpr std::uint64_t entry_flags(Family family) { return FI_ATOMIC | (family == Family::base ? FI_WRITE : FI_READ); }

void add_all(Pieces& pieces, const AtomicEngine::List& list, std::size_t size)
{
    for (std::size_t i = 0; i < list.n; ++i)
        pieces.add(list.at[i].addr, list.at[i].count * size);
}

void fill_in(AtomicOp& op, TxContext& tx, const Call& call, const Peer& peer, ssize_t total)
{
    const fi_msg_atomic& msg = call.msg;
    op.report_to(tx.reports(), entry_flags(call.family), msg.context,
                 !call.silent && tx.reports().binding.reports(call.flags));
    const Datatype& type = datatypes[msg.datatype];
    op.peer = peer;
    op.line.key = Pending::line_of(peer);
    op.access = access_of(call.family, msg.op);
    op.align = type.align;
    op.kernel = kernel_of(msg.op, msg.datatype);
    op.method = lookup(call.family, msg.op, msg.datatype);
    op.op = msg.op;
    op.size = type.size;
    op.integer = is_integer(type.kind);
    op.multi = op.method == Method::loop || op.method == Method::wide || msg.datatype == FI_FLOAT_COMPLEX;
    op.reads_operand = uses_operand(msg.op);
    op.reads_compare = call.family == Family::compare;
    op.fetches = call.family != Family::base;
    // A fence waits for what is signaled; the flag orders it behind what is not (inject).
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
}

/// Rounds of progress that an injected operation of several round trips gets before its call returns.
constexpr unsigned inject_polls = 64;

/// Whoever injects has no completion to wait for and may not call again for long: where nobody contends, loops end
/// here, as if they were ARMWs. Bounded: what meets a slow peer or a rival goes on in later rounds.
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
      access_(tx.vcq(), tx.peers(), tx.remote_keys()),
      runner_(tx.vcq(), tx.pending(), access_)
{
    constexpr std::uint64_t orders = FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW |
                                     FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW | FI_ORDER_RAR |
                                     FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW;
    runner_.ordered = (tx.plan().attr.msg_order & orders) != 0;
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
        rc = tx.pay_for_event(op->peer, op->account, op->prov_errno);
    if (rc == 0) [[likely]] {
        if (call.flags & FI_INJECT)
            submit_injected(tx, *op);
        else
            runner_.submit(op, false);
        return 0;
    }
    if (!refuses_call(rc)) { // a matter of the peer's memory: an error of the operation, not of the call
        op->err = -std::exchange(rc, 0);
        complete(*op);
    }
    runner_.ops.release(op);
    return rc;
}

/// The operation that failed on the short way as one of the long way; null where there is no room for it.
AtomicOp* AtomicEngine::lengthen(const QuickOp& quick, unsigned size, bool entry, bool kept) noexcept
{
    Peer peer{};
    if (const Peer* const known = kept ? tx_.peers().find(quick.to) : nullptr; known)
        peer = *known;
    else if (kept)
        return nullptr;
    peer.home = quick.home;
    AtomicOp* const op = runner_.ops.alloc();
    if (!op)
        return nullptr;
    const Family family = size == 0 ? Family::base : kept ? Family{quick.family} : Family::fetch;
    const fi_op code = kept ? static_cast<fi_op>(quick.op) : FI_ATOMIC_READ;
    const fi_datatype type = kept        ? static_cast<fi_datatype>(quick.type)
                             : size == 8 ? FI_UINT64
                                         : FI_UINT32;
    fi_ioc operand{nullptr, 1};
    fi_ioc compare{nullptr, 1};
    const fi_ioc result{quick.result, 1};
    const fi_rma_ioc remote = kept ? fi_rma_ioc{quick.address, 1, quick.key} : fi_rma_ioc{0, 1, 0};
    if (kept) { // the buffers of an injected operation are gone
        op->copy.reset(new (std::nothrow) std::byte[16]);
        if (!op->copy) {
            runner_.ops.release(op);
            return nullptr;
        }
        std::memcpy(op->copy.get(), &quick.operand, 8);
        std::memcpy(op->copy.get() + 8, &quick.compare, 8);
        operand.addr = op->copy.get();
        compare.addr = op->copy.get() + 8;
    }
    const fi_msg_atomic msg{&operand, nullptr, 1, FI_ADDR_UNSPEC, &remote, 1, type, code, quick.user_context, 0};
    fill_in(*op, tx_, {family, msg, {&compare, 1}, {&result, 1}, 0, false}, peer, 1);
    op->wants_entry = entry;
    op->target[0].at = {kept ? quick.vcq : quick.home, quick.stadd};
    return op;
}

void AtomicEngine::native_failed(const QuickOp& failed, unsigned size, bool entry, bool kept,
                                 int code) noexcept
{
    const QuickOp quick = failed; // its place is free already
    const bool stale = kept && doubts_target(code);
    const bool reads = size != 0 && quick.reads; // told for what fetches only
    if ((reads || stale) && !tx_.vcq().is_closing())
        if (AtomicOp* const op = lengthen(quick, size, entry, kept)) {
            if (reads) { // memory for reading only refuses an ARMW (guide 3.6.2.1), not a Get
                op->by_get = true;
                runner_.submit(op, false);
                return;
            }
            (void)access_.refuted(*op);
            if (says_stale(code)) {
                runner_.ops.begin_again(*op);
                return;
            }
            op->err = fi_error_of(code);
            op->prov_errno = code;
            runner_.ops.end(*op);
            return;
        }
    report_failure(tx_.reports(), entry_flags(size == 0 ? Family::base : Family::fetch), quick.user_context, code);
}

} // namespace tofu
