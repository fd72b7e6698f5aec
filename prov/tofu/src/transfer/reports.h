// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Where the operations of a tx context report to. Part of the context; used by request and the engines; calls nothing.
#pragma once

#include "queue/binding.h"

namespace tofu {

struct Reports {
    Binding binding{}; ///< the completion queue
    TxCounters counters{};
    bool closing = false; ///< what fails from now on is discarded without a word (fi_endpoint(3), fi_close)
};

} // namespace tofu
