// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The calls of fi_msg(3) and fi_tagged(3), which differ by a tag alone: thin shims over the sender and the receive
// queue.
#include "msg/calls.h"

namespace tofu {

namespace {

using namespace proto;

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
        return recv_buffer(ep, recv_of(EpHandle::of(ep), source, tag..., ignore..., context), buf, len, desc);
    }
    static ssize_t recv(fid_ep* ep, void* buf, size_t len, void* desc, fi_addr_t source, Tag... tag, Tag... ignore,
                        void* context) noexcept
    {
        EpHandle& handle = EpHandle::of(ep);
        if (!handle.receive_lock->enabled() &&
            handle.receives->post_at_once(recv_of(handle, source, tag..., ignore..., context), buf, len, desc))
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
    static ssize_t send(fid_ep* ep, const void* buf, size_t len, void* desc, fi_addr_t dest, Tag... tag,
                        void* context) noexcept
    {
        const SendCall call{.dest = dest,
                            .tag = one(tag...),
                            .flags = EpHandle::of(ep).tx_flags,
                            .context = context,
                            .packet_flags = tag_flag};
        return enter_send(ep, call, buf, len, desc);
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
    static ssize_t inject(fid_ep* ep, const void* buf, size_t len, fi_addr_t dest, Tag... tag) noexcept
    {
        const SendCall call{.dest = dest, .tag = one(tag...), .packet_flags = tag_flag, .is_inject = true};
        return enter_send(ep, call, buf, len, nullptr);
    }
    static ssize_t senddata(fid_ep* ep, const void* buf, size_t len, void* desc, uint64_t data, fi_addr_t dest,
                            Tag... tag, void* context) noexcept
    {
        const SendCall call{.dest = dest,
                            .tag = one(tag...),
                            .data = data,
                            .flags = EpHandle::of(ep).tx_flags,
                            .context = context,
                            .packet_flags = tag_flag | flag_data};
        return enter_send(ep, call, buf, len, desc);
    }
    static ssize_t injectdata(fid_ep* ep, const void* buf, size_t len, uint64_t data, fi_addr_t dest,
                              Tag... tag) noexcept
    {
        const SendCall call{
            .dest = dest, .tag = one(tag...), .data = data, .packet_flags = tag_flag | flag_data, .is_inject = true};
        return enter_send(ep, call, buf, len, nullptr);
    }
    template <class Ops>
    static constexpr Ops table{sizeof(Ops), recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata};
};

} // namespace

fi_ops_msg msg_ops = MessageCalls<fi_msg>::table<fi_ops_msg>;
fi_ops_tagged tagged_ops = MessageCalls<fi_msg_tagged, std::uint64_t>::table<fi_ops_tagged>;

} // namespace tofu
