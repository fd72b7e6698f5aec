// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A join: finds the neighbours, waits until all members have called, and lets them agree on the way that operations
// take. Lays out and wires the group's barrier circuit. Driven by group; calls search, gates, utofu/barrier_gate, plan.
#pragma once

#include <cstdint>
#include <memory>

#include <rdma/fabric.h>

#include "coll/barrier_circuit.h"
#include "coll/lane_search.h"
#include "coll/operation.h"
#include "coll/over_gates.h"
#include "utofu/library.h"

namespace tofu {
class EventQueue;
} // namespace tofu

namespace tofu::coll {

class Joining {
  public:
    struct Join {
        EventQueue* events; ///< the end is reported there
        std::uint64_t key;  ///< of the group; the keys of members follow from it
    };
    Joining(TxContext& tx, const Join& join, Lanes& lanes, OverGates& gates) noexcept;
    /// Takes gates of one TNI for the circuit, if there are any. 0 or -FI_ENOMEM. Called without the context's lock.
    [[nodiscard]] int open(const Roster& roster) noexcept;
    /// True if neighbours are still looked for. A member that has left looks for them, too, since it has to tell them.
    [[nodiscard]] bool searches() const noexcept { return !search_.over(); }
    /// Looks for neighbours.
    void search() noexcept { search_.progress(); }
    /// Asks the next question of all members; it is carried out as an operation.
    void ask(OpQueue& ops, const Roster& roster) noexcept;
    [[nodiscard]] EventQueue& events() const noexcept { return *join_.events; }
    [[nodiscard]] bool asks_by(const CollectiveOp& op) const noexcept { return &op == &question_; }
    /// The operation of the question has ended. Goes on by ask(), or ends the join and tells the application. True:
    /// joined.
    bool answered(struct fid& group, const Roster& roster, int err, int prov_errno) noexcept;

  private:
    /// The question that is being agreed on.
    enum class Stage : std::uint8_t {
        asks,     ///< has every member gates? -> tells: yes; -> over: no
        tells,    ///< collects the gates of all members. -> confirms
        confirms, ///< are all gates wired? -> over: the circuit is there, or it can't be used
        over
    };
    [[nodiscard]] bool wire(const Roster& roster) noexcept;

    const vcq::Backend& backend_;
    Search search_;
    Join join_;
    OverGates& gates_;
    Stage stage_ = Stage::asks;
    CollectiveOp question_;
    std::uint64_t agreed_ = 0; ///< the common answer, in the stages that ask
    unsigned width_ = 0;       ///< gates of the member that has most
    std::unique_ptr<Circuit> circuit_;       ///< until the join ends
    std::unique_ptr<utofu_vbg_id_t[]> row_;  ///< our gates, `width_` of them; until the join ends
    std::unique_ptr<utofu_vbg_id_t[]> rows_; ///< the gates of all members; until the join ends
};

} // namespace tofu::coll
