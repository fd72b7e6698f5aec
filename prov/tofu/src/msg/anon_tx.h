// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Packets to a peer at which we have no ring. We ask the peer's gate for a slot for one packet, or find out why there
// is no gate. The cases are numbered in anon_slots.h. Part of Outbound, which learns from it of peers that can't be
// reached; calls vcq.
#pragma once

#include <cstdint>

#include "msg/channel.h"
#include "msg/port.h"

namespace tofu::proto {

class AnonTx {
  public:
    /// How long we wait for a peer to enable its endpoint. Tests set it lower.
    static inline std::uint64_t absent_limit_ms = 10000;

    explicit AnonTx(Port& port) noexcept : port_(port) {}
    /// Takes the next step towards a slot. 0: the channel has one; -FI_EAGAIN; or the error of a failed channel.
    [[nodiscard]] int step(Channel& ch) noexcept;
    /// Gives back a slot that we have no use for, by an empty packet. Where the TNI has no room, a later call does it.
    void dismiss(Channel& ch) noexcept;
    /// True if some gate has been asked for a slot and has not answered.
    [[nodiscard]] bool asks() const noexcept { return asking_ != 0; }
    /// The notice of a channel's ARMW or Get (Channel::Anonymous).
    static void on_notice(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;

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
