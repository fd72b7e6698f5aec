// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See atomic.h: which operations may begin, which wait, and the way that each takes.
#include "atomic/atomic.h"

#include <utility>

#include <rdma/fi_errno.h>

#include "atomic/armw.h"
#include "cq/domain_base.h"
#include "tx/ep_handle.h"

namespace tofu {

using vcq::Post;

void AtomicRunner::cancel(AtomicOp& op) noexcept
{
    ops.abandon(op, FI_ECANCELED, 0);
    if (op.batch != nullptr)
        batches.close(*op.batch);
    unblocked(op);
}

void AtomicRunner::submit(AtomicOp* op, bool inject) noexcept
{
    op->in_batch = BatchRunner::fits(*op);
    // A span reads the lists after its Get.
    op->in_spans = op->method == Method::loop && op->total * op->size >= SpanRunner::least && !inject;
    // One for the start; with `inject` another one: the operation may end while we start it, and must not be freed
    // before we have looked.
    op->pending = inject ? 2 : 1;
    const BlockReason reason = ops.waiting().blocks(op->links.key) ? BlockReason::peer : start(*op);
    if (reason == BlockReason::nothing) [[likely]]
        ops.end_one(*op, UTOFU_SUCCESS);
    else
        ops.waiting().push(*op, op->links.key, reason);
    if (!inject)
        return;
    if (op->started < op->total)
        keep_injected(*op);
    ops.end_one(*op, UTOFU_SUCCESS);
}

/// Copies the unread part of the operand and compare lists. Slow path: others wait, or the completion table was full.
void AtomicRunner::keep_injected(AtomicOp& op) noexcept
{
    const std::size_t left = op.total - op.started;
    const std::size_t lists = (op.reads_operand ? 1 : 0) + (op.reads_compare ? 1 : 0);
    if (lists == 0)
        return;
    op.copy.reset(new (std::nothrow) std::byte[left * op.size * lists]);
    if (!op.copy) {
        ops.abandon(op, FI_ENOMEM, 0);
        return;
    }
    // The lists are addressed by element number: the pieces before the copy have no memory any more, and nothing reads
    // them.
    std::byte* at = op.copy.get();
    for (Pieces* list : {op.reads_operand ? &op.operand : nullptr, op.reads_compare ? &op.compare : nullptr}) {
        if (!list)
            continue;
        list->gather(at, op.started, left, op.size);
        list->clear();
        list->add(nullptr, op.started * op.size);
        list->add(at, left * op.size);
        at += left * op.size;
    }
}

/// Starts as much of an operation as can be started now. Returns why it is blocked for the rest.
BlockReason AtomicRunner::start(AtomicOp& op) noexcept
{
    if (op.words == 0 && ordered && ops.loops_at(op.peer.target_vcq))
        return BlockReason::peer;
    if (op.in_batch) {
        if (op.started != op.total && !may_go_on(op))
            return BlockReason::peer;
        return batches.start(op) ? BlockReason::nothing : BlockReason::room;
    }
    while (op.started < op.total) {
        if (!may_go_on(op) || (SpanRunner::is_next(op) && spans.overlaps_another(op)))
            return BlockReason::peer;
        if (!start_next(op))
            return BlockReason::room;
    }
    return BlockReason::nothing;
}

/// Starts one word, or many that loop. False when nothing more can be posted now; the operation stays as it was.
bool AtomicRunner::start_next(AtomicOp& op) noexcept
{
    if (!ops.has_room())
        return false;
    const Target at = op.next();
    const bool across = op.size == 8 && (at.stadd & 7) != 0; // the element lies across two words
    if (op.method == Method::wide || across) [[unlikely]]
        return ++op.pending, ops.took(op, wide.start(op, op.started, at), 1);
    return SpanRunner::is_next(op) ? spans.start(op) : words.start(op);
}

void AtomicRunner::close() noexcept
{
    ops.retry_list.close();
    ops.waiting().cancel();
    ops.retry_list.finish();
}

// --- Atomics: how a call becomes an atomic operation: it is checked, its keys and targets are found, and the
// runner takes it over; and what happens to an operation that has failed on the fast path (atomic/armw.h)

namespace {

using Call = Atomics::Call;

constexpr bool uses_operand(fi_op op)
{
    return op != FI_ATOMIC_READ;
}

/// The flags of the completion entry (fi_cq(3)).
constexpr std::uint64_t entry_flags(Family family)
{
    return FI_ATOMIC | (family == Family::base ? FI_WRITE : FI_READ);
}

void add_all(Pieces& pieces, const Atomics::List& list, std::size_t size)
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
                 !call.is_inject && tx.reports().binding.reports(call.flags));
    const Datatype& type = datatypes[msg.datatype];
    op.peer = peer;
    op.links.key = PendingQueue::queue_key(peer);
    op.access = access_of(call.family, msg.op);
    op.align = type.align;
    static_cast<AtomicKind&>(op) = kind_of(call.family, msg.op, msg.datatype);
    // submit() waits for signaled operations before a fence; the strong order flag orders it behind unsignaled ones.
    op.strong = (call.flags & FI_FENCE) || Atomics::of(tx).runner().ordered;
    op.event = !peer.counts_events           ? AtomicEvent::none
               : call.family == Family::base ? AtomicEvent::write
               : msg.op == FI_ATOMIC_READ    ? AtomicEvent::read
                                             : AtomicEvent::fetch;
    op.total = static_cast<std::size_t>(total);
    if (op.reads_operand)
        add_all(op.operand, call.operand(), type.size);
    if (op.reads_compare)
        add_all(op.compare, call.compare, type.size);
    if (op.fetches)
        add_all(op.result, call.result, type.size);
    for (std::size_t i = 0; i < msg.rma_iov_count; ++i)
        op.add(msg.rma_iov[i].addr, msg.rma_iov[i].count * type.size, msg.rma_iov[i].key);
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
    Atomics::of(tx).runner().submit(&op, true);
    for (unsigned i = 0; i < inject_polls && !ended; ++i)
        tx.progress();
    if (!ended)
        op.ended = nullptr;
}

