// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_fabric: where domains, event queues and wait sets come from. Called by libfabric; calls domain, eq, wait.
#pragma once

#include <atomic>
#include <cstdint>

#include <rdma/fabric.h>

#include "provider/open_list.h"

namespace tofu {

class Fabric final : public fid_fabric {
  public:
    /// fi_fabric(3). 0, -FI_EINVAL, -FI_ENOMEM.
    static int open(fi_fabric_attr* attr, fid_fabric** fabric, void* context) noexcept;
    /// Those open in this process.
    static OpenList<Fabric>& all() noexcept;
    static Fabric& of(fid_fabric* f) noexcept { return *static_cast<Fabric*>(f); }

    void hold() noexcept { users_.fetch_add(1, std::memory_order_relaxed); }
    void release() noexcept { users_.fetch_sub(1, std::memory_order_relaxed); }
    [[nodiscard]] bool in_use() const noexcept { return users_.load(std::memory_order_relaxed) != 0; }

    Fabric* next_open = nullptr; ///< the list's

  private:
    std::atomic<int> users_{0};
};

} // namespace tofu
