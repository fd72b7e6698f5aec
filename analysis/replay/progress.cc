// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The progress of a replay and its remaining time. See progress.h.
#include "replay/progress.h"

#include <cstdio>
#include <unistd.h>

namespace tofu::sim::tools {
namespace {

constexpr double announce_after = 2;      ///< seconds
constexpr double worth_a_line = 10;       ///< seconds that are left
constexpr double between_two_lines = 0.5; ///< on a terminal

} // namespace

ReplayProgress::ReplayProgress(uint64_t expected) : expected_(expected), terminal_(::isatty(STDERR_FILENO) == 1) {}

ReplayProgress::~ReplayProgress()
{
    if (shown_)
        std::fputs("\r\033[K", stderr);
}

void ReplayProgress::at(uint64_t messages)
{
    const Clock::time_point now = Clock::now();
    const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
    const double passed = seconds(now - begin_);
    if (passed < announce_after || messages == 0 || expected_ <= messages)
        return;
    const double left = passed / static_cast<double>(messages) * static_cast<double>(expected_ - messages);
    if (!announced_ && left > worth_a_line) {
        std::fprintf(stderr, "tofu-sim: %llu of about %llu messages took %.0f s; remaining: about %.0f s\n",
                     static_cast<unsigned long long>(messages), static_cast<unsigned long long>(expected_), passed,
                     left);
    }
    announced_ = true;
    if (terminal_ && seconds(now - last_) >= between_two_lines) {
        std::fprintf(stderr, "\r\033[K%2.0f %% of the messages, about %.0f s to go",
                     100 * static_cast<double>(messages) / static_cast<double>(expected_), left);
        shown_ = true;
        last_ = now;
    }
}

} // namespace tofu::sim::tools
