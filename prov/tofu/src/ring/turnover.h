// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The rings that we hold at peers: asked for with a visit, granted, given back, so that all peers have their turn and
// channels can be used for others. The cases are numbered in turnover.cc. Part of Outbound; calls vcq.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ring/channels.h"
#include "ring/port.h"
#include "ring/visits.h"

namespace tofu::proto {

class Turnover {
  public:
    Turnover(Port& port, Channels& channels, Visits& visits) noexcept
        : port_(port), channels_(channels), visits_(visits)
    {
    }
    /// Of the next packet without a ring: who sends it, and whether a ring is asked for.
    [[nodiscard]] Envelope envelope(Channel& ch) noexcept;
    /// That packet has gone out.
    void visited(Channel& ch) noexcept;
    /// Reads what the peer wrote into the return block.
    void check(Channel& ch) noexcept;
    /// Likewise of so many channels, which give back the rings that they are asked for.
    void look_at_returns(std::size_t most) noexcept;
    /// Gives the ring back. False: not now, for want of credit or of room in the queue of the TNI.
    [[nodiscard]] bool say_bye(Channel& ch) noexcept;
    [[nodiscard]] vcq::Post put_bye(Channel& ch, std::uint16_t kind) noexcept;
    /// A channel for another peer when all are made. Null: none now, but some are being given up.
    [[nodiscard]] Channel* reuse() noexcept;
    /// The channel fails: its ring, or its question for one, is no more.
    void lost(Channel& ch) noexcept;

  private:
    [[nodiscard]] bool wants(Channel& ch) noexcept;
    void on_grant(Channel& ch, const Grant& grant) noexcept;
    void give_up() noexcept;

    Port& port_;
    Channels& channels_;
    Visits& visits_;
    unsigned held_ = 0;           ///< channels with a ring, or that have asked for one
    std::size_t next_return_ = 0; ///< the return block looked at next
    std::size_t hand_ = 0;        ///< where a channel to reuse is looked for next
};

} // namespace tofu::proto
