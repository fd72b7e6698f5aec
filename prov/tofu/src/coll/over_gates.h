// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The barrier gates of a group after its join: operations over them, and when they may be given back. Driven by group;
// calls utofu/barrier_gate, lanes, rounds.
#pragma once

#include "coll/lanes.h"
#include "coll/operation.h"
#include "coll/rounds.h"
#include "utofu/barrier_gate.h"

namespace tofu::coll {

class OverGates {
  public:
    /// True if operations that gates can do go over them.
    [[nodiscard]] bool used() const noexcept { return used_; }
    void use(bool all_have_wired) noexcept { used_ = all_have_wired; }
    [[nodiscard]] vcq::Gates& gates() noexcept { return gates_; }
    [[nodiscard]] bool held() const noexcept { return gates_.count() != 0; }
    /// Another operation comes.
    void restart() noexcept { begun_ = false; }
    /// Starts a round of the operation, or looks whether it has ended.
    [[nodiscard]] Outcome step(CollectiveOp& op, const Roster& roster, Rounds& rounds) noexcept;
    /// The first operation has failed for all members: some member may have begun a round that never ends. Later
    /// operations go by Puts. False: no memory for their plans.
    [[nodiscard]] bool retire(const OpQueue& ops, const Roster& roster) noexcept;
    /// We have left the group: frees the gates once all members have left, and tells others of how many that is known.
    void hear_leaves(Lanes& lanes, unsigned n) noexcept;

  private:
    vcq::Gates gates_;
    bool used_ = false;
    bool begun_ = false; ///< a round of the first operation has begun
    unsigned heard_ = 0; ///< 2^heard_ members from this one down are known to have left
};

} // namespace tofu::coll