template <unsigned size, bool entry>
vcq::CompletionHandler::Function end_of(const TxCounters& counters) noexcept
{
    const Counter* const counter = size == 0 ? counters.write : counters.read;
    return counter != nullptr ? &native_done<size, entry, true> : &native_done<size, entry, false>;
}

/// By Fetched.
template <bool entry>
Atomics::Ends ends_of(const TxCounters& counters) noexcept
{
    return {end_of<0, entry>(counters), end_of<4, entry>(counters), end_of<8, entry>(counters)};
}

} // namespace

Atomics::Atomics(TxContext& tx) noexcept
    : tx_(tx), short_inject_(tx.reports().counters.write == nullptr && !tx.config().shares_vcq),
      access_(tx.vcq(), tx.peers(), tx.peer_memory()), runner_(tx.vcq(), tx.pending(), access_)
{
    constexpr std::uint64_t orders = FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR |
                                     FI_ORDER_ATOMIC_WAW | FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW;
    runner_.ordered = (tx.config().attr.msg_order & orders) != 0;
    native_flags_ = vcq::delivered_flags(runner_.ordered, false);
    inject_flags_ = vcq::flags_of(runner_.ordered, false);
    ends_[false] = ends_of<false>(tx.reports().counters);
    ends_[true] = tx.reports().binding.cq != nullptr ? ends_of<true>(tx.reports().counters) : ends_[false];
}

// --- taking a call in

ssize_t Atomics::elements_of(const List& list) noexcept
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

ssize_t Atomics::check(const Call& call) const noexcept
{
    if (lookup(call.family, call.msg.op, call.msg.datatype) == Method::none)
        return -FI_EOPNOTSUPP;
    if (call.flags & ~Atomics::known_flags)
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
    const std::pair<bool, ssize_t> lists[] = {{uses_operand(msg.op), Atomics::elements_of(call.operand())},
                                              {call.family != Family::base, Atomics::elements_of(call.result)},
                                              {call.family == Family::compare, Atomics::elements_of(call.compare)}};
    for (const auto& [used, elements] : lists)
        if (used && elements != n)
            return elements == -FI_EMSGSIZE ? -FI_EMSGSIZE : -FI_EINVAL;
    if (total == 0) // the page: between 1 and the maximum
        return -FI_EINVAL;
    if (total > max_count(msg.datatype))
        return -FI_EMSGSIZE;
    if ((call.flags & FI_INJECT) && uses_operand(msg.op) &&
        total * datatypes[msg.datatype].size > tx_.config().attr.inject_size)
        return -FI_EMSGSIZE;
    return n;
}

ssize_t Atomics::submit(const Call& call) noexcept
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
    const auto progress = [&] { return tx.try_progress(); };
    int rc = access_.resolve_now(*op, progress);
    if (rc == misaligned) [[unlikely]] {
        runner_.ops.release(op);
        return -FI_EINVAL;
    }
    if (rc == 0 && op->event != AtomicEvent::none) [[unlikely]]
        rc = access_.spend_now(*op, op->prov_errno, progress);
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

