// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Packets to a peer at which we have no ring: a slot is asked for at the gate, for one packet; or it is found out why
// there is none. The cases are numbered in visitors.h. Part of Outbound, which is told of peers that can't be reached;
// calls vcq.
#pragma once

#include <cstdint>

#include "ring/channel.h"
#include "ring/port.h"

namespace tofu::proto {

class Visits {
  public:
    /// A peer that has an address enables its endpoint soon. Tests have less patience.
    static inline std::uint64_t absent_limit_ms = 10000;

    explicit Visits(Port& port) noexcept : port_(port) {}
    /// Of a channel without a ring. 0: it has a slot; -FI_EAGAIN; why the channel has failed.
    [[nodiscard]] int step(Channel& ch) noexcept;
    /// The slot is of no use. Without room in the queue of the TNI it is kept, and given back some time later.
    void dismiss(Channel& ch) noexcept;
    /// Is a slot asked for?
    [[nodiscard]] bool asks() const noexcept { return asking_ != 0; }
    /// Told of each channel's visit.
    static void on_visit(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;

  private:
    void on_gate(Channel& ch, std::uint64_t word) noexcept;
    void on_absence(Channel& ch, int code) noexcept;
    void read_heading(Channel& ch) noexcept;
    void on_heading(Channel& ch, const AreaHeader& header) noexcept;
    [[nodiscard]] vcq::Post put_empty(Channel& ch, utofu_stadd_t slot, std::uint32_t seq) noexcept;

    Port& port_;
    unsigned asking_ = 0; ///< channels that wait for a slot
};

} // namespace tofu::proto
