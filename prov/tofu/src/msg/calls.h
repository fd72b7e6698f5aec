// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The calls of fi_msg(3) and fi_tagged(3): their operation tables, and what deferred work (api/triggered.cc) shares
// with them: a call as its structure describes it, and the checks of its arguments.
#pragma once

#include <cstdint>

#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>

#include "msg/match_queue.h"
#include "msg/sender.h"
#include "msg/wire.h"

namespace tofu::proto {

/// The calls as the structures of fi_sendmsg, fi_tsendmsg, fi_recvmsg and fi_trecvmsg describe them.
template <class Message>
[[nodiscard]] SendCall send_of(const Message& m, std::uint64_t flags) noexcept
{
    SendCall call{.iov = m.msg_iov,
                  .desc = m.desc,
                  .count = m.iov_count,
                  .dest = m.addr,
                  .data = m.data,
                  .flags = flags,
                  .context = m.context};
    if ((flags & FI_REMOTE_CQ_DATA) != 0)
        call.packet_flags = flag_data;
    if constexpr (requires { m.tag; }) {
        call.tag = m.tag;
        call.packet_flags |= flag_tag;
    }
    return call;
}
template <class Message>
[[nodiscard]] RecvCall recv_of(const Message& m, std::uint64_t flags) noexcept
{
    RecvCall call{
        .iov = m.msg_iov, .desc = m.desc, .count = m.iov_count, .source = m.addr, .flags = flags, .context = m.context};
    if constexpr (requires { m.tag; }) {
        call.tag = m.tag;
        call.ignore = m.ignore;
        call.tagged = true;
    }
    return call;
}

/// Checks the segments and flags of a call, and adds up its length. 0, or the refusal.
[[nodiscard]] int check(SendCall& call) noexcept;
[[nodiscard]] int check(const RecvCall& call) noexcept;

} // namespace tofu::proto

namespace tofu {

/// Of an enabled endpoint with FI_MSG or FI_TAGGED.
extern fi_ops_msg msg_ops;
extern fi_ops_tagged tagged_ops;

} // namespace tofu
