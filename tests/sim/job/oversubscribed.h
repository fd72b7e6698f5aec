// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// More processes than processors, made on purpose, and the sleepers among them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <sched.h>
#include <sys/resource.h>
#include <vector>

namespace tofu::sim::test {

inline std::vector<int> own_processors()
{
    cpu_set_t own;
    std::vector<int> found;
    if (::sched_getaffinity(0, sizeof own, &own) == 0) {
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, &own))
                found.push_back(cpu);
    }
    return found;
}

// Before the first call of uTofu: a process counts with what it may run on then.
inline void stay_on(int processor)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
}

// Of the calling thread.
inline uint64_t sleeps()
{
    rusage usage{};
    (void)::getrusage(RUSAGE_THREAD, &usage);
    return static_cast<uint64_t>(usage.ru_nvcsw);
}

} // namespace tofu::sim::test
