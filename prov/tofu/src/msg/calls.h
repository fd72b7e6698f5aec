// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the calls of fi_msg and fi_tagged have in common: checks of arguments, the context's lock, the calls of the
// sender and the receive queue; and their operation tables. Deferred work (api/triggered.cc) uses the checks, too.
#pragma once

#include <mutex>

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include "core/limits.h"
#include "cq/domain_base.h"
#include "mem/local_buffer.h"
#include "msg/receive_queue.h"
#include "msg/sender.h"
#include "tx/ep_handle.h"

namespace tofu::proto {

/// Flags that a call may have (fi_msg(3), fi_tagged(3)). Beside those of the operation, programs pass flags that name
/// its kind and hints, which change nothing. All others ask for what is not offered: multicast, memory that endures.
inline constexpr std::uint64_t harmless_flags =
    FI_MSG | FI_TAGGED | FI_SEND | FI_RECV | FI_COMPLETION | FI_MORE | FI_FENCE | FI_INJECT | FI_INJECT_COMPLETE |
    FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE | FI_REMOTE_CQ_DATA | FI_TRIGGER | FI_AFFINITY |
#ifdef FI_PEER_TRANSFER
    FI_PEER_TRANSFER | // of an owner of our queues (fi_peer(3))
#endif
#ifdef FI_PRIORITY
    FI_PRIORITY | // libfabric 2 has no such flag
#endif
    FI_MULTI_RECV;
inline constexpr std::uint64_t known_send_flags = harmless_flags;
inline constexpr std::uint64_t known_recv_flags = harmless_flags | FI_PEEK | FI_CLAIM | FI_DISCARD;

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

/// Hands over a call with FI_TRIGGER that has one buffer.
template <class Call>
[[gnu::noinline]] ssize_t take_later(fid_ep* fid, const Call& call) noexcept
{
    EpHandle& handle = EpHandle::of(fid);
    return handle.tx != nullptr ? handle.tx->domain().deferred().later->take(handle, call) : -FI_EBADFLAGS;
}
template <class Call>
[[gnu::noinline]] ssize_t take_later(fid_ep* fid, Call call, const void* buf, std::size_t length, void* desc) noexcept
{
    const iovec iov{const_cast<void*>(buf), length};
    call.iov = &iov;
    call.desc = &desc;
    call.count = 1;
    return take_later(fid, call);
}

/// The long way of a call with one buffer. It takes a copy of the call, so that the short ways can keep theirs in
/// registers.
[[gnu::noinline]] inline ssize_t send_buffer(Sender& sender, SendCall call, const void* buf, std::size_t length,
                                             void* desc) noexcept
{
    if (((call.flags & FI_INJECT) || call.is_inject) && length > limits::inject_size) [[unlikely]]
        return -FI_EMSGSIZE;
    if (is_nowhere(buf, length)) [[unlikely]]
        return refuse_nowhere();
    if (length > limits::max_msg_size) [[unlikely]]
        return -FI_EMSGSIZE;
    if ((call.flags & FI_TRIGGER) != 0) [[unlikely]]
        return for_later;
    const iovec iov{const_cast<void*>(buf), length};
    call.iov = &iov;
    call.desc = &desc;
    call.count = 1;
    call.length = length;
    return sender.send(call);
}

/// Sends one buffer: `call` has everything but the segments.
[[gnu::always_inline]] inline ssize_t enter_send(fid_ep* fid, const SendCall& call, const void* buf, std::size_t length,
                                                 void* desc) noexcept
{
    TxContext& tx = *EpHandle::of(fid).tx;
    ssize_t ret = 0;
    {
        std::lock_guard guard(tx.lock());
        Sender& sender = Sender::of(tx);
        if (sender.send_short(call, buf, length) || sender.send_slot(call, buf, length)) [[likely]]
            return 0;
        ret = send_buffer(sender, call, buf, length, desc);
    }
    return ret == for_later ? take_later(fid, call, buf, length, desc) : ret;
}

/// Checks the segments and flags of a call, and adds up its length. 0, or the refusal.
inline int check(SendCall& call) noexcept
{
    if (call.flags & ~known_send_flags)
        return -FI_EBADFLAGS;
    if (call.count > limits::iov_limit || (call.count != 0 && call.iov == nullptr))
        return -FI_EINVAL;
    if (any_nowhere(call.iov, call.count)) [[unlikely]]
        return refuse_nowhere();
    if (!total_length(call.iov, call.count, call.length) || call.length > limits::max_msg_size)
        return -FI_EMSGSIZE;
    return (call.flags & FI_INJECT) && call.length > limits::inject_size ? -FI_EMSGSIZE : 0;
}

inline int check(const RecvCall& call) noexcept
{
    if (call.flags & ~known_recv_flags) [[unlikely]]
        return -FI_EBADFLAGS;
    if (call.count > limits::iov_limit || (call.count != 0 && call.iov == nullptr)) [[unlikely]]
        return -FI_EINVAL;
    if ((call.flags & no_buffer_flags) == 0 && any_nowhere(call.iov, call.count)) [[unlikely]]
        return refuse_nowhere();
    std::size_t total;
    return total_length(call.iov, call.count, total) ? 0 : -FI_EINVAL;
}

inline ssize_t enter_send(fid_ep* fid, SendCall call) noexcept
{
    call.desc = EpHandle::of(fid).descs(call.desc);
    if ((call.flags & FI_TRIGGER) != 0) [[unlikely]]
        return take_later(fid, call);
    if (int ret = check(call); ret != 0) [[unlikely]]
        return ret;
    TxContext& tx = *EpHandle::of(fid).tx;
    std::lock_guard guard(tx.lock());
    return Sender::of(tx).send(call);
}

/// Receives into one buffer: `call` has everything but the segments.
[[gnu::noinline]] inline ssize_t recv_buffer(fid_ep* fid, const RecvCall& call, void* buf, std::size_t length,
                                             void* desc) noexcept
{
    EpHandle& handle = EpHandle::of(fid);
    ssize_t ret = 0;
    {
        std::lock_guard guard(*handle.receive_lock);
        ret = handle.receives->recv_one(call, buf, length, desc);
    }
    return ret == for_later ? take_later(fid, call, buf, length, desc) : ret;
}

inline ssize_t enter_recv(fid_ep* fid, RecvCall call) noexcept
{
    EpHandle& handle = EpHandle::of(fid);
    call.desc = handle.descs(call.desc);
    if ((call.flags & FI_TRIGGER) != 0) [[unlikely]]
        return take_later(fid, call);
    if (int ret = check(call); ret != 0) [[unlikely]]
        return ret;
    std::lock_guard guard(*handle.receive_lock);
    return handle.receives->recv(call);
}

} // namespace tofu::proto

namespace tofu {

// --- fi_msg, fi_tagged: the operation tables of an enabled endpoint with FI_MSG or FI_TAGGED

extern fi_ops_msg msg_ops;
extern fi_ops_tagged tagged_ops;

} // namespace tofu
