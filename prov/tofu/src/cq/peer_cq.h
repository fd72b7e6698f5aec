// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Completion queues and counters that another provider owns (fi_peer(3), FI_PEER of fi_cq_open and fi_cntr_open). Ours
// are as all others, except that nobody reads them: their entries and counts are handed on to the owner. Called by the
// domain's table and by the receiver; calls cq, cntr and the owner.
#pragma once

#include <rdma/fi_eq.h>

namespace tofu {

class CompletionQueue;

/// fi_cq_open(3), fi_cntr_open(3). With FI_PEER `context` names the owner's object. -FI_EINVAL: it does not, or the
/// interface of this libfabric is not known.
int open_queue(fid_domain* domain, fi_cq_attr* attr, fid_cq** cq, void* context) noexcept;
int open_counter(fid_domain* domain, fi_cntr_attr* attr, fid_cntr** cntr, void* context) noexcept;

/// Hands the entries of the queue on to its owner, if it has one, in order. The caller holds no lock that the owner's
/// calls may take; it may hold the context's.
void hand_on(CompletionQueue& queue) noexcept;

} // namespace tofu