/// Memory for reading only refuses an ARMW (guide 3.6.2.1), not a Get. False: there is no room for another try.
bool Atomics::read_by_get(const FastOp& fast, bool entry) noexcept
{
    const Peer* const peer = tx_.peers().find(fast.to);
    AtomicOp* const op = peer != nullptr ? runner_.ops.alloc() : nullptr;
    if (op == nullptr)
        return false;
    fi_ioc result{fast.result, 1};
    const fi_rma_ioc remote{0, 1, 0};
    const fi_msg_atomic msg{
        nullptr,        nullptr,           0, fast.to, &remote, 1, static_cast<fi_datatype>(fast.type),
        FI_ATOMIC_READ, fast.user_context, 0};
    fill_in(*op, tx_, {Family::fetch, msg, {}, {&result, 1}, 0, false}, *peer, 1);
    op->wants_entry = entry;
    op->target[0].at = {fast.vcq, fast.stadd};
    op->by_get = true;
    runner_.submit(op, false);
    return true;
}

void Atomics::native_failed(const FastOp& failed, bool base, bool entry, int code) noexcept
{
    const FastOp fast = failed; // a copy, since its place is free already
    if ((fast.kept & FastOp::kept_read) && !tx_.vcq().is_closing() && read_by_get(fast, entry))
        return;
    if (const Peer* const peer = (fast.kept & FastOp::kept_indirect) ? tx_.peers().find(fast.to) : nullptr)
        access_.ended(peer->target_vcq, code);
    report_failure(tx_.reports(), entry_flags(base ? Family::base : Family::fetch), fast.user_context, code);
}

// --- fi_atomic(3): the calls of the application, thin entries over two ways: atomic/armw.h for a single element that
// one ARMW serves, Atomics::submit for everything else

