// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Where libraries are that came with this command.
#pragma once

#include <string>

namespace tofu::sim::tools {

/// As it was installed, or in the build tree; empty: it is not there. `place` is a directory of the library
/// directory's.
[[nodiscard]] std::string find_library(const std::string& name, const std::string& place = {});

} // namespace tofu::sim::tools
