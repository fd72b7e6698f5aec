// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Exact mode: all threads of a job that take turns run on one processor of this machine (TOFU_SIM_BIND).
//
// One of them proceeds at a time. A switch between threads of one processor takes a fraction of one across processors.
// The first process that joins chooses the processor that it runs on. A launcher may have bound the others to other
// processors, so that all can run at the same time; they are moved. The job uses no processor that it was not given.
// Only the thread that calls uTofu is moved.
#pragma once

#include "job/shared_word.h"

#include <cstdint>
#include <sched.h>

namespace tofu::sim {

/// The calling thread; `chosen` is the number + 1, or 0 before the choice. False: the kernel refuses, so the thread
/// stays where it is.
bool bind_to_processor(SharedWord<uint32_t>& chosen) noexcept;
[[nodiscard]] bool is_bound() noexcept;
/// The thread that was bound gets its processors back.
void restore_processors() noexcept;
/// Likewise, the calling thread, which has inherited the binding: a new thread, or one in a child of fork.
void restore_inherited_processors() noexcept;
void restore_processors_in_child() noexcept;
/// What the program sees: the processors of a bound thread before that. 0: the thread is not bound, or the program has
/// bound it itself since.
[[nodiscard]] int tell_processors(cpu_set_t* set) noexcept;

} // namespace tofu::sim
