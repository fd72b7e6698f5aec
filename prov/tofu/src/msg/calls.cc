// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The calls of fi_msg(3) and fi_tagged(3), which differ by a tag alone: they check their arguments, take the context's
// lock, and call the sender or the receive queue. See calls.h.
#include "msg/calls.h"

#include <mutex>

#include <rdma/fi_errno.h>

#include "core/limits.h"
#include "cq/domain_base.h"
#include "mem/local_buffer.h"
#include "msg/receive_queue.h"
#include "tx/ep_handle.h"

namespace tofu::proto {

/// Flags that a call may have (fi_msg(3), fi_tagged(3)). Beside those of the operation, programs pass flags that name
/// its kind and hints, which change nothing. All others ask for what is not offered: multicast, memory that endures.
constexpr std::uint64_t known_send_flags =
    FI_MSG | FI_TAGGED | FI_SEND | FI_RECV | FI_COMPLETION | FI_MORE | FI_FENCE | FI_INJECT | FI_INJECT_COMPLETE |
    FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE | FI_REMOTE_CQ_DATA | FI_TRIGGER | FI_AFFINITY |
#ifdef FI_PEER_TRANSFER
    FI_PEER_TRANSFER | // of an owner of our queues (fi_peer(3))
#endif
#ifdef FI_PRIORITY
    FI_PRIORITY | // libfabric 2 has no such flag
#endif
    FI_MULTI_RECV;
constexpr std::uint64_t known_recv_flags = known_send_flags | FI_PEEK | FI_CLAIM | FI_DISCARD;

int check(SendCall& call) noexcept
{
    if (call.flags & ~known_send_flags)
        return -FI_EBADFLAGS;
    if (call.count > limits::iov_limit || (call.count != 0 && call.iov == nullptr))
        return -FI_EINVAL;
    if (any_null(call.iov, call.count)) [[unlikely]]
        return refuse_null();
    if (!total_length(call.iov, call.count, call.length) || call.length > limits::max_msg_size)
        return -FI_EMSGSIZE;
    return (call.flags & FI_INJECT) && call.length > limits::inject_size ? -FI_EMSGSIZE : 0;
}

int check(const RecvCall& call) noexcept
{
    if (call.flags & ~known_recv_flags) [[unlikely]]
        return -FI_EBADFLAGS;
    // fi_tagged(3): FI_DISCARD belongs to a peek or a claim. A receive with it alone would have no buffer.
    if ((call.flags & (FI_DISCARD | FI_PEEK | FI_CLAIM)) == FI_DISCARD) [[unlikely]]
        return -FI_EBADFLAGS;
    if (call.count > limits::iov_limit || (call.count != 0 && call.iov == nullptr)) [[unlikely]]
        return -FI_EINVAL;
    if ((call.flags & no_buffer_flags) == 0 && any_null(call.iov, call.count)) [[unlikely]]
        return refuse_null();
    std::size_t total;
    return total_length(call.iov, call.count, total) ? 0 : -FI_EINVAL;
}

namespace {

// --- what all forms of a call have in common

/// Hands over a call with FI_TRIGGER that has one buffer.
template <class Call>
[[gnu::noinline]] ssize_t defer(fid_ep* fid, const Call& call) noexcept
{
    EpHandle& handle = EpHandle::of(fid);
    return handle.tx != nullptr ? handle.tx->domain().deferred().calls->defer(handle, call) : -FI_EBADFLAGS;
}
template <class Call>
[[gnu::noinline]] ssize_t defer(fid_ep* fid, Call call, const void* buf, std::size_t length, void* desc) noexcept
{
    const iovec iov{const_cast<void*>(buf), length};
    call.iov = &iov;
    call.desc = &desc;
    call.count = 1;
    return defer(fid, call);
}

/// Sends one buffer on a fast path, if one can: `call` has everything but the segments.
[[gnu::always_inline]] inline bool send_at_once(fid_ep* fid, const SendCall& call, const void* buf,
                                                std::size_t length) noexcept
{
    TxContext& tx = *EpHandle::of(fid).tx;
    std::lock_guard guard(tx.lock());
    Sender& sender = Sender::of(tx);
    return sender.send_inline(call, buf, length) || sender.send_eager(call, buf, length);
}

/// The slow path of such a call.
[[gnu::noinline]] ssize_t send_buffer(fid_ep* fid, SendCall call, const void* buf, std::size_t length,
                                      void* desc) noexcept
{
    if (((call.flags & FI_INJECT) || call.is_inject) && length > limits::inject_size) [[unlikely]]
        return -FI_EMSGSIZE;
    if (is_null(buf, length)) [[unlikely]]
        return refuse_null();
    if (length > limits::max_msg_size) [[unlikely]]
        return -FI_EMSGSIZE;
    if ((call.flags & FI_TRIGGER) != 0) [[unlikely]]
        return defer(fid, call, buf, length, desc);
    const iovec iov{const_cast<void*>(buf), length};
    call.iov = &iov;
    call.desc = &desc;
    call.count = 1;
    call.length = length;
    TxContext& tx = *EpHandle::of(fid).tx;
    std::lock_guard guard(tx.lock());
    return Sender::of(tx).send(call);
}

ssize_t enter_send(fid_ep* fid, SendCall call) noexcept
{
    call.desc = EpHandle::of(fid).descs(call.desc);
    if ((call.flags & FI_TRIGGER) != 0) [[unlikely]]
        return defer(fid, call);
    if (int ret = check(call); ret != 0) [[unlikely]]
        return ret;
    TxContext& tx = *EpHandle::of(fid).tx;
    std::lock_guard guard(tx.lock());
    return Sender::of(tx).send(call);
}

ssize_t enter_recv(fid_ep* fid, RecvCall call) noexcept
{
    EpHandle& handle = EpHandle::of(fid);
    call.desc = handle.descs(call.desc);
    if ((call.flags & FI_TRIGGER) != 0) [[unlikely]]
        return defer(fid, call);
    if (int ret = check(call); ret != 0) [[unlikely]]
        return ret;
    std::lock_guard guard(*handle.receive_lock);
    return handle.receives->recv(call);
}

// --- the calls

/// Tag: std::uint64_t, or nothing.
template <class Message, class... Tag>
struct MessageCalls {
    static constexpr bool tagged = sizeof...(Tag) != 0;
    static constexpr std::uint8_t tag_flag = tagged ? flag_tag : 0;
    static constexpr std::uint64_t one(Tag... tag) noexcept { return (tag + ... + std::uint64_t{0}); }

