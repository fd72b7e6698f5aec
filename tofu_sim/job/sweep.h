// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Removes the files of other jobs whose processes were all killed, so that none outlives the next start. Once, by the
// first process of a job.
#pragma once

namespace tofu::sim {

/// Checks the jobs below `base_fd` other than `own_name`, a bounded number of them, and never waits: a job
/// whose directory is locked, or one of whose processes runs, is left alone.
void sweep_dead_jobs(int base_fd, const char* own_name) noexcept;

} // namespace tofu::sim
