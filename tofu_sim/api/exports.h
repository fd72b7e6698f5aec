// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How api/ defines its functions: putofu_NAME strong, utofu_NAME weak over it, both exported.
#pragma once

// The headers are the user's and say nothing of visibility; the library hides all else.
#pragma GCC visibility push(default)
#include <putofu.h>
#include <utofu.h>
#pragma GCC visibility pop

#include <cstring>

// After the definition of putofu_NAME.
#define TOFU_SIM_ALIAS(name)                                                                                           \
    extern "C" __attribute__((weak, alias("putofu_" #name), visibility("default"))) decltype(utofu_##name) utofu_##name

namespace tofu::sim {

/// Notes the code for utofu_get_last_error and passes it on. Not for BUSY and NOT_FOUND, which are no errors.
[[gnu::cold, gnu::noinline]] int fail(int code) noexcept;

[[nodiscard]] inline int checked(int code) noexcept
{
    return code == 0 ? 0 : fail(code);
}

/// A C program may pass what is no value of the enum: an integer, before anything reads it as one.
template <typename Enum>
[[nodiscard]] inline int bits_of(const Enum& value) noexcept
{
    int bits;
    static_assert(sizeof bits == sizeof value);
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

} // namespace tofu::sim
