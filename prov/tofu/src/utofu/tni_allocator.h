// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Chooses the TNI of a VCQ by what the processes of the node hold already. Each VCQ holds a slot: the lowest free one;
// or, where the node has several NUMA nodes (core memory groups) and the process is bound to some of them, a slot that
// only a process bound to those processors tries first (core/node_map, Seat). So TNIs go round the groups in each run.
// Slots of VCQs that peers send to count upward over the TNIs, slots of VCQs to post from downward, so that each kind
// alone, and both together, are spread evenly. The kernel arbitrates by locks on bytes of a file, and takes back what a
// killed process held. Without such a file the launcher's number of the process on its node decides; it knows nothing
// of other jobs. The library chooses the CQ on the TNI; two processes must not have the same one (guide 4.1.2), so each
// CQ is locked as well. With FI_TOFU_PPN a process keeps to TNIs of its own. Any thread.
#pragma once

#include <cstddef>

#include <sys/types.h>

#include "utofu/library.h"

namespace tofu::vcq::tni_allocator {

enum class Traffic : unsigned { in, out };

struct TniSlot {
    Traffic traffic;
    unsigned number;
    pid_t holder; ///< the process that has to release() it; 0: none
    unsigned first;
    unsigned span; ///< 0: there is none, and a warning has been logged
};
/// Acquires a slot of the node for this process, on one of its `span` TNIs from `first` on. Any thread.
/// `spare`: the lowest slot alone will do.
[[nodiscard]] TniSlot acquire(const Backend& backend, Traffic traffic, bool spare = false) noexcept;
void release(const TniSlot& slot) noexcept;

/// True if no VCQ to post from was on its TNI before (slots are taken from the lowest on).
[[nodiscard]] constexpr bool is_first_of_tni(const TniSlot& slot) noexcept
{
    return slot.number < slot.span;
}

/// The index of the i-th TNI to try.
[[nodiscard]] constexpr std::size_t tni_of(const TniSlot& slot, std::size_t i = 0) noexcept
{
    const std::size_t up = slot.number % slot.span;
    return slot.first + ((slot.traffic == Traffic::in ? up : slot.span - 1 - up) + i) % slot.span;
}

/// Claims the CQ of a new VCQ for this process, until release_cq(). False: another process of the node has it, which is
/// logged as a warning unless the VCQ is a spare one.
[[nodiscard]] bool claim_cq(const Backend& backend, utofu_vcq_id_t vcq, bool spare) noexcept;
void release_cq(const Backend& backend, utofu_vcq_id_t vcq) noexcept;
/// True if no other process of the node has claimed a CQ of this TNI.
[[nodiscard]] bool is_own(const Backend& backend, utofu_tni_id_t tni) noexcept;

} // namespace tofu::vcq::tni_allocator
