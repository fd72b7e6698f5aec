// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Carries out the operation under way, round by round of its plan; while nothing moves, asks whether the neighbours
// give a reason. Driven by group; calls lanes, plan.
#pragma once

#include <cstdint>

#include "coll/lanes.h"
#include "coll/operation.h"
#include "coll/plan.h"

namespace tofu::coll {

class Rounds {
  public:
    explicit Rounds(Lanes& lanes) noexcept : lanes_(lanes) {}
    /// Another operation comes.
    void restart() noexcept
    {
        begun_ = false;
        in_vain_ = overtaken_ = 0;
    }
    /// Does as much of the operation's round as can be done.
    [[nodiscard]] Outcome step(CollectiveOp& op) noexcept;
    /// Nothing has moved: looks for a reason at the neighbours, once in `per_look` calls.
    [[nodiscard]] Outcome wait(const CollectiveOp& op, unsigned per_look) noexcept;
    void moved() noexcept { in_vain_ = 0; }

  private:
    [[nodiscard]] bool send_some(const CollectiveOp& op, Transfer& t, Outcome& out) noexcept;
    [[nodiscard]] bool receive_some(const CollectiveOp& op, Transfer& t, Outcome& out) noexcept;
    [[nodiscard]] bool contradicts(const CollectiveOp& op, Lane& lane) noexcept;
    [[nodiscard]] bool overtaken() const noexcept;
    [[nodiscard]] Outcome ask_all(const CollectiveOp& op) noexcept;

    Lanes& lanes_;
    bool begun_ = false;        ///< round_ belongs to the operation under way
    unsigned in_vain_ = 0;      ///< calls since something moved
    unsigned overtaken_ = 0;    ///< probes since a neighbour was first seen behind the operation
    std::uint64_t probed_ = 0;  ///< time of the last probe
    Round round_;
};

} // namespace tofu::coll
