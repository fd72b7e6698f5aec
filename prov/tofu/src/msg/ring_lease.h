// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The rings that we hold at peers: we ask for one with an anonymous packet, get it, and give it back, so that other
// senders have their turn and the channel can serve another peer. The cases are numbered in ring_lease.cc. Part of
// Outbound; calls vcq.
#pragma once

#include <cstddef>
#include <cstdint>

#include "msg/anon_tx.h"
#include "msg/channels.h"
#include "msg/port.h"

namespace tofu::proto {

class RingLeases {
  public:
    RingLeases(Port& port, Channels& channels, AnonTx& anon_tx) noexcept
        : port_(port), channels_(channels), anon_tx_(anon_tx)
    {
    }
    /// The envelope of the next packet without a ring: its sender, and whether it asks for a ring.
    [[nodiscard]] Envelope envelope(Channel& ch) noexcept;
    /// The packet with that envelope has been posted.
    void sent_anonymously(Channel& ch) noexcept;
    /// Reads the channel's credit block and acts on it.
    void check(Channel& ch) noexcept;
    /// Does so for `most` channels, in turn, and says BYE where a ring is asked back.
    void poll_credit_blocks(std::size_t most) noexcept;
    /// Gives all rings back as poll_credit_blocks() comes by: the endpoint closes.
    void give_all_back() noexcept;
    /// True if no peer can write to our credit blocks and completion words any more: nothing is outstanding, no answer
    /// is due, and each ring is given back or was at a peer that is gone.
    [[nodiscard]] bool settled() const noexcept;
    /// Gives the ring back. False: not now, for want of credit or of room in the queue of the TNI.
    [[nodiscard]] bool say_bye(Channel& ch) noexcept;
    [[nodiscard]] vcq::Post put_bye(Channel& ch, std::uint16_t kind) noexcept;
    /// Takes a channel from its peer, for another peer. Null: none is free now, but some are being given up.
    [[nodiscard]] Channel* reuse() noexcept;
    /// The channel is failing: its ring, or its request for one, is void.
    void lost(Channel& ch) noexcept;

  private:
    [[nodiscard]] bool wants(Channel& ch) noexcept;
    void on_grant(Channel& ch, const Grant& grant) noexcept;
    void give_up() noexcept;

    Port& port_;
    Channels& channels_;
    AnonTx& anon_tx_;
    unsigned held_ = 0;           ///< channels that have a ring or have asked for one
    std::size_t next_block_ = 0; ///< index of the credit block that is looked at next
    std::size_t hand_ = 0;        ///< index of the channel that reuse() and give_up() look at next
};

} // namespace tofu::proto
