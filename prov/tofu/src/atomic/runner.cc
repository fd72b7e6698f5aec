// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See runner.h: which operations may begin, which wait, and the way that each takes.
#include "atomic/runner.h"

#include <rdma/fi_errno.h>

namespace tofu {

using vcq::Post;

void AtomicRunner::prepare(AtomicOp& op, bool inject) noexcept
{
    op.step = AtomicOp::Step::starting;
    op.pending = 1;
    op.batch = nullptr;
    op.in_batch = BatchRunner::fits(op);
    // A span reads the lists after its Get.
    op.in_spans = op.method == Method::loop && op.total * op.size >= SpanRunner::least && !inject;
}

/// Takes the next steps of an operation that had to wait. Returns what it lacks now.
Lack AtomicRunner::go_on(AtomicOp& op) noexcept
{
    switch (op.step) {
    case AtomicOp::Step::resolving: {
        const int rc = ops.access.resolve(op);
        if (refuses_call(rc))
            return Lack::peer;
        if (rc != 0) {
            op.err = rc == misaligned ? FI_EINVAL : -rc;
            op.step = AtomicOp::Step::ended;
            return Lack::nothing;
        }
        prepare(op, false);
        [[fallthrough]];
    }
    case AtomicOp::Step::starting: return start(op);
    case AtomicOp::Step::notifying: return ops.notify_target(op);
    case AtomicOp::Step::ended: break;
    }
    return Lack::nothing;
}

void AtomicRunner::through(AtomicOp& op) noexcept
{
    switch (op.step) {
    case AtomicOp::Step::starting: ops.end_one(op, UTOFU_SUCCESS); break;
    case AtomicOp::Step::notifying: ops.finish(op); break;
    case AtomicOp::Step::resolving:
    case AtomicOp::Step::ended: ops.end(op); break;
    }
}

void AtomicRunner::cancel(AtomicOp& op) noexcept
{
    ops.abandon(op, FI_ECANCELED, 0);
    if (op.step == AtomicOp::Step::starting && op.batch != nullptr)
        batches.leave(*op.batch);
    through(op);
}

void AtomicRunner::submit(AtomicOp* op, bool inject) noexcept
{
    prepare(*op, inject);
    if (inject) {
        // One more reference: the operation may end while we start it, and must not be freed before we have looked.
        ++op->pending;
        if (op->by_directory) // it may have to begin again
            keep_injected(*op);
    }
    const Lack lack = ops.waiting().holds(op->line.key) ? Lack::peer : start(*op);
    if (lack == Lack::nothing) [[likely]]
        ops.end_one(*op, UTOFU_SUCCESS);
    else
        ops.waiting().push(*op, op->line.key, lack);
    if (!inject)
        return;
    if (op->started < op->total && !op->copy)
        keep_injected(*op);
    ops.end_one(*op, UTOFU_SUCCESS);
}

/// Copies the unread part of the operand and compare lists. Slow path: others wait, or the window was full.
void AtomicRunner::keep_injected(AtomicOp& op) noexcept
{
    const std::size_t left = op.total - op.started;
    const std::size_t lists = (op.reads_operand ? 1 : 0) + (op.reads_compare ? 1 : 0);
    if (lists == 0)
        return;
    op.copy.reset(new (std::nothrow) std::byte[left * op.size * lists]);
    if (!op.copy) {
        ops.abandon(op, FI_ENOMEM, 0);
        return;
    }
    // The lists are addressed by element number: the pieces before the copy have no memory any more, and nothing reads
    // them.
    std::byte* at = op.copy.get();
    for (Pieces* list : {op.reads_operand ? &op.operand : nullptr,
                         op.reads_compare ? &op.compare : nullptr}) {
        if (!list)
            continue;
        list->gather(at, op.started, left, op.size);
        list->clear();
        list->add(nullptr, op.started * op.size);
        list->add(at, left * op.size);
        at += left * op.size;
    }
}

/// May the next word go now, as far as order across the VCQs and regions of a peer is concerned, where that was promised?
bool AtomicRunner::may_go_on(const AtomicOp& op) noexcept
{
    return !op.strong || ops.access.may_go_to(op.peer.home, op.next(), op.target[op.at_target].address + op.in_target);
}

/// Starts as much of an operation as can be started now. Returns what it lacks for the rest.
Lack AtomicRunner::start(AtomicOp& op) noexcept
{
    if (op.words == 0 && ordered && ops.loops_at(op.peer.home))
        return Lack::peer;
    if (op.in_batch) {
        if (op.started != op.total && !may_go_on(op))
            return Lack::peer;
        return batches.start(op) ? Lack::nothing : Lack::room;
    }
    while (op.started < op.total) {
        if (!may_go_on(op) || (SpanRunner::is_next(op) && spans.meets_another(op)))
            return Lack::peer;
        if (!start_next(op))
            return Lack::room;
    }
    return Lack::nothing;
}

/// Starts one word, or many that loop. False when nothing more can be posted now; the operation stays as it was.
bool AtomicRunner::start_next(AtomicOp& op) noexcept
{
    if (!ops.has_room())
        return false;
    const Target at = op.next();
    const bool across = op.size == 8 && (at.stadd & 7) != 0; // the element lies across two words
    if (op.method == Method::wide || across) [[unlikely]]
        return ++op.pending, ops.took(op, wide.start(op, op.started, at), 1);
    return SpanRunner::is_next(op) ? spans.start(op) : words.start(op);
}

void AtomicRunner::close() noexcept
{
    ops.agenda.close();
    ops.waiting().cancel();
    ops.agenda.finish();
}

} // namespace tofu
