// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Where the TNI finds the local bytes of a read or write: in the descriptor, in a block of ours, in the user's buffers, by
// the context's VCQ or a branch. Part of the runner, under the context's lock; calls bounce, local_memory, branches.
#pragma once

#include <cstddef>

#include "context/tx_context.h"
#include "local/bounce.h"
#include "rma/op.h"

namespace tofu {

class RmaBuffers {
  public:
    explicit RmaBuffers(TxContext& tx) noexcept;
    /// 0, or -FI_E* and some of it has to be given back.
    [[nodiscard]] int attach(RmaOp& op, const RmaCall& call) noexcept;
    void give_back(RmaOp& op) noexcept;

  private:
    TxContext& tx_;
    BouncePool bounces_;
    const std::size_t max_inline_;
    const bool may_leave_; ///< no order at all: long ones may go by a branch
};

} // namespace tofu
