// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The life of a read or write after its call: posted piece by piece, paid for where its target counts events,
// completed. See rma.h.
#include "rma/rma.h"

#include <algorithm>

#include <rdma/fi_errno.h>

#include "msg/sender.h"
#include "tx/event_credits.h"

namespace tofu {

/// Rounds of progress that an inject with CQ data spends on its first contact with a peer.
constexpr unsigned contact_polls = 4096;

/// Hands the CQ data to the sender, whose packets go to the peer's target VCQ. The data must stay behind earlier
/// communications to an overflow VCQ: the bytes of the operation were already ordered so, and where there are no bytes
/// this function orders it.
static ssize_t send_data(TxContext& tx, RemoteMemory& access, const RmaOp& op) noexcept
{
    if (op.total == 0 && op.strong_order && !access.may_go_to(op.peer.target_vcq, op.peer.target_vcq)) [[unlikely]]
        return -FI_EAGAIN;
    return proto::Sender::of(tx).write_data(op.to, op.data, op.total);
}

// --- posting

/// Posts as much as goes now. BlockReason::nothing: all is posted, or an error ended the posting.
BlockReason Rma::post_some(RmaOp& op) noexcept
{
    if (op.empty_event) [[unlikely]]
        return post_empty(op);
    while (op.posted < op.total) {
        if (op.err != 0) [[unlikely]] {
            op.posted = op.total;
            break;
        }
        std::size_t at = op.posted;
        unsigned segment = 0;
        while (at >= op.target[segment].length)
            at -= op.target[segment++].length;
        if (at == 0 && segment != 0 && waits_for_others(op, segment))
            return BlockReason::peer;
        if (access_.is_ordering() && !in_turn(op, segment)) [[unlikely]]
            return BlockReason::peer;
        std::size_t length = 0;
        const vcq::Post post = post_piece(op, segment, at, length);
        if (post == vcq::Post::busy)
            return BlockReason::room;
        if (post == vcq::Post::error) [[unlikely]] {
            note(op, tx_.rails().vcq(op.rail).last_error());
            op.posted = op.total;
            break;
        }
        op.pending++;
        op.posted += length;
    }
    return BlockReason::nothing;
}

/// The event of an operation comes after all its bytes: does the segment, which carries it, wait for bytes that went to
/// another VCQ?
bool Rma::waits_for_others(const RmaOp& op, unsigned segment) noexcept
{
    bool others = false;
    for (unsigned before = 0; before < segment; before++)
        others |= op.target[before].at.vcq != op.target[segment].at.vcq;
    return others && op.remote_notice && segment + 1u == op.targets && op.pending != 0;
}

/// May the next piece go now, as far as order across the VCQs of a peer is concerned, where it was promised?
bool Rma::in_turn(const RmaOp& op, unsigned segment) noexcept
{
    return !(strong_[0] || strong_[1] || op.fenced) ||
           access_.may_go_to(op.peer.target_vcq, op.target[segment].at.vcq, op.read);
}

/// Posts one piece from op.posted on, which is byte `at` of the peer's segment `r`: as long as it stays within one
/// local segment, one remote segment and the largest transfer. `length`: its bytes.
vcq::Post Rma::post_piece(RmaOp& op, unsigned r, std::size_t at, std::size_t& length) noexcept
{
    const utofu_vcq_id_t peer = op.target[r].at.vcq;
    const utofu_stadd_t remote = op.target[r].at.stadd + at;
    length = std::min(op.target[r].length - at, caps_.max_putget_size);

    const std::byte* bytes = nullptr;
    utofu_stadd_t local = 0;
    if (op.bounce.data != nullptr) {
        bytes = op.bounce.data + op.posted;
        local = op.bounce.stadd + op.posted;
    } else {
        std::size_t in = op.posted;
        unsigned l = 0;
        while (in >= op.local[l].iov_len)
            in -= op.local[l++].iov_len;
        length = std::min(length, op.local[l].iov_len - in);
        bytes = static_cast<const std::byte*>(op.local[l].iov_base) + in;
        local = op.refs[l].stadd + in;
    }
    vcq::PostOptions how{op.sent_suffices ? vcq::CompletionLevel::sent : vcq::CompletionLevel::delivered,
                         op.strong_order, false, &op, vcq::Unsignaled::write};
    const bool last = op.remote_notice && op.posted + length == op.total;
    if (last) {
        // One event for the operation, after all of its bytes.
        how.remote_notice = true;
        how.strong_order = how.strong_order || op.posted != 0;
        how.handler = &op.last;
    }
    vcq::Vcq& vcq = tx_.rails().vcq(op.rail);
    const vcq::Post posted = op.read                              ? vcq.get(peer, local, remote, length, how)
                             : length <= caps_.max_piggyback_size ? vcq.put_inline(peer, bytes, remote, length, how)
                                                                  : vcq.put(peer, local, remote, length, how);
    if (last && posted == vcq::Post::done)
        op.event_left();
    return posted;
}

// --- events without bytes

/// Prepares the event of an operation without bytes. It counts for the region that the call names, if there is one; no
/// key is asked for. 0, or a refusal of the call.
int Rma::begin_empty(RmaOp& op, const fi_msg_rma& msg) noexcept
{
    const auto progress = [this] { return tx_.try_progress(); };
    int ret = -FI_EINVAL;
    if (msg.rma_iov_count != 0)
        ret = access_.find_empty(op, msg.rma_iov[0].addr, msg.rma_iov[0].key, progress);
    if (refuses_call(ret))
        return ret;
    op.names_no_region = ret != 0;
    if (op.names_no_region && !access_.find_event_word(op))
        return 0; // the operation needs nothing of its peer
    ret = access_.spend_now(op, op.prov_errno, progress);
    if (refuses_call(ret))
        return ret;
    op.err = -ret;
    op.empty_event = ret == 0;
    op.last.notify = on_empty;
    return 0;
}

BlockReason Rma::post_empty(RmaOp& op) noexcept
{
    if (access_.is_ordering() && op.strong_order &&
        !access_.may_go_to(op.peer.target_vcq, op.target[0].at.vcq, !op.names_no_region && op.read))
        return BlockReason::peer;
    const vcq::SignaledArgs how{&op.last, vcq::delivered_flags(op.strong_order, true)};
    switch (access_.post_empty(op, op.read, how)) {
    case vcq::Post::busy: return BlockReason::room;
    case vcq::Post::error: note(op, tx_.vcq().last_error()); break;
    case vcq::Post::done:
        op.event_left();
        op.pending++;
        break;
    }
    op.empty_event = false;
    return BlockReason::nothing;
}

/// Where there is no such region the event goes to the peer's own word.
void Rma::on_empty(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept
{
    RmaOp& op = *static_cast<RmaOp::Last*>(handler)->op;
    Rma& rma = *op.engine;
    op.event_ended(notice.code);
    if (!op.event_posted && !op.names_no_region && !rma.closed_ && rma.access_.find_event_word(op)) {
        op.pending--;
        op.names_no_region = op.empty_event = true;
        if (!op.queued)
            rma.enqueue(op, BlockReason::peer);
        return;
    }
    on_notice(&op, notice);
}

// --- progress

void Rma::on_notice(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept
{
    auto& op = *static_cast<RmaOp*>(handler);
    if (count_down(op, notice.code) && op.posted == op.total && !op.queued)
        op.engine->finish(op);
}

void Rma::on_last(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept
{
    RmaOp& op = *static_cast<RmaOp::Last*>(handler)->op;
    op.event_ended(notice.code);
    on_notice(&op, notice);
}

void Rma::unblocked(RmaOp& op) noexcept
{
    op.queued = false;
    if (op.step == RmaOp::Step::ended)
        end(op);
    else if (op.pending == 0)
        finish(op);
}

/// Cancels what has not been posted; what has been posted still ends.
void Rma::cancel(RmaOp& op) noexcept
{
    if (op.err == 0)
        op.err = FI_ECANCELED;
    op.posted = op.total;
    unblocked(op);
}

/// Sends the CQ data of an inject. Its caller waits for no completion, so nothing may be left to later progress: the
/// data goes out right behind the bytes, ordered by the strong order of the sender's Puts (guide 6.1.3.1). Where the
/// peer has no room, or is contacted for the first time, this is retried for a while; after that finish() does it.
void Rma::send_data_at_once(RmaOp& op) noexcept
{
    op.pending++; // keeps notices that come meanwhile from ending the operation
    for (unsigned i = 0; i < contact_polls && op.remote_data; i++) {
        const ssize_t ret = send_data(tx_, access_, op);
        if (ret == -FI_EAGAIN) {
            tx_.progress();
            continue;
        }
        if (ret != 0 && op.err == 0)
            op.err = static_cast<int>(-ret);
        op.remote_data = false;
    }
    op.pending--;
}

/// Sends the CQ data to the target if the sender has room for it.
BlockReason Rma::notify_peer(RmaOp& op) noexcept
{
    const ssize_t ret = send_data(tx_, access_, op);
    if (ret == -FI_EAGAIN)
        return BlockReason::peer;
    if (ret != 0)
        op.err = static_cast<int>(-ret);
    op.step = RmaOp::Step::ended;
    return BlockReason::nothing;
}

/// Called when every byte is posted and every notice has come.
void Rma::finish(RmaOp& op) noexcept
{
    access_.ended(op.peer.target_vcq, op.prov_errno);
    if (op.bounce.data != nullptr && op.read && op.err == 0)
        scatter(op.local, op.local_count, op.bounce.data, op.total);
    give_back(op);
    if (op.err == 0 && (op.remote_data || op.has_further())) {
        op.step = RmaOp::Step::notifying_regions;
        // The data of an earlier write may wait.
        const bool behind = op.remote_data && waiting_.has_peer_queue(PendingQueue::queue_key(op.peer));
        if (const BlockReason reason = behind ? BlockReason::peer : conclude(op); reason != BlockReason::nothing) {
            enqueue(op, reason);
            return;
        }
    }
    end(op);
}

/// What the peer learns of an operation that has taken effect: events for further regions, then CQ data.
BlockReason Rma::conclude(RmaOp& op) noexcept
{
    if (op.step == RmaOp::Step::notifying_regions) {
        if (op.has_further() && access_.notify_further(op) == vcq::Post::busy)
            return BlockReason::room;
        op.step = op.remote_data ? RmaOp::Step::sending_data : RmaOp::Step::ended;
    }
    return op.step == RmaOp::Step::sending_data ? notify_peer(op) : BlockReason::nothing;
}

void Rma::end(RmaOp& op) noexcept
{
    op.step = RmaOp::Step::ended;
    op.refund();
    complete(op);
    ops_.renew(&op);
}

/// Forgets an operation of which nothing was posted.
void Rma::drop(RmaOp& op) noexcept
{
    give_back(op);
    op.refund();
    ops_.renew(&op);
}

void Rma::enqueue(RmaOp& op, BlockReason reason) noexcept
{
    op.queued = true;
    waiting_.push(op, PendingQueue::queue_key(op.peer), reason);
}

} // namespace tofu
