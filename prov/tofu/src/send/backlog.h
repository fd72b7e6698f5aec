// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Sends that found no room at their peer and wait here, in their order, until it has read (tx_attr.size of
// fi_endpoint(3) bounds them): a program that posts and then waits for its completions need not be refused. Part of the
// sender, whom it calls again.
#pragma once

#include <sys/uio.h>

#include "send/requests.h"
#include "transfer/pending.h"

namespace tofu::proto {

class Sender;

struct PendingSend : PendingOp {
    SendCall call{};
    Channel* to = nullptr;
    ssize_t ret = 0; ///< of the last try
    iovec iov[max_segments] = {};
    void* desc[max_segments] = {};
};

class Backlog {
  public:
    Backlog(TxContext& tx, Sender& sender) noexcept;
    /// Those that wait were taken and have not been sent: nobody overtakes them.
    [[nodiscard]] const Pending::Stream& waiting() const noexcept { return waiting_; }
    /// May a call wait that is refused now?
    [[nodiscard]] bool takes(const SendCall& call) const noexcept;
    /// 0, -FI_EAGAIN, or why nothing is sent on the channel.
    [[nodiscard]] ssize_t put_aside(Channel& to, const SendCall& call) noexcept;
    void cancel() noexcept { waiting_.cancel(); }

  private:
    static const Pending::Stream::Steps steps;
    [[nodiscard]] Lack go_on(PendingSend& send) noexcept;
    void through(PendingSend& send) noexcept;
    void give_back(PendingSend& send) noexcept;

    TxContext& tx_;
    Sender& sender_;
    Pending::Stream waiting_;
    Pool<PendingSend> pool_;
};

} // namespace tofu::proto
