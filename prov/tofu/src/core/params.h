// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The provider's environment variables, FI_TOFU_*; man/fi_tofu.7 describes each. api/provider.cc declares them to
// libfabric; the modules that they govern read them.
#pragma once

#include <cstddef>

#include "core/node_map.h"

namespace tofu {

/// Declares the variables to libfabric, so that `fi_info -e` lists them.
void define_params() noexcept;

/// Checks the variables: -FI_EINVAL, after one line in the log, if one has a value that it may not have. Called when a
/// domain is opened and when an endpoint is enabled. An empty value counts as not set.
[[nodiscard]] int check_params() noexcept;

/// The value of FI_TOFU_<NAME>; `otherwise` if it is not set, empty, or refused by check_params().
const char* param_string(const char* name, const char* otherwise) noexcept;

/// The same as a number, of things or bytes.
std::size_t param_size(const char* name, std::size_t otherwise) noexcept;

/// Is FI_TOFU_<NAME>, a variable that is on or off, off?
[[nodiscard]] bool param_off(const char* name) noexcept;

/// FI_TOFU_<NAME> as a set of processors. False: it is not set, empty, or refused.
[[nodiscard]] bool param_cpus(const char* name, node::Processors& cpus) noexcept;

} // namespace tofu
