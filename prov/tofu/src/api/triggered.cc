// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See triggered.h.
#include "api/triggered.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include <rdma/fi_errno.h>

#include "api/endpoint.h"
#include "core/log.h"
#include "cq/domain_base.h"
#include "msg/calls.h"
#include "msg/receive_queue.h"
#include "tx/tx_context.h"

namespace tofu {

namespace {

void insert(TriggeredOp& work, TriggeredOp** at) noexcept
{
    work.next = *at;
    work.link = at;
    if (work.next != nullptr)
        work.next->link = &work.next;
    *at = &work;
}
void unlink_node(TriggeredOp& work) noexcept
{
    *work.link = work.next;
    if (work.next != nullptr)
        work.next->link = work.link;
}

int counter_of(const DomainBase& domain, fid_cntr* fid, Ref<Counter>& counter) noexcept
{
    if (fid == nullptr || !is_ours(&fid->fid, FI_CLASS_CNTR))
        return -FI_EINVAL;
    if (&Counter::of(fid).owner() != &domain)
        return -FI_EDOMAIN;
    counter = &Counter::of(fid);
    return 0;
}

int join(const DomainBase& domain, TriggeredOp& work, fid_ep* ep) noexcept
{
    if (ep == nullptr ||
        (!is_ours(&ep->fid, FI_CLASS_EP) && !is_ours(&ep->fid, FI_CLASS_TX_CTX) && !is_ours(&ep->fid, FI_CLASS_RX_CTX)))
        return -FI_EINVAL;
    const EpHandle& handle = EpHandle::of(ep);
    if (&handle.tx->domain() != &domain)
        return -FI_EDOMAIN;
    if ((handle.tx->config().caps & FI_TRIGGER) == 0)
        return -FI_EOPNOTSUPP;
    work.tx = handle.tx;
    std::lock_guard guard(handle.tx->lock()); // without it we might see what post_elsewhere() puts there
    if (!handle.endpoint->enabled())
        return -FI_EOPBADSTATE; // there is no engine yet that could begin it
    const int ret = copy_call(work, handle);
    work.completion_counter = work.counter;
    return ret;
}

/// Fills in a TriggeredOp from the application's FI_QUEUE_WORK request, except for its triggering counter.
int make(const DomainBase& domain, const fi_deferred_work& request, TriggeredOp& work) noexcept
{
    const auto& op = request.op;
    if (op.msg == nullptr) // whichever member of the union it is
        return -FI_EINVAL;
    const auto plain = [](std::uint64_t flags) { return flags & ~FI_TRIGGER; };
    const auto list = [](const auto& msg) { return Atomics::List{msg.msg_iov, msg.iov_count}; };
    const auto send = [](const auto& of, std::uint64_t flags) { return proto::send_of(of.msg, flags); };
    const auto recv = [](const auto& of, std::uint64_t flags) { return proto::recv_of(of.msg, flags); };
    fid_ep* ep = nullptr;
    const auto use = [&](const auto& of, auto&& call_of) {
        ep = of.ep;
        work.call = call_of(of, plain(of.flags));
    };
    switch (request.op_type) {
    case FI_OP_CNTR_SET:
    case FI_OP_CNTR_ADD:
        if (int ret = counter_of(domain, op.cntr->cntr, work.completion_counter); ret != 0)
            return ret;
        work.call = trigger::CounterCall{op.cntr->value, request.op_type == FI_OP_CNTR_ADD};
        return request.completion_cntr == nullptr ? 0 : -FI_EINVAL;
    case FI_OP_RECV: use(*op.msg, recv); break;
    case FI_OP_SEND: use(*op.msg, send); break;
    case FI_OP_TRECV: use(*op.tagged, recv); break;
    case FI_OP_TSEND: use(*op.tagged, send); break;
    case FI_OP_READ:
    case FI_OP_WRITE:
        use(*op.rma, [&](const auto& of, std::uint64_t flags) {
            return RmaCall{of.msg, flags, request.op_type == FI_OP_READ, false};
        });
        break;
    case FI_OP_ATOMIC:
        use(*op.atomic,
            [](const auto& of, std::uint64_t flags) { return AtomicCall{Family::base, of.msg, {}, {}, flags, false}; });
        break;
    case FI_OP_FETCH_ATOMIC:
        use(*op.fetch_atomic, [&](const auto& of, std::uint64_t flags) {
            return AtomicCall{Family::fetch, of.msg, {}, list(of.fetch), flags, false};
        });
        break;
    case FI_OP_COMPARE_ATOMIC:
        use(*op.compare_atomic, [&](const auto& of, std::uint64_t flags) {
            return AtomicCall{Family::compare, of.msg, list(of.compare), list(of.fetch), flags, false};
        });
        break;
    default: return -FI_EINVAL; // the application may have written any number
    }
    if (int ret = join(domain, work, ep); ret != 0)
        return ret;
    work.completion_counter = nullptr;
    return request.completion_cntr == nullptr ? 0
                                              : counter_of(domain, request.completion_cntr, work.completion_counter);
}

/// What a work may have to wait for together with others: its endpoint and peer, or its queue of receives.
struct Path {
    const void* from = nullptr;
    fi_addr_t to = FI_ADDR_UNSPEC;
    bool operator==(const Path&) const = default;
};
Path path_of(const TriggeredOp& work) noexcept
{
    return std::visit(
        [&](const auto& call) -> Path {
            if constexpr (requires { call.dest; })
                return {work.tx, call.dest};
            else if constexpr (requires { call.msg.addr; })
                return {work.tx, call.msg.addr};
            else
                return {work.receives}; // null for a counter
        },
        work.call);
}

} // namespace

TriggeredQueue::~TriggeredQueue()
{
    while (abandoned_ != nullptr)
        delete std::exchange(abandoned_, abandoned_->next);
    if (internal_cq_ != nullptr)
        domain_.hold(); // see open()
}

int TriggeredQueue::open() noexcept
{
    std::lock_guard guard(domain_.deferred().lock);
    if (internal_cq_ != nullptr)
        return 0;
    std::unique_ptr<CompletionQueue> made(new (std::nothrow) CompletionQueue(domain_));
    if (made == nullptr)
        return -FI_ENOMEM;
    if (int ret = made->set_up(nullptr); ret != 0)
        return ret;
    internal_cq_ = std::move(made);
    domain_.release(); // the internal CQ must not keep the application from closing the domain
    return 0;
}

// --- accepting work

/// Adds work that `fill` fills in. The works of a counter are sorted by threshold, equal ones by the order of their
/// calls (fi_trigger(3)).
template <class Fill>
int TriggeredQueue::add(fid_cntr* counter, std::uint64_t threshold, Fill&& fill) noexcept
{
    std::unique_ptr<TriggeredOp> work(new (std::nothrow) TriggeredOp);
    if (work == nullptr)
        return -FI_ENOMEM;
    work->threshold = threshold;
    int ret = counter_of(domain_, counter, work->trigger);
    if (ret == 0)
        ret = fill(*work);
    if (ret == 0)
        ret = domain_.auto_progress().start_thread();
    if (ret != 0)
        return ret;
    std::lock_guard guard(domain_.deferred().lock);
    Counter& trigger = *work->trigger;
    if (trigger.triggered_ops == nullptr)
        triggers_.push_front(trigger);
    TriggeredOp** at = &trigger.triggered_ops;
    while (*at != nullptr && (*at)->threshold <= work->threshold)
        at = &(*at)->next;
    insert(*work.release(), at);
    ++domain_.deferred().count;
    start_due();
    return 0;
}

int TriggeredQueue::control(int command, const fi_deferred_work* request) noexcept
{
    if (command == FI_FLUSH_WORK)
        return flush(request);
    if (request == nullptr)
        return -FI_EINVAL;
    if (command == FI_CANCEL_WORK)
        return cancel(*request);
    const int ret = add(request->triggering_cntr, request->threshold, [&](TriggeredOp& work) {
        work.request = request;
        return make(domain_, *request, work);
    });
    if (ret != 0)
        TOFU_WARN(FI_LOG_DOMAIN,
                  "deferred work: operation %d is rejected (%s): it needs counters and an enabled endpoint of this "
                  "domain, opened with FI_TRIGGER and the capabilities of the operation\n",
                  static_cast<int>(request->op_type), fi_strerror(-ret));
    return ret;
}

ssize_t TriggeredQueue::enqueue(EpHandle& handle, const trigger::Call& call, const void* context) noexcept
{
    if ((handle.tx->config().caps & FI_TRIGGER) == 0)
        return -FI_EBADFLAGS;
    const auto* const when = static_cast<const fi_triggered_context*>(context);
    if (when == nullptr)
        return -FI_EINVAL;
    if (when->event_type != FI_TRIGGER_THRESHOLD)
        return -FI_ENOSYS;
    return add(when->trigger.threshold.cntr, when->trigger.threshold.threshold, [&](TriggeredOp& work) {
        work.call = call;
        return join(domain_, work, &handle);
    });
}

/// Under the lock.
static void mark_reached(const Counter& counter) noexcept
{
    for (TriggeredOp* w = counter.triggered_ops; w != nullptr && counter.has_reached(w->threshold); w = w->next)
        w->threshold = 0;
}

void TriggeredQueue::note_reached(const Counter& counter) noexcept
{
    std::lock_guard guard(domain_.deferred().lock);
    mark_reached(counter);
}

// --- cancelling work

template <class Wanted>
TriggeredOp* TriggeredQueue::find_waiting(Wanted&& wanted) noexcept
{
    for (Counter* c = triggers_.first(); c != nullptr; c = c->next_trigger)
        for (TriggeredOp* w = c->triggered_ops; w != nullptr; w = w->next)
            if (wanted(*w))
                return w;
    return nullptr;
}

int TriggeredQueue::cancel(const fi_deferred_work& request) noexcept
{
    std::lock_guard guard(domain_.deferred().lock);
    TriggeredOp* const found = find_waiting([&](const TriggeredOp& w) { return w.request == &request; });
    if (found == nullptr)
        return -FI_ENOENT;
    drop(*found);
    return 0;
}

/// Drops all deferred work that waits, or only what waits for the counter that `which` names.
int TriggeredQueue::flush(const fi_deferred_work* which) noexcept
{
    std::lock_guard guard(domain_.deferred().lock);
    Ref<Counter> only;
    if (which != nullptr && which->triggering_cntr != nullptr)
        if (int ret = counter_of(domain_, which->triggering_cntr, only); ret != 0)
            return ret;
    while (TriggeredOp* const found = find_waiting([&only](const TriggeredOp& w) {
               return w.request != nullptr && (only == nullptr || w.trigger == only.get());
           }))
        drop(*found);
    return 0;
}

ssize_t TriggeredQueue::cancel(const TxContext& tx, const void* context) noexcept
{
    std::lock_guard guard(domain_.deferred().lock);
    TriggeredOp* found = find_waiting(
        [&](const TriggeredOp& w) { return w.request == nullptr && w.tx == &tx && w.completion.context == context; });
    if (found != nullptr) {
        end(*found, {found->completion, FI_ECANCELED, 0, 0});
        return 0;
    }
    for (TriggeredOp* w = under_way_; w != nullptr; w = w->next)
        if (w->tx == &tx && w->receives != nullptr && w->completion.context == context) {
            std::lock_guard receiving(w->tx->lock());
            return w->receives->cancel(w);
        }
    return -FI_ENOENT;
}

void TriggeredQueue::cancel_waiting(const TxContext& tx) noexcept
{
    std::lock_guard guard(domain_.deferred().lock);
    while (TriggeredOp* const found = find_waiting([&](const TriggeredOp& w) { return w.tx == &tx; }))
        drop(*found);
}

void TriggeredQueue::forget(const TxContext& tx, bool quiet) noexcept
{
    std::lock_guard guard(domain_.deferred().lock);
    collect_ends();
    for (TriggeredOp *w = under_way_, *next = nullptr; w != nullptr; w = next) {
        next = w->next;
        if (w->tx == &tx)
            quiet ? drop(*w) : abandon(*w);
    }
}

/// Takes the work off its list, and its counter off the list of counters if no other work waits for it.
void TriggeredQueue::unlink(TriggeredOp& work) noexcept
{
    unlink_node(work);
    if (work.trigger != nullptr && work.trigger->triggered_ops == nullptr)
        triggers_.remove(*work.trigger);
    work.trigger = nullptr;
}

void TriggeredQueue::drop(TriggeredOp& work) noexcept
{
    unlink(work);
    if (work.tx != nullptr ||
        std::holds_alternative<trigger::CounterCall>(work.call)) // else abandon() has uncounted it
        --domain_.deferred().count;
    delete &work;
}

/// Keeps the work without its endpoint: its entry may still come to the internal CQ and points to it.
void TriggeredQueue::abandon(TriggeredOp& work) noexcept
{
    unlink(work);
    work.completion_counter = nullptr;
    work.tx = nullptr;
    work.cq = nullptr;
    --domain_.deferred().count;
    insert(work, &abandoned_);
}

// --- starting work

void TriggeredQueue::progress() noexcept
{
    // The rounds below call this function again. If another thread is in it, that thread does the work.
    if (in_progress_.exchange(true, std::memory_order_acquire))
        return;
    (void)domain_.auto_progress().everything().run(); // all endpoints, whatever queue the application reads
    {
        std::lock_guard guard(domain_.deferred().lock);
        collect_ends();
        start_due();
    }
    in_progress_.store(false, std::memory_order_release);
}

void TriggeredQueue::start_due() noexcept
{
    for (bool some = true; some;) { // a work may count on a counter that others wait for
        some = false;
        triggers_.each([&](const Counter& c) { some |= start_due(c.triggered_ops, c); });
    }
}

/// Those of one counter, in the order of thresholds. One that finds no room holds back those behind it that go the same
/// way, and no others: they may have to end before there is room. True: some were started.
bool TriggeredQueue::start_due(TriggeredOp* first, const Counter& counter) noexcept
{
    constexpr unsigned most_paths = 8;
    Path full[most_paths];
    unsigned count = 0;
    bool some = false;
    for (TriggeredOp *work = first, *next = nullptr; work != nullptr && counter.has_reached(work->threshold);
         work = next) {
        next = work->next;
        const Path path = path_of(*work);
        if (std::find(full, full + count, path) != full + count)
            continue;
        if (start(*work))
            some = true;
        else if (count != most_paths)
            full[count++] = path;
        else
            break;
    }
    return some;
}

/// Posts a work whose threshold is reached. False: there is no room for it now.
bool TriggeredQueue::start(TriggeredOp& work) noexcept
{
    const ssize_t ret = post(work);
    if (ret == -FI_EAGAIN)
        return false;
    if (ret != 0) {
        end(work, {work.completion, static_cast<int>(-ret), 0, 0});
    } else if (work.request == nullptr || work.tx == nullptr) {
        drop(work); // the operation now ends as any other of its endpoint, or it was a counter's and has ended
    } else {
        unlink(work);
        insert(work, &under_way_);
    }
    return true;
}

ssize_t TriggeredQueue::post(TriggeredOp& work) noexcept
{
    if (const auto* const op = std::get_if<trigger::CounterCall>(&work.call)) {
        if (op->add) {
            work.completion_counter->count(op->value);
        } else {
            mark_reached(*work.completion_counter);
            work.completion_counter->assign(op->value);
        }
        return 0;
    }
    TxContext& tx = *work.tx;
    struct Post {
        TriggeredOp& work;
        ssize_t operator()(const trigger::CounterCall&) const noexcept { return 0; }
        ssize_t operator()(const proto::SendCall& c) const noexcept { return proto::Sender::of(*work.tx).send(c); }
        ssize_t operator()(const proto::RecvCall& c) const noexcept { return work.receives->recv(c); }
        ssize_t operator()(const RmaCall& c) const noexcept { return Rma::of(*work.tx).submit(c); }
        ssize_t operator()(const AtomicCall& c) const noexcept { return Atomics::of(*work.tx).submit(c); }
    };
    std::lock_guard guard(tx.lock());
    const auto call = [&] { return std::visit(Post{work}, work.call); };
    return work.request != nullptr ? tx.post_elsewhere(*internal_cq_, call) : call();
}

// --- the end of work

void TriggeredQueue::collect_ends() noexcept
{
    CqEntry entry;
    while (internal_cq_ != nullptr && internal_cq_->pop(entry))
        end(*static_cast<TriggeredOp*>(entry.completion.context), entry);
}

void TriggeredQueue::end(TriggeredOp& work, CqEntry entry) noexcept
{
    entry.completion.context = work.completion.context;
    const bool failed = entry.err != 0 && !entry.has_unknown_source();
    if (work.cq != nullptr && (failed || work.wants_entry)) {
        if (entry.err != 0)
            work.cq->write_error(entry);
        else
            work.cq->write(entry.completion);
    }
    if (work.completion_counter != nullptr)
        failed ? work.completion_counter->count_error() : work.completion_counter->count();
    drop(work); // after the count: a thread that closes the counter then waits for us (Counter::close)
}

// --- accepting a call that will be made later: refuses now what its engine would refuse, and copies its lists

using proto::RecvCall;
using proto::SendCall;
using trigger::CounterCall;

namespace {

/// Copies a list to `to` and makes `list` point there.
template <class List, class T>
void copy(List& list, std::size_t count, T* to) noexcept
{
    list = list != nullptr ? (std::copy_n(list, count, to), to) : nullptr;
}

/// The array of descs of the application's request. The entry points of calls have already checked theirs.
template <class Array>
Array descs_of(const TriggeredOp& w, const EpHandle& handle, Array descs) noexcept
{
    return w.request != nullptr ? handle.descs(descs) : descs;
}

/// Copies the bytes of a call with FI_INJECT; they become one segment without a descriptor. False: no memory.
bool copy_bytes(TriggeredOp& w, std::size_t& count, std::size_t length) noexcept
{
    w.payload.reset(new (std::nothrow) std::byte[length + 1]);
    if (w.payload == nullptr)
        return false;
    gather(w.payload.get(), w.local, count, length);
    w.local[0] = {w.payload.get(), length};
    w.desc[0] = nullptr;
    count = 1;
    return true;
}

/// Copies the operands of an atomic with FI_INJECT, segment by segment. False: no memory.
bool copy_bytes(TriggeredOp& w, std::size_t count, std::size_t bytes, std::size_t size) noexcept
{
    w.payload.reset(new (std::nothrow) std::byte[2 * bytes]);
    std::byte* to = w.payload.get();
    for (fi_ioc* const list : {w.operand, w.compare})
        for (std::size_t i = 0; to != nullptr && i < count; i++)
            if (const std::size_t n = list[i].count * size; list[i].addr != nullptr && n != 0) {
                std::memcpy(to, list[i].addr, n);
                list[i].addr = to;
                to += n;
            }
    return to != nullptr;
}

/// Does the call want an entry on success, where we report its end ourselves?
template <class Call>
bool wants_entry(const Call& call) noexcept
{
    return (call.flags & FI_COMPLETION) != 0;
}

int prepare(TriggeredOp&, const EpHandle&, CounterCall&) noexcept
{
    return -FI_EINVAL; // it belongs to no endpoint
}

int prepare(TriggeredOp& w, const EpHandle& handle, SendCall& call) noexcept
{
    const TxContext& tx = *w.tx;
    const bool tagged = (call.packet_flags & proto::flag_tag) != 0;
    if (!tx.config().is_open || (tx.config().caps & (tagged ? FI_TAGGED : FI_MSG)) == 0)
        return -FI_EOPNOTSUPP;
    if (int ret = proto::check(call); ret != 0)
        return ret;
    copy(call.iov, call.count, w.local);
    copy(call.desc = descs_of(w, handle, call.desc), call.count, w.desc);
    w.report_to(tx.reports(), call.entry_flags(), call.context, wants_entry(call));
    w.completion.tag = call.tag;
    if (w.request == nullptr)
        return (call.flags & FI_INJECT) == 0 || copy_bytes(w, call.count, call.length) ? 0 : -FI_ENOMEM;
    call.flags |= FI_TRIGGER; // keeps it out of the sender's send queue (SendQueue::takes): it waits here
    call.context = &w;
    return 0;
}

int prepare(TriggeredOp& w, const EpHandle& handle, RecvCall& call) noexcept
{
    const RxContext* const rx = handle.receives != nullptr ? handle.receives->context() : nullptr;
    if (rx == nullptr || !rx->is_open || rx->shared != nullptr ||
        (w.tx->config().caps & (call.tagged ? FI_TAGGED : FI_MSG)) == 0)
        return -FI_EOPNOTSUPP;
    if (int ret = proto::check(call); ret != 0)
        return ret;
    if ((call.flags & (FI_PEEK | FI_CLAIM | FI_DISCARD)) != 0)
        return -FI_EBADFLAGS;
    copy(call.iov, call.count, w.local);
    copy(call.desc = descs_of(w, handle, call.desc), call.count, w.desc);
    w.receives = handle.receives;
    w.cq = rx->binding.cq;
    w.counter = rx->counters.recv.get();
    w.wants_entry = wants_entry(call);
    w.completion.context = call.context;
    w.completion.flags = proto::recv_entry_flags(call.tagged);
    w.completion.tag = call.tag;
    if (w.request == nullptr)
        return 0;
    if ((call.flags & FI_MULTI_RECV) != 0) // such a receive ends more than once
        return -FI_ENOSYS;
    call.flags |= FI_TRIGGER;
    call.context = &w;
    if (call.count == 1) // a second, empty segment keeps it off the fast path of messages, which ignores the flags
        w.local[call.count++] = {};
    return 0;
}

int prepare(TriggeredOp& w, const EpHandle& handle, RmaCall& call) noexcept
{
    const TxContext& tx = *w.tx;
    if (tx.engines()[Engine::rma] == nullptr)
        return -FI_EOPNOTSUPP;
    if ((call.flags & ~known_rma_flags(call.read)) != 0)
        return -FI_EBADFLAGS;
    std::size_t length = 0;
    if (int ret = check(call, *w.tx, length); ret != 0)
        return ret;
    copy(call.msg.msg_iov, call.msg.iov_count, w.local);
    copy(call.msg.desc = descs_of(w, handle, call.msg.desc), call.msg.iov_count, w.desc);
    copy(call.msg.rma_iov, call.msg.rma_iov_count, w.remote);
    w.report_to(tx.reports(), FI_RMA | (call.read ? FI_READ : FI_WRITE), call.msg.context, wants_entry(call));
    if (w.request == nullptr && (call.flags & FI_INJECT) != 0 && !copy_bytes(w, call.msg.iov_count, length))
        return -FI_ENOMEM;
    if (w.request != nullptr)
        call.msg.context = &w;
    return 0;
}

int prepare(TriggeredOp& w, const EpHandle&, AtomicCall& call) noexcept
{
    const TxContext& tx = *w.tx;
    if (tx.engines()[Engine::atomic] == nullptr)
        return -FI_EOPNOTSUPP;
    const ssize_t elements = Atomics::of(*w.tx).check(call);
    if (elements < 0)
        return static_cast<int>(elements);
    const bool base = call.family == Family::base;
    copy(call.msg.msg_iov, call.msg.op != FI_ATOMIC_READ ? call.msg.iov_count : 0, w.operand);
    copy(call.compare.at, call.family == Family::compare ? call.compare.n : 0, w.compare);
    copy(call.result.at, base ? 0 : call.result.n, w.result);
    copy(call.msg.rma_iov, call.msg.rma_iov_count, w.remote_words);
    w.report_to(tx.reports(), FI_ATOMIC | (base ? FI_WRITE : FI_READ), call.msg.context, wants_entry(call));
    const std::size_t size = datatypes[call.msg.datatype].size;
    if (w.request == nullptr && (call.flags & FI_INJECT) != 0 &&
        !copy_bytes(w, max_atomic_iov, static_cast<std::size_t>(elements) * size, size))
        return -FI_ENOMEM;
    if (w.request != nullptr)
        call.msg.context = &w;
    return 0;
}

} // namespace

int copy_call(TriggeredOp& w, const EpHandle& handle) noexcept
{
    return std::visit([&](auto& call) { return prepare(w, handle, call); }, w.call);
}

} // namespace tofu
