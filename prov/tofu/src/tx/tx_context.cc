// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See tx_context.h.
#include "tx/tx_context.h"

#include "cq/domain_base.h"
#include "tx/remote_memory.h"

namespace tofu {

TxContext::TxContext(Lock& own) noexcept : lock_(&own) {}
TxContext::~TxContext() = default;

bool TxContext::wants_polls() const noexcept
{
    return domain().auto_progress().thread_is_due() &&
           (!peer_memory_->credits.empty() || !pending_.empty() ||
            !engines_.all([](const Engine& engine) { return !engine.needs_polls(); }));
}

void TxContext::call_for_polls() noexcept
{
    (void)domain().auto_progress().go_on_alone(); // without a thread the application's calls do it
}

} // namespace tofu
