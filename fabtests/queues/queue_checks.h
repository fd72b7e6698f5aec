// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The parts of the programs for fi_cq(3) that wait. All ranks call each.
#pragma once

#include "waiting.h"

namespace fabtests {

inline unsigned next(World& w)
{
    return (w.rank() + 1) % w.ranks();
}
inline unsigned before(World& w)
{
    return (w.rank() + w.ranks() - 1) % w.ranks();
}

void cq_blocking_read(World& world);     ///< fi_cq_sread, fi_cq_sreadfrom, timeouts
void cq_threshold(World& world);         ///< FI_CQ_COND_THRESHOLD
void cq_signal(World& world);            ///< fi_cq_signal
void cq_no_processor_time(World& world); ///< a waiting thread sleeps
void cq_wait_none(World& world);         ///< FI_WAIT_NONE
void cq_wait_fd(World& world);           ///< FI_WAIT_FD, fi_trywait
void cq_wait_mutex_cond(World& world);   ///< FI_WAIT_MUTEX_COND
void cq_wait_yield(World& world);        ///< FI_WAIT_YIELD

} // namespace fabtests
