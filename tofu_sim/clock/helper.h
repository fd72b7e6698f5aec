// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: exact mode: a thread of the simulator's own in each process.
//
// It carries out events while the thread that calls uTofu is in the program, excused. And that of one process of the
// job, the watchman, looks after the job by this machine's time: threads that wait for their turn sleep without a bound.
#pragma once

namespace tofu::sim {

// While the process joins its job. False: no thread is to be had.
[[nodiscard]] bool start_helper() noexcept;
// Without the lock: something has to be looked after soon.
void ring_watchman() noexcept;

} // namespace tofu::sim
