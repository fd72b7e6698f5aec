// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a check has found, and the clock that bounds its waiting.
#pragma once

#include <chrono>
#include <string>

namespace tofu::check {

/// In the order of weight: of two processes the heavier one counts.
enum class Verdict : int {
    none,      ///< the other process says it
    holds,     ///< seen as the provider, or the guide, has it
    not_tried, ///< could not be tried here
    weaker,    ///< less than what is usual; the provider does not rely on it
    fails,     ///< the provider relies on it
};

[[nodiscard]] const char* name_of(Verdict verdict) noexcept;

struct Finding {
    Verdict verdict = Verdict::none;
    std::string seen; ///< one line
};

[[nodiscard]] [[gnu::format(printf, 1, 2)]] std::string text(const char* format, ...);
[[nodiscard]] [[gnu::format(printf, 1, 2)]] Finding holds(const char* format, ...);
[[nodiscard]] [[gnu::format(printf, 1, 2)]] Finding weaker(const char* format, ...);
[[nodiscard]] [[gnu::format(printf, 1, 2)]] Finding fails(const char* format, ...);
[[nodiscard]] [[gnu::format(printf, 1, 2)]] Finding not_tried(const char* format, ...);

/// Ends a check: thrown if it cannot continue.
struct Stop {
    Finding finding;
};

/// Nothing came in time: an answer of its own for checks of errors, else it ends the check as a failure.
struct Silence {
    std::string what;
};

/// Bounds one wait: next() after each look that found nothing.
class Patience {
  public:
    static inline double seconds = 5;
    explicit Patience(const char* what, double limit = seconds) noexcept;
    void next();

  private:
    const char* what_;
    std::chrono::steady_clock::time_point end_;
    unsigned looks_ = 0;
};

/// For what may never come; less than what any other wait is given.
[[nodiscard]] inline double answer_time() noexcept
{
    return 0.6 * Patience::seconds;
}

/// The name of a uTofu code where it has one of interest, else its number.
[[nodiscard]] std::string code_name(int code);

/// Stops the check as a failure unless uTofu has said yes.
void must(int code, const char* what);

} // namespace tofu::check
