// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See own_tx_context.h.
#include "context/own_tx_context.h"

#include <new>

#include <rdma/fi_errno.h>

#include "address/peers.h"
#include "memory/region.h"
#include "progress/domain_base.h"
#include "remote/event_credits.h"
#include "remote/keys.h"

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
    branches_.allow(domain());
    return 0;
}

int OwnTxContext::post_from(vcq::Vcq& vcq) noexcept
{
    local_memory_.reset(new (std::nothrow) LocalMemory(vcq, !domain().model().has_owner));
    remote_keys_.reset(new (std::nothrow) RemoteKeys(vcq, domain().model().provider_keys));
    event_credits_.reset(new (std::nothrow) EventCredits(vcq));
    if (local_memory_ == nullptr || remote_keys_ == nullptr || event_credits_ == nullptr)
        return -FI_ENOMEM;
    if (int ret = domain().regions().attach(*local_memory_, *lock_); ret != 0) {
        local_memory_.reset();
        return ret;
    }
    vcq_ = &vcq;
    branches_.begin(vcq, *local_memory_);
    return 0;
}

void OwnTxContext::detach() noexcept
{
    if (local_memory_ != nullptr)
        domain().regions().detach(*local_memory_);
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
    if (event_credits_ != nullptr)
        event_credits_->close();
}

void OwnTxContext::drop_engines() noexcept
{
    engines_.clear();
}

void OwnTxContext::drop_memory() noexcept
{
    event_credits_.reset();
    remote_keys_.reset();
    branches_.drop_memory();
    local_memory_.reset();
}

void OwnTxContext::on_unsignaled_error(void* self, int code, vcq::Unsignaled kind, utofu_vcq_id_t peer) noexcept
{
    static_cast<OwnTxContext*>(self)->engines_.lost(code, kind, peer);
}

} // namespace tofu
