// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Platforms whose time is the system's: there are no steps of a network, and hours don't go by. Included by
// other_providers.cc and processes.cc; calls the clock.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

#include "platform.h"

namespace swarm {

class RealTime : public Platform {
  public:
    /// How long to wait for what is awaited while nothing comes.
    explicit RealTime(std::chrono::seconds patience) : patience_(patience) {}
    [[nodiscard]] bool is_in_real_time() const override { return true; }
    void run(unsigned) override { std::this_thread::yield(); }
    void pass(std::uint64_t nanoseconds) override
    {
        std::this_thread::sleep_for(std::min(std::chrono::nanoseconds(nanoseconds), longest_pause));
    }
    [[nodiscard]] std::uint64_t clock() const override
    {
        return static_cast<std::uint64_t>((Clock::now() - start_) / std::chrono::nanoseconds(1));
    }
    [[nodiscard]] bool is_patient(unsigned rounds) override
    {
        if (rounds == 0)
            idle_since_ = Clock::now();
        return Clock::now() - idle_since_ < patience_;
    }

  private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::nanoseconds longest_pause{200000};
    std::chrono::seconds patience_;
    Clock::time_point start_ = Clock::now(), idle_since_ = Clock::now();
};

} // namespace swarm
