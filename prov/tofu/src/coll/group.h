// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A collective group of a member, from its join to its end: the join, in which members agree on it, and its
// operations, over lanes or over barrier gates. A step of an operation returns an outcome; only the group decides
// what fails or ends.
#pragma once

#include <cstdint>
#include <memory>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include "coll/barrier_circuit.h"
#include "coll/lanes.h"
#include "coll/plan.h"
#include "core/containers.h"
#include "tx/operation.h"
#include "utofu/barrier_gate.h"
#include "utofu/library.h"

namespace tofu {
class EventQueue;
class TxContext;
} // namespace tofu

namespace tofu::coll {

class Collectives;
class Group;

// --- A collective operation, the queue of a group's operations, and the outcome of a step of the first one

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
using OpQueue = List<CollectiveOp, &CollectiveOp::next>;

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

// --- Census: checks whether all members live. Rounds: executes the operation under way over lanes, round by round of
// its plan. While it makes no progress, it checks whether the state of a neighbour is the reason.

/// Asks all members, one after the other, whether their endpoints are open. A member whose death keeps a round of gates
/// from its end need not be a neighbour. Each member begins behind itself, so that they do not all ask the same one.
class Census : vcq::CompletionHandler {
  public:
    Census(Lanes& lanes, const Roster& roster) noexcept : lanes_(lanes), roster_(roster) { notify = on_answer; }
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
        found_ = {Outcome::Kind::waits};
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
    bool asking_ = false; ///< an answer is to come, perhaps to a question of an earlier census
    unsigned next_ = 1;   ///< the member to ask next, counted from this one
    unsigned asked_ = 1;  ///< the member that is asked, likewise
    Outcome found_{Outcome::Kind::waits};
};

/// Asks the neighbours that have not left whether they live, one at a time. The memory of a closed group is released
/// when all have left or are dead; one that dies before says nothing, nor does one whose endpoint closed before this
/// member had called.
class Vigil : vcq::CompletionHandler {
  public:
    explicit Vigil(Lanes& lanes) noexcept : lanes_(lanes) { notify = on_answer; }
    /// Asks the next one, if the last question is old enough. `all`: see Lanes::is_quiet.
    void step(unsigned all) noexcept;

  private:
    static void on_answer(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept;

    Lanes& lanes_;
    unsigned next_ = 0;       ///< lane that was asked last
    std::uint64_t asked_ = 0; ///< time of the last question
};

class Rounds {
  public:
    Rounds(Lanes& lanes, const Roster& roster) noexcept : lanes_(lanes), census_(lanes, roster) {}
    /// Called before the next operation begins.
    void restart() noexcept
    {
        begun_ = false;
        in_vain_ = probes_ = overtaken_ = 0;
        census_.end();
    }
    /// Executes as much of the operation's round as possible now.
    [[nodiscard]] Outcome step(CollectiveOp& op) noexcept;
    /// Called when the operation has made no progress. Checks the state of the neighbours once in `per_look` calls.
    [[nodiscard]] Outcome wait(const CollectiveOp& op, unsigned per_look) noexcept;
    /// Called when the operation has failed over gates. `breaks`: a member is dead; `over`: all live.
    [[nodiscard]] Outcome seek_death(const CollectiveOp& op, unsigned per_look) noexcept;
    /// What the neighbours say of the next operation, before it begins.
    [[nodiscard]] Outcome hear_all() const noexcept;
    void moved() noexcept { in_vain_ = 0; }

  private:
    [[nodiscard]] bool send_some(const CollectiveOp& op, Transfer& t, Outcome& out) noexcept;
    [[nodiscard]] bool receive_some(const CollectiveOp& op, Transfer& t, Outcome& out) noexcept;
    [[nodiscard]] Outcome hear(const Lane& lane) const noexcept;
    [[nodiscard]] bool contradicts(const CollectiveOp& op, Lane& lane) noexcept;
    [[nodiscard]] bool overtaken() const noexcept;
    [[nodiscard]] Outcome ask_all(const CollectiveOp& op) noexcept;

