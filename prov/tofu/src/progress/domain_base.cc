// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See domain_base.h.
#include "progress/domain_base.h"

#include <mutex>

#include <rdma/fi_errno.h>

#include "provider/log.h"

namespace tofu {

OpenList<DomainBase>& DomainBase::all() noexcept
{
    static constinit OpenList<DomainBase> list;
    return list;
}

int DomainBase::take_numbers(unsigned count, unsigned& first) noexcept
{
    std::lock_guard guard(home_lock_);
    first = numbers_.take(count);
    if (first != EndpointNumbers::none)
        return 0;
    TOFU_WARN(FI_LOG_EP_CTRL, "domain: all its %u numbers for endpoints and receive contexts are in use: close some, or "
                              "open another domain\n", unsigned{max_endpoints});
    return -FI_ENOSPC;
}

void DomainBase::give_back_numbers(unsigned first, unsigned count) noexcept
{
    std::lock_guard guard(home_lock_);
    numbers_.give_back(first, count);
}

} // namespace tofu
