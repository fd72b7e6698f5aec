// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The completion queues and counters that an endpoint is bound to and reports to (fi_endpoint(3), fi_ep_bind). Used by
// endpoint, request and the engines; calls nothing.
#pragma once

#include <cstdint>

#include <rdma/fi_endpoint.h>

#include "cq/counter.h"
#include "cq/cq.h"

namespace tofu {

/// Which completions one side of an endpoint reports, as fi_ep_bind and the attributes of its contexts say.
struct Binding {
    Held<CompletionQueue> cq;
    bool selective = false; ///< FI_SELECTIVE_COMPLETION: reports only operations with FI_COMPLETION

    /// Does a success with these operation flags reach the queue (fi_cq(3))?
    [[nodiscard]] bool reports(std::uint64_t flags) const noexcept
    {
        return cq != nullptr && (!selective || (flags & FI_COMPLETION) != 0);
    }
};

/// The counters of operations that a transmit context begins (fi_endpoint(3), fi_ep_bind).
struct TxCounters {
    Held<Counter> send, read, write;
};

/// The counters of receives and of what peers do.
struct RxCounters {
    Held<Counter> recv, remote_read, remote_write;

    [[nodiscard]] Counter* remote(bool read) const noexcept { return read ? remote_read : remote_write; }
    /// Count peers' reads of, and writes to, memory of the domain (FI_RMA_EVENT).
    void count_remote(bool read) const noexcept
    {
        if (Counter* const counter = remote(read); counter != nullptr)
            counter->count();
    }
};

} // namespace tofu
