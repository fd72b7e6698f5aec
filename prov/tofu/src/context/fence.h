// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// FI_FENCE (fi_endpoint(3)): has all that a tx context began towards a peer ended? Part of the context, asked by rma,
// atomic and message before an operation with the flag, under the context's lock; calls vcq, the pending queue, the
// engines.
#pragma once

#include <cstdint>

#include <rdma/fi_endpoint.h>

#include "vcq/vcq.h"

namespace tofu {

struct Peer;
class TxContext;

/// Its waiter is that of the ARMW which shows that all that was posted to a peer before has ended.
class Fence : vcq::Waiter {
  public:
    explicit Fence(TxContext& tx) noexcept : Waiter{on_flush}, tx_(tx) {}
    /// No operation before it is under way to the peer that `to` names, after some rounds of progress if need be, and
    /// all have reached the level that `flags` ask for. That is so when
    ///  1. no communication of the VCQ is under way whose end anybody waits for, to whatever peer: that ends soon;
    ///  2. nothing waits for the peer in the pending queue;
    ///  3. no engine has something under way to the peer that it alone knows of, such as a rendezvous;
    ///  4. what was posted to the peer without anybody waiting for its end has taken effect: an ARMW behind it has;
    ///  5. where more is asked for than delivery to memory, the peer says that it has taken the messages.
    [[nodiscard]] bool passed(fi_addr_t to, std::uint64_t flags) noexcept;

  private:
    [[nodiscard]] bool flushed(const Peer& peer) noexcept;
    static void on_flush(vcq::Waiter* fence, const vcq::Notice& notice) noexcept;

    TxContext& tx_;
    bool flushing_ = false; ///< the ARMW is under way
};

} // namespace tofu
