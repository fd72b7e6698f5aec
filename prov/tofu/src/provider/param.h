// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The provider's environment variables, FI_TOFU_*; each stands in man/fi_tofu.7. Declared by init;
// asked for by whatever they govern. Calls libfabric.
#pragma once

#include <cstddef>

#include <sched.h>

namespace tofu {

/// Declares the variables to libfabric, so that `fi_info -e` lists them.
void define_params() noexcept;

/// -FI_EINVAL after one line, if a variable has a value that it may not have. Asked when a domain is opened and when an
/// endpoint is enabled; an empty value is none.
[[nodiscard]] int check_params() noexcept;

/// FI_TOFU_<NAME>, or `otherwise` where it is not set, empty, or what check_params() refuses.
const char* param_string(const char* name, const char* otherwise) noexcept;

/// FI_TOFU_<NAME> as a number of things or bytes, or `otherwise` likewise.
std::size_t param_size(const char* name, std::size_t otherwise) noexcept;

/// Does FI_TOFU_<NAME>, of those that are on or off, say off?
[[nodiscard]] bool param_off(const char* name) noexcept;

/// FI_TOFU_<NAME> as processors. False: it is not set, empty, or refused likewise.
[[nodiscard]] bool param_cpus(const char* name, cpu_set_t& cpus) noexcept;

} // namespace tofu
