// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How many descriptors the process has open.
#pragma once

#include <cstddef>

#include <dirent.h>

namespace tofu::test {

inline std::size_t open_descriptors()
{
    DIR* const all = opendir("/proc/self/fd");
    std::size_t count = 0;
    while (all != nullptr && readdir(all) != nullptr)
        count++;
    if (all != nullptr)
        closedir(all);
    return count;
}

} // namespace tofu::test
