// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The operations that can wait for a counter, in the form in which the engines take them: made of the structures that
// fi_sendmsg and its like are given. Used by work.cc and calls.cc; calls nothing.
#pragma once

#include <cstdint>
#include <variant>

#include <rdma/fi_trigger.h>

#include "atomic/engine.h"
#include "match/entry.h"
#include "rma/engine.h"
#include "send/sender.h"

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

[[nodiscard]] constexpr std::uint8_t data_of(std::uint64_t flags) noexcept
{
    return (flags & FI_REMOTE_CQ_DATA) != 0 ? proto::flag_data : 0;
}
[[nodiscard]] inline proto::SendCall send_of(const fi_msg& m, std::uint64_t flags) noexcept
{
    return {.iov = m.msg_iov, .desc = m.desc, .count = m.iov_count, .dest = m.addr, .data = m.data, .flags = flags,
            .context = m.context, .packet_flags = data_of(flags)};
}
[[nodiscard]] inline proto::SendCall send_of(const fi_msg_tagged& m, std::uint64_t flags) noexcept
{
    return {.iov = m.msg_iov, .desc = m.desc, .count = m.iov_count, .dest = m.addr, .tag = m.tag, .data = m.data,
            .flags = flags, .context = m.context,
            .packet_flags = static_cast<std::uint8_t>(proto::flag_tag | data_of(flags))};
}
[[nodiscard]] inline proto::RecvCall recv_of(const fi_msg& m, std::uint64_t flags) noexcept
{
    return {.iov = m.msg_iov, .desc = m.desc, .count = m.iov_count, .source = m.addr, .flags = flags,
            .context = m.context};
}
[[nodiscard]] inline proto::RecvCall recv_of(const fi_msg_tagged& m, std::uint64_t flags) noexcept
{
    return {.iov = m.msg_iov, .desc = m.desc, .count = m.iov_count, .source = m.addr, .tag = m.tag,
            .ignore = m.ignore, .flags = flags, .context = m.context, .tagged = true};
}
[[nodiscard]] inline RmaCall rma_of(const fi_msg_rma& m, std::uint64_t flags, bool read) noexcept
{
    return {m, flags, read, false};
}
[[nodiscard]] inline AtomicCall atomic_of(Family family, const fi_msg_atomic& m, std::uint64_t flags,
                                          const fi_msg_fetch& fetch = {}, const fi_msg_compare& compare = {}) noexcept
{
    return {family, m, {compare.msg_iov, compare.iov_count}, {fetch.msg_iov, fetch.iov_count}, flags, false};
}

} // namespace tofu::trigger
