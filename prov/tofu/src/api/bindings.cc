// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See endpoint.h (Bindings). fi_endpoint(3), fi_ep_bind: queues, counters, addresses, events, shared contexts.
#include "api/endpoint.h"

#include <array>
#include <utility>

#include <rdma/fi_errno.h>

#include "api/contexts.h"
#include "core/log.h"
#include "core/object.h"
#include "cq/eq.h"
#include "mem/mr.h"

namespace tofu {

namespace {

constexpr std::uint64_t tx_counts = FI_SEND | FI_READ | FI_WRITE;
constexpr std::uint64_t rx_counts = FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE;

struct CounterSlot {
    std::uint64_t flag; ///< of fi_ep_bind
    Ref<Counter>& counter;
};

std::array<CounterSlot, 6> counter_slots(TxContext& tx, RxContext& rx) noexcept
{
    TxCounters& out = tx.reports().counters;
    RxCounters& in = rx.counters;
    return {{{FI_SEND, out.send},
             {FI_RECV, in.recv},
             {FI_READ, out.read},
             {FI_WRITE, out.write},
             {FI_REMOTE_READ, in.remote_read},
             {FI_REMOTE_WRITE, in.remote_write}}};
}

int bind_queue(TxContext& to_tx, RxContext& to_rx, CompletionQueue& cq, std::uint64_t flags) noexcept
{
    if (&cq.owner() != &to_tx.domain())
        return -FI_EDOMAIN;
    if (flags & ~(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION))
        return -FI_EBADFLAGS;
    const bool tx = (flags & FI_TRANSMIT) != 0;
    const bool rx = (flags & FI_RECV) != 0;
    Binding& out = to_tx.reports().binding;
    Binding& in = to_rx.binding;
    if ((!tx && !rx) || (tx && (!to_tx.config().is_open || out.cq != nullptr)) ||
        (rx && (!to_rx.is_open || in.cq != nullptr)))
        return -FI_EINVAL;
    const bool selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
    for (auto [wanted, side] : {std::pair{tx, &out}, std::pair{rx, &in}}) {
        if (!wanted)
            continue;
        side->cq = &cq;
        side->selective = selective;
    }
    return 0;
}

int bind_counter(TxContext& tx, RxContext& rx, Counter& counter, std::uint64_t flags) noexcept
{
    if (&counter.owner() != &tx.domain())
        return -FI_EDOMAIN;
    if (flags == 0 || (flags & ~(tx_counts | rx_counts)) != 0)
        return flags == 0 ? -FI_EINVAL : -FI_EBADFLAGS;
    if ((!tx.config().is_open && (flags & tx_counts) != 0) || (!rx.is_open && (flags & rx_counts) != 0))
        return -FI_EINVAL;
    // fi_endpoint(3): counters of remote accesses require FI_RMA_EVENT, for peers send notices to no other endpoint.
    // Programs that wait for something else name FI_REMOTE_* as well (fi_ubertest: together with FI_RECV).
    constexpr std::uint64_t remote = FI_REMOTE_READ | FI_REMOTE_WRITE;
    if ((flags & remote) != 0 && (tx.config().known.flags & address_counts_events) == 0) {
        TOFU_WARN(FI_LOG_EP_CTRL, "fi_ep_bind: no remote access is counted, because the endpoint has no FI_RMA_EVENT: "
                                  "open the endpoint with that capability\n");
        flags &= ~remote;
        if (flags == 0)
            return -FI_EINVAL; // it would never count
    }
    const auto slots = counter_slots(tx, rx);
    for (const CounterSlot& slot : slots)
        if ((flags & slot.flag) != 0 && slot.counter != nullptr)
            return -FI_EINVAL;
    for (const CounterSlot& slot : slots)
        if ((flags & slot.flag) != 0)
            slot.counter = &counter;
    if ((flags & remote) != 0) {
        tx.domain().regions().count_everything(tx.config().number);
        counter.count_remote_events();
    }
    return 0;
}

/// Applies `visit` to the progress sets of the domain and of all bound queues and counters. One set may occur several
/// times; it has the endpoint once all the same.
template <class Visit>
void visit_progress_sets(TxContext& tx, RxContext& rx, Visit&& visit) noexcept
{
    visit(tx.domain().auto_progress().everything());
    for (const Binding* side : {&tx.reports().binding, &rx.binding})
        if (side->cq != nullptr)
            visit(side->cq->progress());
    for (const CounterSlot& slot : counter_slots(tx, rx))
        if (slot.counter != nullptr)
            visit(slot.counter->progress());
}

} // namespace

Bindings::Bindings(TxContext& tx, RxContext& rx) noexcept : tx_(tx), rx_(rx) {}
Bindings::~Bindings() = default;

int Bindings::add(struct fid* object, std::uint64_t flags) noexcept
{
    if (!is_ours(object, object->fclass)) {
        TOFU_WARN(FI_LOG_EP_CTRL, "fi_ep_bind: the object belongs to another provider: open it from a domain or fabric "
                                  "of tofu\n");
        return -FI_EINVAL;
    }
    switch (object->fclass) {
    case FI_CLASS_CQ: return bind_queue(tx_, rx_, CompletionQueue::of(object), flags);
    case FI_CLASS_CNTR: return bind_counter(tx_, rx_, Counter::of(object), flags);
    default: break;
    }
    if (flags != 0) // fi_endpoint(3) has flags for queues and counters only
        return -FI_EBADFLAGS;
    switch (object->fclass) {
    case FI_CLASS_AV: return add_addresses(Peers::of(object));
    case FI_CLASS_STX_CTX: return add_shared(SharedTransmit::of(object));
    case FI_CLASS_SRX_CTX: return add_shared(SharedReceive::of(object));
    case FI_CLASS_EQ: return add_events(EventQueue::of(object));
    default: return -FI_EINVAL;
    }
}

/// Allowed, though an RDM endpoint raises no events but those of joins.
int Bindings::add_events(EventQueue& events) noexcept
{
    if (eq_ != nullptr || &events.owner() != &tx_.domain().owner())
        return -FI_EINVAL;
    eq_ = &events;
    return 0;
}

int Bindings::add_addresses(Peers& av) noexcept
{
    if (&av.owner() != &tx_.domain())
        return -FI_EDOMAIN;
    if (tx_.has_peers())
        return -FI_EINVAL;
    tx_.use(&av);
    return 0;
}

int Bindings::add_shared(SharedTransmit& shared) noexcept
{
    if (&shared.owner() != &tx_.domain())
        return -FI_EDOMAIN;
    if (tx_.has_vcq()) // one of its own, or that of another shared context
        return -FI_EINVAL;
    if (int ret = shared.join(tx_); ret != 0)
        return ret;
    if (int ret = tx_.post_from(shared.vcq()); ret != 0) {
        shared.leave(tx_);
        return ret;
    }
    shared_tx_ = &shared;
    return 0;
}

int Bindings::add_shared(SharedReceive& shared) noexcept
{
    if (&shared.owner() != &tx_.domain())
        return -FI_EDOMAIN;
    const bool may = rx_.shares || (shared.srx_owner() != nullptr && (tx_.config().caps & FI_PEER) != 0);
    if (!may || shared_rx_ != nullptr)
        return -FI_EINVAL;
    shared_rx_ = &shared;
    rx_.shared = &shared.queue();
    return 0;
}

int Bindings::list(Pollable& endpoint, bool notifies) noexcept
{
    int error = 0;
    listed_ = true;
    visit_progress_sets(tx_, rx_, [&](ProgressSet& set) {
        if (error == 0)
            error = set.add(endpoint);
    });
    if (error == 0 && eq_ != nullptr && notifies)
        error = eq_->add(endpoint, tx_.domain());
    if (error != 0)
        unlist(endpoint);
    return error;
}

void Bindings::unlist(Pollable& endpoint) noexcept
{
    if (!std::exchange(listed_, false))
        return;
    visit_progress_sets(tx_, rx_, [&](ProgressSet& set) { set.remove(endpoint); });
    if (eq_ != nullptr)
        eq_->remove(endpoint);
}

void Bindings::release_all() noexcept
{
    if (watcher_.notify != nullptr)
        tx_.peers().unwatch(watcher_);
    watcher_.notify = nullptr;
    tx_.reports().binding.cq = nullptr;
    rx_.binding.cq = nullptr;
    for (const CounterSlot& slot : counter_slots(tx_, rx_))
        slot.counter = nullptr;
    if (shared_tx_ != nullptr)
        std::exchange(shared_tx_, nullptr)->leave(tx_);
    if (std::exchange(joined_rx_, false))
        shared_rx_->leave();
    shared_rx_ = nullptr;
    tx_.use(nullptr);
    eq_ = nullptr;
}

int Bindings::check() noexcept
{
    if (!tx_.has_peers())
        return -FI_ENOAV;
    if (!tx_.has_vcq() || (rx_.shares && shared_rx_ == nullptr))
        return -FI_EOPBADSTATE;
    if (shared_rx_ != nullptr && !joined_rx_ && !(joined_rx_ = shared_rx_->join(tx_.peers())))
        return -FI_EINVAL;
    if (shared_rx_ != nullptr && shared_rx_->srx_owner() != nullptr && watcher_.notify == nullptr) {
        watcher_ = {[](void* owner) noexcept { static_cast<proto::SrxOwner*>(owner)->addresses_changed(); },
                    shared_rx_->srx_owner()};
        tx_.peers().watch(watcher_);
    }
    // A transmit side needs a queue or a counter to report to. A receive side needs none (fi_endpoint(3) requires
    // queues only for operations that are used): its receives then complete without an entry.
    const std::uint64_t directions = tx_.config().caps & (tx_counts | rx_counts);
    const bool transmits = tx_.config().is_open && (directions == 0 || (directions & tx_counts) != 0);
    const TxCounters& out = tx_.reports().counters;
    if (transmits && tx_.reports().binding.cq == nullptr && out.send == nullptr && out.read == nullptr &&
        out.write == nullptr)
        return -FI_ENOCQ;
    return 0;
}

} // namespace tofu
