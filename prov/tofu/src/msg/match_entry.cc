// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See match_entry.h.
#include "msg/match_entry.h"

#include <rdma/fi_errno.h>

#include "cq/counter.h"
#include "cq/cq.h"
#include "mem/local_buffer.h"

namespace tofu::proto {

void* RecvRequest::place() noexcept
{
    void* at = nullptr;
    visit_bytes(buffers(), count, used, 1, [&](std::byte* bytes, std::size_t) { at = bytes; });
    return at;
}

std::size_t RecvRequest::take(std::size_t want, iovec* into, std::uint8_t& into_count) noexcept
{
    const std::size_t before = used;
    into_count = 0;
    visit_bytes(buffers(), count, before, want, [&](std::byte* bytes, std::size_t n) {
        into[into_count++] = {bytes, n};
        used += n;
    });
    return used - before;
}

void RecvRequest::report_cancelled(const RxContext& rx) const noexcept
{
    if (CompletionQueue* cq = rx.queue_of(flags))
        cq->write_error(
            {{.context = context, .flags = kind_of(tagged) | (multi ? FI_MULTI_RECV : 0), .tag = tag}, FI_ECANCELED});
    if (Counter* counter = rx.counter_of(flags))
        counter->count_error();
}

} // namespace tofu::proto
