// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The life of a read or write after its call: posted piece by piece, paid for where its target counts events, retried
// where a key was stale, completed. See runner.h. Called by runner.cc, the poll of the VCQ and the pending queue.
#include "rma/runner.h"

#include <algorithm>

#include <rdma/fi_errno.h>

#include "local/iov.h"
#include "provider/error.h"
#include "remote/event_credits.h"
#include "send/sender.h"

namespace tofu {

namespace {

/// Rounds of progress that an inject with CQ data spends on its first contact with a peer.
constexpr unsigned contact_polls = 4096;

/// Hands the CQ data to the sender, whose packets go to the peer's home VCQ. The data must stay behind earlier
/// communications to an annex: the bytes of the operation were already ordered so, and where there are no bytes this
/// function orders it.
ssize_t send_data(TxContext& tx, RemoteAccess& access, const RmaOp& op) noexcept
{
    if (op.total == 0 && op.strong_order && !access.may_go_to(op.peer.home, op.peer.home)) [[unlikely]]
        return -FI_EAGAIN;
    return proto::Sender::of(tx).write_data(op.to, op.data, op.total);
}

} // namespace

// --- posting

/// Posts as much as goes now. Lack::nothing: all is posted, or an error ended the posting.
Lack RmaRunner::post_some(RmaOp& op) noexcept
{
    while (op.posted < op.total) {
        if (op.err != 0) [[unlikely]] {
            op.posted = op.total;
            break;
        }
        std::size_t at = op.posted;
        unsigned segment = 0;
        while (at >= op.target[segment].length)
            at -= op.target[segment++].length;
        if (access_.is_ordering() && !in_turn(op, segment)) [[unlikely]]
            return Lack::peer;
        std::size_t length = 0;
        const vcq::Post post = post_piece(op, segment, at, length);
        if (post == vcq::Post::busy)
            return Lack::room;
        if (post == vcq::Post::error) [[unlikely]] {
            note(op, tx_.branches().vcq(op.way).last_error());
            op.posted = op.total;
            break;
        }
        op.pending++;
        op.posted += length;
    }
    return Lack::nothing;
}

/// May the next piece go now, as far as order across the VCQs of a peer is concerned? Operations keep their order where
/// it was promised, and the event of an operation comes after its bytes.
bool RmaRunner::in_turn(const RmaOp& op, unsigned segment) noexcept
{
    const utofu_vcq_id_t vcq = op.target[segment].at.vcq;
    if (op.remote_notice && segment != 0 && op.target[segment - 1].at.vcq != vcq && op.pending != 0)
        return false;
    return !(strong_[0] || strong_[1] || op.fenced) || access_.may_go_to(op.peer.home, vcq, op.read);
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
    vcq::How how{op.sent_suffices ? vcq::When::sent : vcq::When::delivered, op.strong_order, false, &op,
                 vcq::Unsignaled::write};
    const bool last = op.remote_notice && op.posted + length == op.total;
    if (last) {
        // One event for the operation, after all of its bytes.
        how.remote_notice = true;
        how.strong_order = how.strong_order || op.posted != 0;
        how.waiter = &op.last;
    }
    vcq::Vcq& vcq = tx_.branches().vcq(op.way);
    const vcq::Post posted = op.read                 ? vcq.get(peer, local, remote, length, how)
                             : length <= caps_.max_piggyback_size ? vcq.put_inline(peer, bytes, remote, length, how)
                                                     : vcq.put(peer, local, remote, length, how);
    op.event_posted = last && posted == vcq::Post::done;
    return posted;
}

// --- progress

void RmaRunner::on_notice(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept
{
    auto& op = *static_cast<RmaOp*>(waiter);
    if (settle(op, notice.code) && op.posted == op.total && !op.queued)
        op.runner->finish(op);
}

void RmaRunner::on_last(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept
{
    RmaOp& op = *static_cast<RmaOp::Last*>(waiter)->op;
    op.event_posted = !left_no_event(notice.code);
    on_notice(&op, notice);
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

/// Takes the next steps of an operation that had to wait. Returns what it lacks now.
Lack RmaRunner::go_on(RmaOp& op) noexcept
{
    switch (op.step) {
    case RmaOp::Step::resolving: {
        int ret = access_.resolve(op);
        if (ret == 0 && op.remote_notice && op.account == nullptr)
            ret = access_.pay(op, op.prov_errno);
        if (refuses_call(ret))
            return Lack::peer;
        if (ret != 0) {
            op.err = -ret;
            op.posted = op.total;
        }
        op.step = RmaOp::Step::posting;
        [[fallthrough]];
    }
    case RmaOp::Step::posting:
        return post_some(op);
    case RmaOp::Step::notifying:
        return notify_peer(op);
    case RmaOp::Step::ended:
        break;
    }
    return Lack::nothing;
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
Lack RmaRunner::notify_peer(RmaOp& op) noexcept
{
    const ssize_t ret = send_data(tx_, access_, op);
    if (ret == -FI_EAGAIN)
        return Lack::peer;
    if (ret != 0)
        op.err = static_cast<int>(-ret);
    op.step = RmaOp::Step::ended;
    return Lack::nothing;
}

/// Called when every byte is posted and every notice has come.
void RmaRunner::finish(RmaOp& op) noexcept
{
    const bool refuted = op.err != 0 && doubts_target(op.prov_errno) && access_.refuted(op);
    if (refuted && !op.retried && says_stale(op.prov_errno)) [[unlikely]] {
        // Puts and Gets may be repeated: the same bytes go to the same places.
        op.retried = true;
        if (op.event_posted) // the event has come, though earlier bytes have not
            op.account = nullptr;
        op.event_posted = false;
        op.err = 0;
        op.prov_errno = 0;
        op.posted = 0;
        op.step = RmaOp::Step::resolving;
        enqueue(op, Lack::peer);
        return;
    }
    if (op.bounce.data != nullptr && op.read && op.err == 0)
        scatter(op.local, op.local_count, op.bounce.data, op.total);
    buffers_.give_back(op);
    if (op.remote_data && op.err == 0) {
        op.step = RmaOp::Step::notifying;
        if (const Lack lack = notify_peer(op); lack != Lack::nothing) {
            enqueue(op, lack);
            return;
        }
    }
    end(op);
}

void RmaRunner::end(RmaOp& op) noexcept
{
    op.step = RmaOp::Step::ended;
    op.refund();
    complete(op);
    ops_.renew(&op);
}

/// Forgets an operation of which nothing was posted.
void RmaRunner::drop(RmaOp& op) noexcept
{
    buffers_.give_back(op);
    op.refund();
    ops_.renew(&op);
}

void RmaRunner::enqueue(RmaOp& op, Lack lack) noexcept
{
    op.queued = true;
    waiting_.push(op, Pending::line_of(op.peer), lack);
}

} // namespace tofu
