// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The subcommands of tofu-sim, and how they read their options.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace tofu::sim::tools {

/// Exit statuses of our own; `run` otherwise hands on the program's.
inline constexpr int exit_failure = 1;
inline constexpr int exit_usage = 2;
inline constexpr int exit_timeout = 124; ///< as timeout(1) has it
inline constexpr int exit_not_executable = 126;
inline constexpr int exit_not_found = 127;

/// Each gets the words behind its own name.
[[nodiscard]] int run_command(std::span<char* const> words);
[[nodiscard]] int show_command(std::span<char* const> words);
[[nodiscard]] int trace_command(std::span<char* const> words);
[[nodiscard]] int replay_command(std::span<char* const> words);
[[nodiscard]] int node_command(std::span<char* const> words);
[[nodiscard]] int clean_command(std::span<char* const> words);

/// A whole number from `low` to `high`, nothing for any other text.
[[nodiscard]] inline std::optional<uint64_t> parse_count(std::string_view text, uint64_t low, uint64_t high) noexcept
{
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < low || value > high)
        return std::nullopt;
    return value;
}

} // namespace tofu::sim::tools
