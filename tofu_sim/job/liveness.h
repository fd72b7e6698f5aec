// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: who is alive, without a system call on the path that asks.
// Called by: memory/service.cc (the service thread adopts itself), job/, tni/. Calls: set_robust_list, /proc.
#pragma once

#include "job/layout.h"

namespace tofu::sim {

// Replaces the calling thread's robust-futex list by one over this segment's `alive` and all its `vcq_alive`.
// To be called once, first thing, by the service thread, which must not use robust pthread mutexes. Stores the
// thread's id in `alive` and returns it; VCQ creation stores the same id in vcq_alive. Where the kernel refuses
// (valgrind), it works all the same, and death is found by process_runs only.
uint32_t adopt_service_thread(SegmentHeader& segment) noexcept;

// True while the owner that stored `tid` (seen earlier in the same word) is alive and has not left.
[[nodiscard]] inline bool is_alive(const AliveWord& word, uint32_t tid) noexcept
{
    // Acquire: what the owner wrote before it stored its id is visible (partner: adopt, VCQ creation).
    return tid != 0 && word.owner.load_acquire() == tid;
}

// The slow answer, from the process table: the process of `slot` runs (not a zombie) and is the same one.
[[nodiscard]] bool process_runs(int pid, uint64_t start_time) noexcept;

// Field 22 of /proc/<pid>/stat, in clock ticks since boot; 0 when there is no such process or it is a zombie.
[[nodiscard]] uint64_t process_start_time(int pid) noexcept;

// Tells PID namespaces apart; 0 where there is no /proc, and nothing can be said of any process.
[[nodiscard]] uint64_t own_pid_namespace() noexcept;

} // namespace tofu::sim
