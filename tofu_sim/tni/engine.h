// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: executes descriptors: whoever posts, moves the bytes and writes the notices.
// Called by: api/ (post, poll), tni/session, tni/chaos. Calls: tni/remote, tni/vcq, memory/.
#pragma once

#include "tni/descriptor.h"
#include "tni/vcq.h"

namespace tofu::sim {

// Posts one instruction: UTOFU_SUCCESS, UTOFU_ERR_BUSY (nothing happened) or UTOFU_ERR_INVALID_VCQ_ID. What goes
// wrong later comes back by poll_tcq and poll_mrq. The caller holds the VCQ (VcqGuard).
[[nodiscard]] int post(Vcq& vcq, const Descriptor& descriptor, void* cbdata) noexcept;

// Descriptors that can be posted before BUSY.
[[nodiscard]] inline uint32_t toq_room(const Vcq& vcq) noexcept
{
    return toq_entries - (vcq.toq_tail - vcq.toq_head);
}

// Starts what DELAY_START held back. In order, each post starts at once, which the guide allows: nothing waits.
inline void start_pending(Vcq&) noexcept {}

// Notices that poll_mrq would find, about.
[[nodiscard]] inline size_t unread_mrq(const Vcq& vcq) noexcept
{
    return vcq.local_notices.size() + (vcq.mrq.control().tail.load_relaxed() - vcq.mrq_head);
}

// As guide 3.7.4: UTOFU_SUCCESS, UTOFU_ERR_NOT_FOUND, or the error of the entry found.
[[nodiscard]] int poll_tcq(Vcq& vcq, void*& cbdata) noexcept;
[[nodiscard]] int poll_mrq(Vcq& vcq, utofu_mrq_notice& notice) noexcept;

} // namespace tofu::sim
