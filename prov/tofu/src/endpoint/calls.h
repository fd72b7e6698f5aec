// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The operation tables of an endpoint that do not belong to an engine: its own, connection management, and
// those that refuse. Used by endpoint.cc; the functions call Endpoint.
#pragma once

#include <cstddef>

#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

namespace tofu {

extern fi_ops endpoint_fid_ops;
extern fi_ops alias_fid_ops;
extern fi_ops_ep endpoint_ops;
extern fi_ops_cm endpoint_cm_ops;
extern fi_ops_collective no_collective_ops;

/// Before fi_enable each call answers -FI_EOPBADSTATE, after it those that the caps leave out -FI_EOPNOTSUPP.
struct RefusingOps {
    fi_ops_msg msg;
    fi_ops_rma rma;
    fi_ops_tagged tagged;
    fi_ops_atomic atomic;
};
extern RefusingOps ops_of_disabled;
extern RefusingOps ops_of_missing;

/// The calls of one direction only: those of the other answer -FI_EOPNOTSUPP.
fi_ops_msg halved(fi_ops_msg ops, bool sends) noexcept;
fi_ops_tagged halved(fi_ops_tagged ops, bool sends) noexcept;
/// FI_OPT_MIN_MULTI_RECV and no other option (fi_endpoint(3)), read and written where it is kept. 0, -FI_ENOPROTOOPT,
/// -FI_EINVAL, -FI_ETOOSMALL.
int get_multi_recv(std::size_t kept, int level, int name, void* value, std::size_t* length) noexcept;
int set_multi_recv(std::size_t& kept, int level, int name, const void* value, std::size_t length) noexcept;
/// Connection management, none, with fi_getname by this function.
fi_ops_cm cm_ops_with(int (*getname)(fid_t, void*, size_t*)) noexcept;

} // namespace tofu
