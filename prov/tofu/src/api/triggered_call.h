// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The operations that can wait for a counter, in the form in which the engines accept them: made of the structures that
// fi_sendmsg and the other msg calls are given. Used by triggered.cc and copy_call.cc; calls nothing.
#pragma once

#include <cstdint>
#include <variant>

#include <rdma/fi_trigger.h>

#include "atomic/atomic.h"
#include "msg/match_entry.h"
#include "msg/sender.h"
#include "rma/rma.h"

namespace tofu::trigger {

/// fi_op_cntr, of Work::counter.
struct CounterCall {
    std::uint64_t value;
    bool add; ///< else the counter is set
};

/// The application's context of a call.
template <class Call>
[[nodiscard]] void* context_of(const Call& call) noexcept
{
    if constexpr (requires { call.msg; })
        return call.msg.context;
    else
        return call.context;
}

using Call = std::variant<CounterCall, proto::SendCall, proto::RecvCall, RmaCall, AtomicCall>;

} // namespace tofu::trigger
