// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A join: neighbours are found, all members have called, and agree on the way that operations go. Lays and wires the group's barrier
// circuit. Driven by group; calls search, gates, vcq/gates, plan.
#pragma once

#include <cstdint>
#include <memory>

#include <rdma/fabric.h>

#include "collective/over_gates.h"
#include "gates/circuit.h"
#include "lane/search.h"
#include "plan/operation.h"
#include "vcq/backend.h"

namespace tofu {
class EventQueue;
} // namespace tofu

namespace tofu::coll {

class Joining {
  public:
    struct Join {
        EventQueue* events; ///< where the end is told
        std::uint64_t key;  ///< of the group; members have keys that follow from it
    };
    Joining(TxContext& tx, const Join& join, Lanes& lanes, OverGates& gates) noexcept;
    /// Takes gates of one TNI for the circuit, if there are any. -FI_ENOMEM. Without the context's lock.
    [[nodiscard]] int open(const Roster& roster) noexcept;
    /// Neighbours are still looked for, even by who has left, for they have to be told.
    [[nodiscard]] bool searches() const noexcept { return !search_.over(); }
    /// Looks for them.
    void search() noexcept { search_.progress(); }
    /// The next question to all members, as an operation.
    void ask(OpQueue& ops, const Roster& roster) noexcept;
    [[nodiscard]] bool asks_by(const CollectiveOp& op) const noexcept { return &op == &question_; }
    /// That has ended. Goes on by ask(), or ends the join and tells the application. True: joined.
    bool answered(struct fid& group, const Roster& roster, int err, int prov_errno) noexcept;

  private:
    /// What is agreed on.
    enum class Stage : std::uint8_t {
        asks,     ///< -> tells: all have gates; -> over: somebody has none
        tells,    ///< everybody's gates -> confirms
        confirms, ///< -> over: the circuit is there, or somebody's could not be wired
        over
    };
    [[nodiscard]] bool wire(const Roster& roster) noexcept;

    const vcq::Backend& backend_;
    Search search_;
    Join join_;
    OverGates& gates_;
    Stage stage_ = Stage::asks;
    CollectiveOp question_;
    std::uint64_t agreed_ = 0; ///< by all, in the stages that ask
    unsigned width_ = 0;       ///< gates of the member that has most
    std::unique_ptr<Circuit> circuit_;       ///< until the join ends
    std::unique_ptr<utofu_vbg_id_t[]> row_;  ///< our gates, `width_`; until then, likewise
    std::unique_ptr<utofu_vbg_id_t[]> rows_; ///< everybody's
};

} // namespace tofu::coll
