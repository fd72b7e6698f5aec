// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The runner's common part: operations that wait, the cutting into words, and native ARMWs.
// Called by atomic and by the poll of the VCQ; calls vcq and, for loops, loop.cc; ends are in end.cc.
#include "atomic/runner.h"

#include <rdma/fi_errno.h>

#include "provider/error.h"

namespace tofu {

using vcq::Notice;
using vcq::Post;

constexpr Pending::Stream::Steps AtomicRunner::steps{
    [](void* runner, PendingOp& op) noexcept {
        return static_cast<AtomicRunner*>(runner)->go_on(static_cast<AtomicOp&>(op));
    },
    [](void* runner, PendingOp& op) noexcept { static_cast<AtomicRunner*>(runner)->through(static_cast<AtomicOp&>(op)); },
    [](void* runner, PendingOp& op) noexcept { static_cast<AtomicRunner*>(runner)->cancel(static_cast<AtomicOp&>(op)); },
};

AtomicRunner::AtomicRunner(vcq::Vcq& vcq, Pending& pending, RemoteAccess& access) noexcept
    : vcq_(vcq), access_(access), waiting_(pending, this, steps),
      scratch_(vcq, {WideOp::most, 128}, {Span::most * 8, max_spans}), wide_(*this, vcq, scratch_, agenda_)
{
}

AtomicOp* AtomicRunner::alloc() noexcept
{
    AtomicOp* const op = ops_.alloc();
    if (op) [[likely]] {
        op->runner = this;
        op->notify = &event_done; // the operation itself waits for its event only
    }
    return op;
}

// --- those that wait

bool AtomicRunner::loops_at(utofu_vcq_id_t home) const noexcept
{
    for (const AtomicOp* op = looping_; op; op = op->loop_next)
        if (op->peer.home == home)
            return true;
    return false;
}

void AtomicRunner::prepare(AtomicOp& op, bool inject) noexcept
{
    op.step = AtomicOp::Step::starting;
    op.pending = 1;
    op.batch = nullptr;
    op.in_batch = fits_batch(op);
    // A span reads the lists after its Get.
    op.in_spans = op.method == Method::loop && op.total * op.size >= least_span && !inject;
}

/// The next steps of an operation that had to wait; what it lacks then.
Lack AtomicRunner::go_on(AtomicOp& op) noexcept
{
    switch (op.step) {
    case AtomicOp::Step::resolving: {
        const int rc = access_.resolve(op);
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
    case AtomicOp::Step::notifying: return notify_target(op);
    case AtomicOp::Step::ended: break;
    }
    return Lack::nothing;
}

void AtomicRunner::through(AtomicOp& op) noexcept
{
    switch (op.step) {
    case AtomicOp::Step::starting: end_one(op, UTOFU_SUCCESS); break;
    case AtomicOp::Step::notifying: finish(op); break;
    case AtomicOp::Step::resolving:
    case AtomicOp::Step::ended: end(op); break;
    }
}

void AtomicRunner::cancel(AtomicOp& op) noexcept
{
    abandon(op, FI_ECANCELED, 0);
    if (op.step == AtomicOp::Step::starting && op.batch != nullptr)
        leave_batch(*op.batch);
    through(op);
}

void AtomicRunner::submit(AtomicOp* op, bool inject) noexcept
{
    prepare(*op, inject);
    ++outstanding_;
    if (inject) {
        // Whoever ends while we start is not given back before we have looked: one more reference.
        ++op->pending;
        if (op->by_directory) // may have to begin again
            keep_injected(*op);
    }
    const Lack lack = waiting_.holds(op->line.key) ? Lack::peer : start(*op);
    if (lack == Lack::nothing) [[likely]]
        end_one(*op, UTOFU_SUCCESS);
    else
        waiting_.push(*op, op->line.key, lack);
    if (!inject)
        return;
    if (op->started < op->total && !op->copy)
        keep_injected(*op);
    end_one(*op, UTOFU_SUCCESS);
}

/// Copies what has not been read of the operand and compare lists. Slow path: others wait, or the window was full.
void AtomicRunner::keep_injected(AtomicOp& op) noexcept
{
    const std::size_t left = op.total - op.started;
    const std::size_t lists = (op.reads_operand ? 1 : 0) + (op.reads_compare ? 1 : 0);
    if (lists == 0)
        return;
    op.copy.reset(new (std::nothrow) std::byte[left * op.size * lists]);
    if (!op.copy) {
        abandon(op, FI_ENOMEM, 0);
        return;
    }
    // The lists are addressed by element number: the pieces before the copy have no memory behind them any
    // more, and nobody asks for them.
    std::byte* at = op.copy.get();
    for (Pieces* list : {op.reads_operand ? &op.operand : nullptr,
                         op.reads_compare ? &op.compare : nullptr}) {
        if (!list)
            continue;
        list->gather(at, op.started, left, op.size);
        list->clear();
        list->add(nullptr, op.started);
        list->add(at, left);
        at += left * op.size;
    }
}

/// Stops an operation that has failed: no further word is started.
void AtomicRunner::abandon(AtomicOp& op, int err, int code) noexcept
{
    if (op.err == 0) {
        op.err = err;
        op.prov_errno = code;
    }
    op.started = op.total;
}
void AtomicRunner::abandon(AtomicOp& op, int code) noexcept { abandon(op, fi_error_of(code), code); }

/// Order across the VCQs of a peer, where it was promised.
bool AtomicRunner::may_go_on(const AtomicOp& op) noexcept
{
    return !op.strong || access_.may_go_to(op.peer.home, op.next().vcq);
}

/// Starts what can be started now of an operation; what it lacks then.
Lack AtomicRunner::start(AtomicOp& op) noexcept
{
    if (op.words == 0 && ordered_ && loops_at(op.peer.home))
        return Lack::peer;
    if (op.in_batch) {
        if (op.started != op.total && !may_go_on(op))
            return Lack::peer;
        return start_batch(op) ? Lack::nothing : Lack::room;
    }
    while (op.started < op.total) {
        if (!may_go_on(op) || (op.in_spans && meets_span(op)))
            return Lack::peer;
        if (!start_word(op))
            return Lack::room;
    }
    return Lack::nothing;
}

/// One of those that `pending` counts has ended.
void AtomicRunner::end_one(AtomicOp& op, int code) noexcept
{
    if (settle(op, code))
        finish(op);
}

// --- words

/// The word of the element at `at`, the first of `left` neighbours: as many of them as one ARMW can serve. Atomicity is
/// per element, so that neighbours in one word may share it.
void AtomicRunner::cut_word(const AtomicOp& op, const Target& at, std::size_t left, WordOp& f) const noexcept
{
    const bool single = op.method == Method::add || op.method == Method::cswap;
    const unsigned in8 = static_cast<unsigned>(at.stadd & 7);
    std::size_t n = single ? 1 : (8 - in8) / op.size;
    if (n > left)
        n = left;
    // The narrower word where it is enough: fewer strangers to meet in a loop.
    bool narrow = (in8 & 3) + n * op.size <= 4;
    if (op.method == Method::swap && op.size == 4 && !narrow && (in8 != 0 || n != 2))
        n = 1, narrow = true; // a swap has no neutral operand: whole words only
    f.width = narrow ? 4 : 8;
    f.vcq = at.vcq;
    f.word = at.stadd & ~static_cast<utofu_stadd_t>(f.width - 1);
    f.offset = static_cast<std::uint8_t>(at.stadd - f.word);
    f.elements = static_cast<std::uint8_t>(n);
}

/// A word operation for the element number `first`, which is at `at` with `left` neighbours. Null: none is free.
WordOp* AtomicRunner::new_word_op(AtomicOp& op, std::size_t first, const Target& at, std::size_t left) noexcept
{
    WordOp* const f = word_ops_.alloc();
    if (!f)
        return nullptr;
    f->op = &op;
    f->go_on = &go_on_with_word;
    f->first = first;
    cut_word(op, at, left, *f);
    if (op.reads_operand)
        op.operand.gather(reinterpret_cast<std::byte*>(&f->operand) + f->offset, f->first,
                          f->elements, op.size);
    if (op.reads_compare)
        op.compare.gather(reinterpret_cast<std::byte*>(&f->compare) + f->offset, f->first,
                          f->elements, op.size);
    // A small sum whose element ends its word cannot carry into a neighbour.
    const bool top_sum = op.method == Method::loop && op.op == FI_SUM && op.size < 4 &&
                         f->elements == 1 && f->offset + op.size == f->width &&
                         op.integer;
    f->loops = op.method == Method::loop && !top_sum;
    return f;
}

/// Starts one word, or many that loop. False when nothing more can be posted now; the operation stays as it was.
bool AtomicRunner::start_word(AtomicOp& op) noexcept
{
    if (vcq_.window_free() <= window_reserve)
        return false;
    const Target at = op.next();
    const std::size_t left = op.left();
    const bool across = op.size == 8 && (at.stadd & 7) != 0; // two words
    if (op.method == Method::wide || across) [[unlikely]]
        return ++op.pending, took(op, wide_.start(op, op.started, at), 1);
    if (is_span(op, left))
        return start_span(op, at, left);
    WordOp* const f = new_word_op(op, op.started, at, left);
    if (!f)
        return false;
    ++op.pending;
    const Post posted = f->loops ? begin_loop(*f) : op.by_get ? get_word(*f) : post_native(*f);
    const unsigned elements = f->elements;
    if (posted != Post::done) [[unlikely]]
        word_ops_.renew(f);
    return took(op, posted, elements);
}

/// What start_word() does with the answer to its post.
bool AtomicRunner::took(AtomicOp& op, Post posted, std::size_t elements) noexcept
{
    if (posted == Post::done) [[likely]] {
        advance(op, elements);
        return true;
    }
    --op.pending;
    if (posted == Post::busy)
        return false;
    abandon(op, vcq_.last_error());
    return true;
}

void AtomicRunner::settle_part(AtomicOp& op, int code) noexcept
{
    if (code != UTOFU_SUCCESS)
        abandon(op, code);
    else
        op.took_effect = true;
    end_one(op, code);
}

void AtomicRunner::advance(AtomicOp& op, std::size_t elements) noexcept
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
        ++op.at_target;
        op.in_target = 0;
    }
}

