// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The end of a program whose MRQ overflows (guide chapter 7).
#include "tni/overflow.h"

#include "job/service_callback.h"
#include "memory/service.h"

#include <cstdio>
#include <cstdlib>
#include <unistd.h>

namespace tofu::sim {

void report_remote_overflow(Remote& remote) noexcept
{
    remote.mrq.control().overflow.store_release(1);
    remote.header->service_callback_due.store_release(1);
    ring_service(*reinterpret_cast<ServiceArea*>(segment_service_area(remote.peer->base)));
}

void watch_for_overflow() noexcept
{
    set_service_callback([](SegmentHeader&) {
        for (const Vcq& vcq : vcq_table) {
            // Only of a VCQ that exists: the rest in the page of a freed one has no meaning.
            if (vcq.live.load_acquire() != 0 && vcq.mrq.control().overflow.load_acquire() != 0)
                end_by_own_overflow(vcq);
        }
    });
}

void end_by_own_overflow(const Vcq& vcq) noexcept
{
    char line[96];
    const int size =
        std::snprintf(line, sizeof line, "utofu: asynchronous error: MRQ Overflow on TNI %u CQ %u\n", vcq.tni, vcq.cq);
    (void)!::write(STDERR_FILENO, line, static_cast<size_t>(size));
    ::_exit(EXIT_FAILURE); // the state of the program is lost: nothing of it may run on
}

} // namespace tofu::sim
