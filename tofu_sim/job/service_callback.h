// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Lets the service thread run what another directory wants done when a peer rings.
#pragma once

#include "job/layout.h"

namespace tofu::sim {

/// Runs on the service thread.
using ServiceCallback = void (*)(SegmentHeader& own);

/// One for the whole process; setting the same one again is harmless.
void set_service_callback(ServiceCallback callback) noexcept;

/// Calls the callback if the segment's `service_callback_due` is set, and clears it.
void run_service_callback(SegmentHeader& own) noexcept;

} // namespace tofu::sim
