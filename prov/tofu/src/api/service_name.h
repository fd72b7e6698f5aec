// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The service name that an endpoint can be found by (api/names.h). Part of an endpoint; calls api/names.h.
#pragma once

#include <cstdint>

#include "api/names.h"

namespace tofu {

class ServiceName {
  public:
    /// Announces the endpoint under a name of its own; key 0: none. 0 or -FI_E*.
    [[nodiscard]] int open(std::uint64_t key, const EndpointAddress& address) noexcept
    {
        const int ret = key != 0 ? own_.open(key, address) : 0;
        share(own_);
        return ret;
    }
    /// Takes part in the announcement of a scalable endpoint.
    void share(names::Announcement& name) noexcept { shown_ = name.is_open() ? &name : nullptr; }
    /// Called once per round of progress. Clears the list of processes that have found the name every 256 rounds; it
    /// has room for some thousand.
    void progress() noexcept
    {
        constexpr unsigned rounds_per_look = 256;
        if (shown_ != nullptr && ++rounds_ % rounds_per_look == 0) [[unlikely]]
            shown_->clear();
    }

  private:
    names::Announcement own_;
    names::Announcement* shown_ = nullptr;
    unsigned rounds_ = 0;
};

} // namespace tofu
