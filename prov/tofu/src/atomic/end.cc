// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How an operation of the runner ends: the target is told where it counts events, what a stale key refused is begun
// again, the rest is completed. Called by words.cc and by the poll of the VCQ; calls vcq, request,
// event_credits.
#include "atomic/runner.h"

#include <rdma/fi_errno.h>

#include "provider/error.h"

namespace tofu {

using vcq::Notice;
using vcq::Post;

/// Tells the target that an operation has ended: by an ARMW that changes nothing where it counts as a write, the same
/// with nobody waiting for it where it fetched and wrote (no other ARMW that notifies is unsignaled), by a Get of one
/// byte where it only read.
Post AtomicRunner::post_event(AtomicOp& op) noexcept
{
    const vcq::Signaled how{&op, vcq::Vcq::delivered_flags(false, true)};
    const auto [vcq, at] = op.target[0].at;
    const utofu_stadd_t word = at & ~utofu_stadd_t{3};
    if (op.event == AtomicEvent::fetch) {
        op.pending = 0;
        return vcq_.armw(4, vcq, UTOFU_ARMW_OP_OR, 0, word,
                         vcq::Silent{vcq::Unsignaled::armw, vcq::Vcq::flags_of(false, true)});
    }
    op.pending = 1;
    if (op.event == AtomicEvent::write)
        return vcq_.armw(4, vcq, UTOFU_ARMW_OP_OR, 0, word, how);
    op.scratch = scratch_.alloc(1);
    if (op.scratch.data == nullptr)
        return Post::busy;
    const Post posted = vcq_.get(vcq, op.scratch.stadd, at, 1, how);
    if (posted != Post::done)
        scratch_.release(op.scratch);
    return posted;
}

/// As post_event(), for an operation whose target is still to be told; what it lacks.
Lack AtomicRunner::notify_target(AtomicOp& op) noexcept
{
    switch (post_event(op)) {
    case Post::done: op.event_posted = true; break;
    case Post::busy:
        if (!agenda_.closed())
            return Lack::room;
        abandon(op, FI_ECANCELED, 0);
        break;
    case Post::error: abandon(op, vcq_.last_error()); break;
    }
    return Lack::nothing;
}

/// All words have ended, and with them the operation, unless the target is still to be told.
void AtomicRunner::finish(AtomicOp& op) noexcept
{
    if (op.multi && op.words != 0) {
        (op.loop_prev ? op.loop_prev->loop_next : looping_) = op.loop_next;
        if (op.loop_next)
            op.loop_next->loop_prev = op.loop_prev;
        op.words = 0; // it has taken effect: who waits for that goes before its notice
    }
    if (op.event != AtomicEvent::none && !op.event_posted && op.err == 0) {
        op.step = AtomicOp::Step::notifying;
        if (const Lack lack = notify_target(op); lack != Lack::nothing) {
            waiting_.push(op, op.line.key, lack);
            return;
        }
    }
    if (op.event_posted && op.pending != 0) // its notice comes
        return;
    if (op.err != 0 && op.by_directory && says_stale(op.prov_errno)) [[unlikely]] {
        (void)access_.refuted(op);
        if (!op.retried && !op.took_effect && !agenda_.closed()) {
            begin_again(op);
            return;
        }
    }
    end(op);
}

void AtomicRunner::end(AtomicOp& op) noexcept
{
    --outstanding_;
    if (watched_ == &op)
        watched_ = nullptr;
    op.refund();
    complete(op);
    release(&op);
}

/// A key may stand for another region than it did: what was refused as a whole may be done again, once.
void AtomicRunner::begin_again(AtomicOp& op) noexcept
{
    op.retried = true;
    op.err = op.prov_errno = 0;
    op.event_posted = op.by_get = false;
    op.at_target = 0;
    op.in_target = op.started = 0;
    op.words = 0;
    op.step = AtomicOp::Step::resolving;
    waiting_.push(op, op.line.key, Lack::peer);
}

void AtomicRunner::event_done(vcq::Waiter* self, const Notice& notice) noexcept
{
    AtomicOp* const op = static_cast<AtomicOp*>(self);
    if (op->event == AtomicEvent::read)
        op->runner->scratch_.release(op->scratch);
    op->event_posted = !left_no_event(notice.code);
    if (settle(*op, notice.code))
        op->runner->finish(*op);
}

} // namespace tofu
