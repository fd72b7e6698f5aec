// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_atomic(3): the calls of the application, thin entries over two ways: native.h for a single element that one
// ARMW serves, AtomicEngine::submit for everything else. Called through atomic_ops; takes the endpoint's lock.
#include "atomic/engine.h"

#include <mutex>

#include <rdma/fi_errno.h>

#include "atomic/native.h"
#include "context/face.h"
#include "context/later.h"
#include "progress/domain_base.h"

namespace tofu {
namespace {

ssize_t submit(fid_ep* fid, const AtomicEngine::Call& call) noexcept
{
    EndpointFace& face = EndpointFace::of(fid);
    TxContext& tx = *face.tx;
    if ((call.flags & FI_TRIGGER) != 0) [[unlikely]]
        return tx.domain().later().take(face, call);
    ssize_t ret = 0;
    bool needs_polls = false;
    {
        std::lock_guard<Lock> guard(tx.lock());
        ret = AtomicEngine::of(tx).submit(call);
        needs_polls = tx.wants_polls();
    }
    if (needs_polls) [[unlikely]]
        tx.call_for_polls();
    return ret;
}

// --- one piece here and there

[[gnu::noinline]] ssize_t submit_plain(fid_ep* fid, const PlainCall& call) noexcept
{
    const fi_ioc operand{const_cast<void*>(call.operand), call.count};
    const fi_ioc compare{const_cast<void*>(call.compare), call.count};
    const fi_ioc result{call.result, call.count};
    const fi_rma_ioc remote{call.address, call.count, call.key};
    return submit(fid, {call.family, call.op, call.type, &operand, 1, &compare, 1, &result, 1, &remote, 1, call.to,
                        call.context, call.flags, call.silent});
}

/// Inlined into each entry, and handed on as a copy, so that what an entry knows of its call stays in registers.
[[gnu::always_inline]] inline ssize_t plain(fid_ep* fid, const PlainCall& call) noexcept
{
    TxContext& tx = *EndpointFace::of(fid).tx;
    std::unique_lock<Lock> guard(tx.lock());
    AtomicEngine& engine = AtomicEngine::of(tx);
    if (static_cast<unsigned>(call.op) < op_count && static_cast<unsigned>(call.type) < datatype_count &&
        call.count == 1 && !(call.flags & (FI_FENCE | FI_TRIGGER))) [[likely]] {
        const Native how = natives[static_cast<unsigned>(call.family)][native_index(call.op, call.type)];
        if (how.size != 0 && (call.operand || how.reads) &&
            (call.family == Family::base || call.result) &&
            (call.family != Family::compare || call.compare)) [[likely]] {
            const ssize_t rc =
                !engine.access().at_once() ? submit_by_directory(tx, how, call)
                : call.silent && engine.short_inject() ? inject_native(tx, how, call)
                                                       : submit_native<false>(tx, how, call);
            if (rc != not_native) [[likely]]
                return rc;
        }
    }
    guard.unlock();
    const PlainCall copy = call;
    return submit_plain(fid, copy);
}

// --- the table's entries

ssize_t write(fid_ep* ep, const void* buf, size_t count, void*, fi_addr_t to, uint64_t addr,
              uint64_t key, fi_datatype type, fi_op op, void* context) noexcept
{
    return plain(ep, {Family::base, op, type, buf, nullptr, nullptr, count, to, addr, key, context,
                      EndpointFace::of(ep).tx_flags, false});
}

ssize_t inject(fid_ep* ep, const void* buf, size_t count, fi_addr_t to, uint64_t addr, uint64_t key,
               fi_datatype type, fi_op op) noexcept
{
    return plain(ep, {Family::base, op, type, buf, nullptr, nullptr, count, to, addr, key, nullptr,
                      FI_INJECT, true});
}

ssize_t readwrite(fid_ep* ep, const void* buf, size_t count, void*, void* result, void*,
                  fi_addr_t to, uint64_t addr, uint64_t key, fi_datatype type, fi_op op,
                  void* context) noexcept
{
    return plain(ep, {Family::fetch, op, type, buf, nullptr, result, count, to, addr, key, context,
                      EndpointFace::of(ep).tx_flags, false});
}

ssize_t compwrite(fid_ep* ep, const void* buf, size_t count, void*, const void* compare, void*,
                  void* result, void*, fi_addr_t to, uint64_t addr, uint64_t key, fi_datatype type,
                  fi_op op, void* context) noexcept
{
    return plain(ep, {Family::compare, op, type, buf, compare, result, count, to, addr, key,
                      context, EndpointFace::of(ep).tx_flags, false});
}

/// The remote side of the v calls: one piece, as long as the local list.
fi_rma_ioc remote_of(const fi_ioc* list, size_t n, uint64_t addr, uint64_t key)
{
    const ssize_t total = AtomicEngine::elements_of(list, n);
    return {addr, total < 0 ? 0 : static_cast<size_t>(total), key};
}

ssize_t writev(fid_ep* ep, const fi_ioc* iov, void**, size_t count, fi_addr_t to, uint64_t addr,
               uint64_t key, fi_datatype type, fi_op op, void* context) noexcept
{
    const fi_rma_ioc remote = remote_of(iov, count, addr, key);
    return submit(ep, {Family::base, op, type, iov, count, nullptr, 0, nullptr, 0, &remote, 1, to,
                       context, EndpointFace::of(ep).tx_flags, false});
}

ssize_t readwritev(fid_ep* ep, const fi_ioc* iov, void**, size_t count, fi_ioc* result, void**,
                   size_t results, fi_addr_t to, uint64_t addr, uint64_t key, fi_datatype type,
                   fi_op op, void* context) noexcept
{
    const fi_rma_ioc remote = remote_of(result, results, addr, key);
    return submit(ep, {Family::fetch, op, type, iov, count, nullptr, 0, result, results, &remote, 1,
                       to, context, EndpointFace::of(ep).tx_flags, false});
}

ssize_t compwritev(fid_ep* ep, const fi_ioc* iov, void**, size_t count, const fi_ioc* compare,
                   void**, size_t compares, fi_ioc* result, void**, size_t results, fi_addr_t to,
                   uint64_t addr, uint64_t key, fi_datatype type, fi_op op, void* context) noexcept
{
    const fi_rma_ioc remote = remote_of(iov, count, addr, key);
    return submit(ep, {Family::compare, op, type, iov, count, compare, compares, result, results,
                       &remote, 1, to, context, EndpointFace::of(ep).tx_flags, false});
}

/// A list of one element.
bool is_one(const fi_ioc* list, size_t n) { return list && n == 1 && list->count == 1; }

ssize_t submit_message(fid_ep* ep, Family family, const fi_msg_atomic* msg, const fi_ioc* compare,
                       size_t compares, const fi_ioc* result, size_t results,
                       uint64_t flags) noexcept
{
    if (!msg)
        return -FI_EINVAL;
    const bool read = msg->op == FI_ATOMIC_READ;
    if (msg->rma_iov_count == 1 && msg->rma_iov && msg->rma_iov->count == 1 && !(flags & ~AtomicEngine::known_flags) &&
        (read || is_one(msg->msg_iov, msg->iov_count)) &&
        (family == Family::base || is_one(result, results)) &&
        (family != Family::compare || is_one(compare, compares)))
        return plain(ep, {family, msg->op, msg->datatype, read ? nullptr : msg->msg_iov->addr,
                          family == Family::compare ? compare->addr : nullptr,
                          family == Family::base ? nullptr : result->addr, 1, msg->addr,
                          msg->rma_iov->addr, msg->rma_iov->key, msg->context, flags, false});
    return submit(ep, {family, msg->op, msg->datatype, msg->msg_iov, msg->iov_count, compare,
                       compares, result, results, msg->rma_iov, msg->rma_iov_count, msg->addr,
                       msg->context, flags, false});
}

ssize_t writemsg(fid_ep* ep, const fi_msg_atomic* msg, uint64_t flags) noexcept
{
    return submit_message(ep, Family::base, msg, nullptr, 0, nullptr, 0, flags);
}

ssize_t readwritemsg(fid_ep* ep, const fi_msg_atomic* msg, fi_ioc* result, void**, size_t results,
                     uint64_t flags) noexcept
{
    return submit_message(ep, Family::fetch, msg, nullptr, 0, result, results, flags);
}

ssize_t compwritemsg(fid_ep* ep, const fi_msg_atomic* msg, const fi_ioc* compare, void**,
                     size_t compares, fi_ioc* result, void**, size_t results,
                     uint64_t flags) noexcept
{
    return submit_message(ep, Family::compare, msg, compare, compares, result, results, flags);
}

int valid(fi_datatype type, fi_op op, size_t* count, std::uint64_t flags)
{
    fi_atomic_attr attr{};
    const int rc = query_atomic(type, op, &attr, flags);
    if (rc == 0 && count)
        *count = attr.count;
    return rc;
}

int writevalid(fid_ep*, fi_datatype type, fi_op op, size_t* count) noexcept
{
    return valid(type, op, count, 0);
}

int readwritevalid(fid_ep*, fi_datatype type, fi_op op, size_t* count) noexcept
{
    return valid(type, op, count, FI_FETCH_ATOMIC);
}

int compwritevalid(fid_ep*, fi_datatype type, fi_op op, size_t* count) noexcept
{
    return valid(type, op, count, FI_COMPARE_ATOMIC);
}

} // namespace

fi_ops_atomic atomic_ops = {
    .size = sizeof(fi_ops_atomic),
    .write = write,
    .writev = writev,
    .writemsg = writemsg,
    .inject = inject,
    .readwrite = readwrite,
    .readwritev = readwritev,
    .readwritemsg = readwritemsg,
    .compwrite = compwrite,
    .compwritev = compwritev,
    .compwritemsg = compwritemsg,
    .writevalid = writevalid,
    .readwritevalid = readwritevalid,
    .compwritevalid = compwritevalid,
};

} // namespace tofu
