// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The calls of fi_atomic(3): thin entries over two functions, one for a single element that one ARMW serves
// and one for everything else. Called by the application; calls av, mr, request and the runner.
#include "atomic.h"

#include <mutex>
#include <utility>

#include <rdma/fi_errno.h>

#include "atomic_native.h"
#include "endpoint.h"

namespace tofu {
namespace {

/// Everything one call says, in the widest form.
struct Call {
    Family family;
    fi_op op;
    fi_datatype type;
    const fi_ioc* operand;
    std::size_t operands;
    const fi_ioc* compare;
    std::size_t compares;
    const fi_ioc* result;
    std::size_t results;
    const fi_rma_ioc* remote;
    std::size_t remotes;
    fi_addr_t to;
    void* context;
    std::uint64_t flags;
    bool silent; ///< fi_inject_atomic: no entry on success
};

constexpr std::uint64_t known_flags = FI_COMPLETION | FI_MORE | FI_INJECT | FI_FENCE |
                                      FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE |
                                      FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE;

constexpr bool uses_operand(fi_op op) { return op != FI_ATOMIC_READ; }

[[gnu::always_inline]] inline void describe(Request& request, Endpoint& ep, Family family, void* context, bool entry) noexcept
{
    const bool base = family == Family::base;
    request.endpoint = &ep;
    request.cq = ep.tx().cq;
    request.counter = base ? ep.counters().write : ep.counters().read;
    request.completion.context = context;
    request.completion.flags = FI_ATOMIC | (base ? FI_WRITE : FI_READ);
    request.wants_entry = entry;
    request.err = 0;
    request.prov_errno = 0;
}

/// Elements of a list, -FI_EINVAL where the list is none, -FI_EMSGSIZE where they are more than any call takes.
ssize_t elements_of(const fi_ioc* list, std::size_t n)
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

/// Checks what can be checked without peer and key. Elements in all, or -FI_E*.
ssize_t check(const Endpoint& ep, const Call& call)
{
    if (call.flags & ~known_flags)
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
        {uses_operand(call.op), elements_of(call.operand, call.operands)},
        {call.family != Family::base, elements_of(call.result, call.results)},
        {call.family == Family::compare, elements_of(call.compare, call.compares)}};
    for (const auto& [used, elements] : lists)
        if (used && elements != n)
            return elements == -FI_EMSGSIZE ? -FI_EMSGSIZE : -FI_EINVAL;
    if (total == 0) // the page: between 1 and the maximum
        return -FI_EINVAL;
    if (total > max_count(call.type))
        return -FI_EMSGSIZE;
    if ((call.flags & FI_INJECT) && uses_operand(call.op) &&
        total * datatypes[call.type].size > ep.tx_attr().inject_size)
        return -FI_EMSGSIZE;
    return n;
}

void add_all(Pieces& pieces, const fi_ioc* list, std::size_t n)
{
    for (std::size_t i = 0; i < n; ++i)
        pieces.add(list[i].addr, list[i].count);
}

void fill_in(AtomicOp& op, Endpoint& ep, const Call& call, const Peer& peer, ssize_t total)
{
    describe(op, ep, call.family, call.context, !call.silent && ep.tx().reports(call.flags));
    const Datatype& type = datatypes[call.type];
    op.home = peer.home;
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
    // A fence waits for what is attended; the flag orders it behind what was not (inject).
    op.strong = (call.flags & FI_FENCE) || ep.atomic_engine().runner().ordered();
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
int find_targets(AtomicOp& op, Endpoint& ep, const Call& call, const Peer& peer)
{
    for (std::size_t i = 0; i < call.remotes; ++i) {
        const fi_rma_ioc& remote = call.remote[i];
        if (remote.count == 0)
            continue;
        AtomicOp::Piece& target = op.target[op.targets];
        op.by_directory |= ep.remote_keys().by_directory(remote.key);
        const int rc = ep.atomic_engine().resolve(peer, remote.key, remote.addr,
                                                  remote.count * op.size,
                                                  access_of(call.family, call.op), target.at);
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

/// For the event at the target. 0, -FI_EAGAIN, -FI_ENOMEM, or the operation's error.
[[gnu::noinline]] int pay(AtomicOp& op, Endpoint& ep, const Peer& peer)
{
    EventPurse* purse = nullptr;
    const int rc = ep.pay_for_event(peer, purse);
    if (rc == 0)
        op.purse = purse;
    else if (purse != nullptr)
        op.prov_errno = purse->prov_errno;
    return rc;
}

/// Rounds of progress that an injected operation of several round trips gets before its call returns.
constexpr unsigned inject_polls = 64;

/// Whoever injects has no completion to wait for and may not call again for long: where nobody contends, loops end
/// here, as if they were ARMWs. Bounded: what meets a slow peer or a rival goes on in later rounds.
[[gnu::noinline]] void submit_injected(Endpoint& ep, AtomicOp& op) noexcept
{
    AtomicRunner& runner = ep.atomic_engine().runner();
    runner.watch(&op);
    runner.submit(&op, true);
    for (unsigned i = 0; i < inject_polls && runner.watched(); ++i)
        ep.progress_locked();
    runner.unwatch();
}

ssize_t submit_locked(Endpoint& ep, const Call& call)
{
    if (!ep.enabled())
        return -FI_EOPBADSTATE;
    if (lookup(call.family, call.op, call.type) == Method::none)
        return -FI_EOPNOTSUPP;
    const ssize_t total = check(ep, call);
    if (total < 0)
        return total;
    const Peer* const peer = ep.av().find(call.to);
    if (!peer)
        return -FI_EINVAL;
    AtomicRunner& runner = ep.atomic_engine().runner();
    if ((call.flags & FI_FENCE) && !ep.fence_passed(call.to))
        return -FI_EAGAIN;
    AtomicOp* const op = runner.alloc();
    if (!op) {
        ep.progress_locked();
        return -FI_EAGAIN;
    }
    fill_in(*op, ep, call, *peer, total);
    const auto again = [&] {
        ep.progress_locked();
        op->targets = 0;
        return find_targets(*op, ep, call, *peer);
    };
    const auto forget = [&] {
        bool some = false;
        for (std::size_t i = 0; i < call.remotes; ++i)
            some |= ep.remote_keys().refuted(*peer, call.remote[i].key);
        return some;
    };
    int rc = settle_keys(find_targets(*op, ep, call, *peer), again, forget);
    if (rc == 0 && op->event != AtomicEvent::none) [[unlikely]]
        rc = pay(*op, ep, *peer);
    if (rc == 0) [[likely]] {
        if (call.flags & FI_INJECT)
            submit_injected(ep, *op);
        else
            runner.submit(op, false);
        return 0;
    }
    const bool of_the_peer = rc != -FI_EAGAIN && rc != -FI_ENOMEM && rc != misaligned;
    if (of_the_peer) { // a matter of the peer's memory: an error of the operation, not of the call
        op->err = -rc;
        complete(*op);
    }
    runner.release(op);
    return of_the_peer ? 0 : rc == misaligned ? -FI_EINVAL : rc;
}

ssize_t submit(fid_ep* fid, const Call& call) noexcept
{
    Endpoint& ep = Endpoint::of(fid);
    std::lock_guard<Lock> guard(ep.lock());
    return submit_locked(ep, call);
}

// --- one piece here and there

[[gnu::noinline]] ssize_t submit_plain(Endpoint& ep, const PlainCall& call) noexcept
{
    const fi_ioc operand{const_cast<void*>(call.operand), call.count};
    const fi_ioc compare{const_cast<void*>(call.compare), call.count};
    const fi_ioc result{call.result, call.count};
    const fi_rma_ioc remote{call.address, call.count, call.key};
    return submit_locked(ep, {call.family, call.op, call.type, &operand, 1, &compare, 1, &result, 1,
                              &remote, 1, call.to, call.context, call.flags, call.silent});
}

/// Inlined into each entry, and handed on as a copy, so that what an entry knows of its call stays in registers.
[[gnu::always_inline]] inline ssize_t plain(fid_ep* fid, const PlainCall& call) noexcept
{
    Endpoint& ep = Endpoint::of(fid);
    std::lock_guard<Lock> guard(ep.lock());
    AtomicEngine& engine = ep.atomic_engine();
    if (static_cast<unsigned>(call.op) < op_count && static_cast<unsigned>(call.type) < datatype_count &&
        call.count == 1 && !(call.flags & FI_FENCE)) [[likely]] {
        const Native how = natives[static_cast<unsigned>(call.family)][native_index(call.op, call.type)];
        if (how.size != 0 && (call.operand || how.reads) &&
            (call.family == Family::base || call.result) &&
            (call.family != Family::compare || call.compare)) [[likely]] {
            const ssize_t rc =
                !engine.keys_are_final() ? submit_by_directory(ep, how, call)
                : call.silent && engine.short_inject() ? inject_native(ep, how, call)
                                                       : submit_native(ep, how, call);
            if (rc != not_native) [[likely]]
                return rc;
        }
    }
    const PlainCall copy = call;
    return submit_plain(ep, copy);
}

// --- the table's entries

ssize_t write(fid_ep* ep, const void* buf, size_t count, void*, fi_addr_t to, uint64_t addr,
              uint64_t key, fi_datatype type, fi_op op, void* context) noexcept
{
    return plain(ep, {Family::base, op, type, buf, nullptr, nullptr, count, to, addr, key, context,
                      Endpoint::tx_flags_of(ep), false});
}

ssize_t inject(fid_ep* ep, const void* buf, size_t count, fi_addr_t to, uint64_t addr, uint64_t key,
               fi_datatype type, fi_op op) noexcept
{
    return plain(ep, {Family::base, op, type, buf, nullptr, nullptr, count, to, addr, key, nullptr,
                      FI_INJECT, true});
}

ssize_t readwrite(fid_ep* ep, const void* buf, size_t count, void*, void* result, void*,
                  fi_addr_t to, uint64_t addr, uint64_t key, fi_datatype type, fi_op op,
                  void* context) noexcept
{
    return plain(ep, {Family::fetch, op, type, buf, nullptr, result, count, to, addr, key, context,
                      Endpoint::tx_flags_of(ep), false});
}

ssize_t compwrite(fid_ep* ep, const void* buf, size_t count, void*, const void* compare, void*,
                  void* result, void*, fi_addr_t to, uint64_t addr, uint64_t key, fi_datatype type,
                  fi_op op, void* context) noexcept
{
    return plain(ep, {Family::compare, op, type, buf, compare, result, count, to, addr, key,
                      context, Endpoint::tx_flags_of(ep), false});
}

/// The remote side of the v calls: one piece, as long as the local list.
fi_rma_ioc remote_of(const fi_ioc* list, size_t n, uint64_t addr, uint64_t key)
{
    const ssize_t total = elements_of(list, n);
    return {addr, total < 0 ? 0 : static_cast<size_t>(total), key};
}

ssize_t writev(fid_ep* ep, const fi_ioc* iov, void**, size_t count, fi_addr_t to, uint64_t addr,
               uint64_t key, fi_datatype type, fi_op op, void* context) noexcept
{
    const fi_rma_ioc remote = remote_of(iov, count, addr, key);
    return submit(ep, {Family::base, op, type, iov, count, nullptr, 0, nullptr, 0, &remote, 1, to,
                       context, Endpoint::tx_flags_of(ep), false});
}

ssize_t readwritev(fid_ep* ep, const fi_ioc* iov, void**, size_t count, fi_ioc* result, void**,
                   size_t results, fi_addr_t to, uint64_t addr, uint64_t key, fi_datatype type,
                   fi_op op, void* context) noexcept
{
    const fi_rma_ioc remote = remote_of(result, results, addr, key);
    return submit(ep, {Family::fetch, op, type, iov, count, nullptr, 0, result, results, &remote, 1,
                       to, context, Endpoint::tx_flags_of(ep), false});
}

ssize_t compwritev(fid_ep* ep, const fi_ioc* iov, void**, size_t count, const fi_ioc* compare,
                   void**, size_t compares, fi_ioc* result, void**, size_t results, fi_addr_t to,
                   uint64_t addr, uint64_t key, fi_datatype type, fi_op op, void* context) noexcept
{
    const fi_rma_ioc remote = remote_of(iov, count, addr, key);
    return submit(ep, {Family::compare, op, type, iov, count, compare, compares, result, results,
                       &remote, 1, to, context, Endpoint::tx_flags_of(ep), false});
}

/// A list of one element.
bool is_one(const fi_ioc* list, size_t n) { return list && n == 1 && list->count == 1; }

ssize_t submit_message(fid_ep* ep, Family family, const fi_msg_atomic* msg, const fi_ioc* compare,
                       size_t compares, const fi_ioc* result, size_t results,
                       uint64_t flags) noexcept
{
    if (!msg)
        return -FI_EINVAL;
    const bool read = msg->op == FI_ATOMIC_READ;
    if (msg->rma_iov_count == 1 && msg->rma_iov && msg->rma_iov->count == 1 && !(flags & ~known_flags) &&
        (read || is_one(msg->msg_iov, msg->iov_count)) &&
        (family == Family::base || is_one(result, results)) &&
        (family != Family::compare || is_one(compare, compares)))
        return plain(ep, {family, msg->op, msg->datatype, read ? nullptr : msg->msg_iov->addr,
                          family == Family::compare ? compare->addr : nullptr,
                          family == Family::base ? nullptr : result->addr, 1, msg->addr,
                          msg->rma_iov->addr, msg->rma_iov->key, msg->context, flags, false});
    return submit(ep, {family, msg->op, msg->datatype, msg->msg_iov, msg->iov_count, compare,
                       compares, result, results, msg->rma_iov, msg->rma_iov_count, msg->addr,
                       msg->context, flags, false});
}

ssize_t writemsg(fid_ep* ep, const fi_msg_atomic* msg, uint64_t flags) noexcept
{
    return submit_message(ep, Family::base, msg, nullptr, 0, nullptr, 0, flags);
}

ssize_t readwritemsg(fid_ep* ep, const fi_msg_atomic* msg, fi_ioc* result, void**, size_t results,
                     uint64_t flags) noexcept
{
    return submit_message(ep, Family::fetch, msg, nullptr, 0, result, results, flags);
}

ssize_t compwritemsg(fid_ep* ep, const fi_msg_atomic* msg, const fi_ioc* compare, void**,
                     size_t compares, fi_ioc* result, void**, size_t results,
                     uint64_t flags) noexcept
{
    return submit_message(ep, Family::compare, msg, compare, compares, result, results, flags);
}

int valid(fi_datatype type, fi_op op, size_t* count, std::uint64_t flags)
{
    fi_atomic_attr attr{};
    const int rc = query_atomic(type, op, &attr, flags);
    if (rc == 0 && count)
        *count = attr.count;
    return rc;
}

int writevalid(fid_ep*, fi_datatype type, fi_op op, size_t* count) noexcept
{
    return valid(type, op, count, 0);
}

int readwritevalid(fid_ep*, fi_datatype type, fi_op op, size_t* count) noexcept
{
    return valid(type, op, count, FI_FETCH_ATOMIC);
}

int compwritevalid(fid_ep*, fi_datatype type, fi_op op, size_t* count) noexcept
{
    return valid(type, op, count, FI_COMPARE_ATOMIC);
}

/// AtomicRunner::Resolve: keys that are looked up are read from the peer's directory anew after an access by them was
/// refused.
int resolve_anew(AtomicOp& op, bool refuted) noexcept
{
    Endpoint& ep = *op.endpoint;
    const Peer* const peer = ep.av().find(op.to);
    if (!peer)
        return -FI_EINVAL;
    for (unsigned i = 0; i < op.targets; ++i) {
        AtomicOp::Piece& target = op.target[i];
        if (refuted) {
            (void)ep.remote_keys().refuted(*peer, target.key);
            continue;
        }
        const int rc =
            ep.atomic_engine().resolve(*peer, target.key, target.address,
                                       target.elements * op.size, op.access, target.at);
        if (rc != 0)
            return rc;
        if (target.at.stadd & (op.align - 1u))
            return -FI_EINVAL;
    }
    return refuted ? -FI_EAGAIN : 0;
}

} // namespace

fi_ops_atomic atomic_ops = {
    .size = sizeof(fi_ops_atomic),
    .write = write,
    .writev = writev,
    .writemsg = writemsg,
    .inject = inject,
    .readwrite = readwrite,
    .readwritev = readwritev,
    .readwritemsg = readwritemsg,
    .compwrite = compwrite,
    .compwritev = compwritev,
    .compwritemsg = compwritemsg,
    .writevalid = writevalid,
    .readwritevalid = readwritevalid,
    .compwritevalid = compwritevalid,
};

AtomicEngine::AtomicEngine(Endpoint& endpoint) noexcept : endpoint_(endpoint), runner_(endpoint.vcq())
{
}

int AtomicEngine::open() noexcept
{
    constexpr std::uint64_t orders = FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW |
                                     FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW | FI_ORDER_RAR |
                                     FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW;
    runner_.set_ordered((endpoint_.tx_attr().msg_order & orders) != 0);
    const bool by_directory = endpoint_.remote_keys().by_directory();
    runner_.set_resolve(&resolve_anew);
    native_flags_ = vcq::Vcq::delivered_flags(runner_.ordered(), false);
    inject_flags_ = vcq::Vcq::flags_of(runner_.ordered(), false);
    keys_are_final_ = !by_directory;
    short_inject_ =
        !by_directory && endpoint_.counters().write == nullptr && !endpoint_.shares_vcq();
    return 0;
}

int AtomicEngine::resolve(const Peer& peer, std::uint64_t key, std::uint64_t address,
                          std::size_t length, std::uint64_t access, Target& target) noexcept
{
    const int rc = endpoint_.remote_keys().resolve(peer, key, address, length, access, target);
    if (rc == 0 && target.vcq != peer.home && !runner_.crossing().begun()) [[unlikely]] {
        runner_.crossing().begin();
        keys_are_final_ = short_inject_ = false; // the ways that do not look where the last one went
    }
    return rc;
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
    fill_in(*op, endpoint_,
            {family, code, type, &operand, 1, &compare, 1, &result, 1, nullptr, 0,
             kept ? quick.to : FI_ADDR_UNSPEC, quick.context, 0, false},
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
    if ((reads || stale) && !endpoint_.vcq().is_closing())
        if (AtomicOp* const op = lengthen(quick, size, entry, kept)) {
            if (reads) { // memory for reading only refuses an ARMW (guide 3.6.2.1), not a Get
                op->by_get = true;
                runner_.submit(op, false);
            } else {
                (void)resolve_anew(*op, true);
                runner_.submit_anew(op);
            }
            return;
        }
    Request request;
    describe(request, endpoint_, size == 0 ? Family::base : Family::fetch, quick.context, entry);
    request.err = fi_error_of(code);
    request.prov_errno = code;
    complete(request);
}

} // namespace tofu
