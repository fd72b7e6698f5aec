// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Exact mode: the helper thread, one in each process.
//
// It executes events while the thread that calls uTofu is in the program, excused. The helper of one process of the job
// is the watchman: it checks the job at intervals of real time, since threads that wait for their turn sleep without a
// bound.
#pragma once

namespace tofu::sim {

/// Called while the process joins its job. False: the thread cannot be created.
[[nodiscard]] bool start_helper() noexcept;
/// While the process leaves it: the thread does nothing from now on.
void stop_helper() noexcept;
/// Wakes the watchman before its next tick. Called without the lock.
void ring_watchman() noexcept;

} // namespace tofu::sim
