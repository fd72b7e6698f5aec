// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Decides where the TNI finds the local bytes of a read or write: in the descriptor, in a bounce block, or in the
// user's buffers, which are then registered with the VCQ that posts (the context's own or a rail). Part of the
// runner, under the context's lock; calls bounce, local_memory, rails.
#pragma once

#include <cstddef>

#include "mem/bounce_pool.h"
#include "rma/op.h"
#include "tx/tx_context.h"

namespace tofu {

class RmaBuffers {
  public:
    explicit RmaBuffers(TxContext& tx) noexcept;
    /// Makes the local bytes of the operation ready for the TNI. 0, or -FI_E*; after an error the caller calls
    /// give_back().
    [[nodiscard]] int attach(RmaOp& op, const RmaCall& call) noexcept;
    /// Releases the bounce block, the registrations and the rail.
    void give_back(RmaOp& op) noexcept;

  private:
    TxContext& tx_;
    BouncePool bounces_;
    const std::size_t max_inline_;
    const bool may_leave_; ///< no order was asked for, so long operations may go by a rail
};

} // namespace tofu
