// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The adversarial mode (TOFU_SIM_CHAOS=seed): every freedom that guide 2.2.10 and 6.1.3.1 leave, used.
//
// Posted instructions wait in a list of their VCQ. Later calls on the VCQ, and a thread, carry them on in small
// random steps: a line of the data, a notice. What is promised, and only that, orders the steps:
//   - TCQ entries come in the order of posting; a put's after all its bytes were read, which is before they are written
//     if it likes;
//   - a remote notice after all bytes were written (get: read), a local one after the remote one; both in the
//     order of posting among instructions of the same remote VCQ and path;
//   - with strong order writing waits for the writing of what was posted before to the same remote VCQ and path, and
//     reading for its reading: a get may have read before an earlier put has written (chaos_raw);
//   - the bytes of one transfer come as tni/pieces.h says.
// What is under way when the VCQ is freed, or the process ends, gets as far as it has got (chaos_drop): the guide does
// not say that it arrives. Polls may find nothing for a while (chaos_poll).
// A start function may find the TOQ full while anything is unread in it. DELAY_START holds instructions until a post
// without it or utofu_post_toq. The decisions are drawn from a generator of the VCQ, so that a seed gives the
// same ones in the same order.
#pragma once

#include "job/relaxations.h"
#include "tni/descriptor.h"
#include "tni/vcq.h"

namespace tofu::sim {

struct Remote;
struct Watch;

/// When a VCQ is created in adversarial mode: false without memory or thread.
[[nodiscard]] bool open_chaos(Vcq& vcq, const Chaos& chaos) noexcept;

/// All with the VCQ's lock held.
[[nodiscard]] bool refuse_chaos(Vcq& vcq) noexcept; ///< let this post find the TOQ full?
/// `remote` is nullptr for a target that is gone.
void post_chaos(Vcq& vcq, const Descriptor& descriptor, Remote* remote, void* cbdata, const Watch& watch) noexcept;
void start_pending_chaos(Vcq& vcq) noexcept;           ///< what DELAY_START held
void stir_chaos(Vcq& vcq) noexcept;                    ///< a few random steps
void carry_on_chaos(Vcq& vcq, uint64_t when) noexcept; ///< exact mode: the same, instead of the thread
[[nodiscard]] bool hide_chaos(Vcq& vcq) noexcept;      ///< let this poll find nothing?
void end_chaos(Vcq& vcq) noexcept;                     ///< the last steps, before the VCQ is freed

/// Position behind the last descriptor whose TCQ entry was written or will never be.
[[nodiscard]] uint32_t settled_chaos(const Vcq& vcq) noexcept;

/// At exit: the last steps of every VCQ. In a forked child: forgets it.
void end_all_chaos() noexcept;
void forget_chaos_in_child() noexcept;

} // namespace tofu::sim