Post AtomicRunner::post_native(WordOp& f) noexcept
{
    AtomicOp& op = *f.op;
    f.notify = &word_done;
    // One word only: its ARMW is the operation's end, and tells the target so by itself.
    op.event_posted = op.event == AtomicEvent::write && f.elements == op.total;
    const vcq::Signaled how{&f, vcq::Vcq::delivered_flags(op.strong, op.event_posted)};
    std::uint64_t operand = f.operand;
    if (op.method == Method::bits_and) {
        const unsigned bits = f.elements * op.size * 8u;
        const std::uint64_t ours = bits == 64 ? ~0ull : ((1ull << bits) - 1) << (f.offset * 8);
        operand |= ~ours;
    }
    const Post posted = op.method == Method::cswap
                            ? vcq_.cswap(f.width, f.vcq, f.compare, operand, f.word, how)
                            : vcq_.armw(f.width, f.vcq, armw_of(op.method), operand, f.word, how);
    op.event_posted &= posted == Post::done;
    return posted;
}

void AtomicRunner::word_done(vcq::Waiter* self, const Notice& notice) noexcept
{
    WordOp* const f = static_cast<WordOp*>(self);
    AtomicRunner* const runner = f->op->runner;
    if (notice.code != UTOFU_SUCCESS && f->op->op == FI_ATOMIC_READ && !runner->agenda_.closed()) [[unlikely]] {
        // An ARMW may not touch memory registered for reading only (guide 3.6.2.1), a Get may. Nobody but
        // the owner's CPU writes there, and the TNI reads an aligned word within one cache line.
        f->op->by_get = true;
        switch (runner->get_word(*f)) {
        case Post::done: return;
        case Post::busy: runner->agenda_.add(*f); return;
        case Post::error: break;
        }
    }
    runner->settle_word(*f, notice.value, notice.code);
}

