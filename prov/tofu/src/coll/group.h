// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A collective group of a member (Group), from its join, in which members agree on it (Joining), to its end, for which
// a closed group waits until its neighbours have left or died (LivenessWatch). Its operations are executed by
// coll/rounds.
#pragma once

#include <cstdint>
#include <memory>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>

#include "coll/barrier_circuit.h"
#include "coll/lanes.h"
#include "coll/rounds.h"
#include "utofu/library.h"

namespace tofu {
class EventQueue;
class TxContext;
} // namespace tofu

namespace tofu::coll {

class Collectives;
class Group;

// --- LivenessWatch: finds the neighbours of a closed group that have died

/// Asks the neighbours that have not left whether they live, one at a time. The memory of a closed group is released
/// when all have left or are dead; one that dies before says nothing, nor does one whose endpoint closed before this
/// member had called.
class LivenessWatch : vcq::CompletionHandler {
  public:
    explicit LivenessWatch(Lanes& lanes) noexcept : lanes_(lanes) { notify = on_answer; }
    /// Asks the next one, if the last question is old enough. `all`: see Lanes::is_quiet.
    void step(unsigned all) noexcept;

  private:
    static void on_answer(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept;

    Lanes& lanes_;
    unsigned next_ = 0;       ///< lane that was asked last
    std::uint64_t asked_ = 0; ///< time of the last question
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
    Joining(TxContext& tx, const Join& join, Lanes& lanes, GateRounds& gates) noexcept;
    /// Allocates gates of one TNI for the circuit, if enough are free. 0 or -FI_ENOMEM. Called without the context's
    /// lock.
    [[nodiscard]] int open(const Roster& roster) noexcept;
    /// True while the search for neighbours continues. A member that has left also searches, to notify them.
    [[nodiscard]] bool searches() const noexcept { return !search_.over(); }
    /// Continues the search for neighbours.
    void search() noexcept { search_.progress(); }
    /// True while the search or the first vote waits for members, any of which may give up.
    [[nodiscard]] bool waits_for_calls() const noexcept { return stage_ == Stage::vote_gates; }
    void search_again() noexcept { search_.read_again(); }
    /// Begins the next vote among all members, as an operation of the group.
    void vote(OpQueue& ops, const Roster& roster) noexcept;
    [[nodiscard]] EventQueue& events() const noexcept { return *join_.events; }
    [[nodiscard]] bool is_vote(const CollectiveOp& op) const noexcept { return &op == &vote_op_; }
    /// This member has closed the group before the end.
    void abandon() noexcept
    {
        if (!wired_)
            gates_.gates().free();
    }
    /// True while the vote under way is a round of the circuit.
    [[nodiscard]] bool in_trial() const noexcept { return stage_ == Stage::trial_round; }
    /// The round has shown that the circuit is not the group's alone.
    void reject_circuit() noexcept { agreed_ = 0; }
    /// Called when the operation of the vote has ended. The next step is vote(), or the join ends with an event.
    /// True: joined.
    bool vote_ended(struct fid& group, const Roster& roster, int err, int prov_errno) noexcept;
    /// True if the join has ended without an error. Then all members have found their neighbours.
    [[nodiscard]] bool succeeded() const noexcept { return succeeded_; }

  private:
    /// The vote under way.
    enum class Stage : std::uint8_t {
        vote_gates,     ///< has each member gates? yes -> exchange_gates; no -> done
        exchange_gates, ///< the gates of all members are exchanged. -> vote_wired
        vote_wired,     ///< are all gates wired? yes -> trial_round; no -> done
        trial_round,    ///< a round over the circuit. -> vote_trial
        vote_trial, ///< has the round brought to all what members have sent? -> done: the circuit can be used, or not
        done
    };
    [[nodiscard]] bool wire(const Roster& roster) noexcept;

    const vcq::Backend& backend_;
    Search search_;
    Join join_;
    GateRounds& gates_;
    Stage stage_ = Stage::vote_gates;
    bool wired_ = false;  ///< this member may have said that its gates are wired
    bool proved_ = false; ///< members may have sent packets over the circuit
    bool succeeded_ = false;
    CollectiveOp vote_op_;
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
        left     ///< closed; waits for is_quiescent()
    };

  public:
    Group(Collectives& engine, TxContext& tx, const Joining::Join& join, Roster&& roster, void* context) noexcept;
    static Group& of(fid_mc* mc) noexcept { return *static_cast<Group*>(mc); }

    // --- In the lists of Collectives.
    Group* next_busy = nullptr; ///< in the list of groups that are polled
    bool listed_busy = false;
    bool closing = false; ///< a thread is in close_group; no other thread releases the group

    // --- Called before and after its life, without the context's lock, since they acquire the target lock.
    /// 0 or -FI_E*.
    [[nodiscard]] int open() noexcept;
    /// Frees the slab. `quiet`: is_quiescent() holds; else the VCQ has been freed.
    void destroy(bool quiet) noexcept { lanes_.destroy(gates_.gates(), !quiet || gates_.gave_up(), quiet); }
    /// Looks for neighbours of a closed group that have died before they have left. Under the context's lock.
    void find_dead() noexcept;
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
    [[nodiscard]] bool is_quiescent() const noexcept;
    [[nodiscard]] bool idle() const noexcept { return lanes_.idle(); }
    [[nodiscard]] const Roster& roster() const noexcept { return roster_; }
    [[nodiscard]] Collectives& engine() noexcept { return engine_; }
    [[nodiscard]] EventQueue& events() const noexcept { return joining_.events(); }
    /// A member is lost: all operations fail, now and later.
    void on_member_lost(int err, int prov_errno) noexcept;

  private:
    [[nodiscard]] bool waits_for_leaves() const noexcept
    {
        return state_ == State::left && gates_.held() && !gates_.gave_up();
    }
    void run() noexcept;
    void end_first(int err, int prov_errno) noexcept;
    void fail(int err, int prov_errno) noexcept;
    void write_word(Word word, std::uint32_t op, int err) noexcept;

    Collectives& engine_;
    State state_ = State::joining;
    Outcome broken_{Outcome::Kind::group_failed}; ///< the reason, in state broken
    std::uint32_t broken_at_ = 0;                 ///< number of the operation that was under way then
    Roster roster_;
    Lanes lanes_;
    OpQueue ops_;
    Rounds rounds_;
    LivenessWatch liveness_watch_;
    GateRounds gates_;
    Joining joining_;
};

} // namespace tofu::coll
