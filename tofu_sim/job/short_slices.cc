// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Short time slices of the kernel. See short_slices.h.
#include "job/short_slices.h"

#include <cstdint>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tofu::sim {
namespace {

constexpr uint64_t shortest_slice_ns = 100'000; ///< the kernel's least

/// struct sched_attr of the kernel's first version, which headers have under changing names.
struct SchedAttributes {
    uint32_t size;
    uint32_t policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime;
    uint64_t deadline;
    uint64_t period;
};
static_assert(sizeof(SchedAttributes) == 48);

} // namespace

void ask_for_short_slices() noexcept
{
    SchedAttributes own{};
    if (::syscall(SYS_sched_getattr, 0, &own, sizeof own, 0) == 0 && own.policy == SCHED_OTHER) {
        own.size = sizeof own;
        own.runtime = shortest_slice_ns;
        (void)::syscall(SYS_sched_setattr, 0, &own, 0);
    }
}

} // namespace tofu::sim
