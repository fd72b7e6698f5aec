// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// FI_FENCE (fi_endpoint(3)): has every operation that a tx context began towards a peer ended? Part of the context;
// rma, atomic and send ask before they begin an operation with the flag, under the context's lock. Calls vcq, the
// pending queue, the engines.
#pragma once

#include <cstdint>

#include <rdma/fi_endpoint.h>

#include "utofu/vcq.h"

namespace tofu {

struct Peer;
class TxContext;

/// It is itself the waiter of an ARMW whose end shows that everything posted to a peer before has ended.
class Fence : vcq::Waiter {
  public:
    explicit Fence(TxContext& tx) noexcept : Waiter{on_flush}, tx_(tx) {}
    /// True if no earlier operation is under way to the peer that `to` names, and all have reached the completion level
    /// that `flags` ask for. Makes some rounds of progress to get there. False: call again later. It is true when
    ///  1. no signaled communication of the VCQ is under way, to whatever peer (these end soon);
    ///  2. no operation to the peer is in the pending queue;
    ///  3. no engine has something under way to the peer that it alone knows of, such as a rendezvous;
    ///  4. unsignaled communications to the peer have taken effect: an ARMW posted behind them has ended;
    ///  5. where `flags` ask for more than delivery to memory, the peer has said that it has taken the messages.
    [[nodiscard]] bool passed(fi_addr_t to, std::uint64_t flags) noexcept;

  private:
    [[nodiscard]] bool flushed(const Peer& peer) noexcept;
    static void on_flush(vcq::Waiter* fence, const vcq::Notice& notice) noexcept;

    TxContext& tx_;
    bool flushing_ = false; ///< the ARMW is under way
};

} // namespace tofu
