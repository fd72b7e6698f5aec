// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A collective operation of a group (CollectiveOp), and its execution round by round: over lanes (Rounds), with a look
// for members that have died (LivenessCheck), or over barrier gates (GateRounds). A step returns an outcome; only the
// group decides what fails or ends. Under the context's lock.
#pragma once

#include <cstdint>

#include <rdma/fi_errno.h>

#include "coll/barrier_circuit.h"
#include "coll/lanes.h"
#include "coll/plan.h"
#include "core/containers.h"
#include "tx/operation.h"
#include "utofu/barrier_gate.h"
#include "utofu/library.h"

namespace tofu::coll {

// --- A collective operation, the queue of a group's operations, and the outcome of a step of the first one

/// A collective under way or waiting: by a plan, or over gates.
struct CollectiveOp : Request {
    CollectiveOp* next = nullptr;
    Plan plan;
    Shape shape;
    GateMapping native; ///< how gates execute it; no rounds: the plan is executed
    const void* in = nullptr;
    void* out = nullptr;
    unsigned round = 0; ///< on gates
    std::uint32_t signature = 0;
};

/// The operations of a group, in the order of their calls.
using OpQueue = List<CollectiveOp, &CollectiveOp::next>;

struct Outcome {
    enum class Kind : std::uint8_t {
        pending,    ///< no progress is possible now
        progressed, ///< there was progress, or a peer was found dead, which has ended the operation
        done,
        op_failed,   ///< the operation fails
        group_failed ///< the group is broken
    };
    Kind kind;
    int err = 0;
    int prov_errno = 0;
};
inline constexpr Outcome mismatch{Outcome::Kind::op_failed, FI_EINVAL, UTOFU_ERR_BARRIER_MISMATCH};

// --- LivenessCheck: checks whether all members live

/// Asks all members, one after the other, whether their endpoints are open. A member whose death keeps a round of gates
/// from its end need not be a neighbour. Each member begins behind itself, so that they do not all ask the same one.
class LivenessCheck : vcq::CompletionHandler {
  public:
    LivenessCheck(Lanes& lanes, const Roster& roster) noexcept : lanes_(lanes), roster_(roster) { notify = on_answer; }
    void begin() noexcept
    {
        under_way_ = true;
        start_over();
    }
    void end() noexcept
    {
        under_way_ = false;
        start_over();
    }
    void start_over() noexcept
    {
        next_ = 1;
        found_ = {Outcome::Kind::pending};
    }
    [[nodiscard]] bool under_way() const noexcept { return under_way_; }
    /// Asks the next one. `waits`; `breaks`: a member is dead, or its endpoint has closed; `over`: all live.
    [[nodiscard]] Outcome step() noexcept;

  private:
    static void on_answer(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept;
    [[nodiscard]] const Peer& asked() const noexcept
    {
        return roster_.members[(roster_.rank + asked_) % roster_.size()];
    }

    Lanes& lanes_;
    const Roster& roster_;
    bool under_way_ = false;
    bool asking_ = false; ///< an answer is to come, perhaps to a question of an earlier check
    unsigned next_ = 1;   ///< the member to ask next, counted from this one
    unsigned asked_ = 1;  ///< the member that is asked, likewise
    Outcome found_{Outcome::Kind::pending};
};

// --- Rounds: executes the operation under way over lanes, round by round of its plan. While it makes no progress, it
// checks whether the state of a neighbour is the reason.

class Rounds {
  public:
    Rounds(Lanes& lanes, const Roster& roster) noexcept : lanes_(lanes), liveness_check_(lanes, roster) {}
    /// Called before the next operation begins.
    void restart() noexcept
    {
        begun_ = false;
        idle_ = probes_ = overtaken_ = 0;
        liveness_check_.end();
    }
    /// Executes as much of the operation's round as possible now.
    [[nodiscard]] Outcome step(CollectiveOp& op) noexcept;
    /// Called when the operation has made no progress. Checks the state of the neighbours once in `per_look` calls.
    [[nodiscard]] Outcome wait(const CollectiveOp& op, unsigned per_look) noexcept;
    /// Called when the operation has failed over gates. `breaks`: a member is dead; `over`: all live.
    [[nodiscard]] Outcome find_death(const CollectiveOp& op) noexcept;
    /// What the neighbours say of the next operation, before it begins.
    [[nodiscard]] Outcome read_states() const noexcept;
    void moved() noexcept { idle_ = 0; }

