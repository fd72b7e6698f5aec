// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The membership of one endpoint in a collective group: its life, its end and its errors. engine.cc makes and drives
// it, under the context's lock. It is composed of joining, lanes, rounds, over_gates, which do not know the group.
#pragma once

#include <cstdint>

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include "coll/joining.h"
#include "coll/lanes.h"
#include "coll/operation.h"
#include "coll/over_gates.h"
#include "coll/rounds.h"

namespace tofu {
class TxContext;
} // namespace tofu

namespace tofu::coll {

class Collectives;

class Group;

/// The engine's links of a group.
struct ListedGroup {
    Group* next = nullptr;      ///< in the list of all
    Group* next_busy = nullptr; ///< in the list of groups that are polled
    bool listed_busy = false;
};

class Group final : public fid_mc, public ListedGroup, private Losses {
    enum class State : std::uint8_t {
        joining, ///< -> joined: all members have called; -> broken: a member is lost or has given up; -> left
        joined,  ///< -> broken; -> left
        broken,  ///< every operation fails. -> left
        left     ///< closed; waits for gone()
    };

  public:
    Group(Collectives& engine, TxContext& tx, const Joining::Join& join, Roster&& roster, void* context) noexcept;
    static Group& of(fid_mc* mc) noexcept { return *static_cast<Group*>(mc); }

    // --- before and after its life, without the context's lock (these take the home lock)
    /// 0 or -FI_E*.
    [[nodiscard]] int open() noexcept;
    /// Frees the slab. `quiet`: gone() holds; else the VCQ has been freed.
    void bury(bool quiet) noexcept { memory_.bury(gates_.gates(), quiet); }
    [[nodiscard]] LaneMemory& memory() noexcept { return memory_; }

    // --- under the lock
    /// Makes one round of progress of the group.
    void progress() noexcept;
    /// True if progress() has something to do.
    [[nodiscard]] bool busy() const noexcept
    {
        return !ops_.empty() || lanes_.owe() || joining_.searches() || state_ == State::joining || waits_for_leaves();
    }
    /// Takes an operation. 0, or -FI_ENOMEM and it has not.
    [[nodiscard]] int submit(CollectiveOp& op) noexcept;
    /// fi_close: cancels what is under way, and tells the other members.
    void leave() noexcept;
    /// True if operations can be called, even if they can only fail.
    [[nodiscard]] bool joined() const noexcept { return state_ == State::joined || state_ == State::broken; }
    /// True if the group was closed, nothing of ours is under way, and no peer writes here any more.
    [[nodiscard]] bool gone() const noexcept;
    [[nodiscard]] bool idle() const noexcept { return lanes_.idle(); }
    [[nodiscard]] const Roster& roster() const noexcept { return roster_; }
    [[nodiscard]] Collectives& engine() noexcept { return engine_; }
    [[nodiscard]] EventQueue& events() const noexcept { return joining_.events(); }

  private:
    void lost(int err, int prov_errno) noexcept override;
    [[nodiscard]] bool waits_for_leaves() const noexcept
    {
        return state_ == State::left && gates_.held() && (broken_.err == 0 || broken_.err == FI_ESHUTDOWN);
    }
    void run() noexcept;
    void end_first(int err, int prov_errno) noexcept;
    void fail(int err, int prov_errno) noexcept;
    void tell(Word word, int err) noexcept;

    Collectives& engine_;
    State state_ = State::joining;
    Outcome broken_{Outcome::Kind::breaks}; ///< why it is broken
    Roster roster_;
    LaneMemory memory_;
    Lanes lanes_;
    OpQueue ops_;
    Rounds rounds_;
    OverGates gates_;
    Joining joining_;
};

} // namespace tofu::coll
