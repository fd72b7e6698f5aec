// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The life of a read or write after its call: posted piece by piece, paid for where its target counts events, retried
// where a key was stale, completed. See rma.h.
#include "rma/rma.h"

#include <algorithm>

#include <rdma/fi_errno.h>

#include "core/log.h"
#include "mem/local_buffer.h"
#include "msg/sender.h"
#include "tx/event_credits.h"

namespace tofu {

namespace {

/// Rounds of progress that an inject with CQ data spends on its first contact with a peer.
constexpr unsigned contact_polls = 4096;

/// Hands the CQ data to the sender, whose packets go to the peer's home VCQ. The data must stay behind earlier
/// communications to an overflow VCQ: the bytes of the operation were already ordered so, and where there are no bytes
/// this function orders it.
ssize_t send_data(TxContext& tx, RemoteAccess& access, const RmaOp& op) noexcept
{
    if (op.total == 0 && op.strong_order && !access.may_go_home(op.peer.home)) [[unlikely]]
        return -FI_EAGAIN;
    return proto::Sender::of(tx).write_data(op.to, op.data, op.total);
}

} // namespace

// --- posting

/// Posts as much as goes now. BlockReason::nothing: all is posted, or an error ended the posting.
BlockReason RmaRunner::post_some(RmaOp& op) noexcept
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
        if (op.done >> segment & 1) [[unlikely]] {
            op.posted += op.target[segment].length;
            continue;
        }
        if (at == 0 && segment != 0)
            if (const BlockReason reason = enter(op, segment); reason != BlockReason::nothing || op.posted == op.total)
                return reason;
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
        if (at + length == op.target[segment].length)
            op.complete |= static_cast<std::uint8_t>(1u << segment);
    }
    return BlockReason::nothing;
}

/// May the next segment be begun? Its event comes after all bytes of the operation, so the last one waits until none of
/// the earlier ones can be refused any more. Where one has been refused, and this one may not go before it, the posting
/// ends here: both are repeated in their order.
BlockReason RmaRunner::enter(RmaOp& op, unsigned segment) noexcept
{
    const bool carries_event = op.remote_notice && segment + 1u == op.targets;
    for (unsigned before = 0; carries_event && before < segment; before++) {
        const bool other_fate = op.by_directory ? !op.in_one_region(before, segment)
                                                : op.target[before].at.vcq != op.target[segment].at.vcq;
        if (other_fate && op.pending != 0)
            return BlockReason::peer;
    }
    if (op.refused != 0 && (carries_event || access_.orders_regions()))
        op.posted = op.total;
    return BlockReason::nothing;
}

/// May the next piece go now, as far as order across the VCQs and regions of a peer is concerned, where it was
/// promised?
bool RmaRunner::in_turn(const RmaOp& op, unsigned segment) noexcept
{
    const RemoteSide::Piece& target = op.target[segment];
    return !(strong_[0] || strong_[1] || op.fenced) ||
           access_.may_go_to(op.peer.home, target.at, target.address, op.read);
}

/// Posts one piece from op.posted on, which is byte `at` of the peer's segment `r`: as long as it stays within one
/// local segment, one remote segment and the largest transfer. `length`: its bytes.
vcq::Post RmaRunner::post_piece(RmaOp& op, unsigned r, std::size_t at, std::size_t& length) noexcept
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
    vcq::How how{op.sent_suffices ? vcq::When::sent : vcq::When::delivered, op.strong_order, false,
                 op.by_directory ? static_cast<vcq::CompletionHandler*>(&op.segment[r]) : &op, vcq::Unsignaled::write};
    const bool last = op.remote_notice && op.posted + length == op.total;
    if (last) {
        // One event for the operation, after all of its bytes.
        how.remote_notice = true;
        how.strong_order = how.strong_order || op.posted != 0;
        how.handler = &op.last;
    }
    vcq::Vcq& vcq = tx_.rails().vcq(op.rail);
    const vcq::Post posted = op.read                 ? vcq.get(peer, local, remote, length, how)
                             : length <= caps_.max_piggyback_size ? vcq.put_inline(peer, bytes, remote, length, how)
                                                     : vcq.put(peer, local, remote, length, how);
    if (last && posted == vcq::Post::done)
        op.event_left();
    return posted;
}

