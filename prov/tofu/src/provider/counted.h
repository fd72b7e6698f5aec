// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What fi_close(3) asks of every object: it answers -FI_EBUSY while others use it. Base of all that can be bound or
// opened from; calls nothing.
#pragma once

#include <atomic>

namespace tofu {

/// Counts its users. Any thread.
class Counted {
  public:
    void hold() noexcept { users_.fetch_add(1, std::memory_order_relaxed); }
    void release() noexcept { users_.fetch_sub(1, std::memory_order_relaxed); }
    [[nodiscard]] int users() const noexcept { return users_.load(std::memory_order_relaxed); }
    [[nodiscard]] bool in_use() const noexcept { return users() != 0; }

  private:
    std::atomic<int> users_{0};
};

} // namespace tofu