    [[gnu::always_inline]] static RecvCall recv_of(const EpHandle& handle, fi_addr_t source, Tag... tag, Tag... ignore,
                                                   void* context) noexcept
    {
        return {.source = source,
                .tag = one(tag...),
                .ignore = one(ignore...),
                .flags = handle.rx_flags,
                .context = context,
                .tagged = tagged};
    }
    /// Has the arguments of recv(), whose last act it is: recv() then keeps nothing for the time behind the call.
    [[gnu::noinline]] static ssize_t recv_otherwise(fid_ep* ep, void* buf, size_t len, void* desc, fi_addr_t source,
                                                    Tag... tag, Tag... ignore, void* context) noexcept
    {
        EpHandle& handle = EpHandle::of(ep);
        const RecvCall call = recv_of(handle, source, tag..., ignore..., context);
        ssize_t ret = 0;
        {
            std::lock_guard guard(*handle.receive_lock);
            ReceiveQueue& receives = *handle.receives;
            if (!receives.has_unexpected(tagged) && receives.post_at_once<false>(call, buf, len, desc))
                return 0;
            ret = receives.recv_one(call, buf, len, desc);
        }
        return ret == must_be_deferred ? defer(ep, call, buf, len, desc) : ret;
    }
    static ssize_t recv(fid_ep* ep, void* buf, size_t len, void* desc, fi_addr_t source, Tag... tag, Tag... ignore,
                        void* context) noexcept
    {
        EpHandle& handle = EpHandle::of(ep);
        if (!handle.receive_lock->enabled() &&
            handle.receives->post_at_once<true>(recv_of(handle, source, tag..., ignore..., context), buf, len, desc))
            [[likely]]
            return 0;
        return recv_otherwise(ep, buf, len, desc, source, tag..., ignore..., context);
    }
    static ssize_t recvv(fid_ep* ep, const iovec* iov, void** desc, size_t count, fi_addr_t source, Tag... tag,
                         Tag... ignore, void* context) noexcept
    {
        RecvCall call = recv_of(EpHandle::of(ep), source, tag..., ignore..., context);
        call.iov = iov;
        call.desc = desc;
        call.count = count;
        return enter_recv(ep, call);
    }
    static ssize_t recvmsg(fid_ep* ep, const Message* msg, uint64_t flags) noexcept
    {
        return msg != nullptr ? enter_recv(ep, proto::recv_of(*msg, flags)) : -FI_EINVAL;
    }
    [[gnu::always_inline]] static SendCall send_call(fid_ep* ep, fi_addr_t dest, Tag... tag, void* context) noexcept
    {
        return {.dest = dest,
                .tag = one(tag...),
                .flags = EpHandle::of(ep).tx_flags,
                .context = context,
                .packet_flags = tag_flag};
    }
    /// As recv_otherwise().
    [[gnu::noinline]] static ssize_t send_otherwise(fid_ep* ep, const void* buf, size_t len, void* desc, fi_addr_t dest,
                                                    Tag... tag, void* context) noexcept
    {
        return send_buffer(ep, send_call(ep, dest, tag..., context), buf, len, desc);
    }
    static ssize_t send(fid_ep* ep, const void* buf, size_t len, void* desc, fi_addr_t dest, Tag... tag,
                        void* context) noexcept
    {
        return send_at_once(ep, send_call(ep, dest, tag..., context), buf, len)
                   ? 0
                   : send_otherwise(ep, buf, len, desc, dest, tag..., context);
    }
    static ssize_t sendv(fid_ep* ep, const iovec* iov, void** desc, size_t count, fi_addr_t dest, Tag... tag,
                         void* context) noexcept
    {
        return enter_send(ep, {.iov = iov,
                               .desc = desc,
                               .count = count,
                               .dest = dest,
                               .tag = one(tag...),
                               .flags = EpHandle::of(ep).tx_flags,
                               .context = context,
                               .packet_flags = tag_flag});
    }
    static ssize_t sendmsg(fid_ep* ep, const Message* msg, uint64_t flags) noexcept
    {
        return msg != nullptr ? enter_send(ep, send_of(*msg, flags)) : -FI_EINVAL;
    }
    [[gnu::always_inline]] static SendCall inject_call(fi_addr_t dest, Tag... tag) noexcept
    {
        return {.dest = dest, .tag = one(tag...), .packet_flags = tag_flag, .is_inject = true};
    }
    /// As recv_otherwise().
    [[gnu::noinline]] static ssize_t inject_otherwise(fid_ep* ep, const void* buf, size_t len, fi_addr_t dest,
                                                      Tag... tag) noexcept
    {
        return send_buffer(ep, inject_call(dest, tag...), buf, len, nullptr);
    }
    static ssize_t inject(fid_ep* ep, const void* buf, size_t len, fi_addr_t dest, Tag... tag) noexcept
    {
        return send_at_once(ep, inject_call(dest, tag...), buf, len) ? 0 : inject_otherwise(ep, buf, len, dest, tag...);
    }
    [[gnu::always_inline]] static SendCall with_data(SendCall call, uint64_t data) noexcept
    {
        call.data = data;
        call.packet_flags |= flag_data;
        return call;
    }
    /// As recv_otherwise().
    [[gnu::noinline]] static ssize_t senddata_otherwise(fid_ep* ep, const void* buf, size_t len, void* desc,
                                                        uint64_t data, fi_addr_t dest, Tag... tag,
                                                        void* context) noexcept
    {
        return send_buffer(ep, with_data(send_call(ep, dest, tag..., context), data), buf, len, desc);
    }
    static ssize_t senddata(fid_ep* ep, const void* buf, size_t len, void* desc, uint64_t data, fi_addr_t dest,
                            Tag... tag, void* context) noexcept
    {
        return send_at_once(ep, with_data(send_call(ep, dest, tag..., context), data), buf, len)
                   ? 0
                   : senddata_otherwise(ep, buf, len, desc, data, dest, tag..., context);
    }
    /// As recv_otherwise().
    [[gnu::noinline]] static ssize_t injectdata_otherwise(fid_ep* ep, const void* buf, size_t len, uint64_t data,
                                                          fi_addr_t dest, Tag... tag) noexcept
    {
        return send_buffer(ep, with_data(inject_call(dest, tag...), data), buf, len, nullptr);
    }
    static ssize_t injectdata(fid_ep* ep, const void* buf, size_t len, uint64_t data, fi_addr_t dest,
                              Tag... tag) noexcept
    {
        return send_at_once(ep, with_data(inject_call(dest, tag...), data), buf, len)
                   ? 0
                   : injectdata_otherwise(ep, buf, len, data, dest, tag...);
    }
    template <class Ops>
    static constexpr Ops table{sizeof(Ops), recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata};
};

} // namespace

} // namespace tofu::proto

namespace tofu {

fi_ops_msg msg_ops = proto::MessageCalls<fi_msg>::table<fi_ops_msg>;
fi_ops_tagged tagged_ops = proto::MessageCalls<fi_msg_tagged, std::uint64_t>::table<fi_ops_tagged>;

} // namespace tofu
