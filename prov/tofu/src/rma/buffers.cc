// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See buffers.h.
#include "rma/buffers.h"

#include <rdma/fi_errno.h>

#include "mem/local_buffer.h"

namespace tofu {
namespace {

/// Bytes up to which a copy is cheaper than registering the buffer, and than looking up the registration of a buffer
/// that lies in a region.
constexpr std::size_t copy_limit = BouncePool::large_size;
constexpr std::size_t copy_limit_in_region = BouncePool::small_size;

} // namespace

RmaBuffers::RmaBuffers(TxContext& tx) noexcept
    : tx_(tx),
      bounces_(tx.vcq()),
      max_inline_(tx.vcq().backend().caps().max_piggyback_size),
      may_leave_((tx.plan().attr.msg_order & ~std::uint64_t{FI_ORDER_SAS}) == 0)
{
}

int RmaBuffers::attach(RmaOp& op, const RmaCall& call) noexcept
{
    const bool keep = (call.flags & FI_INJECT) != 0; // the application may reuse its buffer when the call returns
    if (!op.read && op.total <= max_inline_) {
        const bool one_piece = op.local_count <= 1 && op.targets <= 1;
        if (!keep || (one_piece && !op.by_directory))
            return 0;
    }
    void* const* const desc = call.msg.desc;
    const bool in_region = desc != nullptr && op.local_count != 0 && desc[0] != nullptr;
    if (op.total <= (in_region && !keep ? copy_limit_in_region : copy_limit)) {
        op.bounce = bounces_.alloc(op.total);
        if (op.bounce.data != nullptr) {
            if (!op.read)
                gather(op.bounce.data, op.local, op.local_count, op.total);
            return 0;
        }
        if (keep)
            return -FI_EAGAIN;
    }
    if (op.total >= Rails::least_length && may_leave_ && !op.fenced && !op.sent_suffices && !op.data_at_once)
        op.rail = tx_.rails().take(Rails::By::us, op.peer.home, op.total);
    LocalMemory& memory = tx_.rails().memory(op.rail);
    for (unsigned i = 0; i < op.local_count; i++, op.acquired++) {
        op.refs[i] = {};
        const auto [base, length] = op.local[i];
        if (length == 0)
            continue;
        if (int ret = memory.acquire(base, length, !op.read, op.refs[i], desc != nullptr ? desc[i] : nullptr); ret != 0)
            return ret;
    }
    return 0;
}

void RmaBuffers::give_back(RmaOp& op) noexcept
{
    if (op.bounce.data != nullptr)
        bounces_.release(op.bounce);
    op.bounce = {};
    for (unsigned i = 0; i < op.acquired; i++)
        tx_.rails().memory(op.rail).release(op.refs[i]);
    op.acquired = 0;
    if (op.rail != 0) [[unlikely]]
        tx_.rails().give(Rails::By::us, op.rail);
    op.rail = 0;
}

} // namespace tofu
