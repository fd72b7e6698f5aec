// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The end of an operation: one entry where one is wanted or due, one count. Called by the engines' waiters under
// the endpoint's lock; calls cq and cntr, and asks the endpoint.
#include "transfer/request.h"

#include "endpoint/endpoint.h"
#include "queue/cntr.h"

namespace tofu {

void complete(Request& request) noexcept
{
    if (request.err != 0) [[unlikely]] {
        if (request.endpoint != nullptr && request.endpoint->closing())
            return;
        if (request.cq != nullptr)
            request.cq->write_error(request.completion, request.err, request.prov_errno);
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
