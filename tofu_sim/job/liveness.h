// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which processes are alive, without a system call on the querying path. Uses: set_robust_list, fcntl, /proc.
#pragma once

#include "job/layout.h"

namespace tofu::sim {

/// Replaces the calling thread's robust-futex list by one over this segment's `alive` and all its `vcq_alive`.
/// To be called once, first thing, by the service thread, which must not use robust pthread mutexes. Stores the
/// thread's id in `alive` and returns it; VCQ creation stores the same id in vcq_alive. Where the kernel refuses
/// (valgrind), it works all the same, and death is found by member_life only.
uint32_t adopt_service_thread(SegmentHeader& segment) noexcept;

/// True while the owner that stored `tid` (seen earlier in the same word) is alive and has not left.
[[nodiscard]] inline bool is_alive(const AliveWord& word, uint32_t tid) noexcept
{
    // Acquire: what the owner wrote before it stored its id is visible (partner: adopt, VCQ creation).
    return tid != 0 && word.owner.load_acquire() == tid;
}

/// The slow answer. If it cannot be found (no descriptor or memory left, no permission), it is unknown, and
/// the caller treats the process as running, since its resources may be in use.
enum class Life { runs, gone, unknown };
[[nodiscard]] constexpr bool may_run(Life life) noexcept
{
    return life != Life::gone;
}

/// What the process table says of a process of this PID namespace. A zombie is gone.
struct ProcessEntry {
    Life life = Life::unknown;
    uint64_t start_time = 0; ///< field 22 of /proc/<pid>/stat, clock ticks since boot; 0: unknown
    bool ending = false;     ///< its first thread is on its way out: its files may be gone already
    int parent = 0;          ///< 0: unknown, or none in this PID namespace
};
[[nodiscard]] ProcessEntry look_up_process(int pid) noexcept;
[[nodiscard]] uint64_t process_start_time(int pid) noexcept; ///< of look_up_process

/// The same process: pids come back.
[[nodiscard]] Life process_life(int pid, uint64_t start_time) noexcept;

/// A member of a job holds a lock on a byte of the job's file that is its slot's: an OFD lock, which belongs to the
/// open file that the member has mapped, so that the kernel releases it when the process ends or calls exec, and not
/// when it closes its descriptors. Asking takes no descriptor and no right to look into the process.
enum class SlotLock { taken, in_use, not_supported };
[[nodiscard]] SlotLock lock_slot(int job_file, uint32_t process) noexcept;
void unlock_slot(int job_file, uint32_t process) noexcept;
/// Queried through any other open file than the one that holds it. gone: the lock is free, or all of the job are.
[[nodiscard]] Life lock_life(int job_file, uint32_t process) noexcept;
[[nodiscard]] Life lock_life_of_all(int job_file) noexcept;

/// Of the process that has filled this slot of a job. Each of these proves its end: its lock is free; the process table
/// has another or none (of a job of this PID namespace); the kernel has marked its segment. `same_namespace`: see
/// own_pid_namespace.
[[nodiscard]] Life member_life(int job_file, uint32_t process, const ProcessSlot& slot, bool same_namespace) noexcept;

/// Of any member of the job of this file, which may be of another version, be no job's yet (gone), or damaged. The
/// holder of the lock of the job's directory can rely on `gone`.
[[nodiscard]] Life job_life(int job_file) noexcept;

/// Identifies the PID namespace; 0 if there is no /proc of this one, or if it is unknown now (errno).
[[nodiscard]] uint64_t own_pid_namespace() noexcept;

} // namespace tofu::sim
