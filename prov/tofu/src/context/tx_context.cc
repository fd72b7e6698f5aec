// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See tx_context.h.
#include "context/tx_context.h"

#include <new>

#include <rdma/fi_errno.h>

#include "address/peers.h"
#include "progress/domain_base.h"
#include "remote/event_credits.h"
#include "remote/keys.h"

namespace tofu {

TxContext::TxContext(Lock& own) noexcept : lock_(&own) {}
TxContext::~TxContext() = default;

int TxContext::pay_for_event(const Peer& peer, EventAccount*& account, int& prov_errno) noexcept
{
    if (!event_credits_) [[unlikely]]
        event_credits_.reset(new (std::nothrow) EventCredits(*vcq_));
    if (!event_credits_) [[unlikely]]
        return -FI_ENOMEM;
    int ret = event_credits_->pay(peer, account, prov_errno);
    for (unsigned i = 0; ret == -FI_EAGAIN && i < rounds_of_a_call; i++) {
        progress();
        ret = event_credits_->pay(peer, account, prov_errno);
    }
    return ret;
}

bool TxContext::wants_polls() const noexcept
{
    return domain().auto_progress().thread_is_due() &&
           (event_credits_ != nullptr || !pending_.empty() ||
            !engines_.all([](const Engine& engine) { return !engine.needs_polls(); }));
}

void TxContext::call_for_polls() noexcept
{
    (void)domain().auto_progress().go_on_alone(); // without a thread the application's calls do it
}

} // namespace tofu