  private:
    [[nodiscard]] bool send_some(const CollectiveOp& op, Transfer& t, Outcome& out) noexcept;
    [[nodiscard]] bool receive_some(const CollectiveOp& op, Transfer& t, Outcome& out) noexcept;
    [[nodiscard]] Outcome read_state(const Lane& lane) const noexcept;
    [[nodiscard]] bool contradicts(const CollectiveOp& op, Lane& lane) noexcept;
    [[nodiscard]] bool overtaken() const noexcept;
    [[nodiscard]] Outcome check_neighbours(const CollectiveOp& op) noexcept;

    Lanes& lanes_;
    LivenessCheck liveness_check_;
    bool begun_ = false;       ///< round_ is a round of the operation under way
    unsigned idle_ = 0;        ///< calls of wait() since the last progress
    unsigned probes_ = 0;      ///< of the operation over gates
    unsigned overtaken_ = 0;   ///< probes since a neighbour was first found beyond the operation
    std::uint64_t probed_ = 0; ///< time of the last probe
    Round round_;
};

// --- GateRounds: the barrier gates of a group after its join: operations over them, and their release.

class GateRounds {
  public:
    /// In place of the number of members in the last word of a member: it frees no gates that packets may come to.
    static constexpr unsigned given_up = 0xff;

    explicit GateRounds(std::uint64_t group) noexcept : group_(group) {}
    /// True if gates execute the operations that they support.
    [[nodiscard]] bool used() const noexcept { return used_; }
    void use(bool all_have_proven) noexcept { used_ = all_have_proven; }
    [[nodiscard]] vcq::Gates& gates() noexcept { return gates_; }
    [[nodiscard]] bool held() const noexcept { return gates_.count() != 0; }
    /// Called before the next operation begins.
    void restart() noexcept
    {
        begun_ = false;
        failed_ = UTOFU_SUCCESS;
    }
    /// Starts a round of the operation with this number, or polls it.
    [[nodiscard]] Outcome step(CollectiveOp& op, std::uint32_t number, const Roster& roster, Rounds& rounds) noexcept;
    /// Called when the first operation has failed for all members: a member may have begun a round that never ends.
    /// Later operations use Puts. False: no memory for their plans.
    [[nodiscard]] bool retire(const OpQueue& ops, const Roster& roster) noexcept;
    /// Called when this member has left the group. Frees the gates when all members have left. Reports to the
    /// neighbours how many members are known to have left.
    void collect_leaves(Lanes& lanes, unsigned n) noexcept;
    /// Some members will not be known to have left: the gates stay until the domain is closed.
    void give_up() noexcept { left_log2_ = given_up; }
    [[nodiscard]] bool gave_up() const noexcept { return left_log2_ == given_up; }
    /// What the word of a member that has left says of others.
    [[nodiscard]] unsigned left_log2() const noexcept { return left_log2_; }

  private:
    [[nodiscard]] int start(const CollectiveOp& op, std::uint32_t number, const Roster& roster) noexcept;
    [[nodiscard]] int poll(const CollectiveOp& op, std::uint32_t number, const Roster& roster) noexcept;

    std::uint64_t group_; ///< distinguishes its rounds from those of all other groups
    vcq::Gates gates_;
    bool used_ = false;
    bool begun_ = false;         ///< a round of the operation under way has begun
    int failed_ = UTOFU_SUCCESS; ///< the error of such a round, while a dead member is looked for
    unsigned left_log2_ = 0;     ///< 2^left_log2_ members from this one down are known to have left; or given_up
};

} // namespace tofu::coll
