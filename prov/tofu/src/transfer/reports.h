// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Where the operations of a tx context report to. Part of the context; used by request and the engines.
#pragma once

#include <rdma/fabric.h>

#include "queue/binding.h"
#include "transfer/request.h"

namespace tofu {

struct Reports {
    Binding binding{}; ///< the completion queue
    TxCounters counters{};
    bool closing = false; ///< what fails from now on is discarded without a word (fi_endpoint(3), fi_close)
};

inline void Request::report_to(const Reports& to, std::uint64_t flags, void* context, bool entry) noexcept
{
    reports = &to;
    cq = to.binding.cq.get();
    counter = (flags & FI_READ) != 0 ? to.counters.read.get() : to.counters.write.get();
    completion.context = context;
    completion.flags = flags;
    wants_entry = entry;
}

} // namespace tofu
