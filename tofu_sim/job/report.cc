// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Messages to the user: a line on stderr that says what to do.
#include "job/report.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <unistd.h>

namespace tofu::sim {

void report(const char* format, ...) noexcept
{
    char line[512] = "tofu_sim: ";
    const size_t prefix = std::strlen(line);
    va_list arguments;
    va_start(arguments, format);
    const int printed = std::vsnprintf(line + prefix, sizeof line - prefix - 1, format, arguments);
    va_end(arguments);
    const size_t size = std::min(prefix + static_cast<size_t>(std::max(printed, 0)), sizeof line - 2);
    line[size] = '\n';
    (void)!::write(STDERR_FILENO, line, size + 1);
}

} // namespace tofu::sim
