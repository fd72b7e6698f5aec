// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: how api/ defines its functions: putofu_NAME strong, utofu_NAME weak over it, both exported.
// Called by: api/ only. Calls: nothing.
#pragma once

// The headers are the user's and say nothing of visibility; the library hides all else.
#pragma GCC visibility push(default)
#include <putofu.h>
#include <utofu.h>
#pragma GCC visibility pop

// After the definition of putofu_NAME.
#define TOFU_SIM_ALIAS(name) \
    extern "C" __attribute__((weak, alias("putofu_" #name), visibility("default"))) \
    decltype(utofu_##name) utofu_##name

namespace tofu::sim {

// Notes the code for utofu_get_last_error and passes it on. Not for BUSY and NOT_FOUND, which are no errors.
[[gnu::cold, gnu::noinline]] int fail(int code) noexcept;

[[nodiscard]] inline int checked(int code) noexcept
{
    return code == 0 ? 0 : fail(code);
}

} // namespace tofu::sim
