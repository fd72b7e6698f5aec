// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The operation tables of an endpoint that do not belong to an engine: general calls, connection management, and tables
// whose calls fail. Endpoints (api/endpoint.cc), scalable endpoints and shared contexts (api/contexts.cc) fill them in.
#pragma once

#include <cstddef>
#include <initializer_list>

#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include "core/object.h"

namespace tofu {

extern fi_ops endpoint_fid_ops;
extern fi_ops alias_fid_ops;
extern fi_ops_ep endpoint_ops;
extern fi_ops_cm endpoint_cm_ops;

/// Tables whose calls all fail: with -FI_EOPBADSTATE before fi_enable, with -FI_EOPNOTSUPP after it where the caps
/// exclude the calls.
struct RefusingOps {
    fi_ops_msg msg;
    fi_ops_rma rma;
    fi_ops_tagged tagged;
    fi_ops_atomic atomic;
    fi_ops_collective collective;
};
extern RefusingOps ops_of_disabled;
extern RefusingOps ops_of_missing;
void refuse_all(fid_ep& ep, RefusingOps& ops) noexcept;

/// A copy of the table, fi_ops_msg or fi_ops_tagged, with the calls of one direction; the others answer -FI_EOPNOTSUPP.
template <class Ops>
Ops halved(Ops ops, bool sends) noexcept
{
    constexpr auto no = unsupported<-FI_EOPNOTSUPP>;
    if (sends)
        ops.recv = no, ops.recvv = no, ops.recvmsg = no;
    else
        ops.send = no, ops.sendv = no, ops.sendmsg = no, ops.inject = no, ops.senddata = no, ops.injectdata = no;
    return ops;
}
/// Endpoint options that libfabric 2 has added; older headers do not have their names.
enum : int {
    opt_shared_memory_permitted = 11, ///< bool
    opt_max_msg_size,                 ///< bytes, as all that follow
    opt_max_tagged_size,
    opt_max_rma_size,
    opt_max_atomic_size,
    opt_inject_msg_size,
    opt_inject_tagged_size,
    opt_inject_rma_size,
    opt_inject_atomic_size,
};
#if FI_MAJOR_VERSION >= 2
static_assert(int{FI_OPT_SHARED_MEMORY_PERMITTED} == int{opt_shared_memory_permitted} &&
              int{FI_OPT_INJECT_ATOMIC_SIZE} == int{opt_inject_atomic_size});
#endif
/// fi_getopt(3) of an object that has the options `has` at FI_OPT_ENDPOINT. 0, -FI_ENOPROTOOPT, -FI_EINVAL,
/// -FI_ETOOSMALL.
struct Option {
    int name;
    std::size_t value;
};
int get_options(std::initializer_list<Option> has, int level, int name, void* value, std::size_t* length) noexcept;
/// fi_setopt(3) of an object whose only settable option is FI_OPT_MIN_MULTI_RECV. 0, -FI_ENOPROTOOPT, -FI_EINVAL.
int set_multi_recv(std::size_t& kept, int level, int name, const void* value, std::size_t length) noexcept;
/// The calls of fi_ops_ep by name, with the refusals of those that an object does not offer.
struct ContextCalls {
    ssize_t (*cancel)(fid_t, void*) = unsupported<-FI_EOPNOTSUPP>;
    int (*getopt)(fid_t, int, int, void*, std::size_t*) = unsupported<-FI_ENOPROTOOPT>;
    int (*setopt)(fid_t, int, int, const void*, std::size_t) = unsupported<-FI_ENOPROTOOPT>;
    int (*tx_ctx)(fid_ep*, int, fi_tx_attr*, fid_ep**, void*) = unsupported<-FI_ENOSYS>;
    int (*rx_ctx)(fid_ep*, int, fi_rx_attr*, fid_ep**, void*) = unsupported<-FI_ENOSYS>;
    ssize_t (*rx_size_left)(fid_ep*) = unsupported<-FI_EOPNOTSUPP>;
    ssize_t (*tx_size_left)(fid_ep*) = unsupported<-FI_EOPNOTSUPP>;
};
constexpr fi_ops_ep context_ops(const ContextCalls& c) noexcept
{
    return {sizeof(fi_ops_ep), c.cancel, c.getopt, c.setopt, c.tx_ctx, c.rx_ctx, c.rx_size_left, c.tx_size_left};
}
/// A table of fi_ops_cm whose calls answer -FI_ENOSYS, except that `getname` serves fi_getname.
fi_ops_cm cm_ops_with(int (*getname)(fid_t, void*, size_t*)) noexcept;

} // namespace tofu