// --- events without bytes

/// Prepares the event of an operation without bytes. It counts for the region that the call names, if there is one; no
/// key is asked for. 0, or a refusal of the call.
int RmaRunner::begin_empty(RmaOp& op, const fi_msg_rma& msg) noexcept
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
    ret = access_.pay_now(op, op.prov_errno, progress);
    if (refuses_call(ret))
        return ret;
    op.err = -ret;
    op.empty_event = ret == 0;
    op.last.notify = on_empty;
    return 0;
}

BlockReason RmaRunner::post_empty(RmaOp& op) noexcept
{
    const Target& at = op.target[0].at;
    if (access_.is_ordering() && op.strong_order &&
        !(op.names_no_region ? access_.may_go_home(op.peer.home)
                             : access_.may_go_to(op.peer.home, at, op.target[0].address, op.read)))
        return BlockReason::peer;
    const vcq::Signaled how{&op.last, vcq::delivered_flags(op.strong_order, true)};
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
void RmaRunner::on_empty(vcq::CompletionHandler* handler, const vcq::Notice& notice) noexcept
{
    RmaOp& op = *static_cast<RmaOp::Last*>(handler)->op;
    RmaRunner& runner = *op.runner;
    op.event_ended(notice.code);
    if (!op.event_posted && !op.names_no_region && !runner.closed_ && runner.access_.find_event_word(op)) {
        op.pending--;
        op.names_no_region = op.empty_event = true;
        if (!op.queued)
            runner.enqueue(op, BlockReason::peer);
        return;
    }
    on_notice(&op, notice);
}

// --- progress

void RmaRunner::on_notice(vcq::CompletionHandler* handler, const vcq::Notice& notice) noexcept
{
    auto& op = *static_cast<RmaOp*>(handler);
    if (settle(op, notice.code) && op.posted == op.total && !op.queued)
        op.runner->finish(op);
}

void RmaRunner::on_segment(vcq::CompletionHandler* handler, const vcq::Notice& notice) noexcept
{
    auto& segment = *static_cast<RmaOp::Segment*>(handler);
    RmaOp& op = *segment.op;
    op.runner->settle_segment(op, static_cast<unsigned>(&segment - op.segment), notice.code);
}

void RmaRunner::on_last(vcq::CompletionHandler* handler, const vcq::Notice& notice) noexcept
{
    RmaOp& op = *static_cast<RmaOp::Last*>(handler)->op;
    op.event_ended(notice.code);
    op.runner->settle_segment(op, op.targets - 1u, notice.code);
}

void RmaRunner::settle_segment(RmaOp& op, unsigned segment, int utofu_code) noexcept
{
    if (!closed_ && op.is_to_be_repeated(utofu_code)) [[unlikely]] {
        op.refuse(segment, utofu_code);
        utofu_code = UTOFU_SUCCESS;
    }
    on_notice(&op, {utofu_code, 0});
}

void RmaRunner::through(RmaOp& op) noexcept
{
    op.queued = false;
    if (op.step == RmaOp::Step::ended)
        end(op);
    else if (op.pending == 0)
        finish(op);
}

/// Cancels what has not been posted; what has been posted still ends.
void RmaRunner::cancel(RmaOp& op) noexcept
{
    if (op.err == 0)
        op.err = FI_ECANCELED;
    op.retried = true; // so that finish() does not retry it
    op.posted = op.total;
    through(op);
}

/// Takes the next steps of an operation that had to wait. Returns why it is blocked now.
BlockReason RmaRunner::go_on(RmaOp& op) noexcept
{
    switch (op.step) {
    case RmaOp::Step::resolving: {
        const int ret = access_.resolve(op);
        if (refuses_call(ret))
            return BlockReason::peer;
        if (ret != 0) {
            op.err = -ret;
            op.posted = op.total;
        }
        op.step = RmaOp::Step::posting;
        [[fallthrough]];
    }
    case RmaOp::Step::posting:
        return post_some(op);
    case RmaOp::Step::telling:
    case RmaOp::Step::notifying:
        return conclude(op);
    case RmaOp::Step::ended:
        break;
    }
    return BlockReason::nothing;
}

/// Sends the CQ data of an inject. Its caller waits for no completion, so nothing may be left to later progress: the
/// data goes out right behind the bytes, ordered by the strong order of the sender's Puts (guide 6.1.3.1). Where the
/// peer has no room, or is contacted for the first time, this is retried for a while; after that finish() does it.
void RmaRunner::send_data_at_once(RmaOp& op) noexcept
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
BlockReason RmaRunner::notify_peer(RmaOp& op) noexcept
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
void RmaRunner::finish(RmaOp& op) noexcept
{
    if (op.refused != 0 && op.err == 0) [[unlikely]] {
        repeat(op);
        return;
    }
    if (op.err != 0 && doubts_target(op.prov_errno))
        (void)access_.refuted(op);
    if (op.bounce.data != nullptr && op.read && op.err == 0)
        scatter(op.local, op.local_count, op.bounce.data, op.total);
    buffers_.give_back(op);
    if (op.err == 0 && (op.remote_data || op.has_further())) {
        op.step = RmaOp::Step::telling;
        if (const BlockReason reason = conclude(op); reason != BlockReason::nothing) {
            enqueue(op, reason);
            return;
        }
    }
    end(op);
}

/// What the peer learns of an operation that has taken effect: events for further regions, then CQ data.
BlockReason RmaRunner::conclude(RmaOp& op) noexcept
{
    if (op.step == RmaOp::Step::telling) {
        if (op.has_further() && access_.tell_further(op) == vcq::Post::busy)
            return BlockReason::room;
        op.step = op.remote_data ? RmaOp::Step::notifying : RmaOp::Step::ended;
    }
    return op.step == RmaOp::Step::notifying ? notify_peer(op) : BlockReason::nothing;
}

/// Does again what was refused, once, and what was not begun because of that; not what has taken effect, an event that
/// has come included. Bytes of a refused segment that have arrived go to the same places again. A segment that was not
/// begun may have a stale key as well: all keys are looked up anew.
void RmaRunner::repeat(RmaOp& op) noexcept
{
    op.retried = true;
    op.done |= op.complete & static_cast<std::uint8_t>(~op.refused);
    (void)access_.refuted(op, ~unsigned{op.done});
    op.complete = op.refused = 0;
    if (op.event_posted)
        op.remote_notice = false;
    op.posted = 0;
    op.step = RmaOp::Step::resolving;
    enqueue(op, BlockReason::peer);
}

void RmaRunner::end(RmaOp& op) noexcept
{
    op.step = RmaOp::Step::ended;
    op.refund();
    complete(op);
    ops_.renew(&op);
}

/// A new operation waits until the key of its region has been read anew. 0, or a refusal of the call.
ssize_t RmaRunner::wait_for_key(RmaOp& op, const RmaCall& call) noexcept
{
    int ret = op.remote_notice ? access_.pay_now(op, op.prov_errno, [this] { return tx_.try_progress(); }) : 0;
    if (ret != 0 && !refuses_call(ret)) { // the operation fails, not the call
        op.err = -ret;
        op.posted = op.total;
        finish(op);
        return 0;
    }
    if (ret == 0)
        ret = buffers_.attach(op, call);
    if (ret != 0) {
        drop(op);
        return ret;
    }
    op.retried = true;
    op.step = RmaOp::Step::resolving;
    enqueue(op, BlockReason::peer);
    return 0;
}

/// Forgets an operation of which nothing was posted.
void RmaRunner::drop(RmaOp& op) noexcept
{
    buffers_.give_back(op);
    op.refund();
    ops_.renew(&op);
}

void RmaRunner::enqueue(RmaOp& op, BlockReason reason) noexcept
{
    op.queued = true;
    waiting_.push(op, Pending::line_of(op.peer), reason);
}

} // namespace tofu
