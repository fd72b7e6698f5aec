// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_rma(3): the calls of the application, each a shim over RmaEngine::submit. Called through rma_ops; takes
// the context's lock.
#include <mutex>

#include <rdma/fi_errno.h>

#include "context/face.h"
#include "context/later.h"
#include "progress/domain_base.h"
#include "rma/engine.h"

namespace tofu {

namespace {

/// Calls under the context's lock; what was taken may need somebody who polls.
template <class Call>
ssize_t under_lock(TxContext& tx, Call&& call) noexcept
{
    bool needs_polls = false;
    ssize_t ret = 0;
    {
        std::lock_guard guard(tx.lock());
        ret = call(RmaEngine::of(tx));
        needs_polls = tx.wants_polls();
    }
    if (needs_polls) [[unlikely]]
        tx.call_for_polls();
    return ret;
}

ssize_t submit(fid_ep* ep, const RmaEngine::Call& call) noexcept
{
    EndpointFace& face = EndpointFace::of(ep);
    if ((call.flags & FI_TRIGGER) != 0) [[unlikely]]
        return face.tx->domain().later().take(face, call);
    return under_lock(*face.tx, [&](RmaEngine& engine) { return engine.submit(call); });
}

[[gnu::noinline]] ssize_t inject(TxContext& tx, const void* data, std::size_t length, fi_addr_t to,
                                 std::uint64_t address, std::uint64_t key) noexcept
{
    return under_lock(tx,
                      [&](RmaEngine& engine) { return engine.inject(data, length, to, address, key); });
}

/// The calls with one remote segment and the endpoint's default flags.
ssize_t plain(fid_ep* ep, const iovec* iov, void** desc, std::size_t count, fi_addr_t to,
              std::uint64_t address, std::uint64_t key, void* context, bool read,
              std::uint64_t flags = 0, std::uint64_t data = 0, bool silent = false) noexcept
{
    std::size_t length = 0;
    if (count > rma_iov_limit || (count != 0 && iov == nullptr))
        return -FI_EINVAL;
    for (std::size_t i = 0; i < count; i++)
        length += iov[i].iov_len;
    const fi_rma_iov remote{address, length, key};
    const std::uint64_t defaults =
        EndpointFace::of(ep).tx_flags & (RmaEngine::known_flags(read) | (silent ? 0 : FI_TRIGGER));
    return submit(ep, {iov, desc, count, &remote, 1, to, context, data, defaults | flags, read,
                       silent});
}

ssize_t message(fid_ep* ep, const fi_msg_rma* msg, std::uint64_t flags, bool read) noexcept
{
    if (msg == nullptr)
        return -FI_EINVAL;
    if (flags & ~(RmaEngine::known_flags(read) | FI_TRIGGER))
        return -FI_EBADFLAGS;
    return submit(ep, {msg->msg_iov, msg->desc, msg->iov_count, msg->rma_iov, msg->rma_iov_count,
                       msg->addr, msg->context, msg->data, flags, read, false});
}

extern "C" {

ssize_t tofu_read(fid_ep* ep, void* buf, size_t len, void* desc, fi_addr_t from, uint64_t addr,
                  uint64_t key, void* context) noexcept
{
    TxContext& tx = *EndpointFace::of(ep).tx;
    {
        std::lock_guard guard(tx.lock());
        const ssize_t ret = RmaEngine::of(tx).read_quickly(buf, len, from, addr, key, context,
                                                               EndpointFace::of(ep).tx_flags);
        if (ret != RmaEngine::not_quick) [[likely]]
            return ret;
    }
    const iovec iov{buf, len};
    return plain(ep, &iov, &desc, 1, from, addr, key, context, true);
}

ssize_t tofu_readv(fid_ep* ep, const iovec* iov, void** desc, size_t count, fi_addr_t from,
                   uint64_t addr, uint64_t key, void* context) noexcept
{
    return plain(ep, iov, desc, count, from, addr, key, context, true);
}

ssize_t tofu_readmsg(fid_ep* ep, const fi_msg_rma* msg, uint64_t flags) noexcept
{
    return message(ep, msg, flags, true);
}

ssize_t tofu_write(fid_ep* ep, const void* buf, size_t len, void* desc, fi_addr_t to, uint64_t addr,
                   uint64_t key, void* context) noexcept
{
    TxContext& tx = *EndpointFace::of(ep).tx;
    {
        std::lock_guard guard(tx.lock());
        const ssize_t ret = RmaEngine::of(tx).write_quickly(buf, len, to, addr, key, context,
                                                                EndpointFace::of(ep).tx_flags);
        if (ret != RmaEngine::not_quick) [[likely]]
            return ret;
    }
    const iovec iov{const_cast<void*>(buf), len};
    return plain(ep, &iov, &desc, 1, to, addr, key, context, false);
}

ssize_t tofu_writev(fid_ep* ep, const iovec* iov, void** desc, size_t count, fi_addr_t to,
                    uint64_t addr, uint64_t key, void* context) noexcept
{
    return plain(ep, iov, desc, count, to, addr, key, context, false);
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
    return inject(tx, buf, len, to, addr, key);
}

ssize_t tofu_writedata(fid_ep* ep, const void* buf, size_t len, void* desc, uint64_t data,
                       fi_addr_t to, uint64_t addr, uint64_t key, void* context) noexcept
{
    const iovec iov{const_cast<void*>(buf), len};
    return plain(ep, &iov, &desc, 1, to, addr, key, context, false, FI_REMOTE_CQ_DATA, data);
}

ssize_t tofu_inject_writedata(fid_ep* ep, const void* buf, size_t len, uint64_t data, fi_addr_t to,
                              uint64_t addr, uint64_t key) noexcept
{
    const iovec iov{const_cast<void*>(buf), len};
    return plain(ep, &iov, nullptr, 1, to, addr, key, nullptr, false,
                 FI_REMOTE_CQ_DATA | FI_INJECT, data, true);
}
}

} // namespace

fi_ops_rma rma_ops = {sizeof(fi_ops_rma), tofu_read,      tofu_readv,
                      tofu_readmsg,       tofu_write,     tofu_writev,
                      tofu_writemsg,      tofu_inject_write, tofu_writedata,
                      tofu_inject_writedata};

} // namespace tofu
