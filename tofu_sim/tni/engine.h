// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Executes descriptors: the posting thread moves the bytes and writes the notices.
#pragma once

#include "job/process.h"
#include "tni/chaos.h"
#include "tni/control.h"
#include "tni/descriptor.h"
#include "tni/gather.h"
#include "tni/vcq.h"

namespace tofu::sim {

/// Posts one instruction: UTOFU_SUCCESS, or UTOFU_ERR_INVALID_VCQ_ID and UTOFU_ERR_NOT_SUPPORTED without effect.
/// What goes wrong later comes back by poll_tcq and poll_mrq. The caller holds the VCQ (VcqGuard) and has seen
/// that the TOQ has room (toq_takes).
[[nodiscard]] int post(Vcq& vcq, const Descriptor& descriptor, void* cbdata) noexcept;

/// The same for one of several whose remotes have all been found: one that cannot be found any more has no owner, for
/// those before it have been posted.
[[nodiscard]] int post_accepted(Vcq& vcq, const Descriptor& descriptor, void* cbdata) noexcept;

/// Descriptors that can be posted before BUSY.
[[nodiscard]] inline uint32_t toq_room(const Vcq& vcq) noexcept
{
    return toq_entries - (vcq.toq_tail - vcq.toq_head);
}

/// Starts what DELAY_START held back.
inline void start_pending(Vcq& vcq) noexcept
{
    if ((vcq.special & Vcq::chaos) != 0)
        start_pending_chaos(vcq);
    else if ((vcq.special & Vcq::gathering) != 0)
        start_gathered(vcq);
}

/// Can `count` descriptors be posted now? The adversarial mode says no at bad moments. Starts the row that is held,
/// which comes first.
[[nodiscard]] inline bool toq_takes(Vcq& vcq, size_t count) noexcept
{
    if ((vcq.special & (Vcq::chaos | Vcq::gathering)) != 0) [[unlikely]] {
        if ((vcq.special & Vcq::gathering) != 0)
            start_gathered(vcq);
        else if (refuse_chaos(vcq))
            return false;
    }
    if (toq_room(vcq) >= count) [[likely]]
        return true;
    // Perhaps full of posts that DELAY_START holds, so that no call could make room: the flag may be ignored then
    // (3.7.9.1).
    start_pending(vcq);
    return false;
}

/// Notices that poll_mrq would find, about. Any thread, beside one that polls, or that frees the VCQ and creates
/// another in its place: it looks at shared words alone, at the place that the entry of vcq_table has in the segment.
[[nodiscard]] inline size_t unread_mrq(const Vcq& vcq) noexcept
{
    const auto index = static_cast<unsigned>(&vcq - &vcq_table[0]);
    const MrqControl& control = vcq_control(Process::self().segment().vcq_region(index)).mrq;
    return vcq.local_notices.size() + (control.tail.load_relaxed() - control.head_hint.load_relaxed());
}

/// As guide 3.7.4: UTOFU_SUCCESS, UTOFU_ERR_NOT_FOUND, or the error of the entry found. Both take the VCQ's lock if it
/// has one. Polls of the MRQ that find nothing yield now and then, where processes outnumber processors.
[[nodiscard]] int poll_tcq(Vcq& vcq, void*& cbdata) noexcept;
[[nodiscard]] int poll_mrq(Vcq& vcq, utofu_mrq_notice& notice) noexcept;

} // namespace tofu::sim
