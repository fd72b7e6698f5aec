// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How much processor time the cgroup of this process grants (cpu.max), which no affinity mask shows.
#include "job/quota.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace tofu::sim {
namespace {

constexpr size_t most_path = 4096;

bool read_line(const char* path, char* line, int size) noexcept
{
    FILE* const file = std::fopen(path, "re");
    if (file == nullptr)
        return false;
    const bool got = std::fgets(line, size, file) != nullptr;
    std::fclose(file);
    return got;
}

/// Of one directory; 0: no limit there. Version 2 has both numbers in a file, "max" for none; version 1 a file each,
/// -1.
uint32_t limit_of(const char* directory, bool version_2) noexcept
{
    char path[most_path + 64];
    char line[64];
    long long quota = 0;
    long long period = 0;
    if (version_2) {
        std::snprintf(path, sizeof path, "%s/cpu.max", directory);
        if (!read_line(path, line, sizeof line) || std::sscanf(line, "%lld %lld", &quota, &period) != 2)
            return 0;
    } else {
        std::snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", directory);
        if (!read_line(path, line, sizeof line) || std::sscanf(line, "%lld", &quota) != 1)
            return 0;
        std::snprintf(path, sizeof path, "%s/cpu.cfs_period_us", directory);
        if (!read_line(path, line, sizeof line) || std::sscanf(line, "%lld", &period) != 1)
            return 0;
    }
    if (quota <= 0 || period <= 0)
        return 0;
    return static_cast<uint32_t>(std::clamp(quota / period, 1LL, 1LL << 20));
}

uint32_t least(uint32_t a, uint32_t b) noexcept
{
    return a == 0 ? b : b == 0 ? a : std::min(a, b);
}

/// Of the group and all above it, up to where the file system is mounted.
uint32_t limit_up_from(const char* mount, const char* group, bool version_2) noexcept
{
    char directory[most_path];
    if (std::snprintf(directory, sizeof directory, "%s%s", mount, group) >= static_cast<int>(sizeof directory))
        return 0;
    char* const top = directory + std::strlen(mount);
    uint32_t found = limit_of(directory, version_2);
    while (*top != '\0') {
        char* const slash = std::strrchr(top, '/');
        *(slash != nullptr ? slash : top) = '\0';
        found = least(found, limit_of(directory, version_2));
    }
    return found;
}

} // namespace

uint32_t quota_processors(const char* root) noexcept
{
    char path[512];
    std::snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE* const file = std::fopen(path, "re");
    if (file == nullptr)
        return 0;
    uint32_t found = 0;
    char line[most_path];
    // "0::/group" of version 2, "4:cpu,cpuacct:/group" of version 1.
    while (std::fgets(line, sizeof line, file) != nullptr) {
        line[std::strcspn(line, "\n")] = '\0';
        char* const controllers = std::strchr(line, ':');
        char* const group = controllers != nullptr ? std::strchr(controllers + 1, ':') : nullptr;
        if (group == nullptr)
            continue;
        *group = '\0';
        char name[64];
        std::snprintf(name, sizeof name, ",%.60s,", controllers + 1);
        if (controllers[1] == '\0') {
            std::snprintf(path, sizeof path, "%s/sys/fs/cgroup", root);
            found = least(found, limit_up_from(path, group + 1, true));
        } else if (std::strstr(name, ",cpu,") != nullptr) {
            std::snprintf(path, sizeof path, "%s/sys/fs/cgroup/cpu", root);
            found = least(found, limit_up_from(path, group + 1, false));
        }
    }
    std::fclose(file);
    return found;
}

} // namespace tofu::sim
