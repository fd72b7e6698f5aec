// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The calls of fi_tagged(3): thin shims over the sender and the receive queue.
#include "message/calls.h"

#include "message/entry.h"

namespace tofu {

namespace {

using proto::enter_recv;
using proto::enter_send;
using proto::flag_data;
using proto::flag_tag;
using proto::RecvCall;
using proto::SendCall;

ssize_t tagged_recv(fid_ep* ep, void* buf, size_t len, void* desc, fi_addr_t source, uint64_t tag,
                    uint64_t ignore, void* context) noexcept
{
    const RecvCall call{.source = source, .tag = tag, .ignore = ignore,
                        .flags = EndpointFace::of(ep).rx_flags, .context = context, .tagged = true};
    return enter_recv(ep, call, buf, len, desc);
}

ssize_t tagged_recvv(fid_ep* ep, const iovec* iov, void** desc, size_t count, fi_addr_t source,
                     uint64_t tag, uint64_t ignore, void* context) noexcept
{
    RecvCall call{.iov = iov, .desc = desc, .count = count, .source = source, .tag = tag,
                  .ignore = ignore, .flags = EndpointFace::of(ep).rx_flags, .context = context,
                  .tagged = true};
    return enter_recv(ep, call);
}

ssize_t tagged_recvmsg(fid_ep* ep, const fi_msg_tagged* msg, uint64_t flags) noexcept
{
    RecvCall call{.iov = msg->msg_iov, .desc = msg->desc, .count = msg->iov_count,
                  .source = msg->addr, .tag = msg->tag, .ignore = msg->ignore, .flags = flags,
                  .context = msg->context, .tagged = true};
    return enter_recv(ep, call);
}

ssize_t tagged_send(fid_ep* ep, const void* buf, size_t len, void* desc, fi_addr_t dest,
                    uint64_t tag, void* context) noexcept
{
    SendCall call{.dest = dest, .tag = tag, .flags = EndpointFace::of(ep).tx_flags,
                  .context = context, .packet_flags = flag_tag};
    return enter_send(ep, call, buf, len, desc);
}

ssize_t tagged_sendv(fid_ep* ep, const iovec* iov, void** desc, size_t count, fi_addr_t dest,
                     uint64_t tag, void* context) noexcept
{
    SendCall call{.dest = dest, .tag = tag, .flags = EndpointFace::of(ep).tx_flags,
                  .context = context, .packet_flags = flag_tag};
    return enter_send(ep, call, iov, desc, count);
}

ssize_t tagged_sendmsg(fid_ep* ep, const fi_msg_tagged* msg, uint64_t flags) noexcept
{
    SendCall call{.dest = msg->addr, .tag = msg->tag, .data = msg->data, .flags = flags,
                  .context = msg->context, .packet_flags = flag_tag};
    if (flags & FI_REMOTE_CQ_DATA)
        call.packet_flags |= flag_data;
    return enter_send(ep, call, msg->msg_iov, msg->desc, msg->iov_count);
}

ssize_t tagged_inject(fid_ep* ep, const void* buf, size_t len, fi_addr_t dest,
                      uint64_t tag) noexcept
{
    SendCall call{.dest = dest, .tag = tag, .packet_flags = flag_tag, .silent = true};
    return enter_send(ep, call, buf, len, nullptr);
}

ssize_t tagged_senddata(fid_ep* ep, const void* buf, size_t len, void* desc, uint64_t data,
                        fi_addr_t dest, uint64_t tag, void* context) noexcept
{
    SendCall call{.dest = dest, .tag = tag, .data = data, .flags = EndpointFace::of(ep).tx_flags,
                  .context = context, .packet_flags = flag_tag | flag_data};
    return enter_send(ep, call, buf, len, desc);
}

ssize_t tagged_injectdata(fid_ep* ep, const void* buf, size_t len, uint64_t data, fi_addr_t dest,
                          uint64_t tag) noexcept
{
    SendCall call{.dest = dest, .tag = tag, .data = data,
                  .packet_flags = flag_tag | flag_data, .silent = true};
    return enter_send(ep, call, buf, len, nullptr);
}

} // namespace

fi_ops_tagged tagged_ops = {
    sizeof(fi_ops_tagged), tagged_recv,   tagged_recvv,    tagged_recvmsg,   tagged_send,
    tagged_sendv,          tagged_sendmsg, tagged_inject, tagged_senddata, tagged_injectdata};

} // namespace tofu
