// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See own_tx_context.h.
#include "tx/own_tx_context.h"

#include <memory>
#include <new>
#include <utility>

#include <rdma/fi_errno.h>

#include "av/peer_table.h"
#include "cq/domain_base.h"
#include "mem/mr.h"
#include "tx/remote_memory.h"

namespace tofu {

void OwnTxContext::set_up(const Plan& plan) noexcept
{
    plan_ = plan;
    if (plan.lock != nullptr)
        lock_ = plan.lock;
}

int OwnTxContext::open_vcq() noexcept
{
    if (int ret = domain().vcqs().open(own_vcq_, {.owner = this, .unsignaled_error = on_unsignaled_error}); ret != 0)
        return ret;
    if (int ret = post_from(own_vcq_); ret != 0)
        return ret;
    rails_.allow(domain());
    return 0;
}

int OwnTxContext::post_from(vcq::Vcq& vcq) noexcept
{
    std::unique_ptr<LocalMemory> memory(new (std::nothrow) LocalMemory(vcq, &domain().regions().descs()));
    peer_memory_.reset(new (std::nothrow) PeerMemory(
        vcq, domain().model().provider_keys, KeyReader{domain().home_id(), domain().regions().directory().area()}));
    if (memory == nullptr || peer_memory_ == nullptr)
        return -FI_ENOMEM;
    if (int ret = domain().regions().attach(*memory, *lock_); ret != 0)
        return ret;
    vcq_ = &vcq;
    rails_.begin(vcq, std::move(memory));
    return 0;
}

void OwnTxContext::detach() noexcept
{
    if (vcq_ != nullptr)
        domain().regions().detach(rails_.memory(Rails::own));
}

void OwnTxContext::set_number(unsigned number, const EndpointAddress& known) noexcept
{
    plan_.number = number;
    plan_.known = known;
}

bool OwnTxContext::all_has_left() const noexcept
{
    return pending_.empty() && engines_.all([](const Engine& e) { return e.all_has_left(); });
}

void OwnTxContext::close() noexcept
{
    engines_.close();
    if (peer_memory_ != nullptr)
        peer_memory_->credits.close();
}

void OwnTxContext::drop_engines() noexcept
{
    engines_.clear();
}

void OwnTxContext::drop_memory() noexcept
{
    peer_memory_.reset();
    rails_.drop_memory();
}

void OwnTxContext::on_unsignaled_error(void* self, int code, vcq::Unsignaled kind, utofu_vcq_id_t peer) noexcept
{
    auto& tx = *static_cast<OwnTxContext*>(self);
    if (kind != vcq::Unsignaled::event)
        tx.engines_.lost(code, kind, peer);
    else if (tx.peer_memory_ != nullptr && left_no_event(code))
        tx.peer_memory_->event_failed(peer);
}

} // namespace tofu
