// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See kinship.h.
#include "job/kinship.h"

#include "job/descriptors.h"
#include "job/liveness.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace tofu::sim {
namespace {

/// Longer lines of ancestors do not occur; a line that changes meanwhile could be a circle.
constexpr int most_ancestors = 256;

bool is_ancestor(int ancestor, int pid) noexcept
{
    for (int i = 0; i < most_ancestors && pid > 1; i++) {
        if (pid == ancestor)
            return true;
        pid = look_up_process(pid).parent;
    }
    return false;
}

} // namespace

bool is_inherited(const char* variable) noexcept
{
    const char* const value = std::getenv(variable);
    char wanted[64];
    const int length = value != nullptr ? std::snprintf(wanted, sizeof wanted, "%s=%s", variable, value) : 0;
    if (length <= 0 || length >= static_cast<int>(sizeof wanted))
        return false;
    char path[48];
    std::snprintf(path, sizeof path, "/proc/%d/environ", ::getppid());
    const BriefFile file(path, O_RDONLY);
    char buffer[4096];
    int matched = 0; // characters of the entry under way; -1: it is another
    for (ssize_t size = 1; file.is_open() && (size = ::read(file.get(), buffer, sizeof buffer)) > 0;) {
        for (ssize_t i = 0; i < size; i++) {
            if (buffer[i] == '\0' && matched == length)
                return true;
            const bool goes_on = matched >= 0 && matched < length && buffer[i] == wanted[matched];
            matched = buffer[i] == '\0' ? 0 : goes_on ? matched + 1 : -1;
        }
    }
    return false;
}

bool are_of_one_line(int one, int other) noexcept
{
    return is_ancestor(one, other) || is_ancestor(other, one);
}

} // namespace tofu::sim
