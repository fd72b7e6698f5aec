// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: counts of what was posted, by destination, TNI and path; `tofu-sim show` makes loads of links of them.
// Called by: tni/, api/wait, tools/show. Calls: job/layout.
//
// Per post: which of a node's counters, and two additions there. The route is worked out by who asks.
#pragma once

#include "job/layout.h"
#include "tni/descriptor.h"
#include "tni/remote.h"
#include "tni/vcq.h"

namespace tofu::sim {

// The counters of a node, claimed on its first use. One thread at a time (Process::slow_path).
[[nodiscard]] NodeFlows& flows_to(FlowTable& table, uint32_t node) noexcept;

// All that the owner of the segment has posted through one TNI.
[[nodiscard]] FlowCounters sum_of_tni(std::byte* base, unsigned tni) noexcept;

[[gnu::always_inline]] inline FlowCounters& flow_of(const Vcq& vcq, const Remote* remote,
                                                    const Descriptor& d) noexcept
{
    if (remote == nullptr) [[unlikely]] {
        return *vcq.nowhere;
    }
    // A path in the flags wins over that of the ID (guide 3.7.1).
    const unsigned path = d.path != 0 ? d.path : static_cast<unsigned>(d.rmt_vcq_id >> 28 & 0xf);
    return remote->flows->of[vcq.tni][path];
}

[[gnu::always_inline]] inline void count(FlowCounters& flow, Op op, uint32_t length) noexcept
{
    flow.operations++;
    (op == Op::get ? flow.bytes_back : flow.bytes_out) += length;
}

} // namespace tofu::sim
