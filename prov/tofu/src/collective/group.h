// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One endpoint's membership in a collective group: its life, its end and its errors. Made and driven by engine.cc under the
// context's lock; composed of joining, lanes, rounds, over_gates, each of which knows nothing of it.
#pragma once

#include <cstdint>

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include "collective/joining.h"
#include "collective/over_gates.h"
#include "collective/rounds.h"
#include "lane/lanes.h"
#include "plan/operation.h"

namespace tofu {
class TxContext;
} // namespace tofu

namespace tofu::coll {

class Collectives;

class Group;

/// What the engine notes of a group.
struct ListedGroup {
    Group* next = nullptr;      ///< in the list of all
    Group* next_busy = nullptr; ///< and of those that are polled
    bool listed_busy = false;
};

class Group final : public fid_mc, public ListedGroup, private Losses {
    enum class State : std::uint8_t {
        joining, ///< -> joined: all have called; -> broken: one is lost or has given up; -> left
        joined,  ///< -> broken; -> left
        broken,  ///< every operation fails; -> left
        left     ///< the end: until gone()
    };

  public:
    Group(Collectives& engine, TxContext& tx, const Joining::Join& join, Roster&& roster, void* context) noexcept;
    static Group& of(fid_mc* mc) noexcept { return *static_cast<Group*>(mc); }

    // --- before and behind its life, without the context's lock (these take the home lock)
    /// 0 or -FI_E*.
    [[nodiscard]] int open() noexcept;
    /// The slab goes. `quiet`: gone(); else it is behind the end of the VCQ.
    void bury(bool quiet) noexcept { memory_.bury(gates_.gates(), quiet); }
    [[nodiscard]] LaneMemory& memory() noexcept { return memory_; }

    // --- under the lock
    /// One round of whatever is under way.
    void progress() noexcept;
    /// progress() has something to do.
    [[nodiscard]] bool busy() const noexcept
    {
        return !ops_.empty() || lanes_.owe() || joining_.searches() || state_ == State::joining || waits_for_leaves();
    }
    /// Takes an operation. 0, or -FI_ENOMEM and it has not.
    [[nodiscard]] int submit(CollectiveOp& op) noexcept;
    /// fi_close: what is under way is cancelled, the others are told.
    void leave() noexcept;
    /// Operations can be called, even if all they do is fail.
    [[nodiscard]] bool joined() const noexcept { return state_ == State::joined || state_ == State::broken; }
    /// It was closed, nothing of ours is under way, and no peer writes here any more.
    [[nodiscard]] bool gone() const noexcept;
    [[nodiscard]] bool idle() const noexcept { return lanes_.idle(); }
    [[nodiscard]] const Roster& roster() const noexcept { return roster_; }
    [[nodiscard]] Collectives& engine() noexcept { return engine_; }


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
    Outcome broken_{Outcome::Kind::breaks}; ///< by what
    Roster roster_;
    LaneMemory memory_;
    Lanes lanes_;
    OpQueue ops_;
    Rounds rounds_;
    OverGates gates_;
    Joining joining_;
};

} // namespace tofu::coll
