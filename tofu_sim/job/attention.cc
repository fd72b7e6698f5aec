// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Lets the service thread run what another directory wants done when a peer rings.
#include "job/attention.h"

namespace tofu::sim {
namespace {

SharedWord<uintptr_t> current{0};

} // namespace

void set_attendant(Attendant attendant) noexcept
{
    current.store_release(reinterpret_cast<uintptr_t>(attendant));
}

void attend(SegmentHeader& own) noexcept
{
    if (own.attention.load_relaxed() == 0 || own.attention.exchange(0) == 0)
        return;
    // Acquire: what the attendant looks at is set up (partner: set_attendant).
    if (const auto attendant = reinterpret_cast<Attendant>(current.load_acquire()))
        attendant(own);
}

} // namespace tofu::sim