    Lanes& lanes_;
    Census census_;
    bool begun_ = false;       ///< round_ is a round of the operation under way
    unsigned in_vain_ = 0;     ///< calls of wait() since the last progress
    unsigned probes_ = 0;      ///< of the operation over gates
    unsigned overtaken_ = 0;   ///< probes since a neighbour was first found beyond the operation
    std::uint64_t probed_ = 0; ///< time of the last probe
    Round round_;
};

// --- OverGates: the barrier gates of a group after its join: operations over them, and their release.

class OverGates {
  public:
    /// In place of the number of members in the last word of a member: it frees no gates that packets may come to.
    static constexpr unsigned given_up = 0xff;

    explicit OverGates(std::uint64_t group) noexcept : group_(group) {}
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
    void hear_leaves(Lanes& lanes, unsigned n) noexcept;
    /// Some members will not be known to have left: the gates stay until the domain is closed.
    void give_up() noexcept { heard_ = given_up; }
    [[nodiscard]] bool gave_up() const noexcept { return heard_ == given_up; }
    /// What the word of a member that has left says of others.
    [[nodiscard]] unsigned heard() const noexcept { return heard_; }

  private:
    [[nodiscard]] int start(const CollectiveOp& op, std::uint32_t number, const Roster& roster) noexcept;
    [[nodiscard]] int poll(const CollectiveOp& op, std::uint32_t number, const Roster& roster) noexcept;

    std::uint64_t group_; ///< distinguishes its rounds from those of all other groups
    vcq::Gates gates_;
    bool used_ = false;
    bool begun_ = false;         ///< a round of the operation under way has begun
    int failed_ = UTOFU_SUCCESS; ///< the error of such a round, while a dead member is looked for
    unsigned heard_ = 0;         ///< 2^heard_ members from this one down are known to have left; or given_up
};

// --- Joining: finds the neighbours, waits until all members have called, and lets them agree whether operations use
// gates. Lays out and wires the group's barrier circuit, and lets it prove itself.

class Joining {
  public:
    struct Join {
        EventQueue* events; ///< gets the event of the end
        std::uint64_t key;  ///< of the group; the keys of members follow from it
        unsigned number;    ///< among the groups of the same members
    };
    Joining(TxContext& tx, const Join& join, Lanes& lanes, OverGates& gates) noexcept;
    /// Allocates gates of one TNI for the circuit, if enough are free. 0 or -FI_ENOMEM. Called without the context's
    /// lock.
    [[nodiscard]] int open(const Roster& roster) noexcept;
    /// True while the search for neighbours continues. A member that has left also searches, to notify them.
    [[nodiscard]] bool searches() const noexcept { return !search_.over(); }
    /// Continues the search for neighbours.
    void search() noexcept { search_.progress(); }
    /// True while the search or the first vote waits for members, any of which may give up.
    [[nodiscard]] bool waits_for_calls() const noexcept { return stage_ == Stage::asks; }
    void search_again() noexcept { search_.read_again(); }
    /// Begins the next vote among all members, as an operation of the group.
    void ask(OpQueue& ops, const Roster& roster) noexcept;
    [[nodiscard]] EventQueue& events() const noexcept { return *join_.events; }
    [[nodiscard]] bool asks_by(const CollectiveOp& op) const noexcept { return &op == &question_; }
    /// This member has closed the group before the end.
    void abandon() noexcept
    {
        if (!wired_)
            gates_.gates().free();
    }
    /// True while the vote under way is a round of the circuit.
    [[nodiscard]] bool proves() const noexcept { return stage_ == Stage::proves; }
    /// The round has shown that the circuit is not the group's alone.
    void disprove() noexcept { agreed_ = 0; }
    /// Called when the operation of the vote has ended. The next step is ask(), or the join ends with an event.
    /// True: joined.
    bool answered(struct fid& group, const Roster& roster, int err, int prov_errno) noexcept;
    /// True if the join has ended without an error. Then all members have found their neighbours.
    [[nodiscard]] bool succeeded() const noexcept { return succeeded_; }

  private:
    /// The vote under way.
    enum class Stage : std::uint8_t {
        asks,     ///< has each member gates? yes -> tells; no -> over
        tells,    ///< the gates of all members are exchanged. -> confirms
        confirms, ///< are all gates wired? yes -> proves; no -> over
        proves,   ///< a round over the circuit. -> accepts
        accepts,  ///< has the round brought to all what members have sent? -> over: the circuit can be used, or not
        over
    };
    [[nodiscard]] bool wire(const Roster& roster) noexcept;

