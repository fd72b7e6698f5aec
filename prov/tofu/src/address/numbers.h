// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The numbers of a domain's endpoints, which their addresses name. Owned by the domain; any thread; calls nothing.
#pragma once

#include <algorithm>
#include <bitset>
#include <mutex>

#include <rdma/fi_errno.h>

#include "address/address.h"
#include "provider/log.h"

namespace tofu {

class EndpointNumbers {
  public:
    /// Takes `count` numbers in a row from `first` on, for an endpoint or the receive contexts of a scalable endpoint.
    /// A number is reused only when all have been used, so that an old address does not reach a new endpoint. 0 or
    /// -FI_ENOSPC.
    [[nodiscard]] int take(unsigned count, unsigned& first) noexcept
    {
        std::lock_guard guard(mutex_);
        unsigned end = next_ + count;
        if (end > max_endpoints) {
            unsigned row = 0; // free numbers in a row before `end`
            for (end = 0; end < max_endpoints && row < count; end++)
                row = taken_[end] ? 0 : row + 1;
            if (row < count) {
                TOFU_WARN(FI_LOG_EP_CTRL, "domain: all its %u numbers for endpoints and receive contexts are in use: "
                                          "close some, or open another domain\n", unsigned{max_endpoints});
                return -FI_ENOSPC;
            }
        }
        next_ = std::max(next_, end);
        first = end - count;
        for (unsigned i = first; i < end; i++)
            taken_.set(i);
        return 0;
    }
    void give_back(unsigned first, unsigned count) noexcept
    {
        std::lock_guard guard(mutex_);
        for (unsigned i = first; i < first + count; i++)
            taken_.reset(i);
    }

  private:
    std::mutex mutex_;
    std::bitset<max_endpoints> taken_; ///< in use
    unsigned next_ = 0;                ///< numbers from here on have never been used
};

} // namespace tofu
