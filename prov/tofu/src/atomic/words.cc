// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Cuts operations into words, and posts native ARMWs. See parts.h; loops are in cswap_loop.cc.
#include "atomic/runner.h"

namespace tofu {

using vcq::Notice;
using vcq::Post;

namespace {

/// The word of the element at `at`, the first of `left` neighbours, and how many of these one ARMW can serve. Atomicity
/// is per element, so neighbours in one word may share an ARMW.
void cut_word(const AtomicOp& op, const Target& at, std::size_t left, WordOp& f) noexcept
{
    const bool single = op.method == Method::add || op.method == Method::cswap;
    const unsigned in8 = static_cast<unsigned>(at.stadd & 7);
    std::size_t n = single ? 1 : (8 - in8) / op.size;
    if (n > left)
        n = left;
    // The narrower word where it is enough: loops then meet fewer other operations.
    bool narrow = (in8 & 3) + n * op.size <= 4;
    if (op.method == Method::swap && op.size == 4 && !narrow && (in8 != 0 || n != 2))
        n = 1, narrow = true; // a swap has no neutral operand: whole words only
    f.width = narrow ? 4 : 8;
    f.vcq = at.vcq;
    f.word = at.stadd & ~static_cast<utofu_stadd_t>(f.width - 1);
    f.offset = static_cast<std::uint8_t>(at.stadd - f.word);
    f.elements = static_cast<std::uint8_t>(n);
}

} // namespace

/// Makes a word operation for element number `first`, which is at `at` with `left` neighbours. Null: none is free.
WordOp* WordRunner::make(AtomicOp& op, unsigned piece, std::size_t first, const Target& at, std::size_t left) noexcept
{
    WordOp* const f = pool_.alloc();
    if (!f)
        return nullptr;
    f->op = &op;
    f->go_on = &go_on;
    f->first = first;
    f->piece = static_cast<std::uint8_t>(piece);
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

bool WordRunner::start(AtomicOp& op) noexcept
{
    WordOp* const f = make(op, op.at_target, op.started, op.next(), op.left());
    if (!f)
        return false;
    ++op.pending;
    const Post posted = f->loops ? begin_loop(*f) : op.by_get ? get_word(*f) : post_native(*f);
    const unsigned elements = f->elements;
    if (posted != Post::done) [[unlikely]]
        pool_.renew(f);
    return ops_.took(op, posted, elements);
}

Post WordRunner::retry(AtomicOp& op, unsigned piece, std::size_t first, const Target& at, std::size_t left,
                       const std::byte* words, utofu_stadd_t base) noexcept
{
    WordOp* const f = ops_.has_room() ? make(op, piece, first, at, left) : nullptr;
    if (f == nullptr)
        return Post::busy;
    std::uint64_t found = 0;
    std::memcpy(&found, words + (f->word - base), f->width);
    f->attempts = 1;
    ++op.pending;
    const Post posted = f->loops ? begin_loop(*f, &found) : post_native(*f);
    if (posted != Post::done) {
        pool_.renew(f);
        --op.pending;
    }
    return posted;
}

Post WordRunner::post_native(WordOp& f) noexcept
{
    AtomicOp& op = *f.op;
    f.notify = &word_done;
    // With one word only, its ARMW is the end of the operation and is itself the event at the target.
    const bool is_event = op.event == AtomicEvent::write && f.elements == op.total;
    const vcq::Signaled how{&f, vcq::delivered_flags(op.strong, is_event)};
    std::uint64_t operand = f.operand;
    if (op.method == Method::bits_and) {
        const unsigned bits = f.elements * op.size * 8u;
        const std::uint64_t ours = bits == 64 ? ~0ull : ((1ull << bits) - 1) << (f.offset * 8);
        operand |= ~ours;
    }
    const Post posted = op.method == Method::cswap
                            ? ops_.vcq.cswap(f.width, f.vcq, f.compare, operand, f.word, how)
                            : ops_.vcq.armw(f.width, f.vcq, armw_of(op.method), operand, f.word, how);
    if (is_event && posted == Post::done)
        op.event_left();
    return posted;
}

void WordRunner::word_done(vcq::Waiter* self, const Notice& notice) noexcept
{
    WordOp* const f = static_cast<WordOp*>(self);
    WordRunner* const runner = &f->op->runner->words;
    if (notice.code != UTOFU_SUCCESS && f->op->op == FI_ATOMIC_READ) [[unlikely]] {
        // An ARMW may not touch memory registered for reading only (guide 3.6.2.1), a Get may. Nobody but
        // the owner's CPU writes there, and the TNI reads an aligned word within one cache line.
        f->op->by_get = true;
        runner->get_again(*f);
        return;
    }
    runner->settle(*f, notice.value, notice.code);
}

Post WordRunner::get_word(WordOp& f) noexcept
{
    f.notify = &got_word;
    f.scratch = ops_.scratch.alloc(sizeof(std::uint64_t));
    if (f.scratch.data == nullptr)
        return Post::busy;
    const vcq::Signaled how{&f, vcq::delivered_flags(f.op->strong, false)};
    const Post posted = ops_.vcq.get(f.vcq, f.scratch.stadd, f.word, f.width, how);
    if (posted != Post::done)
        ops_.scratch.release(f.scratch);
    return posted;
}

/// get_word() in place of an ARMW, or in a later round.
void WordRunner::get_again(WordOp& f) noexcept
{
    const Post posted = ops_.agenda.closed() ? Post::busy : get_word(f);
    if (posted != Post::done)
        if (const int code = ops_.put_off(f, posted); code != UTOFU_SUCCESS)
            settle(f, 0, code);
}

void WordRunner::got_word(vcq::Waiter* self, const Notice& notice) noexcept
{
    WordOp* const f = static_cast<WordOp*>(self);
    WordRunner* const runner = &f->op->runner->words;
    std::uint64_t value = 0;
    std::memcpy(&value, f->scratch.data, f->width);
    runner->ops_.scratch.release(f->scratch);
    runner->settle(*f, value, notice.code);
}

/// Ends a word operation; the word held `before`. The word operation is gone afterwards, and perhaps the whole
/// operation.
void WordRunner::settle(WordOp& f, std::uint64_t before, int code) noexcept
{
    AtomicOp& op = *f.op;
    if (code == UTOFU_SUCCESS) [[likely]] {
        if (op.fetches)
            op.result.scatter(reinterpret_cast<const std::byte*>(&before) + f.offset, f.first,
                              f.elements, op.size);
    } else {
        op.event_ended(code);
    }
    const unsigned piece = f.piece;
    pool_.renew(&f);
    ops_.settle_part(op, piece, code);
}

} // namespace tofu
