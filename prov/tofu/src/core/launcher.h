// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The topology that an MPI launcher has shared with this process: PMIx 5 (Open MPI 5) has it from the launcher, Open MPI
// 4 keeps its own. A copy takes 0.1 ms, discovery some 10 ms for 50 processors. Called by core/node_map; calls the process's
// libraries, which it finds by name.
#pragma once

#include "core/hwloc.h"

namespace tofu::node {

/// A copy, for the caller to destroy; null: there is none, or it is another hwloc's. Any thread.
[[nodiscard]] hwloc_topology_t copy_of_launchers(const Hwloc& library) noexcept;

} // namespace tofu::node
