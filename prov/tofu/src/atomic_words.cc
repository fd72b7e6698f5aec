// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The runner's common part: the queue, the cutting into words, native ARMWs, and the end of operations.
// Called by atomic and by the poll of the VCQ; calls vcq, request and, for loops, atomic_loop.cc.
#include "atomic_loop.h"

#include <rdma/fi_errno.h>

namespace tofu {

using vcq::Notice;
using vcq::Post;

AtomicRunner::AtomicRunner(vcq::Vcq& vcq) noexcept
    : vcq_(vcq), random_(static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(this) >> 4) | 1)
{
}

AtomicOp* AtomicRunner::alloc() noexcept
{
    AtomicOp* op = ops_.alloc();
    if (!op) [[unlikely]]
        return nullptr;
    op->runner = this;
    op->notify = &event_done; // the operation itself waits for its event only
    op->err = op->prov_errno = 0;
    op->next = op->loop_next = op->loop_prev = nullptr;
    op->fence = op->strong = op->event = op->event_posted = false;
    op->targets = op->at_target = 0;
    op->in_target = op->started = op->total = 0;
    op->words = 0;
    op->operand.clear();
    op->compare.clear();
    op->result.clear();
    return op;
}

void AtomicRunner::release(AtomicOp* op) noexcept
{
    op->copy.reset();
    ops_.release(op);
}

void AtomicRunner::native_done(vcq::Waiter* self, const Notice& notice) noexcept
{
    NativeOp* const op = static_cast<NativeOp*>(self);
    if (notice.code == UTOFU_SUCCESS) [[likely]] {
        if (op->result) {
            if (op->size == 8) [[likely]]
                std::memcpy(op->result, &notice.value, 8);
            else
                std::memcpy(op->result, &notice.value, 4);
        }
    }
    (void)settle(*op, notice.code);
    AtomicRunner* const runner = op->runner;
    --runner->outstanding_;
    complete(*op);
    runner->natives_.release(op);
}

// --- the queue

bool AtomicRunner::loops_at(utofu_vcq_id_t home) const noexcept
{
    for (const AtomicOp* op = looping_; op; op = op->loop_next)
        if (op->home == home)
            return true;
    return false;
}

bool AtomicRunner::may_start(const AtomicOp& op) const noexcept
{
    if (op.words != 0) // has started already
        return true;
    if (op.fence && (outstanding_ != queued_ || (outside_idle_ && !outside_idle_(outside_))))
        return false;
    return !ordered_ || !loops_at(op.home);
}

void AtomicRunner::submit(AtomicOp* op, bool inject) noexcept
{
    op->pending = 1;
    ++outstanding_;
    ++queued_;
    if (queue_)
        queue_end_->next = op;
    else
        queue_ = op;
    queue_end_ = op;
    if (!inject) {
        start_queued();
        return;
    }
    // Whoever ends while we start is not given back before we have looked: one more reference.
    ++op->pending;
    start_queued();
    if (op->started != op->total)
        keep_injected(*op);
    if (settle(*op, UTOFU_SUCCESS))
        finish(*op);
}

void AtomicRunner::start_queued() noexcept
{
    while (AtomicOp* const op = queue_) {
        if (!may_start(*op) || !start_words(*op))
            return;
        queue_ = op->next;
        op->next = nullptr;
        --queued_;
        all_started(*op);
    }
}

/// Copies what has not been read of the operand and compare lists. Slow path: the queue or the window was full.
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

bool AtomicRunner::start_words(AtomicOp& op) noexcept
{
    while (op.started < op.total)
        if (!start_word(op))
            return false;
    return true;
}

void AtomicRunner::all_started(AtomicOp& op) noexcept
{
    if (settle(op, UTOFU_SUCCESS))
        finish(op);
}

// --- words

