// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Exact mode: what was posted waits until its time has come, and then takes effect step by step.
//
// An instruction is a few steps with times of the network's model: the TCQ entry; reading at the target (get); writing,
// or the ARMW; the remote notice; the local one. What the poster alone can see waits for its next turn. Short puts and
// remote notices wait in the target's inbox (tni/inbox.h). All else are events in a heap of the poster, which carries
// them out when the schedule says so. What a put writes is read when it is posted, which the guide permits (2.2.10).
#pragma once

#include "tni/descriptor.h"
#include "tni/vcq.h"
#include "tni/watch.h"

namespace tofu::sim {

struct Remote;

/// While the process joins its job.
void open_exact() noexcept;

/// As post_by_detour, with the turn. UTOFU_ERR_BUSY without memory for it.
[[nodiscard]] int post_exact(Vcq& vcq, const Descriptor& descriptor, Remote* remote, void* cbdata,
                             Watch& watch) noexcept;

/// A put of a session mode VCQ (`owner`) begins, started by a put of `poster`; `done` when its TCQ entry is there.
struct SessionPut {
    Vcq& poster;
    Remote& owner;
    const Descriptor& descriptor;
    Times times;
    uint64_t origin;
    uint64_t number;
    int error; ///< of the descriptor itself, or UTOFU_SUCCESS
};
[[nodiscard]] bool relay_exact(const SessionPut& put) noexcept;

/// The adversarial mode's next steps for this VCQ.
void tick_exact(Vcq& vcq, Picoseconds when) noexcept;

/// Position behind the last descriptor whose TCQ entry is there or will never come.
[[nodiscard]] uint32_t settled_exact(const Vcq& vcq) noexcept;

/// Waits, by the virtual clock, until nothing of this VCQ is under way; null: of any.
void drain_exact(const Vcq* vcq) noexcept;
void forget_exact_in_child() noexcept;

} // namespace tofu::sim