namespace {

using List = Atomics::List;

ssize_t submit(fid_ep* fid, const Atomics::Call& call) noexcept
{
    EpHandle& handle = EpHandle::of(fid);
    TxContext& tx = *handle.tx;
    if ((call.flags & FI_TRIGGER) != 0) [[unlikely]]
        return tx.domain().deferred().calls->defer(handle, call);
    return tx.call_locked([&] { return Atomics::of(tx).submit(call); });
}

// --- one piece here and there

[[gnu::noinline]] ssize_t submit_plain(fid_ep* fid, const PlainCall& call) noexcept
{
    const fi_ioc operand{const_cast<void*>(call.operand), call.count};
    const fi_ioc compare{const_cast<void*>(call.compare), call.count};
    const fi_ioc result{call.result, call.count};
    const fi_rma_ioc remote{call.address, call.count, call.key};
    const fi_msg_atomic msg{&operand, nullptr, 1, call.to, &remote, 1, call.type, call.op, call.context, 0};
    return submit(fid, {call.family, msg, {&compare, 1}, {&result, 1}, call.flags, call.is_inject});
}

/// Inlined into each entry, and handed on as a copy, so that what an entry knows of its call stays in registers.
[[gnu::always_inline]] inline ssize_t plain(fid_ep* fid, const PlainCall& call) noexcept
{
    const auto op = static_cast<unsigned>(call.op), type = static_cast<unsigned>(call.type);
    if (op < native_ops && type < native_types && call.count == 1 && !(call.flags & (FI_FENCE | FI_TRIGGER)))
        [[likely]] {
        const Native& how = natives[static_cast<unsigned>(call.family)][native_index(op, type)];
        if (how.size != 0 && (call.operand || how.reads) && (call.family == Family::base || call.result) &&
            (call.family != Family::compare || call.compare)) [[likely]] {
            TxContext& tx = *EpHandle::of(fid).tx;
            tx.lock().lock();
            const ssize_t rc = Atomics::of(tx).access().at_once() ? submit_native<false>(tx, how, call)
                                                                  : submit_by_directory(tx, how, call);
            tx.lock().unlock();
            if (rc != not_native) [[likely]]
                return rc;
        }
    }
    const PlainCall copy = call;
    return submit_plain(fid, copy);
}

// --- the table's entries

ssize_t write(fid_ep* ep, const void* buf, size_t count, void*, fi_addr_t to, uint64_t addr, uint64_t key,
              fi_datatype type, fi_op op, void* context) noexcept
{
    return plain(ep, {Family::base, op, type, buf, nullptr, nullptr, count, to, addr, key, context,
                      EpHandle::of(ep).tx_flags, false});
}

ssize_t inject(fid_ep* ep, const void* buf, size_t count, fi_addr_t to, uint64_t addr, uint64_t key, fi_datatype type,
               fi_op op) noexcept
{
    return plain(ep, {Family::base, op, type, buf, nullptr, nullptr, count, to, addr, key, nullptr, FI_INJECT, true});
}

ssize_t readwrite(fid_ep* ep, const void* buf, size_t count, void*, void* result, void*, fi_addr_t to, uint64_t addr,
                  uint64_t key, fi_datatype type, fi_op op, void* context) noexcept
{
    return plain(ep, {Family::fetch, op, type, buf, nullptr, result, count, to, addr, key, context,
                      EpHandle::of(ep).tx_flags, false});
}

ssize_t compwrite(fid_ep* ep, const void* buf, size_t count, void*, const void* compare, void*, void* result, void*,
                  fi_addr_t to, uint64_t addr, uint64_t key, fi_datatype type, fi_op op, void* context) noexcept
{
    return plain(ep, {Family::compare, op, type, buf, compare, result, count, to, addr, key, context,
                      EpHandle::of(ep).tx_flags, false});
}

/// The calls of lists: one piece at the peer, as long as they are.
ssize_t lists(fid_ep* ep, Family family, fi_msg_atomic msg, uint64_t addr, uint64_t key, const List& compare,
              const List& result) noexcept
{
    const ssize_t total = Atomics::elements_of(family == Family::base ? List{msg.msg_iov, msg.iov_count} : result);
    const fi_rma_ioc remote{addr, total < 0 ? 0 : static_cast<size_t>(total), key};
    msg.rma_iov = &remote;
    msg.rma_iov_count = 1;
    return submit(ep, {family, msg, compare, result, EpHandle::of(ep).tx_flags, false});
}

ssize_t writev(fid_ep* ep, const fi_ioc* iov, void**, size_t count, fi_addr_t to, uint64_t addr, uint64_t key,
               fi_datatype type, fi_op op, void* context) noexcept
{
    return lists(ep, Family::base, {iov, nullptr, count, to, nullptr, 0, type, op, context, 0}, addr, key, {}, {});
}

ssize_t readwritev(fid_ep* ep, const fi_ioc* iov, void**, size_t count, fi_ioc* result, void**, size_t results,
                   fi_addr_t to, uint64_t addr, uint64_t key, fi_datatype type, fi_op op, void* context) noexcept
{
    return lists(ep, Family::fetch, {iov, nullptr, count, to, nullptr, 0, type, op, context, 0}, addr, key, {},
                 {result, results});
}

ssize_t compwritev(fid_ep* ep, const fi_ioc* iov, void**, size_t count, const fi_ioc* compare, void**, size_t compares,
                   fi_ioc* result, void**, size_t results, fi_addr_t to, uint64_t addr, uint64_t key, fi_datatype type,
                   fi_op op, void* context) noexcept
{
    return lists(ep, Family::compare, {iov, nullptr, count, to, nullptr, 0, type, op, context, 0}, addr, key,
                 {compare, compares}, {result, results});
}

/// A list of one element.
bool is_one(const List& list)
{
    return list.at && list.n == 1 && list.at->count == 1;
}

ssize_t message(fid_ep* ep, Family family, const fi_msg_atomic* msg, const List& compare, const List& result,
                uint64_t flags) noexcept
{
    if (!msg)
        return -FI_EINVAL;
    const bool read = msg->op == FI_ATOMIC_READ;
    if (msg->rma_iov_count == 1 && msg->rma_iov && msg->rma_iov->count == 1 && !(flags & ~Atomics::known_flags) &&
        (read || is_one({msg->msg_iov, msg->iov_count})) && (family == Family::base || is_one(result)) &&
        (family != Family::compare || is_one(compare)))
        return plain(ep, {family, msg->op, msg->datatype, read ? nullptr : msg->msg_iov->addr,
                          family == Family::compare ? compare.at->addr : nullptr,
                          family == Family::base ? nullptr : result.at->addr, 1, msg->addr, msg->rma_iov->addr,
                          msg->rma_iov->key, msg->context, flags, false});
    return submit(ep, {family, *msg, compare, result, flags, false});
}

ssize_t writemsg(fid_ep* ep, const fi_msg_atomic* msg, uint64_t flags) noexcept
{
    return message(ep, Family::base, msg, {}, {}, flags);
}

ssize_t readwritemsg(fid_ep* ep, const fi_msg_atomic* msg, fi_ioc* result, void**, size_t results,
                     uint64_t flags) noexcept
{
    return message(ep, Family::fetch, msg, {}, {result, results}, flags);
}

ssize_t compwritemsg(fid_ep* ep, const fi_msg_atomic* msg, const fi_ioc* compare, void**, size_t compares,
                     fi_ioc* result, void**, size_t results, uint64_t flags) noexcept
{
    return message(ep, Family::compare, msg, {compare, compares}, {result, results}, flags);
}

template <uint64_t family>
int valid(fid_ep*, fi_datatype type, fi_op op, size_t* count) noexcept
{
    fi_atomic_attr attr{};
    const int rc = query_atomic(type, op, &attr, family);
    if (rc == 0 && count)
        *count = attr.count;
    return rc;
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
    .writevalid = valid<0>,
    .readwritevalid = valid<FI_FETCH_ATOMIC>,
    .compwritevalid = valid<FI_COMPARE_ATOMIC>,
};

} // namespace tofu
