// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Ties the gates of this process to its job.
#pragma once

#include "barrier/vbg.h"

namespace tofu::sim {

/// Joins the job and makes the gates of the process usable: UTOFU_SUCCESS or an error code.
[[nodiscard]] int enter_vbgs() noexcept;

/// Null until enter_vbgs has succeeded.
[[nodiscard]] Vbgs* process_vbgs() noexcept;
[[nodiscard]] const Topology& process_topology() noexcept;

/// The set of this start/end gate of the process; null: none.
[[nodiscard]] inline VbgSet* find_vbg_set(utofu_vbg_id_t vbg_id) noexcept
{
    Vbgs* const vbgs = process_vbgs();
    return vbgs == nullptr ? nullptr : vbgs->find(vbg_id);
}

/// In a forked child: the gates are the parent's.
void reset_vbgs_in_child() noexcept;

} // namespace tofu::sim
