// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A part of a run: the events between two times, relative to the first one.
#pragma once

#include "traces/run.h"

#include <cstdint>

namespace tofu::sim::trace {

/// When a process first posted something to another one, or started a round of gates: what a launcher and a program's
/// start take is over. 0: never.
[[nodiscard]] uint64_t first_message(const Run& run) noexcept;

/// Leaves what was posted, found or begun between `from` and `to`. Waits, computations and calls that go on across
/// these times are cut there; a transfer that arrives after `to` has not arrived.
void cut(Run& run, uint64_t from, uint64_t to);

} // namespace tofu::sim::trace
