// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The progress of a replay and its remaining time.
#pragma once

#include <chrono>
#include <cstdint>

namespace tofu::sim::tools {

/// A replay that takes long says so after two seconds, by the rate measured until then, in a line on standard error. On
/// a terminal a further line shows how far it has come.
class ReplayProgress {
  public:
    /// About `expected` messages are expected; 0: unknown.
    explicit ReplayProgress(uint64_t expected);
    ~ReplayProgress();
    ReplayProgress(const ReplayProgress&) = delete;
    ReplayProgress& operator=(const ReplayProgress&) = delete;

    void at(uint64_t messages);

  private:
    using Clock = std::chrono::steady_clock;
    uint64_t expected_;
    bool terminal_;
    bool announced_ = false;
    bool shown_ = false;
    Clock::time_point begin_ = Clock::now();
    Clock::time_point last_ = begin_;
};

} // namespace tofu::sim::tools
