// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The numbers of a domain's endpoints, which their addresses name. Owned by the domain, under its home lock; calls
// nothing.
#pragma once

#include <algorithm>
#include <bitset>

#include "address/address.h"

namespace tofu {

class EndpointNumbers {
  public:
    /// `count` in a row, for an endpoint or the receive contexts of a scalable one: the first of them, or `none`. A number
    /// is used again only when all have been used: an old address should not reach a new endpoint.
    static constexpr unsigned none = max_endpoints;
    [[nodiscard]] unsigned take(unsigned count) noexcept
    {
        unsigned end = next_ + count;
        if (end > max_endpoints) {
            unsigned row = 0; // free numbers in a row before `end`
            for (end = 0; end < max_endpoints && row < count; end++)
                row = taken_[end] ? 0 : row + 1;
            if (row < count)
                return none;
        }
        next_ = std::max(next_, end);
        for (unsigned i = end - count; i < end; i++)
            taken_.set(i);
        return end - count;
    }
    void give_back(unsigned first, unsigned count) noexcept
    {
        for (unsigned i = first; i < first + count; i++)
            taken_.reset(i);
    }

  private:
    std::bitset<max_endpoints> taken_; ///< in use
    unsigned next_ = 0;                ///< from here on they have never been used
};

} // namespace tofu
