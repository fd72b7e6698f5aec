// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the calls of fi_msg and fi_tagged have in common: checks of arguments, the context's lock, the way into
// the sender and the receive queue. Used by msg.cc and tagged.cc only.
#pragma once

#include <mutex>

#include <rdma/fi_errno.h>

#include "context/face.h"
#include "match/iov.h"
#include "match/receive_queue.h"
#include "message/send.h"
#include "provider/limits.h"

namespace tofu::proto {

/// Flags that make another operation of a call, which is not offered (fi_trigger(3), fi_msg(3)).
inline constexpr std::uint64_t foreign_flags = FI_TRIGGER | FI_MULTICAST;

/// The long way of one buffer. A copy of the call, which then need not lie in memory on the short way.
[[gnu::noinline]] inline ssize_t send_buffer(Sender& sender, SendCall call, const void* buf,
                                             std::size_t length, void* desc) noexcept
{
    if (length > limits::max_msg_size) [[unlikely]]
        return -FI_EMSGSIZE;
    if (((call.flags & FI_INJECT) || call.silent) && length > limits::inject_size) [[unlikely]]
        return -FI_EMSGSIZE;
    if (sender.send_slot(call, buf, length)) [[likely]]
        return 0;
    const iovec iov{const_cast<void*>(buf), length};
    call.iov = &iov;
    call.desc = &desc;
    call.count = 1;
    call.length = length;
    return sender.send(call);
}

/// Sends one buffer: `call` has everything but the segments.
[[gnu::always_inline]] inline ssize_t enter_send(fid_ep* fid, const SendCall& call, const void* buf,
                                                 std::size_t length, void* desc) noexcept
{
    TxContext& tx = *EndpointFace::of(fid).tx;
    std::lock_guard guard(tx.lock());
    Sender& sender = Sender::of(tx);
    if (sender.send_short(call, buf, length)) [[likely]]
        return 0;
    return send_buffer(sender, call, buf, length, desc);
}

inline ssize_t enter_send(fid_ep* fid, SendCall& call, const iovec* iov, void** desc,
                          std::size_t count) noexcept
{
    if (call.flags & foreign_flags)
        return -FI_EBADFLAGS;
    if (count > limits::iov_limit || (count != 0 && iov == nullptr))
        return -FI_EINVAL;
    if (!total_length(iov, count, call.length) || call.length > limits::max_msg_size)
        return -FI_EMSGSIZE;
    if ((call.flags & FI_INJECT) && call.length > limits::inject_size)
        return -FI_EMSGSIZE;
    call.iov = iov;
    call.desc = desc;
    call.count = count;
    TxContext& tx = *EndpointFace::of(fid).tx;
    std::lock_guard guard(tx.lock());
    return Sender::of(tx).send(call);
}

/// Receives into one buffer: `call` has everything but the segments.
[[gnu::always_inline]] inline ssize_t enter_recv(fid_ep* fid, const RecvCall& call, void* buf,
                                                 std::size_t length, void* desc) noexcept
{
    EndpointFace& face = EndpointFace::of(fid);
    std::lock_guard guard(*face.receive_lock);
    return face.receives->recv_one(call, buf, length, desc);
}

inline ssize_t enter_recv(fid_ep* fid, const RecvCall& call) noexcept
{
    if (call.flags & foreign_flags) [[unlikely]]
        return -FI_EBADFLAGS;
    if (call.count > limits::iov_limit || (call.count != 0 && call.iov == nullptr)) [[unlikely]]
        return -FI_EINVAL;
    std::size_t total;
    if (!total_length(call.iov, call.count, total)) [[unlikely]]
        return -FI_EINVAL;
    EndpointFace& face = EndpointFace::of(fid);
    std::lock_guard guard(*face.receive_lock);
    return face.receives->recv(call);
}

} // namespace tofu::proto
