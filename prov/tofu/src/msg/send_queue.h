// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Sends that found no room at their peer wait here, in order, until the peer has read (fi_endpoint(3): at most
// tx_attr.size of them). So a program that posts and then waits for its completions is not refused. Part of the sender;
// calls Sender::try_send again.
#pragma once

#include <sys/uio.h>

#include "msg/send_requests.h"
#include "tx/pending_queue.h"

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
    /// The sends that were accepted and have not been sent. No later send to the same peer overtakes them.
    [[nodiscard]] const Pending::Stream& waiting() const noexcept { return waiting_; }
    /// May this call, which has found no room, wait here?
    [[nodiscard]] bool takes(const SendCall& call) const noexcept;
    /// Accepts a send that waits. 0; -FI_EAGAIN: too many wait; or the error of a failed channel.
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
