// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_atomic(3): the calls of the application, thin entries over two ways: armw.h for a single element that one
// ARMW serves, AtomicEngine::submit for everything else. Called through atomic_ops; takes the context's lock.
#include "atomic/atomic.h"

#include <mutex>

#include <rdma/fi_errno.h>

#include "atomic/armw.h"
#include "cq/domain_base.h"
#include "tx/deferred.h"
#include "tx/ep_handle.h"

namespace tofu {
namespace {

using List = AtomicEngine::List;

ssize_t submit(fid_ep* fid, const AtomicEngine::Call& call) noexcept
{
    EndpointFace& face = EndpointFace::of(fid);
    TxContext& tx = *face.tx;
    if ((call.flags & FI_TRIGGER) != 0) [[unlikely]]
        return tx.domain().deferred().later->take(face, call);
    return tx.take([&] { return AtomicEngine::of(tx).submit(call); });
}

// --- one piece here and there

[[gnu::noinline]] ssize_t submit_plain(fid_ep* fid, const PlainCall& call) noexcept
{
    const fi_ioc operand{const_cast<void*>(call.operand), call.count};
    const fi_ioc compare{const_cast<void*>(call.compare), call.count};
    const fi_ioc result{call.result, call.count};
    const fi_rma_ioc remote{call.address, call.count, call.key};
    const fi_msg_atomic msg{&operand, nullptr, 1, call.to, &remote, 1, call.type, call.op, call.context, 0};
    return submit(fid, {call.family, msg, {&compare, 1}, {&result, 1}, call.flags, call.silent});
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
            const ssize_t rc = engine.access().at_once() ? submit_native<false>(tx, how, call)
                                                         : submit_by_directory(tx, how, call);
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

/// The calls of lists: one piece at the peer, as long as they are.
ssize_t lists(fid_ep* ep, Family family, fi_msg_atomic msg, uint64_t addr, uint64_t key, const List& compare,
              const List& result) noexcept
{
    const ssize_t total = AtomicEngine::elements_of(family == Family::base ? List{msg.msg_iov, msg.iov_count} : result);
    const fi_rma_ioc remote{addr, total < 0 ? 0 : static_cast<size_t>(total), key};
    msg.rma_iov = &remote;
    msg.rma_iov_count = 1;
    return submit(ep, {family, msg, compare, result, EndpointFace::of(ep).tx_flags, false});
}

ssize_t writev(fid_ep* ep, const fi_ioc* iov, void**, size_t count, fi_addr_t to, uint64_t addr, uint64_t key,
               fi_datatype type, fi_op op, void* context) noexcept
{
    return lists(ep, Family::base, {iov, nullptr, count, to, nullptr, 0, type, op, context, 0}, addr, key, {}, {});
}

ssize_t readwritev(fid_ep* ep, const fi_ioc* iov, void**, size_t count, fi_ioc* result, void**, size_t results,
                   fi_addr_t to, uint64_t addr, uint64_t key, fi_datatype type, fi_op op, void* context) noexcept
{
    return lists(ep, Family::fetch, {iov, nullptr, count, to, nullptr, 0, type, op, context, 0}, addr, key, {},
                 {result, results});
}

ssize_t compwritev(fid_ep* ep, const fi_ioc* iov, void**, size_t count, const fi_ioc* compare, void**, size_t compares,
                   fi_ioc* result, void**, size_t results, fi_addr_t to, uint64_t addr, uint64_t key, fi_datatype type,
                   fi_op op, void* context) noexcept
{
    return lists(ep, Family::compare, {iov, nullptr, count, to, nullptr, 0, type, op, context, 0}, addr, key,
                 {compare, compares}, {result, results});
}

/// A list of one element.
bool is_one(const List& list) { return list.at && list.n == 1 && list.at->count == 1; }

ssize_t message(fid_ep* ep, Family family, const fi_msg_atomic* msg, const List& compare, const List& result,
                uint64_t flags) noexcept
{
    if (!msg)
        return -FI_EINVAL;
    const bool read = msg->op == FI_ATOMIC_READ;
    if (msg->rma_iov_count == 1 && msg->rma_iov && msg->rma_iov->count == 1 && !(flags & ~AtomicEngine::known_flags) &&
        (read || is_one({msg->msg_iov, msg->iov_count})) && (family == Family::base || is_one(result)) &&
        (family != Family::compare || is_one(compare)))
        return plain(ep, {family, msg->op, msg->datatype, read ? nullptr : msg->msg_iov->addr,
                          family == Family::compare ? compare.at->addr : nullptr,
                          family == Family::base ? nullptr : result.at->addr, 1, msg->addr,
                          msg->rma_iov->addr, msg->rma_iov->key, msg->context, flags, false});
    return submit(ep, {family, *msg, compare, result, flags, false});
}

ssize_t writemsg(fid_ep* ep, const fi_msg_atomic* msg, uint64_t flags) noexcept
{
    return message(ep, Family::base, msg, {}, {}, flags);
}

ssize_t readwritemsg(fid_ep* ep, const fi_msg_atomic* msg, fi_ioc* result, void**, size_t results,
                     uint64_t flags) noexcept
{
    return message(ep, Family::fetch, msg, {}, {result, results}, flags);
}

ssize_t compwritemsg(fid_ep* ep, const fi_msg_atomic* msg, const fi_ioc* compare, void**,
                     size_t compares, fi_ioc* result, void**, size_t results,
                     uint64_t flags) noexcept
{
    return message(ep, Family::compare, msg, {compare, compares}, {result, results}, flags);
}

template <uint64_t family>
int valid(fid_ep*, fi_datatype type, fi_op op, size_t* count) noexcept
{
    fi_atomic_attr attr{};
    const int rc = query_atomic(type, op, &attr, family);
    if (rc == 0 && count)
        *count = attr.count;
    return rc;
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
    .writevalid = valid<0>,
    .readwritevalid = valid<FI_FETCH_ATOMIC>,
    .compwritevalid = valid<FI_COMPARE_ATOMIC>,
};

} // namespace tofu
