// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See ops.h. An operation that has ended notifies a target that counts events, then it completes.
#include "atomic/ops.h"

#include <rdma/fi_errno.h>

#include "atomic/atomic.h"

namespace tofu {

using vcq::Notice;
using vcq::Post;

AtomicOps::AtomicOps(vcq::Vcq& vcq, PendingQueue& pending, RemoteMemory& access, AtomicRunner& runner) noexcept
    : vcq(vcq), access(access), scratch(vcq, {WideOp::most, 128}, {Span::most * 8, SpanRunner::max_spans}),
      runner_(runner), waiting_(pending, &runner, PendingQueue::SubQueue::steps_of<AtomicRunner, AtomicOp>)
{
}

AtomicOp* AtomicOps::alloc() noexcept
{
    AtomicOp* const op = ops_.alloc();
    if (op) [[likely]] {
        op->runner = &runner_;
        op->notify = &event_done; // as a completion handler the operation itself only hears of its event
    }
    return op;
}

bool AtomicOps::find_loop(utofu_vcq_id_t target_vcq) const noexcept
{
    for (const AtomicOp* op = looping_; op; op = op->loop_next)
        if (op->peer.target_vcq == target_vcq)
            return true;
    return false;
}

// --- what has been started

bool AtomicOps::took(AtomicOp& op, Post posted, std::size_t elements) noexcept
{
    if (posted == Post::done) [[likely]] {
        advance(op, elements);
        return true;
    }
    --op.pending;
    if (posted == Post::busy)
        return false;
    abandon(op, vcq.last_error());
    return true;
}

void AtomicOps::advance(AtomicOp& op, std::size_t elements) noexcept
{
    if (op.words++ == 0 && op.multi) {
        op.loop_next = looping_;
        op.loop_prev = nullptr;
        if (looping_)
            looping_->loop_prev = &op;
        looping_ = &op;
    }
    op.started += elements;
    op.in_target += elements * op.size;
    if (op.in_target == op.target[op.at_target].length) {
        op.in_target = 0;
        ++op.at_target;
    }
}

void AtomicOps::abandon(AtomicOp& op, int err, int code) noexcept
{
    if (op.err == 0) {
        op.err = err;
        op.prov_errno = code;
    }
    op.started = op.total;
}
void AtomicOps::end_one(AtomicOp& op, int code) noexcept
{
    if (count_down(op, code))
        finish(op);
}

void AtomicOps::end_part(AtomicOp& op, int code) noexcept
{
    if (code != UTOFU_SUCCESS) [[unlikely]]
        abandon(op, code);
    end_one(op, code);
}

// --- the end

/// Posts the event that reports the end of an operation to the target. An operation that counts as a write: an ARMW
/// that changes nothing. One that fetched and wrote: the same, unsignaled (no other ARMW that notifies is unsignaled).
/// One that only read: a Get of one byte.
Post AtomicOps::post_event(AtomicOp& op) noexcept
{
    const vcq::SignaledArgs how{&op, vcq::delivered_flags(false, true)};
    const auto [peer, at] = op.target[0].at;
    const utofu_stadd_t word = at & ~utofu_stadd_t{3};
    if (op.event == AtomicEvent::fetch) {
        op.pending = 0;
        return vcq.armw(4, peer, UTOFU_ARMW_OP_OR, 0, word,
                        vcq::UnsignaledArgs{vcq::Unsignaled::armw, vcq::flags_of(false, true)});
    }
    op.pending = 1;
    if (op.event == AtomicEvent::write)
        return vcq.armw(4, peer, UTOFU_ARMW_OP_OR, 0, word, how);
    op.scratch = scratch.alloc(1);
    if (op.scratch.data == nullptr)
        return Post::busy;
    const Post posted = vcq.get(peer, op.scratch.stadd, at, 1, how);
    if (posted != Post::done)
        scratch.release(op.scratch);
    return posted;
}

/// post_event() for an operation whose target has not been notified, after events for its further regions. Returns what
/// it lacks.
BlockReason AtomicOps::notify_target(AtomicOp& op) noexcept
{
    const Post further = op.has_further() ? access.notify_further(op) : Post::done;
    switch (further == Post::busy ? further : post_event(op)) {
    case Post::done: op.event_left(); break;
    case Post::busy:
        if (!retry_list.closed())
            return BlockReason::room;
        abandon(op, FI_ECANCELED, 0);
        break;
    case Post::error: abandon(op, vcq.last_error()); break;
    }
    return BlockReason::nothing;
}

/// Called when all words have ended: ends the operation, after it has notified its target if necessary.
void AtomicOps::finish(AtomicOp& op) noexcept
{
    if (op.multi && op.words != 0) {
        (op.loop_prev ? op.loop_prev->loop_next : looping_) = op.loop_next;
        if (op.loop_next)
            op.loop_next->loop_prev = op.loop_prev;
        op.words = 0; // it has taken effect: operations that wait for that need not wait for its event
    }
    if (op.event != AtomicEvent::none && !op.event_posted && op.err == 0) {
        op.notifying = true;
        if (const BlockReason reason = notify_target(op); reason != BlockReason::nothing) {
            waiting_.push(op, op.links.key, reason);
            return;
        }
    }
    if (op.event_posted && op.pending != 0) // the event's notice will come
        return;
    access.ended(op.peer.target_vcq, op.prov_errno);
    end(op);
}

void AtomicOps::end(AtomicOp& op) noexcept
{
    if (op.ended != nullptr)
        *op.ended = true;
    op.refund();
    complete(op);
    release(&op);
}

void AtomicOps::event_done(vcq::CompletionHandler* self, Notice notice) noexcept
{
    AtomicOp* const op = static_cast<AtomicOp*>(self);
    if (op->event == AtomicEvent::read)
        op->runner->ops.scratch.release(op->scratch);
    op->event_ended(notice.code);
    if (count_down(*op, notice.code))
        op->runner->ops.finish(*op);
}

} // namespace tofu
