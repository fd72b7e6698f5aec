// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See param.h.
#include "param.h"

#include "log.h"

namespace tofu {

void define_params() noexcept
{
    fi_param_define(&provider, "backend", FI_PARAM_STRING,
                    "The uTofu library to use: auto (the machine's own where a Tofu interface answers, "
                    "else the simulator), utofu, sim, or the path of a library (default: auto)");
}

const char* param_backend() noexcept
{
    char* value = nullptr;
    if (fi_param_get_str(&provider, "backend", &value) == 0 && value != nullptr && *value != '\0')
        return value;
    return "auto";
}

} // namespace tofu
