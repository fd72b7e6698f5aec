// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See mail.h.
#include "mail.h"

namespace fabtests {

ssize_t Mail::send(Form form, const std::vector<iovec>& pieces, fi_addr_t to, std::uint64_t tag, void* context,
                   std::uint64_t flags, std::uint64_t data)
{
    fid_ep* const ep = station.ep();
    std::vector<void*> desc(pieces.size(), w.desc());
    const iovec first = pieces.empty() ? iovec{} : pieces[0];
    return station.post([&]() -> ssize_t {
        switch (form) {
        case Form::plain:
            return tagged_ ? fi_tsend(ep, first.iov_base, first.iov_len, w.desc(), to, tag, context)
                           : fi_send(ep, first.iov_base, first.iov_len, w.desc(), to, context);
        case Form::v:
            return tagged_ ? fi_tsendv(ep, pieces.data(), desc.data(), pieces.size(), to, tag, context)
                           : fi_sendv(ep, pieces.data(), desc.data(), pieces.size(), to, context);
        case Form::msg: break;
        }
        if (tagged_) {
            const fi_msg_tagged msg{pieces.data(), desc.data(), pieces.size(), to, tag, 0, context, data};
            return fi_tsendmsg(ep, &msg, flags);
        }
        const fi_msg msg{pieces.data(), desc.data(), pieces.size(), to, context, data};
        return fi_sendmsg(ep, &msg, flags);
    });
}

ssize_t Mail::send(const void* buffer, std::size_t length, unsigned to, std::uint64_t tag, void* context)
{
    return send(Form::plain, {{const_cast<void*>(buffer), length}}, station.peer(to), tag, context);
}

ssize_t Mail::send_data(const void* buffer, std::size_t length, std::uint64_t data, unsigned to, std::uint64_t tag,
                        void* context)
{
    fid_ep* const ep = station.ep();
    const fi_addr_t peer = station.peer(to);
    return station.post([&] {
        return tagged_ ? fi_tsenddata(ep, buffer, length, w.desc(), data, peer, tag, context)
                       : fi_senddata(ep, buffer, length, w.desc(), data, peer, context);
    });
}

ssize_t Mail::inject(const void* buffer, std::size_t length, unsigned to, std::uint64_t tag)
{
    fid_ep* const ep = station.ep();
    const fi_addr_t peer = station.peer(to);
    return station.post(
        [&] { return tagged_ ? fi_tinject(ep, buffer, length, peer, tag) : fi_inject(ep, buffer, length, peer); });
}

ssize_t Mail::inject_data(const void* buffer, std::size_t length, std::uint64_t data, unsigned to, std::uint64_t tag)
{
    fid_ep* const ep = station.ep();
    const fi_addr_t peer = station.peer(to);
    return station.post([&] {
        return tagged_ ? fi_tinjectdata(ep, buffer, length, data, peer, tag)
                       : fi_injectdata(ep, buffer, length, data, peer);
    });
}

ssize_t Mail::recv(Form form, const std::vector<iovec>& pieces, fi_addr_t from, std::uint64_t tag, std::uint64_t ignore,
                   void* context, std::uint64_t flags)
{
    fid_ep* const ep = station.ep();
    std::vector<void*> desc(pieces.size(), w.desc());
    const iovec first = pieces.empty() ? iovec{} : pieces[0];
    return station.post([&]() -> ssize_t {
        switch (form) {
        case Form::plain:
            return tagged_ ? fi_trecv(ep, first.iov_base, first.iov_len, w.desc(), from, tag, ignore, context)
                           : fi_recv(ep, first.iov_base, first.iov_len, w.desc(), from, context);
        case Form::v:
            return tagged_ ? fi_trecvv(ep, pieces.data(), desc.data(), pieces.size(), from, tag, ignore, context)
                           : fi_recvv(ep, pieces.data(), desc.data(), pieces.size(), from, context);
        case Form::msg: break;
        }
        if (tagged_) {
            const fi_msg_tagged msg{pieces.data(), desc.data(), pieces.size(), from, tag, ignore, context, 0};
            return fi_trecvmsg(ep, &msg, flags);
        }
        const fi_msg msg{pieces.data(), desc.data(), pieces.size(), from, context, 0};
        return fi_recvmsg(ep, &msg, flags);
    });
}

ssize_t Mail::recv(void* buffer, std::size_t length, std::uint64_t tag, void* context)
{
    return recv(Form::plain, {{buffer, length}}, FI_ADDR_UNSPEC, tag, 0, context);
}

} // namespace fabtests
