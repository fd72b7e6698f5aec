// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What an endpoint or a context is bound to (fi_endpoint(3), fi_ep_bind): queues, counters, addresses, shared contexts.
// See endpoint.h. Called through the operation tables and by endpoint.cc; calls the objects bound.
#include "endpoint/endpoint.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include <rdma/fi_errno.h>

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
    if (&cq.domain() != domain_)
        return -FI_EDOMAIN;
    if (flags & ~(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION))
        return -FI_EBADFLAGS;
    const bool tx = (flags & FI_TRANSMIT) != 0;
    const bool rx = (flags & FI_RECV) != 0;
    if ((tx && part_ == Part::receive) || (rx && part_ == Part::transmit))
        return -FI_EINVAL;
    if ((!tx && !rx) || (tx && tx_.cq != nullptr) || (rx && rx_.cq != nullptr))
        return -FI_EINVAL;
    const bool selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
    for (auto [wanted, side] : {std::pair{tx, &tx_}, std::pair{rx, &rx_}}) {
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
    if (&counter.domain() != domain_)
        return -FI_EDOMAIN;
    if (flags == 0 || (flags & ~(tx_counts | rx_counts)) != 0)
        return flags == 0 ? -FI_EINVAL : -FI_EBADFLAGS;
    if ((part_ == Part::receive && (flags & tx_counts) != 0) ||
        (part_ == Part::transmit && (flags & rx_counts) != 0))
        return -FI_EINVAL;
    const std::pair<std::uint64_t, Counter**> slots[] = {
        {FI_SEND, &counters_.send},
        {FI_RECV, &counters_.recv},
        {FI_READ, &counters_.read},
        {FI_WRITE, &counters_.write},
        {FI_REMOTE_READ, &counters_.remote_read},
        {FI_REMOTE_WRITE, &counters_.remote_write},
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
        domain_->regions().count_everything(index_);
    return 0;
}

int Endpoint::bind_addresses(Peers& av) noexcept
{
    if (&av.domain() != domain_)
        return -FI_EDOMAIN;
    if (av_ != nullptr)
        return -FI_EINVAL;
    av_ = &av;
    av.hold();
    return 0;
}

int Endpoint::bind_shared(SharedTransmit& shared) noexcept
{
    if (&shared.domain() != domain_)
        return -FI_EDOMAIN;
    if (!wants_shared_tx_ || shared_tx_ != nullptr)
        return -FI_EINVAL;
    if (int ret = shared.join(*this); ret != 0)
        return ret;
    if (int ret = use_vcq(shared.vcq()); ret != 0) {
        shared.leave(*this);
        return ret;
    }
    shared_tx_ = &shared;
    return 0;
}

int Endpoint::bind_shared(SharedReceive& shared) noexcept
{
    if (&shared.domain() != domain_)
        return -FI_EDOMAIN;
    if (!wants_shared_rx_ || shared_rx_ != nullptr)
        return -FI_EINVAL;
    shared.hold();
    shared_rx_ = &shared;
    return 0;
}

proto::ReceiveQueue* Endpoint::shared_receives() noexcept
{
    return shared_rx_ != nullptr ? &shared_rx_->queue() : nullptr;
}

/// The domain's set, and each queue and counter once, however many of its sides the endpoint is bound to.
template <class Visit>
void Endpoint::visit_progress_sets(Visit&& visit) noexcept
{
    visit(domain_->auto_progress().everything());
    if (tx_.cq != nullptr)
        visit(tx_.cq->progress());
    if (rx_.cq != nullptr && rx_.cq != tx_.cq)
        visit(rx_.cq->progress());
    Counter* all[] = {counters_.send, counters_.recv,        counters_.read,
                      counters_.write, counters_.remote_read, counters_.remote_write};
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
    if (error != 0)
        unlist();
    return error;
}

void Endpoint::unlist() noexcept
{
    if (listed_)
        visit_progress_sets([this](ProgressSet& set) { set.remove(*this); });
    listed_ = false;
}

void Endpoint::unbind() noexcept
{
    unlist();
    for (Binding* side : {&tx_, &rx_})
        if (side->cq != nullptr)
            std::exchange(side->cq, nullptr)->release();
    for (Counter** slot : {&counters_.send, &counters_.recv, &counters_.read, &counters_.write,
                           &counters_.remote_read, &counters_.remote_write})
        if (*slot != nullptr)
            std::exchange(*slot, nullptr)->release();
    if (shared_tx_ != nullptr)
        std::exchange(shared_tx_, nullptr)->leave(*this);
    if (shared_rx_ != nullptr)
        std::exchange(shared_rx_, nullptr)->release();
    if (av_ != nullptr)
        std::exchange(av_, nullptr)->release();
    if (eq_ != nullptr)
        std::exchange(eq_, nullptr)->release();
}

int Endpoint::check_bound() const noexcept
{
    if (av_ == nullptr)
        return -FI_ENOAV;
    if ((wants_shared_tx_ && shared_tx_ == nullptr) || (wants_shared_rx_ && shared_rx_ == nullptr))
        return -FI_EOPBADSTATE;
    if (shared_rx_ != nullptr && !shared_rx_->agrees(*av_))
        return -FI_EINVAL;
    // A side that can complete operations of its own needs where to report. Receives without a queue or a counter
    // are possible (fi_endpoint(3) asks for queues of the operations that are used): nobody sees them end.
    const std::uint64_t directions = caps_ & (FI_SEND | FI_RECV | FI_READ | FI_WRITE |
                                              FI_REMOTE_READ | FI_REMOTE_WRITE);
    const bool transmits =
        part_ != Part::receive &&
        (directions == 0 || (directions & (FI_SEND | FI_READ | FI_WRITE)) != 0);
    const bool bound = tx_.cq != nullptr || counters_.send != nullptr ||
                       counters_.read != nullptr || counters_.write != nullptr;
    if (transmits && !bound)
        return -FI_ENOCQ;
    return 0;
}

} // namespace tofu
