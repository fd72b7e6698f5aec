// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The parts of the program for fi_rma(3). All ranks call each; each ends with a barrier.
#pragma once

#include <rdma/fi_rma.h>

#include "../common/bytes.h"
#include "../common/world.h"

namespace fabtests {

void check_every_call(World& world);       ///< each function, each kind of size
void check_segments(World& world);         ///< msg_iov and rma_iov of different cuts
void check_inject(World& world);           ///< fi_inject_write, FI_INJECT
void check_completion_rules(World& world); ///< FLAGS, counters, selective completion
void check_order(World& world);            ///< message order, FI_FENCE
void check_errors(World& world);           ///< RETURN VALUE, ERRORS
void check_many(World& world);             ///< more under way than any queue holds

} // namespace fabtests
