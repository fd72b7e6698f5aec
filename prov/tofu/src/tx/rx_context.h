// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A receive context: the queue and counters that arrivals are reported to, and the rules for receives. Part of an
// endpoint, whole or of one direction. Filled in by endpoint, used by match and message under the lock; calls cntr.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fi_endpoint.h>

#include "cq/counter.h"

namespace tofu {

namespace proto {
class ReceiveQueue;
}

struct RxContext {
    Binding binding{};   ///< the queue of receives
    RxCounters counters{};
    fi_rx_attr attr{};   ///< as granted
    std::size_t min_multi_recv = 64;         ///< FI_OPT_MIN_MULTI_RECV
    CompletionQueue* internal_cq = nullptr;        ///< for receives of deferred work, which have FI_TRIGGER (api/triggered.h)
    bool shares = false;                     ///< fi_endpoint(3), FI_SHARED_CONTEXT: `shared` has to be bound
    proto::ReceiveQueue* shared = nullptr;   ///< the receives of a shared context; null: the context's own
    /// The queue to which a receive with these flags reports.
    [[nodiscard]] CompletionQueue* queue_of(std::uint64_t flags) const noexcept
    {
        return (flags & FI_TRIGGER) != 0 ? internal_cq : binding.cq.get();
    }
    [[nodiscard]] Counter* counter_of(std::uint64_t flags) const noexcept
    {
        return (flags & FI_TRIGGER) != 0 ? nullptr : counters.recv.get();
    }
    [[nodiscard]] bool reports(std::uint64_t flags) const noexcept
    {
        return (flags & FI_TRIGGER) != 0 || binding.reports(flags);
    }
    bool is_open = true; ///< false: peers send nothing here, and nothing is posted: a transmit context of a scalable endpoint
};

} // namespace tofu
