// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Lets the service thread run what another directory wants done when a peer rings.
#pragma once

#include "job/layout.h"

namespace tofu::sim {

/// Runs on the service thread.
using Attendant = void (*)(SegmentHeader& own);

/// One for the whole process; setting the same one again is harmless.
void set_attendant(Attendant attendant) noexcept;

/// Calls the attendant if the segment's `attention` is set, and clears it.
void attend(SegmentHeader& own) noexcept;

} // namespace tofu::sim
