// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How an atomic operation is taken in: checked, its keys and targets found, and handed to the runner; and what becomes
// of one that failed on the short way (native.h). See engine.h. Called by calls.cc under the endpoint's
// lock and by the short way; calls av, remote_keys, request and the runner.
#include "atomic/engine.h"

#include <utility>

#include <rdma/fi_errno.h>

#include "atomic/native.h"

namespace tofu {

namespace {

using Call = AtomicEngine::Call;

constexpr bool uses_operand(fi_op op) { return op != FI_ATOMIC_READ; }

[[gnu::always_inline]] inline void describe(Request& request, TxContext& tx, Family family, void* context,
                                            bool entry) noexcept
{
    const bool base = family == Family::base;
    request.reports = &tx.reports();
    request.cq = tx.binding().cq;
    request.counter = base ? tx.counters().write : tx.counters().read;
    request.completion.context = context;
    request.completion.flags = FI_ATOMIC | (base ? FI_WRITE : FI_READ);
    request.wants_entry = entry;
    request.err = 0;
    request.prov_errno = 0;
}

void add_all(Pieces& pieces, const fi_ioc* list, std::size_t n)
{
    for (std::size_t i = 0; i < n; ++i)
        pieces.add(list[i].addr, list[i].count);
}

void fill_in(AtomicOp& op, TxContext& tx, const Call& call, const Peer& peer, ssize_t total)
{
    describe(op, tx, call.family, call.context, !call.silent && tx.binding().reports(call.flags));
    const Datatype& type = datatypes[call.type];
    op.home = peer.home;
    op.line.key = Pending::line_of(peer);
    op.to = call.to;
    op.access = access_of(call.family, call.op);
    op.align = type.align;
    op.kernel = kernel_of(call.op, call.type);
    op.method = lookup(call.family, call.op, call.type);
    op.op = call.op;
    op.size = type.size;
    op.integer = type.kind == Class::sign || type.kind == Class::nosign;
    op.multi = op.method == Method::loop || op.method == Method::wide || call.type == FI_FLOAT_COMPLEX;
    op.reads_operand = uses_operand(call.op);
    op.reads_compare = call.family == Family::compare;
    op.fetches = call.family != Family::base;
    // A fence waits for what is signaled; the flag orders it behind what is not (inject).
    op.strong = (call.flags & FI_FENCE) || AtomicEngine::of(tx).runner().ordered();
    op.event = !peer.counts_events             ? AtomicEvent::none
               : call.family == Family::base   ? AtomicEvent::write
               : call.op == FI_ATOMIC_READ     ? AtomicEvent::read
                                               : AtomicEvent::fetch;
    op.total = static_cast<std::size_t>(total);
    if (op.reads_operand)
        add_all(op.operand, call.operand, call.operands);
    if (op.reads_compare)
        add_all(op.compare, call.compare, call.compares);
    if (op.fetches)
        add_all(op.result, call.result, call.results);
}

/// find_targets() found an element that is not aligned to its size.
constexpr int misaligned = 1;

/// Finds out where the targets are. 0, misaligned, or what RemoteKeys says.
int find_targets(AtomicOp& op, RemoteAccess& access, const Call& call, const Peer& peer)
{
    for (std::size_t i = 0; i < call.remotes; ++i) {
        const fi_rma_ioc& remote = call.remote[i];
        if (remote.count == 0)
            continue;
        AtomicOp::Piece& target = op.target[op.targets];
        op.by_directory |= access.by_directory(remote.key);
        const int rc = access.resolve(peer, remote.key, remote.addr, remote.count * op.size, op.access, target.at);
        if (rc != 0)
            return rc;
        if (target.at.stadd & (datatypes[call.type].align - 1u))
            return misaligned;
        target.elements = remote.count;
        target.key = remote.key;
        target.address = remote.addr;
        ++op.targets;
    }
    return 0;
}

/// Rounds of progress that an injected operation of several round trips gets before its call returns.
constexpr unsigned inject_polls = 64;

/// Whoever injects has no completion to wait for and may not call again for long: where nobody contends, loops end
/// here, as if they were ARMWs. Bounded: what meets a slow peer or a rival goes on in later rounds.
[[gnu::noinline]] void submit_injected(TxContext& tx, AtomicOp& op) noexcept
{
    AtomicRunner& runner = AtomicEngine::of(tx).runner();
    runner.watch(&op);
    runner.submit(&op, true);
    for (unsigned i = 0; i < inject_polls && runner.watched(); ++i)
        tx.progress();
    runner.unwatch();
}

/// AtomicRunner::Resolve: keys that are looked up are read from the peer's directory anew after an access by them was
/// refused.
int resolve_anew(AtomicEngine& engine, AtomicOp& op, bool refuted) noexcept
{
    RemoteAccess& access = engine.access();
    const Peer* const peer = engine.context().peers().find(op.to);
    if (!peer)
        return -FI_EINVAL;
    for (unsigned i = 0; i < op.targets; ++i) {
        AtomicOp::Piece& target = op.target[i];
        if (refuted) {
            (void)access.refuted(*peer, target.key);
            continue;
        }
        const int rc =
            access.resolve(*peer, target.key, target.address, target.elements * op.size, op.access, target.at);
        if (rc != 0)
            return rc;
        if (target.at.stadd & (op.align - 1u))
            return -FI_EINVAL;
    }
    return refuted ? -FI_EAGAIN : 0;
}

} // namespace

AtomicEngine::AtomicEngine(TxContext& tx) noexcept
    : tx_(tx), runner_(tx.vcq(), tx.pending()), access_(tx.peers(), tx.remote_keys(), runner_.vcq_order())
{
}

int AtomicEngine::open() noexcept
{
    constexpr std::uint64_t orders = FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW |
                                     FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW | FI_ORDER_RAR |
                                     FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW;
    runner_.set_ordered((tx_.attr().msg_order & orders) != 0);
    runner_.set_resolve(&resolve_anew, *this);
    native_flags_ = vcq::Vcq::delivered_flags(runner_.ordered(), false);
    inject_flags_ = vcq::Vcq::flags_of(runner_.ordered(), false);
    short_inject_ = tx_.counters().write == nullptr && !tx_.shares_vcq();
    return 0;
}

// --- taking a call in

ssize_t AtomicEngine::elements_of(const fi_ioc* list, std::size_t n) noexcept
{
    if (!list || n == 0 || n > max_atomic_iov)
        return -FI_EINVAL;
    std::size_t total = 0;
    for (std::size_t i = 0; i < n; ++i) {
        if (!list[i].addr && list[i].count)
            return -FI_EINVAL;
        if (list[i].count > max_atomic_bytes)
            return -FI_EMSGSIZE;
        total += list[i].count;
    }
    return static_cast<ssize_t>(total);
}

ssize_t AtomicEngine::check(const Call& call) const noexcept
{
    if (lookup(call.family, call.op, call.type) == Method::none)
        return -FI_EOPNOTSUPP;
    if (call.flags & ~AtomicEngine::known_flags)
        return call.flags & FI_TAGGED ? -FI_EOPNOTSUPP : -FI_EBADFLAGS;
    if (!call.remote || call.remotes == 0 || call.remotes > max_atomic_iov)
        return -FI_EINVAL;
    std::size_t total = 0;
    for (std::size_t i = 0; i < call.remotes; ++i) {
        if (call.remote[i].count > max_atomic_bytes)
            return -FI_EMSGSIZE;
        total += call.remote[i].count;
    }
    const auto n = static_cast<ssize_t>(total);
    const std::pair<bool, ssize_t> lists[] = {
        {uses_operand(call.op), AtomicEngine::elements_of(call.operand, call.operands)},
        {call.family != Family::base, AtomicEngine::elements_of(call.result, call.results)},
        {call.family == Family::compare, AtomicEngine::elements_of(call.compare, call.compares)}};
    for (const auto& [used, elements] : lists)
        if (used && elements != n)
            return elements == -FI_EMSGSIZE ? -FI_EMSGSIZE : -FI_EINVAL;
    if (total == 0) // the page: between 1 and the maximum
        return -FI_EINVAL;
    if (total > max_count(call.type))
        return -FI_EMSGSIZE;
    if ((call.flags & FI_INJECT) && uses_operand(call.op) &&
        total * datatypes[call.type].size > tx_.attr().inject_size)
        return -FI_EMSGSIZE;
    return n;
}

ssize_t AtomicEngine::submit(const Call& call) noexcept
{
    TxContext& tx = tx_;
    const ssize_t total = check(call);
    if (total < 0)
        return total;
    const Peer* const peer = tx.peers().find(call.to);
    if (!peer)
        return -FI_EINVAL;
    if ((call.flags & FI_FENCE) && !tx.fence_passed(call.to, call.flags))
        return -FI_EAGAIN;
    AtomicOp* const op = runner_.alloc();
    if (!op) {
        tx.progress();
        return tx.again(Stat::again_operations);
    }
    fill_in(*op, tx, call, *peer, total);
    const auto again = [&] {
        tx.progress();
        op->targets = 0;
        return find_targets(*op, access_, call, *peer);
    };
    const auto forget = [&] {
        bool some = false;
        for (std::size_t i = 0; i < call.remotes; ++i)
            some |= access_.refuted(*peer, call.remote[i].key);
        return some;
    };
    int rc = RemoteAccess::settle(find_targets(*op, access_, call, *peer), again, forget);
    if (rc == 0 && op->event != AtomicEvent::none) [[unlikely]]
        rc = tx.pay_for_event(*peer, op->account, op->prov_errno);
    if (rc == 0) [[likely]] {
        if (call.flags & FI_INJECT)
            submit_injected(tx, *op);
        else
            runner_.submit(op, false);
        return 0;
    }
    const bool of_the_peer = !refuses_call(rc) && rc != misaligned;
    if (of_the_peer) { // a matter of the peer's memory: an error of the operation, not of the call
        op->err = -rc;
        complete(*op);
    }
    runner_.release(op);
    return of_the_peer ? 0 : rc == misaligned ? -FI_EINVAL : rc;
}

/// The operation that failed on the short way as one of the long way; null where there is no room for it.
AtomicOp* AtomicEngine::lengthen(const QuickOp& quick, unsigned size, bool entry, bool kept) noexcept
{
    AtomicOp* const op = runner_.alloc();
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
    if (kept) { // the buffers of an injected operation are gone
        op->copy.reset(new (std::nothrow) std::byte[16]);
        if (!op->copy) {
            runner_.release(op);
            return nullptr;
        }
        std::memcpy(op->copy.get(), &quick.operand, 8);
        std::memcpy(op->copy.get() + 8, &quick.compare, 8);
        operand.addr = op->copy.get();
        compare.addr = op->copy.get() + 8;
    }
    Peer peer{};
    peer.home = quick.home;
    fill_in(*op, tx_,
            {family, code, type, &operand, 1, &compare, 1, &result, 1, nullptr, 0,
             kept ? quick.to : FI_ADDR_UNSPEC, quick.user_context, 0, false},
            peer, 1);
    op->wants_entry = entry;
    op->by_directory = kept;
    op->target[0] = {{kept ? quick.vcq : quick.home, quick.stadd}, 1, quick.key, quick.address};
    op->targets = 1;
    return op;
}

void AtomicEngine::native_failed(const QuickOp& failed, unsigned size, bool entry, bool kept,
                                 int code) noexcept
{
    const QuickOp quick = failed; // its place is free already
    const bool stale = kept && says_stale(code);
    const bool reads = size != 0 && quick.reads; // told for what fetches only
    if ((reads || stale) && !tx_.vcq().is_closing())
        if (AtomicOp* const op = lengthen(quick, size, entry, kept)) {
            if (reads) { // memory for reading only refuses an ARMW (guide 3.6.2.1), not a Get
                op->by_get = true;
                runner_.submit(op, false);
            } else {
                (void)resolve_anew(*this, *op, true);
                runner_.submit_anew(op);
            }
            return;
        }
    Request request;
    describe(request, tx_, size == 0 ? Family::base : Family::fetch, quick.user_context, entry);
    request.err = fi_error_of(code);
    request.prov_errno = code;
    complete(request);
}

} // namespace tofu
