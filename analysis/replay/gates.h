// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The time of a barrier or a reduction by barrier gates over a whole shape (docs/time-model.md).
#pragma once

#include "clock/network.h"

namespace tofu::sim::replay {

/// From the call to the poll that finds its end. A stage for each doubling of the distance along three rings: over X
/// and A, Y and B, Z and C.
[[nodiscard]] Picoseconds time_of_gates(const Topology& topology, bool sums);

} // namespace tofu::sim::replay
