// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Exact mode: all threads of a job that take turns run on one processor. See processor.h.
#include "clock/processor.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace tofu::sim {
namespace {

struct Binding {
    cpu_set_t before; ///< of the thread
    cpu_set_t one;
    SharedWord<pid_t> tid; ///< 0: no thread is bound. The helper reads it beside the thread
};
Binding binding{};

/// The kernel's calls: the C library's may be those of clock/preload.cc.
bool read_mask(pid_t tid, cpu_set_t& mask) noexcept
{
    CPU_ZERO(&mask);
    return ::syscall(SYS_sched_getaffinity, tid, sizeof mask, &mask) > 0;
}
bool write_mask(pid_t tid, const cpu_set_t& mask) noexcept
{
    return ::syscall(SYS_sched_setaffinity, tid, sizeof mask, &mask) == 0;
}

/// Not if the program has bound the thread itself since.
bool has_one_processor(pid_t tid) noexcept
{
    cpu_set_t now;
    return read_mask(tid, now) && CPU_EQUAL(&now, &binding.one);
}

} // namespace

bool bind_to_processor(SharedWord<uint32_t>& chosen) noexcept
{
    uint32_t number = 0;
    const int here = ::sched_getcpu();
    if (here >= 0 && chosen.compare_exchange(number, static_cast<uint32_t>(here) + 1))
        number = static_cast<uint32_t>(here) + 1;
    restore_processors();
    if (number == 0 || number > CPU_SETSIZE || !read_mask(0, binding.before))
        return false;
    CPU_ZERO(&binding.one);
    CPU_SET(number - 1, &binding.one);
    if (!write_mask(0, binding.one))
        return false;
    binding.tid.store_relaxed(static_cast<pid_t>(::syscall(SYS_gettid)));
    return true;
}

bool is_bound() noexcept
{
    return binding.tid.load_relaxed() != 0;
}

void restore_processors() noexcept
{
    if (const pid_t tid = binding.tid.load_relaxed(); tid != 0 && has_one_processor(tid))
        (void)write_mask(tid, binding.before);
    binding.tid.store_relaxed(0);
}

void restore_inherited_processors() noexcept
{
    if (binding.tid.load_relaxed() != 0 && has_one_processor(0))
        (void)write_mask(0, binding.before);
}

void restore_processors_in_child() noexcept
{
    restore_inherited_processors();
    binding.tid.store_relaxed(0);
}

int tell_processors(cpu_set_t* set) noexcept
{
    const pid_t tid = binding.tid.load_relaxed();
    if (tid == 0 || tid != static_cast<pid_t>(::syscall(SYS_gettid)) || !has_one_processor(0))
        return 0;
    *set = binding.before; // as large as the C library's
    return 1;
}

} // namespace tofu::sim
