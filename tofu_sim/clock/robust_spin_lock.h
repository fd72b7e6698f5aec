// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A lock in memory that processes share, any of which may be killed while it holds it: a process that waits too long
// takes it over. Protected data is repaired before use; the worst result is a wrong time.
#pragma once

#include "job/shared_word.h"

#include <cstdint>
#include <sched.h>

namespace tofu::sim {

class RobustSpinLock {
  public:
    explicit RobustSpinLock(SharedWord<uint32_t>& lock) noexcept : lock_(lock)
    {
        for (unsigned i = 0; i < spins + yields; i++) {
            uint32_t free = 0;
            if (lock_.compare_exchange(free, 1))
                return;
            if (i >= spins)
                (void)::sched_yield();
        }
        lock_.store_release(1);
    }
    ~RobustSpinLock() { lock_.store_release(0); } ///< partner: the next one's compare_exchange
    RobustSpinLock(const RobustSpinLock&) = delete;
    RobustSpinLock& operator=(const RobustSpinLock&) = delete;

  private:
    static constexpr unsigned spins = 256;
    static constexpr unsigned yields = 4096; ///< then its holder is dead, or as good as dead

    SharedWord<uint32_t>& lock_;
};

} // namespace tofu::sim
