// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Completion queues and counters whose owner is another provider (fi_peer(3), FI_PEER of fi_cq_open and fi_cntr_open):
// ours in everything but that nobody reads them; what they have goes on to the owner. Called by the domain's table and
// by the receiver; calls cq, cntr and the owner.
#pragma once

#include <rdma/fi_eq.h>

namespace tofu {

class CompletionQueue;

/// fi_cq_open(3), fi_cntr_open(3): with FI_PEER, `context` names the owner's. -FI_EINVAL: it does not, or this libfabric's
/// interface is not known.
int open_queue(fid_domain* domain, fi_cq_attr* attr, fid_cq** cq, void* context) noexcept;
int open_counter(fid_domain* domain, fi_cntr_attr* attr, fid_cntr** cntr, void* context) noexcept;

/// What stands in the queue goes to its owner now, if it has one, in its order. Not under locks that the owner's calls
/// may ask for: those of the context may be held.
void hand_on(CompletionQueue& queue) noexcept;

} // namespace tofu
