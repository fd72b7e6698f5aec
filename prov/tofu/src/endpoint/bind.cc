// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What an endpoint or a context is bound to (fi_endpoint(3), fi_ep_bind): queues, counters, addresses, shared contexts.
// See endpoint.h. Called through the operation tables and by endpoint.cc; calls the objects bound.
#include "endpoint/endpoint.h"

#include <algorithm>
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
        return bind_queue(CompletionQueue::of(reinterpret_cast<fid_cq*>(object)), flags);
    case FI_CLASS_CNTR:
        return bind_counter(Counter::of(reinterpret_cast<fid_cntr*>(object)), flags);
    case FI_CLASS_AV:
        return parent_ != nullptr // which has one for all contexts
                   ? -FI_EINVAL
                   : bind_addresses(Peers::of(reinterpret_cast<fid_av*>(object)));
    case FI_CLASS_EQ: // an RDM endpoint raises no events of its own; the binding is allowed
        if (eq_ != nullptr)
            return -FI_EINVAL;
        eq_ = &EventQueue::of(reinterpret_cast<fid_eq*>(object));
        eq_->hold();
        return 0;
    case FI_CLASS_STX_CTX:
        return bind_shared(SharedTransmit::of(reinterpret_cast<fid_stx*>(object)));
    case FI_CLASS_SRX_CTX:
        return bind_shared(SharedReceive::of(reinterpret_cast<fid_ep*>(object)));
    default:
        return -FI_EINVAL;
    }
}

int Endpoint::bind_queue(CompletionQueue& cq, std::uint64_t flags) noexcept
{
    if (&cq.owner() != &domain())
        return -FI_EDOMAIN;
    if (flags & ~(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION))
        return -FI_EBADFLAGS;
    const bool tx = (flags & FI_TRANSMIT) != 0;
    const bool rx = (flags & FI_RECV) != 0;
    if ((tx && !tx_.is_open()) || (rx && !rx_.is_open))
        return -FI_EINVAL;
    if ((!tx && !rx) || (tx && tx_.binding().cq != nullptr) || (rx && rx_.binding.cq != nullptr))
        return -FI_EINVAL;
    const bool selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
    for (auto [wanted, side] : {std::pair{tx, &tx_.reports().binding}, std::pair{rx, &rx_.binding}}) {
        if (!wanted)
            continue;
        side->cq = &cq;
        side->selective = selective;
        cq.hold();
    }
    return 0;
}

int Endpoint::bind_counter(Counter& counter, std::uint64_t flags) noexcept
{
    if (&counter.owner() != &domain())
        return -FI_EDOMAIN;
    if (flags == 0 || (flags & ~(tx_counts | rx_counts)) != 0)
        return flags == 0 ? -FI_EINVAL : -FI_EBADFLAGS;
    if ((!tx_.is_open() && (flags & tx_counts) != 0) || (!rx_.is_open && (flags & rx_counts) != 0))
        return -FI_EINVAL;
    const std::pair<std::uint64_t, Counter**> slots[] = {
        {FI_SEND, &tx_.reports().counters.send},
        {FI_RECV, &rx_.counters.recv},
        {FI_READ, &tx_.reports().counters.read},
        {FI_WRITE, &tx_.reports().counters.write},
        {FI_REMOTE_READ, &rx_.counters.remote_read},
        {FI_REMOTE_WRITE, &rx_.counters.remote_write},
    };
    for (auto [flag, slot] : slots)
        if ((flags & flag) != 0 && *slot != nullptr)
            return -FI_EINVAL;
    for (auto [flag, slot] : slots)
        if ((flags & flag) != 0) {
            *slot = &counter;
            counter.hold();
        }
    if ((flags & (FI_REMOTE_READ | FI_REMOTE_WRITE)) != 0)
        domain().regions().count_everything(index());
    return 0;
}

