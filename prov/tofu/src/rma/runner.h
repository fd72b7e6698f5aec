// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Reads and writes under way, each a sequence of Puts or Gets: accepted (runner.cc), then posted piece by piece, paid
// for where the target counts events, retried where a key was stale, and completed (progress.cc). A retry repeats exactly
// the segments that were refused: what has taken effect must not do so again, behind what was called later. Called by
// calls.cc, deferred work and the pending queue under the context's lock; calls vcq, tx/remote_memory, local_memory, the
// sender (CQ data).
#pragma once

#include <cstddef>
#include <cstdint>

#include "rma/buffers.h"
#include "rma/op.h"
#include "tx/operation.h"
#include "tx/pending_queue.h"
#include "tx/remote_memory.h"
#include "tx/tx_context.h"

namespace tofu {

class RmaRunner {
  public:
    RmaRunner(TxContext& tx, RemoteAccess& access) noexcept;
    /// Accepts and begins an operation. 0, or a refusal without any effect; a later failure becomes an error entry.
    [[nodiscard]] ssize_t submit(const RmaCall& call) noexcept;
    /// Operations that have not ended; waiting(): those of them in the pending queue.
    [[nodiscard]] std::size_t outstanding() const noexcept { return ops_.in_use(); }
    [[nodiscard]] const Pending::Stream& waiting() const noexcept { return waiting_; }
    /// True once a write has been posted unsignaled: only its failure is reported, and that to no waiter.
    [[nodiscard]] bool posted_unsignaled() const noexcept { return posted_unsignaled_; }
    /// Cancels what waits. From now on nothing is repeated.
    void close() noexcept
    {
        closed_ = true;
        waiting_.cancel();
    }
    /// Makes the waiters of all operations do nothing. Called when the endpoint has ended and its VCQ has not.
    void mute() noexcept
    {
        ops_.each([](RmaOp& op) {
            op.notify = op.last.notify = [](vcq::Waiter*, const vcq::Notice&) noexcept {};
            for (RmaOp::Segment& segment : op.segment)
                segment.notify = op.notify;
        });
    }

  private:
    friend class Pending::Stream;
    static void on_notice(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;
    static void on_segment(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;
    static void on_last(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;
    void settle_segment(RmaOp& op, unsigned segment, int utofu_code) noexcept;
    void describe(RmaOp& op, const RmaCall& call, const Peer& peer, std::size_t total) noexcept;
    [[nodiscard]] ssize_t launch(RmaOp& op) noexcept;
    void send_data_at_once(RmaOp& op) noexcept;
    [[nodiscard]] Lack post_some(RmaOp& op) noexcept;
    [[nodiscard]] Lack enter(RmaOp& op, unsigned segment) noexcept;
    [[nodiscard]] int begin_empty(RmaOp& op, const fi_msg_rma& msg) noexcept;
    [[nodiscard]] Lack post_empty(RmaOp& op) noexcept;
    static void on_empty(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;
    [[nodiscard]] bool in_turn(const RmaOp& op, unsigned segment) noexcept;
    [[nodiscard]] vcq::Post post_piece(RmaOp& op, unsigned segment, std::size_t at, std::size_t& length) noexcept;
    [[nodiscard]] Lack go_on(RmaOp& op) noexcept;
    void through(RmaOp& op) noexcept;
    void cancel(RmaOp& op) noexcept;
    [[nodiscard]] Lack conclude(RmaOp& op) noexcept;
    [[nodiscard]] Lack notify_peer(RmaOp& op) noexcept;
    void finish(RmaOp& op) noexcept;
    void repeat(RmaOp& op) noexcept;
    void end(RmaOp& op) noexcept;
    void drop(RmaOp& op) noexcept;
    [[nodiscard]] ssize_t wait_for_key(RmaOp& op, const RmaCall& call) noexcept;
    void enqueue(RmaOp& op, Lack lack) noexcept;

    TxContext& tx_;
    RemoteAccess& access_;
    Pending::Stream waiting_; ///< operations that can't go on now
    Pool<RmaOp> ops_;
    RmaBuffers buffers_;
    const utofu_onesided_caps& caps_;
    const bool strong_[2]; ///< tx_attr.msg_order asks for an order of [0] writes, [1] reads
    bool posted_unsignaled_ = false;
    bool closed_ = false;
};

} // namespace tofu
