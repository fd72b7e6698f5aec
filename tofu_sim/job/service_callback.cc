// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Lets the service thread run what another directory wants done when a peer rings.
#include "job/service_callback.h"

namespace tofu::sim {
namespace {

SharedWord<uintptr_t> current{0};

} // namespace

void set_service_callback(ServiceCallback callback) noexcept
{
    current.store_release(reinterpret_cast<uintptr_t>(callback));
}

void run_service_callback(SegmentHeader& own) noexcept
{
    if (own.service_callback_due.load_relaxed() == 0 || own.service_callback_due.exchange(0) == 0)
        return;
    // Acquire: what the callback reads is set up (partner: set_service_callback).
    if (const auto callback = reinterpret_cast<ServiceCallback>(current.load_acquire()))
        callback(own);
}

} // namespace tofu::sim
