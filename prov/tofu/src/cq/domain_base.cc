// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See domain_base.h.
#include "cq/domain_base.h"

#include <rdma/fi_errno.h>

#include "core/log.h"

namespace tofu {

OpenList<DomainBase>& DomainBase::all() noexcept
{
    static constinit OpenList<DomainBase> list;
    return list;
}

int VcqSource::open(vcq::Vcq& vcq, vcq::Sink sink, bool is_target) noexcept
{
    sink.book = &statistics;
    const unsigned spread = spread_.fetch_add(1, std::memory_order_relaxed);
    const int error = vcq.open(*backend, spread, safe || is_target, sink);
    if (error != 0)
        TOFU_WARN(FI_LOG_DOMAIN,
                  "domain: no VCQ on any TNI of this node (%s): close endpoints or domains, or run fewer processes per "
                  "node\n",
                  fi_strerror(-error));
    return error;
}

} // namespace tofu
