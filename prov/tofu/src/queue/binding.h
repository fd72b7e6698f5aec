// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What an endpoint is bound to and reports to (fi_endpoint(3), fi_ep_bind): completion queues and counters. Used by
// endpoint, request and the engines; calls nothing.
#pragma once

#include <cstdint>

#include <rdma/fi_endpoint.h>

#include "queue/cntr.h"
#include "queue/cq.h"

namespace tofu {

/// Which completions an endpoint's side reports, from fi_ep_bind and the tx/rx attributes.
struct Binding {
    Held<CompletionQueue> cq;
    bool selective = false; ///< FI_SELECTIVE_COMPLETION: only with FI_COMPLETION

    /// Does a success with these operation flags reach the queue (fi_cq(3))?
    [[nodiscard]] bool reports(std::uint64_t flags) const noexcept
    {
        return cq != nullptr && (!selective || (flags & FI_COMPLETION) != 0);
    }
};

/// The counters that operations can be counted by (fi_endpoint(3), fi_ep_bind).
struct TxCounters {
    Held<Counter> send, read, write;
};

/// Those of what arrives.
struct RxCounters {
    Held<Counter> recv, remote_read, remote_write;

    /// A peer read from (or wrote to) memory of the domain: counts for FI_RMA_EVENT.
    void count_remote(bool read) const noexcept
    {
        if (Counter* const counter = read ? remote_read : remote_write; counter != nullptr)
            counter->count();
    }
};

} // namespace tofu
