// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See log.h.
#include "core/log.h"

#include <cstdarg>
#include <cstdio>

namespace tofu {

void complain(const char* format, ...) noexcept
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (fi_log_enabled(&provider, FI_LOG_WARN, FI_LOG_CORE))
        TOFU_WARN(FI_LOG_CORE, "%s\n", text);
    else
        std::fprintf(stderr, "libfabric:tofu: %s\n", text);
}

} // namespace tofu
