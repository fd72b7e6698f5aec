// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Session mode (guide 2.2.8): descriptors that wait in a shared TOQ for puts to start them.
//
// The posting process executes here too: the process whose put arrived runs the descriptors that the put starts, on
// behalf of the VCQ's owner, and so on along a chain of relays. The owner itself runs what was lacking when
// a put came.
//
// Three counters describe the state: `posted` by the owner, `arrived` (sum of SPS of received puts), `done`. Descriptor
// number n may run when n < posted and n < arrived; they run in order, one at a time, by the holder of
// `runner`. A process that adds work and finds the word held leaves: the holder checks again after the release. A
// holder that was killed is found by its name in the word, by the next process or by the owner's polls; `progress`
// shows its successor how far the descriptor had got, so that no part is done twice.
#pragma once

#include "tni/control.h"
#include "tni/descriptor.h"
#include "tni/remote.h"
#include "tni/vcq.h"

namespace tofu::sim {

struct Watch;

/// A put with this SPS has arrived at `target`, a session mode VCQ: runs what it starts.
/// `when`: by the virtual clock.
void start_session(Vcq& poster, Remote& target, unsigned sps, uint64_t when = 0) noexcept;

/// The owner's side. Can a put start it? All else is undefined by the guide.
[[nodiscard]] inline bool takes_session(const Descriptor& descriptor) noexcept
{
    return descriptor.op == Op::put || descriptor.op == Op::nop;
}
/// Posting: UTOFU_SUCCESS, UTOFU_ERR_NOT_SUPPORTED for a descriptor that a put cannot start. The
/// caller has checked that the TOQ has room. `to`: the descriptor's remote, or null.
[[nodiscard]] int post_session(Vcq& vcq, const Descriptor& descriptor, const Remote* to, void* cbdata,
                               const Watch& watch) noexcept;
[[nodiscard]] int poll_tcq_session(Vcq& vcq, void*& cbdata, Stamp& stamp) noexcept;

/// Would poll_tcq_session find something to look at?
[[nodiscard]] bool has_tcq_session(const Vcq& vcq) noexcept;

/// When the VCQ is created: false without memory.
[[nodiscard]] bool open_session(Vcq& vcq) noexcept;

} // namespace tofu::sim
