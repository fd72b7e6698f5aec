// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// When a TNI or a link is busy, in memory that all processes of a job share.
//
// A poster computes at once when its message will pass each link, and processes call in the order of real time, not of
// virtual time: a process that is ahead must not take the link from one that calls later for an earlier time. So a
// calendar has intervals, and work goes into the gaps between them, in parts if need be, from the time on when it is
// there. Neighbours merge, so few are enough; beyond `most`, the earliest are forgotten.
#pragma once

#include "clock/figures.h"
#include "job/shared_word.h"

#include <cstdint>

namespace tofu::sim {

struct Interval {
    Picoseconds begin;
    Picoseconds end;
};

struct alignas(apart) Calendar {
    static constexpr unsigned most = 11;
    static constexpr unsigned feeders = 6; ///< TNIs of a node

    SharedWord<uint32_t> lock;
    uint32_t count;
    Interval busy[most];      ///< in order, apart from each other
    Picoseconds fed[feeders]; ///< of a port: until when each TNI of its node has used it
    uint64_t used;            ///< total time in use
};
static_assert(sizeof(Calendar) == 256);

inline constexpr int no_feeder = -1;

/// Enters `work`, ready at `from`: when its first part begins and its last ends. It takes longer where it is the first
/// of `feeder`, a TNI of the port's node, since the port was last idle, and too many others have come (figures::crowd).
[[nodiscard]] Interval enter(Calendar& calendar, Picoseconds from, Picoseconds work, int feeder = no_feeder) noexcept;

} // namespace tofu::sim
