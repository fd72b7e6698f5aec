// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What an endpoint or a context is bound to (fi_endpoint(3), fi_ep_bind): queues, counters, addresses, shared contexts.
// See endpoint.h. Called through the operation tables and by endpoint.cc; calls the objects bound.
#include "endpoint/endpoint.h"

#include <initializer_list>
#include <utility>

#include <rdma/fi_errno.h>

#include "collective/engine.h"
#include "endpoint/shared_context.h"
#include "memory/region.h"
#include "queue/eq.h"

namespace tofu {

namespace {

constexpr std::uint64_t tx_counts = FI_SEND | FI_READ | FI_WRITE;
constexpr std::uint64_t rx_counts = FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE;

} // namespace

int Endpoint::bind(struct fid* object, std::uint64_t flags) noexcept
{
    if (object == nullptr)
        return -FI_EINVAL;
    if (enabled_)
        return -FI_EOPBADSTATE;
    switch (object->fclass) {
    case FI_CLASS_CQ:
        return bind_queue(CompletionQueue::of(object), flags);
    case FI_CLASS_CNTR:
        return bind_counter(Counter::of(object), flags);
    case FI_CLASS_AV:
        return plan_.parent != nullptr ? -FI_EINVAL // which has one for all contexts
                                       : bind_addresses(Peers::of(object));
    case FI_CLASS_EQ: // an RDM endpoint raises no events of its own; the binding is allowed
        if (eq_ != nullptr)
            return -FI_EINVAL;
        eq_ = &EventQueue::of(object);
        return 0;
    case FI_CLASS_STX_CTX:
        return bind_shared(SharedTransmit::of(object));
    case FI_CLASS_SRX_CTX:
        return bind_shared(SharedReceive::of(object));
    default:
        return -FI_EINVAL;
    }
}

int Endpoint::bind_queue(CompletionQueue& cq, std::uint64_t flags) noexcept
{
    if (&cq.owner() != &owner())
        return -FI_EDOMAIN;
    if (flags & ~(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION))
        return -FI_EBADFLAGS;
    const bool tx = (flags & FI_TRANSMIT) != 0;
    const bool rx = (flags & FI_RECV) != 0;
    if ((tx && !tx_.plan().is_open) || (rx && !rx_.is_open))
        return -FI_EINVAL;
    if ((!tx && !rx) || (tx && tx_.reports().binding.cq != nullptr) || (rx && rx_.binding.cq != nullptr))
        return -FI_EINVAL;
    const bool selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
    for (auto [wanted, side] : {std::pair{tx, &tx_.reports().binding}, std::pair{rx, &rx_.binding}}) {
        if (!wanted)
            continue;
        side->cq = &cq;
        side->selective = selective;
    }
    return 0;
}

std::array<Endpoint::CounterSlot, 6> Endpoint::counter_slots() noexcept
{
    TxCounters& out = tx_.reports().counters;
    RxCounters& in = rx_.counters;
    return {{{FI_SEND, out.send},
             {FI_RECV, in.recv},
             {FI_READ, out.read},
             {FI_WRITE, out.write},
             {FI_REMOTE_READ, in.remote_read},
             {FI_REMOTE_WRITE, in.remote_write}}};
}

int Endpoint::bind_counter(Counter& counter, std::uint64_t flags) noexcept
{
    if (&counter.owner() != &owner())
        return -FI_EDOMAIN;
    if (flags == 0 || (flags & ~(tx_counts | rx_counts)) != 0)
        return flags == 0 ? -FI_EINVAL : -FI_EBADFLAGS;
    if ((!tx_.plan().is_open && (flags & tx_counts) != 0) || (!rx_.is_open && (flags & rx_counts) != 0))
        return -FI_EINVAL;
    for (const CounterSlot& slot : counter_slots())
        if ((flags & slot.flag) != 0 && slot.counter != nullptr)
            return -FI_EINVAL;
    for (const CounterSlot& slot : counter_slots())
        if ((flags & slot.flag) != 0)
            slot.counter = &counter;
    if ((flags & (FI_REMOTE_READ | FI_REMOTE_WRITE)) != 0)
        owner().regions().events().count_everything(index());
    return 0;
}

int Endpoint::bind_addresses(Peers& av) noexcept
{
    if (&av.owner() != &owner())
        return -FI_EDOMAIN;
    if (tx_.has_peers())
        return -FI_EINVAL;
    tx_.use(&av);
    return 0;
}

int Endpoint::bind_shared(SharedTransmit& shared) noexcept
{
    if (&shared.owner() != &owner())
        return -FI_EDOMAIN;
    if (tx_.has_vcq()) // one of its own, or that of another
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

int Endpoint::bind_shared(SharedReceive& shared) noexcept
{
    if (&shared.owner() != &owner())
        return -FI_EDOMAIN;
    if (!plan_.shares_rx || shared_rx_ != nullptr)
        return -FI_EINVAL;
    shared_rx_ = &shared;
    rx_.shared = &shared.queue();
    return 0;
}

/// The domain's set, and those of all queues and counters. Some of them may be one, which has the endpoint once all the
/// same.
template <class Visit>
void Endpoint::visit_progress_sets(Visit&& visit) noexcept
{
    visit(owner().auto_progress().everything());
    for (const Binding* side : {&tx_.reports().binding, &rx_.binding})
        if (side->cq != nullptr)
            visit(side->cq->progress());
    for (const CounterSlot& slot : counter_slots())
        if (slot.counter != nullptr)
            visit(slot.counter->progress());
}

int Endpoint::list() noexcept
{
    int error = 0;
    listed_ = true;
    visit_progress_sets([&](ProgressSet& set) {
        if (error == 0)
            error = set.add(*this);
    });
    if (error == 0 && eq_ != nullptr && collectives_)
        error = eq_->add(*this);
    if (error != 0)
        unlist();
    return error;
}

void Endpoint::unlist() noexcept
{
    if (listed_)
        visit_progress_sets([this](ProgressSet& set) { set.remove(*this); });
    if (listed_ && eq_ != nullptr)
        eq_->remove(*this);
    listed_ = false;
}

void Endpoint::unbind() noexcept
{
    unlist();
    tx_.reports().binding.cq = nullptr;
    rx_.binding.cq = nullptr;
    for (const CounterSlot& slot : counter_slots())
        slot.counter = nullptr;
    if (shared_tx_ != nullptr)
        std::exchange(shared_tx_, nullptr)->leave(tx_);
    shared_rx_ = nullptr;
    tx_.use(nullptr);
    eq_ = nullptr;
}

int Endpoint::check_bound() noexcept
{
    if (!tx_.has_peers())
        return -FI_ENOAV;
    if (!tx_.has_vcq() || (plan_.shares_rx && shared_rx_ == nullptr))
        return -FI_EOPBADSTATE;
    if (shared_rx_ != nullptr && !shared_rx_->agrees(tx_.peers()))
        return -FI_EINVAL;
    // A side that can complete operations of its own needs where to report. Receives without a queue or a counter
    // are possible (fi_endpoint(3) asks for queues of the operations that are used): nobody sees them end.
    const std::uint64_t directions = caps() & (tx_counts | rx_counts);
    const bool transmits = tx_.plan().is_open && (directions == 0 || (directions & tx_counts) != 0);
    const TxCounters& out = tx_.reports().counters;
    if (transmits && tx_.reports().binding.cq == nullptr && out.send == nullptr && out.read == nullptr && out.write == nullptr)
        return -FI_ENOCQ;
    return 0;
}

} // namespace tofu
