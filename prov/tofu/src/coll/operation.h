// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A collective operation, the queue of a group's operations, and the outcome of a step of the first one.
#pragma once

#include <cstdint>

#include <rdma/fi_errno.h>

#include <utofu.h>

#include "av/peer_table.h"
#include "coll/barrier_circuit.h"
#include "coll/plan.h"
#include "core/containers.h"
#include "tx/operation.h"

namespace tofu::coll {

/// The members of a group by rank, and the rank of this member.
struct Roster {
    Array<Peer> members;
    unsigned rank = 0;
    [[nodiscard]] unsigned size() const noexcept { return static_cast<unsigned>(members.size()); }
};

/// A collective under way or waiting: by a plan, or over gates.
struct CollectiveOp : Request {
    CollectiveOp* next = nullptr;
    Plan plan;
    Shape shape;
    Native native; ///< how gates execute it; no rounds: the plan is executed
    const void* in = nullptr;
    void* out = nullptr;
    unsigned round = 0; ///< on gates
    std::uint32_t signature = 0;
};

/// The operations of a group, in the order of their calls.
class OpQueue {
  public:
    [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
    [[nodiscard]] CollectiveOp& first() const noexcept { return *first_; }
    void append(CollectiveOp& op) noexcept
    {
        op.next = nullptr;
        op.round = 0;
        // The top bit reveals members that disagree whether gates are used.
        op.signature = signature_of(op.shape) | (op.native.rounds != 0 ? 0x80000000u : 0);
        *end_ = &op;
        end_ = &op.next;
    }
    CollectiveOp& pop() noexcept
    {
        CollectiveOp& op = *first_;
        first_ = op.next;
        if (first_ == nullptr)
            end_ = &first_;
        return op;
    }

  private:
    CollectiveOp* first_ = nullptr;
    CollectiveOp** end_ = &first_;
};

struct Outcome {
    enum class Kind : std::uint8_t {
        waits,   ///< no progress is possible now
        goes_on, ///< there was progress, or a peer was found dead, which has ended the operation
        over,
        fails, ///< the operation fails
        breaks ///< the group is broken
    };
    Kind kind;
    int err = 0;
    int prov_errno = 0;
};
inline constexpr Outcome mismatch{Outcome::Kind::fails, FI_EINVAL, UTOFU_ERR_BARRIER_MISMATCH};

} // namespace tofu::coll