/// The next word of an operation: as many of its next elements as one ARMW can serve. Atomicity is per
/// element, so that neighbours in one word may share it.
void AtomicRunner::cut_word(const AtomicOp& op, Flight& f) const noexcept
{
    const AtomicOp::Target& target = op.target[op.at_target];
    const utofu_stadd_t at = target.stadd + op.in_target * op.size;
    const std::size_t left = target.elements - op.in_target;
    const bool single = op.method == Method::add || op.method == Method::cswap;
    const unsigned in8 = static_cast<unsigned>(at & 7);
    std::size_t n = single ? 1 : (8 - in8) / op.size;
    if (n > left)
        n = left;
    // The narrower word where it is enough: fewer strangers to meet in a loop.
    bool narrow = (in8 & 3) + n * op.size <= 4;
    if (op.method == Method::swap && op.size == 4 && !narrow && (in8 != 0 || n != 2))
        n = 1, narrow = true; // a swap has no neutral operand: whole words only
    f.width = narrow ? 4 : 8;
    f.word = at & ~static_cast<utofu_stadd_t>(f.width - 1);
    f.offset = static_cast<std::uint8_t>(at - f.word);
    f.elements = static_cast<std::uint8_t>(n);
    f.first = op.started;
}

/// Starts one word. False when nothing more can be posted now; the operation stays as it was.
bool AtomicRunner::start_word(AtomicOp& op) noexcept
{
    if (vcq_.window_free() <= window_reserve)
        return false;
    Flight* const f = flights_.alloc();
    if (!f)
        return false;
    f->op = &op;
    f->next = nullptr;
    f->attempts = 0;
    f->due = 0;
    f->slot = nullptr;
    cut_word(op, *f);
    f->operand = f->compare = 0;
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
    const Post posted = f->loops ? begin_loop(*f) : post_native(*f);
    if (posted == Post::done) [[likely]] {
        ++op.pending;
        advance(op, f->elements);
        return true;
    }
    flights_.release(f);
    if (posted == Post::busy)
        return false;
    const int code = vcq_.last_error();
    abandon(op, fi_error_of(code), code);
    return true;
}

void AtomicRunner::advance(AtomicOp& op, std::size_t elements) noexcept
{
    if (op.words++ == 0 && op.method == Method::loop) {
        op.loop_next = looping_;
        op.loop_prev = nullptr;
        if (looping_)
            looping_->loop_prev = &op;
        looping_ = &op;
    }
    op.started += elements;
    op.in_target += elements;
    if (op.in_target == op.target[op.at_target].elements) {
        ++op.at_target;
        op.in_target = 0;
    }
}

Post AtomicRunner::post_native(Flight& f) noexcept
{
    const AtomicOp& op = *f.op;
    vcq::How how;
    how.when = vcq::When::delivered;
    how.strong_order = op.strong;
    how.waiter = &f;
    // One word only: its ARMW is the operation's end, and tells the target so by itself.
    how.remote_notice = op.event && f.elements == op.total && op.write_event;
    f.notify = &word_done;
    utofu_armw_op code = UTOFU_ARMW_OP_ADD;
    std::uint64_t operand = f.operand;
    switch (op.method) {
    case Method::swap: code = UTOFU_ARMW_OP_SWAP; break;
    case Method::read: code = UTOFU_ARMW_OP_OR; operand = 0; break;
    case Method::bits_or: code = UTOFU_ARMW_OP_OR; break;
    case Method::bits_xor: code = UTOFU_ARMW_OP_XOR; break;
    case Method::bits_and: {
        code = UTOFU_ARMW_OP_AND;
        const unsigned bits = f.elements * op.size * 8u;
        const std::uint64_t ours = bits == 64 ? ~0ull : ((1ull << bits) - 1) << (f.offset * 8);
        operand |= ~ours;
        break;
    }
    case Method::cswap: return post_swap(f, how);
    case Method::add: case Method::loop: // loop: a small sum at the end of its word
    case Method::none: case Method::wide: break;
    }
    if (how.remote_notice)
        f.op->event_posted = true;
    const Post posted = f.width == 8
        ? vcq_.armw8(op.home, code, operand, f.word, how)
        : vcq_.armw4(op.home, code, static_cast<std::uint32_t>(operand), f.word, how);
    if (posted != Post::done)
        f.op->event_posted = false;
    return posted;
}

