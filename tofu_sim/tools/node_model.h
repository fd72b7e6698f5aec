// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Nodes that hwloc can show to programs instead of this machine. Uses: hwloc.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tofu::sim::tools {

struct NodeModel {
    const char* name;
    const char* synthetic; ///< in hwloc's words: what the processes of a job may use
    unsigned line_bytes;
    size_t page_bytes;
    const char* processor;
};

/// Null: there is none of that name.
[[nodiscard]] const NodeModel* find_node_model(std::string_view name);

/// hwloc's XML of it; empty, after a line on stderr, where hwloc fails.
[[nodiscard]] std::string topology_xml(const NodeModel& model);

} // namespace tofu::sim::tools
