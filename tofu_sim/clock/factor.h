// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How TOFU_SIM_CPU and tofu-sim run --cpu are written.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>

namespace tofu::sim {

inline constexpr const char* factor_expected = "use the ratio of computing time on the target to that on this machine, "
                                               "0 to 1000 with up to three decimals, such as 2.5";

/// "2.5" in thousandths.
[[nodiscard]] inline std::optional<uint32_t> parse_factor(const char* text) noexcept
{
    const size_t whole = std::strspn(text, "0123456789");
    const bool point = text[whole] == '.';
    const char* const fraction = text + whole + (point ? 1 : 0);
    const size_t digits = std::strspn(fraction, "0123456789");
    if (whole == 0 || whole > 4 || digits > 3 || point != (digits != 0) || fraction[digits] != '\0')
        return std::nullopt;
    uint32_t value = 0;
    for (size_t i = 0; i < whole + 3; i++) {
        const char* const digit = i < whole ? text + i : fraction + (i - whole);
        value = value * 10 + (i < whole + digits ? static_cast<uint32_t>(*digit - '0') : 0);
    }
    return value <= 1'000'000 ? std::optional(value) : std::nullopt;
}

} // namespace tofu::sim
