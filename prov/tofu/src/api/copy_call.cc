// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Accepts a call that will be made later: refuses now what its engine would refuse, and copies its lists. Part of the
// work queue; calls the engines' checks.
#include "api/triggered.h"

#include <algorithm>
#include <cstring>
#include <new>

#include <rdma/fi_errno.h>

#include "msg/call_checks.h"
#include "msg/match_entry.h"
#include "tx/rx_context.h"

namespace tofu {

using proto::RecvCall;
using proto::SendCall;
using trigger::CounterCall;

namespace {

/// Copies a list to `to` and makes `list` point there.
template <class List, class T>
void copy(List& list, std::size_t count, T* to) noexcept
{
    list = list != nullptr ? (std::copy_n(list, count, to), to) : nullptr;
}

/// The array of descs of a request of the application's. Those of calls have been looked at by their entries.
template <class Array>
Array descs_of(const Work& w, const EndpointFace& face, Array descs) noexcept
{
    return w.request != nullptr ? face.descs(descs) : descs;
}

/// Copies the bytes of a call with FI_INJECT; they become one segment without a descriptor. False: no memory.
bool copy_bytes(Work& w, std::size_t& count, std::size_t length) noexcept
{
    w.payload.reset(new (std::nothrow) std::byte[length + 1]);
    if (w.payload == nullptr)
        return false;
    gather(w.payload.get(), w.local, count, length);
    w.local[0] = {w.payload.get(), length};
    w.desc[0] = nullptr;
    count = 1;
    return true;
}

/// Copies the operands of an atomic with FI_INJECT, segment by segment. False: no memory.
bool copy_bytes(Work& w, std::size_t count, std::size_t bytes, std::size_t size) noexcept
{
    w.payload.reset(new (std::nothrow) std::byte[2 * bytes]);
    std::byte* to = w.payload.get();
    for (fi_ioc* const list : {w.operand, w.compare})
        for (std::size_t i = 0; to != nullptr && i < count; i++)
            if (const std::size_t n = list[i].count * size; list[i].addr != nullptr && n != 0) {
                std::memcpy(to, list[i].addr, n);
                list[i].addr = to;
                to += n;
            }
    return to != nullptr;
}

/// Does the call want an entry on success, where we report its end ourselves?
template <class Call>
bool wants_entry(const Call& call) noexcept
{
    return (call.flags & FI_COMPLETION) != 0;
}

int take_in(Work&, const EndpointFace&, CounterCall&) noexcept { return -FI_EINVAL; } // belongs to no endpoint

int take_in(Work& w, const EndpointFace& face, SendCall& call) noexcept
{
    const TxContext& tx = *w.tx;
    const bool tagged = (call.packet_flags & proto::flag_tag) != 0;
    if (!tx.plan().is_open || (tx.plan().caps & (tagged ? FI_TAGGED : FI_MSG)) == 0)
        return -FI_EOPNOTSUPP;
    if (int ret = proto::check(call); ret != 0)
        return ret;
    copy(call.iov, call.count, w.local);
    copy(call.desc = descs_of(w, face, call.desc), call.count, w.desc);
    w.report_to(tx.reports(), call.entry_flags(), call.context, wants_entry(call));
    w.completion.tag = call.tag;
    if (w.request == nullptr)
        return (call.flags & FI_INJECT) == 0 || copy_bytes(w, call.count, call.length) ? 0 : -FI_ENOMEM;
    call.flags |= FI_TRIGGER; // keeps it out of the sender's backlog (Backlog::takes): it waits here
    call.context = &w;
    return 0;
}

int take_in(Work& w, const EndpointFace& face, RecvCall& call) noexcept
{
    const RxContext* const rx = face.receives != nullptr ? face.receives->context() : nullptr;
    if (rx == nullptr || !rx->is_open || rx->shared != nullptr ||
        (w.tx->plan().caps & (call.tagged ? FI_TAGGED : FI_MSG)) == 0)
        return -FI_EOPNOTSUPP;
    if (int ret = proto::check(call); ret != 0)
        return ret;
    if ((call.flags & (FI_PEEK | FI_CLAIM | FI_DISCARD)) != 0)
        return -FI_EBADFLAGS;
    copy(call.iov, call.count, w.local);
    copy(call.desc = descs_of(w, face, call.desc), call.count, w.desc);
    w.receives = face.receives;
    w.cq = rx->binding.cq;
    w.counter = rx->counters.recv.get();
    w.wants_entry = wants_entry(call);
    w.completion.context = call.context;
    w.completion.flags = proto::kind_of(call.tagged);
    w.completion.tag = call.tag;
    if (w.request == nullptr)
        return 0;
    if ((call.flags & FI_MULTI_RECV) != 0) // such a receive ends more than once
        return -FI_ENOSYS;
    call.flags |= FI_TRIGGER;
    call.context = &w;
    if (call.count == 1) // a second, empty segment keeps it off the short way of messages, which ignores the flags
        w.local[call.count++] = {};
    return 0;
}

int take_in(Work& w, const EndpointFace& face, RmaCall& call) noexcept
{
    const TxContext& tx = *w.tx;
    if (tx.engines()[Engine::rma] == nullptr)
        return -FI_EOPNOTSUPP;
    if ((call.flags & ~known_rma_flags(call.read)) != 0)
        return -FI_EBADFLAGS;
    std::size_t length = 0;
    if (int ret = check(call, *w.tx, length); ret != 0)
        return ret;
    copy(call.msg.msg_iov, call.msg.iov_count, w.local);
    copy(call.msg.desc = descs_of(w, face, call.msg.desc), call.msg.iov_count, w.desc);
    copy(call.msg.rma_iov, call.msg.rma_iov_count, w.remote);
    w.report_to(tx.reports(), FI_RMA | (call.read ? FI_READ : FI_WRITE), call.msg.context, wants_entry(call));
    if (w.request == nullptr && (call.flags & FI_INJECT) != 0 && !copy_bytes(w, call.msg.iov_count, length))
        return -FI_ENOMEM;
    if (w.request != nullptr)
        call.msg.context = &w;
    return 0;
}

int take_in(Work& w, const EndpointFace&, AtomicCall& call) noexcept
{
    const TxContext& tx = *w.tx;
    if (tx.engines()[Engine::atomic] == nullptr)
        return -FI_EOPNOTSUPP;
    const ssize_t elements = AtomicEngine::of(*w.tx).check(call);
    if (elements < 0)
        return static_cast<int>(elements);
    const bool base = call.family == Family::base;
    copy(call.msg.msg_iov, call.msg.op != FI_ATOMIC_READ ? call.msg.iov_count : 0, w.operand);
    copy(call.compare.at, call.family == Family::compare ? call.compare.n : 0, w.compare);
    copy(call.result.at, base ? 0 : call.result.n, w.result);
    copy(call.msg.rma_iov, call.msg.rma_iov_count, w.remote_words);
    w.report_to(tx.reports(), FI_ATOMIC | (base ? FI_WRITE : FI_READ), call.msg.context, wants_entry(call));
    const std::size_t size = datatypes[call.msg.datatype].size;
    if (w.request == nullptr && (call.flags & FI_INJECT) != 0 &&
        !copy_bytes(w, max_atomic_iov, static_cast<std::size_t>(elements) * size, size))
        return -FI_ENOMEM;
    if (w.request != nullptr)
        call.msg.context = &w;
    return 0;
}

} // namespace

int keep(Work& w, const EndpointFace& face) noexcept
{
    return std::visit([&](auto& call) { return take_in(w, face, call); }, w.call);
}

} // namespace tofu
