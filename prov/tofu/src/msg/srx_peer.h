// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the receive queue asks of the protocol through which messages come, modelled on the peers of a shared receive
// context in libfabric (fi_peer(3), fi_ops_srx_peer). Implemented by message and by tests. None of it is called for a
// message that finds its receive at once.
#pragma once

#include "av/peer_table.h"
#include "msg/match_entry.h"
#include "tx/tx_context.h"

namespace tofu::proto {

class SrxPeer {
  public:
    SrxPeer(const RxContext& rx, const Peers& peers) noexcept : rx(rx), peers(peers) {}
    SrxPeer(const SrxPeer&) = delete;
    SrxPeer& operator=(const SrxPeer&) = delete;

    /// start_msg, start_tag: the message has found its receive; moves it there. False: there is no room now, and
    /// nothing has happened.
    [[nodiscard]] virtual bool start(RecvRequest& receive, Unexpected& message) noexcept = 0;
    /// discard_msg, discard_tag: nobody wants the message; its sender is told as if it had been received. False: as
    /// above.
    [[nodiscard]] virtual bool discard(Unexpected& message) noexcept = 0;
    /// The queue has dropped the message and frees its memory when this returns.
    virtual void forgotten(Unexpected& message) noexcept = 0;
    /// The address of the sender, where completions report it (FI_SOURCE); else FI_ADDR_NOTAVAIL.
    [[nodiscard]] virtual fi_addr_t source_of(const Unexpected& message) noexcept = 0;
    /// Makes some progress; `everywhere`: looks for messages of new senders, too.
    virtual void progress(bool everywhere) noexcept = 0;

    /// Where receives that no message takes are reported, and the address vector of sources.
    const RxContext& rx;
    const Peers& peers;

  protected:
    ~SrxPeer() = default;
};

} // namespace tofu::proto