Post AtomicRunner::get_word(WordOp& f) noexcept
{
    f.notify = &got_word;
    f.scratch = scratch_.alloc(sizeof(std::uint64_t));
    if (f.scratch.data == nullptr)
        return Post::busy;
    const vcq::Signaled how{&f, vcq::Vcq::delivered_flags(f.op->strong, false)};
    const Post posted = vcq_.get(f.vcq, f.scratch.stadd, f.word, f.width, how);
    if (posted != Post::done)
        scratch_.release(f.scratch);
    return posted;
}

void AtomicRunner::got_word(vcq::Waiter* self, const Notice& notice) noexcept
{
    WordOp* const f = static_cast<WordOp*>(self);
    AtomicRunner* const runner = f->op->runner;
    std::uint64_t value = 0;
    std::memcpy(&value, f->scratch.data, f->width);
    runner->scratch_.release(f->scratch);
    runner->settle_word(*f, value, notice.code);
}

/// The end of one word, whose content was `before`. The word operation is gone afterwards, and perhaps the operation.
void AtomicRunner::settle_word(WordOp& f, std::uint64_t before, int code) noexcept
{
    AtomicOp& op = *f.op;
    if (code == UTOFU_SUCCESS) [[likely]] {
        if (op.fetches)
            op.result.scatter(reinterpret_cast<const std::byte*>(&before) + f.offset, f.first,
                              f.elements, op.size);
    } else {
        op.event_posted &= !left_no_event(code);
    }
    word_ops_.renew(&f);
    settle_part(op, code);
}

// --- the end

void AtomicRunner::close() noexcept
{
    agenda_.close();
    waiting_.cancel();
    agenda_.finish();
}

} // namespace tofu
