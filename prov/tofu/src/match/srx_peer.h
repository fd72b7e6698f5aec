// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The protocol through which messages come, as the receive queue sees it: that of libfabric's peers of a shared receive
// context (fi_peer(3), fi_ops_srx_peer). Implemented by message and by tests; none of it is called for a message that
// finds its receive at once.
#pragma once

#include "address/peers.h"
#include "context/rx_context.h"
#include "match/entry.h"

namespace tofu::proto {

class SrxPeer {
  public:
    SrxPeer(const RxContext& rx, const Peers& peers) noexcept : rx(rx), peers(peers) {}
    SrxPeer(const SrxPeer&) = delete;
    SrxPeer& operator=(const SrxPeer&) = delete;

    /// start_msg, start_tag: the message has found its receive, and goes on into it. False: there is no room now,
    /// nothing has happened.
    [[nodiscard]] virtual bool start(RecvRequest& receive, Unexpected& message) noexcept = 0;
    /// discard_msg, discard_tag: nobody wants it; its sender is told as if it had been received. False as above.
    [[nodiscard]] virtual bool discard(Unexpected& message) noexcept = 0;
    /// The queue knows the message no more; its memory goes back when this returns.
    virtual void forgotten(Unexpected& message) noexcept = 0;
    /// Who sent it, where completions say so (FI_SOURCE); else FI_ADDR_NOTAVAIL.
    [[nodiscard]] virtual fi_addr_t source_of(const Unexpected& message) noexcept = 0;
    /// Some progress; `everywhere`: messages of new senders are looked for, too.
    virtual void progress(bool everywhere) noexcept = 0;

    /// What is told of receives that no message takes, and who sources are.
    const RxContext& rx;
    const Peers& peers;

  protected:
    ~SrxPeer() = default;
};

} // namespace tofu::proto
