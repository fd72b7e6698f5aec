// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Counting an instruction where it goes (job/flows). The hot path.
//
// Per post: which of a node's counters, and two additions there. The route is computed by the reader.
#pragma once

#include <atomic>

#include "job/flows.h"
#include "tni/descriptor.h"
#include "tni/remote.h"
#include "tni/vcq.h"

namespace tofu::sim {

[[gnu::always_inline]] inline FlowCounters& flow_of(const Vcq& vcq, const Remote* remote, const Descriptor& d) noexcept
{
    if (remote == nullptr) [[unlikely]]
        return vcq.flows[0];
    // A path in the flags wins over that of the ID (guide 3.7.1).
    const unsigned path = d.path != 0 ? d.path : static_cast<unsigned>(d.rmt_vcq_id >> 28 & 0xf);
    return vcq.flows[remote->first_flow + path];
}

[[gnu::always_inline]] inline void count(FlowCounters& flow, Op op, uint32_t length, uint32_t times = 1) noexcept
{
    // One writer: the VCQ's thread, or the holder of its lock. Readers are statistics and tofu-sim show, at any time.
    const auto add = [](uint64_t& counter, uint64_t n) {
        const std::atomic_ref shared(counter);
        shared.store(shared.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
    };
    add(flow.operations, times);
    add(op == Op::get ? flow.bytes_back : flow.bytes_out, uint64_t{length} * times);
}

} // namespace tofu::sim
