// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_rma(3): the calls of the application. Each tries the short way (RmaEngine) where it has one, else it calls
// RmaRunner::submit. Called through rma_ops; takes the context's lock.
#include <mutex>

#include <rdma/fi_errno.h>

#include "cq/domain_base.h"
#include "rma/rma.h"
#include "tx/ep_handle.h"

namespace tofu {

namespace {

ssize_t submit(fid_ep* ep, const RmaCall& call) noexcept
{
    EndpointFace& face = EndpointFace::of(ep);
    TxContext& tx = *face.tx;
    if ((call.flags & FI_TRIGGER) != 0) [[unlikely]]
        return tx.domain().deferred().later->take(face, call);
    return tx.take([&] { return RmaEngine::of(tx).runner().submit(call); });
}

/// Submits a call with one remote segment, which is as long as the local ones together. The endpoint's default flags
/// apply, except to injects (`silent`).
ssize_t plain(fid_ep* ep, bool read, fi_msg_rma msg, std::uint64_t address, std::uint64_t key, std::uint64_t flags = 0,
              bool silent = false) noexcept
{
    std::size_t length = 0;
    if (msg.iov_count > rma_iov_limit || (msg.iov_count != 0 && msg.msg_iov == nullptr))
        return -FI_EINVAL;
    for (std::size_t i = 0; i < msg.iov_count; i++)
        length += msg.msg_iov[i].iov_len;
    const fi_rma_iov remote{address, length, key};
    msg.rma_iov = &remote;
    msg.rma_iov_count = 1;
    const std::uint64_t defaults = EndpointFace::of(ep).tx_flags & (known_rma_flags(read) | FI_TRIGGER);
    return submit(ep, {msg, silent ? flags : defaults | flags, read, silent});
}

/// As plain(), with one local segment.
[[gnu::noinline]] ssize_t single(fid_ep* ep, bool read, const void* buf, std::size_t length, void* desc, fi_addr_t to,
               std::uint64_t address, std::uint64_t key, void* context, std::uint64_t data = 0,
               std::uint64_t flags = 0, bool silent = false) noexcept
{
    const iovec iov{const_cast<void*>(buf), length};
    return plain(ep, read, {&iov, &desc, 1, to, nullptr, 0, context, data}, address, key, flags, silent);
}

template <bool read>
[[gnu::always_inline]] inline ssize_t quick(fid_ep* ep, void* buf, std::size_t length, void* desc, fi_addr_t to,
                                            std::uint64_t address, std::uint64_t key, void* context) noexcept
{
    TxContext& tx = *EndpointFace::of(ep).tx;
    {
        std::lock_guard guard(tx.lock());
        RmaEngine& engine = RmaEngine::of(tx);
        const std::uint64_t flags = EndpointFace::of(ep).tx_flags;
        ssize_t ret = engine.go_quickly<read, false>(buf, length, desc, to, address, key, context, flags);
        if (ret != RmaEngine::not_quick) [[likely]]
            return ret;
        if (desc != nullptr)
            ret = engine.go_quickly<read, true>(buf, length, desc, to, address, key, context, flags);
        if (ret != RmaEngine::not_quick)
            return ret;
    }
    return single(ep, read, buf, length, desc, to, address, key, context);
}

ssize_t message(fid_ep* ep, const fi_msg_rma* msg, std::uint64_t flags, bool read) noexcept
{
    if (msg == nullptr)
        return -FI_EINVAL;
    if (flags & ~(known_rma_flags(read) | FI_TRIGGER))
        return -FI_EBADFLAGS;
    RmaCall call{*msg, flags, read, false};
    call.msg.desc = EndpointFace::of(ep).descs(call.msg.desc);
    return submit(ep, call);
}

extern "C" {

ssize_t tofu_read(fid_ep* ep, void* buf, size_t len, void* desc, fi_addr_t from, uint64_t addr,
                  uint64_t key, void* context) noexcept
{
    return quick<true>(ep, buf, len, desc, from, addr, key, context);
}

ssize_t tofu_readv(fid_ep* ep, const iovec* iov, void** desc, size_t count, fi_addr_t from,
                   uint64_t addr, uint64_t key, void* context) noexcept
{
    return plain(ep, true, {iov, EndpointFace::of(ep).descs(desc), count, from, nullptr, 0, context, 0}, addr, key);
}

ssize_t tofu_readmsg(fid_ep* ep, const fi_msg_rma* msg, uint64_t flags) noexcept
{
    return message(ep, msg, flags, true);
}

ssize_t tofu_write(fid_ep* ep, const void* buf, size_t len, void* desc, fi_addr_t to, uint64_t addr,
                   uint64_t key, void* context) noexcept
{
    return quick<false>(ep, const_cast<void*>(buf), len, desc, to, addr, key, context);
}

ssize_t tofu_writev(fid_ep* ep, const iovec* iov, void** desc, size_t count, fi_addr_t to,
                    uint64_t addr, uint64_t key, void* context) noexcept
{
    return plain(ep, false, {iov, EndpointFace::of(ep).descs(desc), count, to, nullptr, 0, context, 0}, addr, key);
}

ssize_t tofu_writemsg(fid_ep* ep, const fi_msg_rma* msg, uint64_t flags) noexcept
{
    return message(ep, msg, flags, false);
}

ssize_t tofu_inject_write(fid_ep* ep, const void* buf, size_t len, fi_addr_t to, uint64_t addr,
                          uint64_t key) noexcept
{
    TxContext& tx = *EndpointFace::of(ep).tx;
    {
        std::lock_guard guard(tx.lock());
        const ssize_t ret = RmaEngine::of(tx).inject_quickly(buf, len, to, addr, key);
        if (ret != RmaEngine::not_quick) [[likely]]
            return ret;
    }
    return single(ep, false, buf, len, nullptr, to, addr, key, nullptr, 0, FI_INJECT, true);
}

ssize_t tofu_writedata(fid_ep* ep, const void* buf, size_t len, void* desc, uint64_t data,
                       fi_addr_t to, uint64_t addr, uint64_t key, void* context) noexcept
{
    return single(ep, false, buf, len, desc, to, addr, key, context, data, FI_REMOTE_CQ_DATA);
}

ssize_t tofu_inject_writedata(fid_ep* ep, const void* buf, size_t len, uint64_t data, fi_addr_t to,
                              uint64_t addr, uint64_t key) noexcept
{
    return single(ep, false, buf, len, nullptr, to, addr, key, nullptr, data, FI_REMOTE_CQ_DATA | FI_INJECT, true);
}
}

} // namespace

fi_ops_rma rma_ops = {sizeof(fi_ops_rma), tofu_read,      tofu_readv,
                      tofu_readmsg,       tofu_write,     tofu_writev,
                      tofu_writemsg,      tofu_inject_write, tofu_writedata,
                      tofu_inject_writedata};

} // namespace tofu
