// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The trace files that an argument of the command line names.
#pragma once

#include <string>
#include <vector>

namespace tofu::sim::tools {

/// A file as it is; of a directory, those that are named *.trace. Empty, or what went wrong.
[[nodiscard]] std::string add_trace_files(const char* word, std::vector<std::string>& paths);

} // namespace tofu::sim::tools