    const vcq::Backend& backend_;
    Search search_;
    Join join_;
    OverGates& gates_;
    Stage stage_ = Stage::asks;
    bool wired_ = false;  ///< this member may have said that its gates are wired
    bool proved_ = false; ///< members may have sent packets over the circuit
    bool succeeded_ = false;
    CollectiveOp question_;
    std::uint64_t agreed_ = 0;               ///< the result of a vote
    unsigned width_ = 0;                     ///< the largest number of gates of any member
    std::unique_ptr<Circuit> circuit_;       ///< until the join ends
    std::unique_ptr<utofu_vbg_id_t[]> row_;  ///< our gates, `width_` of them; until the join ends
    std::unique_ptr<utofu_vbg_id_t[]> rows_; ///< the gates of all members; until the join ends
};

// --- Group: the membership of one endpoint in a collective group: its life, its end and its errors. collectives.cc
// creates and drives it, under the context's lock.

class Group final : public fid_mc {
    enum class State : std::uint8_t {
        joining, ///< -> joined: all members have called; -> broken: a member is lost or has left; -> left
        joined,  ///< -> broken; -> left
        broken,  ///< all operations fail. -> left
        left     ///< closed; waits for gone()
    };

  public:
    Group(Collectives& engine, TxContext& tx, const Joining::Join& join, Roster&& roster, void* context) noexcept;
    static Group& of(fid_mc* mc) noexcept { return *static_cast<Group*>(mc); }

    // --- In the lists of Collectives.
    Group* next_busy = nullptr; ///< in the list of groups that are polled
    bool listed_busy = false;
    bool closing = false; ///< a thread is in close_group; no other thread releases the group

    // --- Called before and after its life, without the context's lock, since they acquire the home lock.
    /// 0 or -FI_E*.
    [[nodiscard]] int open() noexcept;
    /// Frees the slab. `quiet`: gone() holds; else the VCQ has been freed.
    void bury(bool quiet) noexcept { lanes_.bury(gates_.gates(), !quiet || gates_.gave_up(), quiet); }
    /// Looks for neighbours of a closed group that have died before they have left. Under the context's lock.
    void seek_dead() noexcept;
    [[nodiscard]] Lanes& lanes() noexcept { return lanes_; }

    // --- Called under the context's lock.
    /// Makes one round of progress of the group.
    void progress() noexcept;
    /// True if progress() has something to do.
    [[nodiscard]] bool busy() const noexcept
    {
        return !ops_.empty() || lanes_.owe() || joining_.searches() || state_ == State::joining || waits_for_leaves();
    }
    /// Accepts an operation. 0, or -FI_ENOMEM without any effect.
    [[nodiscard]] int submit(CollectiveOp& op) noexcept;
    /// fi_close: cancels the operations under way and notifies the other members.
    void leave() noexcept;
    /// True if all members have found their neighbours.
    [[nodiscard]] bool all_found() const noexcept { return joining_.succeeded(); }
    /// True if operations can be called, even if they all fail.
    [[nodiscard]] bool joined() const noexcept { return state_ == State::joined || state_ == State::broken; }
    /// True if the group was closed, no operation of ours is under way, and no peer writes here any more.
    [[nodiscard]] bool gone() const noexcept;
    [[nodiscard]] bool idle() const noexcept { return lanes_.idle(); }
    [[nodiscard]] const Roster& roster() const noexcept { return roster_; }
    [[nodiscard]] Collectives& engine() noexcept { return engine_; }
    [[nodiscard]] EventQueue& events() const noexcept { return joining_.events(); }
    /// A member is lost: all operations fail, now and later.
    void lost(int err, int prov_errno) noexcept;

  private:
    [[nodiscard]] bool waits_for_leaves() const noexcept
    {
        return state_ == State::left && gates_.held() && !gates_.gave_up();
    }
    void run() noexcept;
    void end_first(int err, int prov_errno) noexcept;
    void fail(int err, int prov_errno) noexcept;
    void tell(Word word, std::uint32_t op, int err) noexcept;

    Collectives& engine_;
    State state_ = State::joining;
    Outcome broken_{Outcome::Kind::breaks}; ///< the reason, in state broken
    std::uint32_t broken_at_ = 0;           ///< number of the operation that was under way then
    Roster roster_;
    Lanes lanes_;
    OpQueue ops_;
    Rounds rounds_;
    Vigil vigil_;
    OverGates gates_;
    Joining joining_;
};

} // namespace tofu::coll