Post AtomicRunner::post_swap(Flight& f, vcq::How how) noexcept
{
    if (how.remote_notice)
        f.op->event_posted = true;
    const Post posted = f.width == 8
        ? vcq_.cswap8(f.op->home, f.compare, f.operand, f.word, how)
        : vcq_.cswap4(f.op->home, static_cast<std::uint32_t>(f.compare),
                      static_cast<std::uint32_t>(f.operand), f.word, how);
    if (posted != Post::done)
        f.op->event_posted = false;
    return posted;
}

void AtomicRunner::word_done(vcq::Waiter* self, const Notice& notice) noexcept
{
    Flight* const f = static_cast<Flight*>(self);
    f->op->runner->settle_word(*f, notice.value, notice.code);
}

/// The end of one word, whose content was `before`. The flight is gone afterwards, and perhaps the operation.
void AtomicRunner::settle_word(Flight& f, std::uint64_t before, int code) noexcept
{
    AtomicOp& op = *f.op;
    if (code == UTOFU_SUCCESS) [[likely]] {
        if (op.fetches)
            op.result.scatter(reinterpret_cast<const std::byte*>(&before) + f.offset, f.first,
                              f.elements, op.size);
    } else {
        abandon(op, fi_error_of(code), code);
    }
    flights_.release(&f);
    if (settle(op, code))
        finish(op);
}

// --- the end

/// All words have ended. Where the target counts the operation, one notice more tells it so.
void AtomicRunner::finish(AtomicOp& op) noexcept
{
    if (op.event && !op.event_posted && op.err == 0) {
        vcq::How how;
        how.when = vcq::When::delivered;
        how.remote_notice = true;
        how.waiter = &op;
        const utofu_stadd_t at = op.target[0].stadd & ~static_cast<utofu_stadd_t>(3);
        ++op.pending;
        const Post posted = vcq_.armw4(op.home, UTOFU_ARMW_OP_OR, 0, at, how);
        if (posted == Post::done) {
            op.event_posted = true;
            return;
        }
        if (posted == Post::busy && !closing_) {
            op.next = events_;
            events_ = &op;
            return;
        }
        --op.pending;
        abandon(op, fi_error_of(vcq_.last_error()), vcq_.last_error());
    }
    if (op.method == Method::loop && op.words != 0) {
        (op.loop_prev ? op.loop_prev->loop_next : looping_) = op.loop_next;
        if (op.loop_next)
            op.loop_next->loop_prev = op.loop_prev;
    }
    --outstanding_;
    complete(op);
    release(&op);
}

void AtomicRunner::event_done(vcq::Waiter* self, const Notice& notice) noexcept
{
    AtomicOp* const op = static_cast<AtomicOp*>(self);
    if (settle(*op, notice.code))
        op->runner->finish(*op);
}

// --- progress

void AtomicRunner::progress() noexcept
{
    ++tick_;
    if (again_)
        retry_posts();
    while (AtomicOp* const op = events_) {
        events_ = op->next;
        op->next = nullptr;
        AtomicOp* const rest = events_;
        --op->pending;
        finish(*op);
        if (events_ != rest) // still busy: it has put itself back
            break;
    }
    start_queued();
}

void AtomicRunner::close() noexcept
{
    closing_ = true;
    while (AtomicOp* const op = queue_) {
        queue_ = op->next;
        op->next = nullptr;
        --queued_;
        abandon(*op, FI_ECANCELED, 0);
        all_started(*op);
    }
    while (Flight* const f = again_) {
        again_ = f->next;
        f->next = nullptr;
        end_batch(*f, 0, UTOFU_ERR_MRQ_OTHER);
    }
    while (AtomicOp* const op = events_) {
        events_ = op->next;
        op->next = nullptr;
        --op->pending;
        finish(*op);
    }
}

} // namespace tofu
