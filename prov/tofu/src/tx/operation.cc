// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The end of an operation: one entry where one is wanted or due, one count. See operation.h.
#include "tx/operation.h"

namespace tofu {

void complete(Request& request) noexcept
{
    if (request.err != 0) [[unlikely]] {
        if (request.reports != nullptr && request.reports->closing)
            return;
        if (request.cq != nullptr)
            request.cq->write_error({request.completion, request.err, request.prov_errno});
        if (request.counter != nullptr)
            request.counter->count_error();
        return;
    }
    if (request.wants_entry && request.cq != nullptr)
        request.cq->write(request.completion);
    if (request.counter != nullptr)
        request.counter->count();
}

} // namespace tofu
