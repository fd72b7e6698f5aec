// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_collective(3): the calls of the application, thin entries over Collectives::submit. Called through collective_ops;
// takes the context's lock.
#include <rdma/fi_errno.h>

#include "coll/engine.h"
#include "core/object.h"
#include "tx/ep_handle.h"

namespace tofu::coll {
namespace {

ssize_t submit(fid_ep* fid, const Collectives::Call& call) noexcept
{
    TxContext& tx = *EndpointFace::of(fid).tx;
    return tx.take([&] { return Collectives::of(tx).submit(call); });
}

/// The root is a rank in the group. One that can't be is refused.
constexpr unsigned root_of(fi_addr_t address) noexcept { return address < ~0u ? static_cast<unsigned>(address) : ~0u; }

ssize_t barrier2(fid_ep* ep, fi_addr_t group, uint64_t flags, void* context) noexcept
{
    return submit(ep, {{}, nullptr, nullptr, group, flags, context});
}
ssize_t barrier(fid_ep* ep, fi_addr_t group, void* context) noexcept
{
    return barrier2(ep, group, EndpointFace::of(ep).tx_flags & ~FI_INJECT, context);
}
ssize_t broadcast(fid_ep* ep, void* buf, size_t count, void*, fi_addr_t group, fi_addr_t root, fi_datatype type,
                  uint64_t flags, void* context) noexcept
{
    return submit(ep, {{FI_BROADCAST, type, FI_NOOP, count, root_of(root)}, nullptr, buf, group, flags, context});
}
/// What comes of all members' blocks.
template <fi_collective_op coll>
ssize_t exchange(fid_ep* ep, const void* buf, size_t count, void*, void* result, void*, fi_addr_t group,
                 fi_datatype type, uint64_t flags, void* context) noexcept
{
    return submit(ep, {{coll, type, FI_NOOP, count, 0}, buf, result, group, flags, context});
}

/// The same, reduced.
template <fi_collective_op coll>
ssize_t combine(fid_ep* ep, const void* buf, size_t count, void*, void* result, void*, fi_addr_t group,
                fi_datatype type, fi_op op, uint64_t flags, void* context) noexcept
{
    return submit(ep, {{coll, type, op, count, 0}, buf, result, group, flags, context});
}

ssize_t reduce(fid_ep* ep, const void* buf, size_t count, void*, void* result, void*, fi_addr_t group,
               fi_addr_t root, fi_datatype type, fi_op op, uint64_t flags, void* context) noexcept
{
    return submit(ep, {{FI_REDUCE, type, op, count, root_of(root)}, buf, result, group, flags, context});
}

/// Blocks of all, from or to the root.
template <fi_collective_op coll>
ssize_t move(fid_ep* ep, const void* buf, size_t count, void*, void* result, void*, fi_addr_t group, fi_addr_t root,
             fi_datatype type, uint64_t flags, void* context) noexcept
{
    return submit(ep, {{coll, type, FI_NOOP, count, root_of(root)}, buf, result, group, flags, context});
}

} // namespace

fi_ops_collective collective_ops = {
    .size = sizeof(fi_ops_collective),
    .barrier = barrier,
    .broadcast = broadcast,
    .alltoall = exchange<FI_ALLTOALL>,
    .allreduce = combine<FI_ALLREDUCE>,
    .allgather = exchange<FI_ALLGATHER>,
    .reduce_scatter = combine<FI_REDUCE_SCATTER>,
    .reduce = reduce,
    .scatter = move<FI_SCATTER>,
    .gather = move<FI_GATHER>,
    .msg = refuses<-FI_ENOSYS>, // no manual page tells of it, and no call of libfabric leads here
    .barrier2 = barrier2,
};

} // namespace tofu::coll
