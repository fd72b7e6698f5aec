// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See engines.h.
#include "api/engines.h"

#include <mutex>
#include <new>

#include <rdma/fi_errno.h>

#include "api/hints.h"
#include "atomic/atomic.h"
#include "coll/collectives.h"
#include "cq/domain_base.h"
#include "msg/message_engine.h"
#include "rma/rma.h"
#include "tx/deferred.h"
#include "tx/keys.h"

namespace tofu {

namespace {

template <class T, class... More>
int make_engine(std::unique_ptr<T>& engine, Engine::Kind kind, OwnTxContext& tx, More&... more) noexcept
{
    engine.reset(new (std::nothrow) T(tx, more...));
    if (engine == nullptr)
        return -FI_ENOMEM;
    if constexpr (requires { engine->open(); })
        if (int ret = engine->open(); ret != 0)
            return ret;
    if constexpr (requires { engine->sender(); })
        tx.engines().add(kind, engine->sender());
    else
        tx.engines().add(kind, *engine);
    return 0;
}

} // namespace

EndpointEngines::EndpointEngines() noexcept = default;
EndpointEngines::~EndpointEngines() = default;

int EndpointEngines::make(OwnTxContext& tx, RxContext& rx, bool joins) noexcept
{
    const std::uint64_t caps = tx.plan().caps;
    if ((caps & FI_TRIGGER) != 0) {
        Later& later = *tx.domain().deferred().later;
        if (int ret = later.open(); ret != 0)
            return ret;
        rx.relay = later.relay();
    }
    // An endpoint for RMA alone needs messages only for the CQ data of writes, which it sends or which its peers send.
    const bool writes = tx.plan().is_open && (expand(caps) & FI_WRITE) != 0;
    const bool data = (caps & FI_RMA) != 0 && (writes || rx.binding.cq != nullptr);
    int ret = 0;
    if ((caps & (FI_MSG | FI_TAGGED)) != 0 || data)
        ret = make_engine(messages, Engine::messages, tx, rx);
    if (ret != 0 || !tx.plan().is_open)
        return ret; // nothing is posted from a receive context, and peers reach its memory without an engine of ours
    if ((caps & (FI_ATOMIC | FI_RMA)) != 0 && !tx.quick().open(tx))
        return -FI_ENOMEM;
    if ((caps & FI_ATOMIC) != 0)
        ret = make_engine(atomic, Engine::atomic, tx);
    if (ret == 0 && (caps & FI_RMA) != 0)
        ret = make_engine(rma, Engine::rma, tx);
    if (ret == 0 && (caps & FI_COLLECTIVE) != 0 && joins)
        ret = make_engine(collectives, Engine::collectives, tx);
    return ret;
}

void EndpointEngines::drop(OwnTxContext& tx) noexcept
{
    // The engines end registrations with a VCQ that may be shared, which needs its lock.
    std::lock_guard guard(tx.lock());
    rma.reset();
    atomic.reset();
    messages.reset();
    collectives.reset();
    tx.drop_engines();
}

} // namespace tofu
