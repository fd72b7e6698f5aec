// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Spans: neighbouring words that loop, under way together. Called by the runner (words.cc) and by the poll of
// the VCQ; calls vcq and, for words that lost, loop.cc.
//
// One Get guesses for all words, where a loop of its own would guess for each; it need not be atomic, since each word
// is swapped by a CSWAP of its own. These are a batch: one place of the window, and the n-th notice is the n-th word's
// (guide 2.2.10). A word that has changed since the Get goes on as a loop, from the value that its CSWAP found.
#include "atomic/runner.h"

#include <algorithm>

namespace tofu {

using vcq::Notice;
using vcq::Post;

namespace {

std::byte* bytes(std::uint64_t* words) noexcept { return reinterpret_cast<std::byte*>(words); }

} // namespace

/// Would the operation's next elements be a span that has words in common with another one? It would lose these, so it
/// waits.
bool AtomicRunner::meets_span(const AtomicOp& op) noexcept
{
    if (!is_span(op, op.left()))
        return false;
    const utofu_vcq_id_t peer = op.next().vcq;
    const utofu_stadd_t from = op.next().stadd;
    const utofu_stadd_t to = from + std::min(op.left() * op.size, Span::most * 8);
    bool meets = false;
    span_pool_.each([&](const Span& s) {
        meets |= s.op != nullptr && s.at.vcq == peer && s.at.stadd < to && from < s.at.stadd + s.words * 8;
    });
    return meets;
}

/// Gets the words of the next of the operation's `left` elements at `at`. False: not now.
bool AtomicRunner::start_span(AtomicOp& op, const Target& at, std::size_t left) noexcept
{
    Span* const s = span_pool_.alloc();
    if (s == nullptr)
        return false;
    s->scratch = scratch_.alloc(Span::most * 8);
    if (s->scratch.data == nullptr) {
        span_pool_.renew(s);
        return false;
    }
    s->notify = &got_span;
    s->go_on = &go_on_with_span;
    s->op = &op;
    s->offset = static_cast<std::uint8_t>(at.stadd & 7);
    s->at = {at.vcq, at.stadd - s->offset};
    s->first = op.started;
    s->elements = std::min<std::size_t>(left, (Span::most * 8 - s->offset) / op.size);
    s->words = static_cast<std::uint32_t>((s->offset + s->elements * op.size + 7) / 8);
    ++op.pending;
    const std::size_t elements = s->elements;
    const vcq::Signaled how{s, vcq::Vcq::delivered_flags(op.strong, false)};
    const Post posted = vcq_.get(at.vcq, s->scratch.stadd, s->at.stadd, s->words * 8, how);
    if (posted != Post::done) [[unlikely]]
        release_span(*s);
    return took(op, posted, elements);
}

void AtomicRunner::release_span(Span& s) noexcept
{
    scratch_.release(s.scratch);
    span_pool_.renew(&s);
}

void AtomicRunner::got_span(vcq::Waiter* self, const Notice& notice) noexcept
{
    Span& s = *static_cast<Span*>(self);
    AtomicOp& op = *s.op;
    AtomicRunner& runner = *op.runner;
    s.notify = &span_notice;
    if (notice.code != UTOFU_SUCCESS) [[unlikely]] {
        s.code = notice.code;
        s.words = 0;
        runner.end_span(s);
        return;
    }
    std::byte operands[Span::most * 8], compares[Span::most * 8];
    if (op.reads_operand)
        op.operand.gather(operands, s.first, s.elements, op.size);
    if (op.reads_compare)
        op.compare.gather(compares, s.first, s.elements, op.size);
    std::memcpy(s.desired, s.found(), s.words * 8);
    op.kernel(bytes(s.desired) + s.offset, operands, compares, s.elements);
    runner.post_span(s);
}

/// Posts what is left of the CSWAPs, or leaves that to progress().
void AtomicRunner::post_span(Span& s) noexcept
{
    constexpr unsigned long flags = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
    if (s.place == 0)
        s.place = vcq_.open_batch(&s, s.words);
    const bool open = s.place != 0;
    Post posted = Post::busy;
    if (open && !agenda_.closed())
        s.posted += static_cast<std::uint32_t>(vcq_.post_batch<std::uint64_t, true>(
            s.place,
            {s.at.vcq, s.at.stadd + s.posted * 8, s.words - s.posted, {}, bytes(s.desired + s.posted),
             bytes(s.found() + s.posted)},
            flags, false, posted));
    if (posted == Post::done) [[likely]]
        return;
    vcq_.start_batch();
    if (posted == Post::busy && !agenda_.closed()) {
        agenda_.add(s);
        return;
    }
    s.code = agenda_.closed() ? UTOFU_ERR_MRQ_OTHER : vcq_.last_error();
    for (; s.words > s.posted; --s.words)
        if (open)
            (void)vcq_.shorten_batch(s.place);
    if (s.arrived == s.words)
        all_arrived(s);
}

void AtomicRunner::span_notice(vcq::Waiter* self, const Notice& notice) noexcept
{
    Span& s = *static_cast<Span*>(self);
    if (notice.code != UTOFU_SUCCESS) [[unlikely]] {
        s.code = notice.code;
        ++s.failed;
    } else if (s.found()[s.arrived] != notice.value) [[unlikely]] {
        s.found()[s.arrived] = notice.value;
        s.lost[s.arrived] = true;
    }
    if (++s.arrived == s.words) [[unlikely]]
        s.op->runner->all_arrived(s);
}

void AtomicRunner::all_arrived(Span& s) noexcept
{
    AtomicOp& op = *s.op;
    op.took_effect |= s.lost.count() + s.failed < s.words;
    if (op.fetches) // those that lost write theirs once more
        op.result.scatter(s.scratch.data + s.offset, s.first, s.elements, op.size);
    end_span(s);
}

/// Words that lost go on by themselves, unless the operation has failed.
void AtomicRunner::end_span(Span& s) noexcept
{
    AtomicOp& op = *s.op;
    if (s.lost.none()) [[likely]]
        s.tried = s.words;
    for (; s.tried < s.words && s.code == UTOFU_SUCCESS; ++s.tried) {
        if (!s.lost[s.tried])
            continue;
        const Post posted = agenda_.closed() ? Post::error : retry_word(s);
        if (posted == Post::busy) {
            agenda_.add(s);
            return;
        }
        if (posted == Post::error)
            s.code = agenda_.closed() ? UTOFU_ERR_MRQ_OTHER : vcq_.last_error();
    }
    const int code = s.code;
    release_span(s);
    if (code != UTOFU_SUCCESS) [[unlikely]]
        abandon(op, code);
    end_one(op, code);
}

/// The word number `tried` once more, from what was found there.
Post AtomicRunner::retry_word(Span& s) noexcept
{
    AtomicOp& op = *s.op;
    const std::size_t byte = s.tried == 0 ? s.offset : s.tried * 8; // of its first element
    const std::size_t before = (byte - s.offset) / op.size;
    WordOp* const f = vcq_.window_free() <= window_reserve
                          ? nullptr
                          : new_word_op(op, s.first + before, {s.at.vcq, s.at.stadd + byte}, s.elements - before);
    if (f == nullptr)
        return Post::busy;
    std::uint64_t found = 0;
    std::memcpy(&found, s.scratch.data + (f->word - s.at.stadd), f->width);
    f->attempts = 1;
    ++op.pending;
    const Post posted = f->loops ? begin_loop(*f, &found) : post_native(*f);
    if (posted != Post::done) {
        word_ops_.renew(f);
        --op.pending;
    }
    return posted;
}

void AtomicRunner::go_on_with_span(Deferred& span) noexcept
{
    Span& s = static_cast<Span&>(span);
    AtomicRunner& runner = *s.op->runner;
    if (s.arrived == s.words)
        runner.end_span(s);
    else
        runner.post_span(s);
}

} // namespace tofu
