// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See param.h.
#include "provider/param.h"

#include "provider/log.h"

namespace tofu {

void define_params() noexcept
{
    fi_param_define(&provider, "backend", FI_PARAM_STRING,
                    "The uTofu library to use: auto (the machine's own where a Tofu interface answers, else none; the "
                    "simulator where FI_PROVIDER is tofu alone), utofu, sim, or the path of a library (default: auto)");
    fi_param_define(&provider, "rings", FI_PARAM_SIZE_T,
                    "Rings of an endpoint's message area, 1 to 65536: how many peers can send to it at a time; memory "
                    "is taken as they do (default: 512)");
    fi_param_define(&provider, "ring_slots", FI_PARAM_SIZE_T,
                    "Slots of 256 bytes of a ring, a power of two from 16 to 4096; a quarter of them, and at most "
                    "8 KiB, is the longest message that is sent at once (default: 64)");
    fi_param_define(&provider, "unexpected_bytes", FI_PARAM_SIZE_T,
                    "Bound of the memory for messages that come before their receive, per endpoint; with more, senders "
                    "are held back, those of the message that is awaited as well (default: what memory there is)");
    fi_param_define(&provider, "mr_cache", FI_PARAM_STRING,
                    "Keep registrations of local buffers while their pages stay the same: auto (where registering "
                    "is dear), on, off; needs libucm of UCX (default: auto)");
}

const char* param_backend() noexcept
{
    return param_string("backend", "auto");
}

const char* param_string(const char* name, const char* otherwise) noexcept
{
    char* value = nullptr;
    if (fi_param_get_str(&provider, name, &value) == 0 && value != nullptr && *value != '\0')
        return value;
    return otherwise;
}

std::size_t param_size(const char* name, std::size_t otherwise) noexcept
{
    std::size_t value = 0;
    return fi_param_get_size_t(&provider, name, &value) == 0 ? value : otherwise;
}

} // namespace tofu
