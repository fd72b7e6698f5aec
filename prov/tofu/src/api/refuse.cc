// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Operation tables of which every call refuses (core/object.h), or every call of one direction. Used by endpoint.cc,
// scalable.cc and shared_context.cc; calls nothing.
#include <rdma/fi_errno.h>

#include "api/endpoint_calls.h"
#include "core/object.h"

namespace tofu {

namespace {

template <int code>
constexpr RefusingOps refusing() noexcept
{
    constexpr auto no = refuses<code>;
    constexpr auto never = refuses<-FI_ENOSYS>;
    return {
        {sizeof(fi_ops_msg), no, no, no, no, no, no, no, no, no},
        {sizeof(fi_ops_rma), no, no, no, no, no, no, no, no, no},
        {sizeof(fi_ops_tagged), no, no, no, no, no, no, no, no, no},
        {sizeof(fi_ops_atomic), no, no, no, no, no, no, no, no, no, no, no, no, no},
        {sizeof(fi_ops_collective), never, never, never, never, never, never, never, never, never, never, never},
    };
}

/// halved() for messages and for tagged messages, whose tables name their calls alike.
template <class Ops>
Ops half_of(Ops ops, bool sends) noexcept
{
    constexpr auto no = refuses<-FI_EOPNOTSUPP>;
    if (sends)
        ops.recv = no, ops.recvv = no, ops.recvmsg = no;
    else
        ops.send = no, ops.sendv = no, ops.sendmsg = no, ops.inject = no, ops.senddata = no,
        ops.injectdata = no;
    return ops;
}

} // namespace

RefusingOps ops_of_disabled = refusing<-FI_EOPBADSTATE>();
RefusingOps ops_of_missing = refusing<-FI_EOPNOTSUPP>();

void refuse_all(fid_ep& ep, RefusingOps& ops) noexcept
{
    ep.msg = &ops.msg;
    ep.rma = &ops.rma;
    ep.tagged = &ops.tagged;
    ep.atomic = &ops.atomic;
    ep.collective = &ops.collective;
}

fi_ops_msg halved(fi_ops_msg ops, bool sends) noexcept { return half_of(ops, sends); }
fi_ops_tagged halved(fi_ops_tagged ops, bool sends) noexcept { return half_of(ops, sends); }

fi_ops_cm cm_ops_with(int (*getname)(fid_t, void*, size_t*)) noexcept
{
    constexpr auto nosys = refuses<-FI_ENOSYS>;
    return {sizeof(fi_ops_cm), nosys, getname, nosys, nosys, nosys, nosys, nosys, nosys, nosys};
}

} // namespace tofu
