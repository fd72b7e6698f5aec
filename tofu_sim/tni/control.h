// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: the first page of a VCQ's region in the owner's segment.
// Called by: tni/. Calls: nothing; data only.
#pragma once

#include "tni/mrq.h"

namespace tofu::sim {

struct VcqControl {
    MrqControl mrq;
};
static_assert(sizeof(VcqControl) <= vcq_control_bytes);

} // namespace tofu::sim