int Endpoint::bind_addresses(Peers& av) noexcept
{
    if (&av.owner() != &domain())
        return -FI_EDOMAIN;
    if (tx_.peers_or_null() != nullptr)
        return -FI_EINVAL;
    tx_.use(&av);
    av.hold();
    return 0;
}

int Endpoint::bind_shared(SharedTransmit& shared) noexcept
{
    if (&shared.domain() != &domain())
        return -FI_EDOMAIN;
    if (tx_.has_vcq()) // one of its own, or that of another
        return -FI_EINVAL;
    if (int ret = shared.join(tx_); ret != 0)
        return ret;
    if (int ret = tx_.share_vcq(shared.vcq()); ret != 0) {
        shared.leave(tx_);
        return ret;
    }
    shared_tx_ = &shared;
    return 0;
}

int Endpoint::bind_shared(SharedReceive& shared) noexcept
{
    if (&shared.domain() != &domain())
        return -FI_EDOMAIN;
    if (!shares_rx_ || shared_rx_ != nullptr)
        return -FI_EINVAL;
    shared.hold();
    shared_rx_ = &shared;
    rx_.shared = &shared.queue();
    return 0;
}

/// The domain's set, and each queue and counter once, however many of its sides the endpoint is bound to.
template <class Visit>
void Endpoint::visit_progress_sets(Visit&& visit) noexcept
{
    visit(domain().auto_progress().everything());
    if (tx_.binding().cq != nullptr)
        visit(tx_.binding().cq->progress());
    if (rx_.binding.cq != nullptr && rx_.binding.cq != tx_.binding().cq)
        visit(rx_.binding.cq->progress());
    const TxCounters& out = tx_.counters();
    const RxCounters& in = rx_.counters;
    Counter* all[] = {out.send, in.recv, out.read, out.write, in.remote_read, in.remote_write};
    for (Counter** c = std::begin(all); c != std::end(all); ++c)
        if (*c != nullptr && std::find(std::begin(all), c, *c) == c)
            visit((*c)->progress());
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
    for (Binding* side : {&tx_.reports().binding, &rx_.binding})
        if (side->cq != nullptr)
            std::exchange(side->cq, nullptr)->release();
    TxCounters& out = tx_.reports().counters;
    RxCounters& in = rx_.counters;
    for (Counter** slot : {&out.send, &in.recv, &out.read, &out.write, &in.remote_read, &in.remote_write})
        if (*slot != nullptr)
            std::exchange(*slot, nullptr)->release();
    if (shared_tx_ != nullptr)
        std::exchange(shared_tx_, nullptr)->leave(tx_);
    if (shared_rx_ != nullptr)
        std::exchange(shared_rx_, nullptr)->release();
    if (Peers* const av = tx_.peers_or_null(); av != nullptr)
        av->release();
    tx_.use(nullptr);
    if (eq_ != nullptr)
        std::exchange(eq_, nullptr)->release();
}

int Endpoint::check_bound() const noexcept
{
    if (tx_.peers_or_null() == nullptr)
        return -FI_ENOAV;
    if (!tx_.has_vcq() || (shares_rx_ && shared_rx_ == nullptr))
        return -FI_EOPBADSTATE;
    if (shared_rx_ != nullptr && !shared_rx_->agrees(tx_.peers()))
        return -FI_EINVAL;
    // A side that can complete operations of its own needs where to report. Receives without a queue or a counter
    // are possible (fi_endpoint(3) asks for queues of the operations that are used): nobody sees them end.
    const std::uint64_t directions = caps() & (FI_SEND | FI_RECV | FI_READ | FI_WRITE |
                                              FI_REMOTE_READ | FI_REMOTE_WRITE);
    const bool transmits =
        tx_.is_open() &&
        (directions == 0 || (directions & (FI_SEND | FI_READ | FI_WRITE)) != 0);
    const bool bound = tx_.binding().cq != nullptr || tx_.counters().send != nullptr ||
                       tx_.counters().read != nullptr || tx_.counters().write != nullptr;
    if (transmits && !bound)
        return -FI_ENOCQ;
    return 0;
}

} // namespace tofu
