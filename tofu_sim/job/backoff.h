// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How long and how often to look while others are at something that only one may do.
//
// Hundreds of processes that start at once on few processors wait for each other for minutes: as long as one of them
// proceeds, this is no error. And waiters must leave the processors to the lock's holder.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tofu::sim {

class Backoff {
  public:
    /// Ends when `changes` has stayed the same for so long.
    Backoff(uint64_t now_ns, uint64_t limit_ns, uint32_t changes) noexcept
        : limit_ns_(limit_ns), since_ns_(now_ns), changes_(changes)
    {
    }
    [[nodiscard]] bool lasts(uint64_t now_ns, uint32_t changes) noexcept
    {
        if (changes != changes_) {
            changes_ = changes;
            since_ns_ = now_ns;
        }
        return now_ns - since_ns_ < limit_ns_;
    }
    /// Until the next look.
    [[nodiscard]] uint32_t pause_ns() noexcept
    {
        const uint32_t pause = pause_ns_;
        pause_ns_ = std::min(2 * pause_ns_, longest_pause_ns);
        return pause;
    }
    static constexpr uint32_t longest_pause_ns = 25'600'000;

  private:
    uint64_t limit_ns_;
    uint64_t since_ns_;
    uint32_t changes_;
    uint32_t pause_ns_ = 200'000;
};

} // namespace tofu::sim
