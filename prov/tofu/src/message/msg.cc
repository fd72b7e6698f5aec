// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The calls of fi_msg(3): thin shims over the sender and the receive queue.
#include "message/calls.h"

#include "message/entry.h"

namespace tofu {

namespace {

using proto::enter_recv;
using proto::enter_send;
using proto::RecvCall;
using proto::SendCall;

ssize_t msg_recv(fid_ep* ep, void* buf, size_t len, void* desc, fi_addr_t source,
                 void* context) noexcept
{
    const RecvCall call{.source = source, .flags = EndpointFace::of(ep).rx_flags, .context = context};
    return enter_recv(ep, call, buf, len, desc);
}

ssize_t msg_recvv(fid_ep* ep, const iovec* iov, void** desc, size_t count, fi_addr_t source,
                  void* context) noexcept
{
    RecvCall call{.iov = iov, .desc = desc, .count = count, .source = source,
                  .flags = EndpointFace::of(ep).rx_flags, .context = context};
    return enter_recv(ep, call);
}

ssize_t msg_recvmsg(fid_ep* ep, const fi_msg* msg, uint64_t flags) noexcept
{
    RecvCall call{.iov = msg->msg_iov, .desc = msg->desc, .count = msg->iov_count,
                  .source = msg->addr, .flags = flags, .context = msg->context};
    return enter_recv(ep, call);
}

ssize_t msg_send(fid_ep* ep, const void* buf, size_t len, void* desc, fi_addr_t dest,
                 void* context) noexcept
{
    SendCall call{.dest = dest, .flags = EndpointFace::of(ep).tx_flags, .context = context};
    return enter_send(ep, call, buf, len, desc);
}

ssize_t msg_sendv(fid_ep* ep, const iovec* iov, void** desc, size_t count, fi_addr_t dest,
                  void* context) noexcept
{
    SendCall call{.dest = dest, .flags = EndpointFace::of(ep).tx_flags, .context = context};
    return enter_send(ep, call, iov, desc, count);
}

ssize_t msg_sendmsg(fid_ep* ep, const fi_msg* msg, uint64_t flags) noexcept
{
    SendCall call{.dest = msg->addr, .data = msg->data, .flags = flags, .context = msg->context};
    if (flags & FI_REMOTE_CQ_DATA)
        call.packet_flags = proto::flag_data;
    return enter_send(ep, call, msg->msg_iov, msg->desc, msg->iov_count);
}

ssize_t msg_inject(fid_ep* ep, const void* buf, size_t len, fi_addr_t dest) noexcept
{
    SendCall call{.dest = dest, .silent = true};
    return enter_send(ep, call, buf, len, nullptr);
}

ssize_t msg_senddata(fid_ep* ep, const void* buf, size_t len, void* desc, uint64_t data,
                     fi_addr_t dest, void* context) noexcept
{
    SendCall call{.dest = dest, .data = data, .flags = EndpointFace::of(ep).tx_flags,
                  .context = context, .packet_flags = proto::flag_data};
    return enter_send(ep, call, buf, len, desc);
}

ssize_t msg_injectdata(fid_ep* ep, const void* buf, size_t len, uint64_t data,
                       fi_addr_t dest) noexcept
{
    SendCall call{.dest = dest, .data = data, .packet_flags = proto::flag_data, .silent = true};
    return enter_send(ep, call, buf, len, nullptr);
}

} // namespace

fi_ops_msg msg_ops = {sizeof(fi_ops_msg), msg_recv,   msg_recvv,    msg_recvmsg,   msg_send,
                      msg_sendv,          msg_sendmsg, msg_inject, msg_senddata, msg_injectdata};

} // namespace tofu
