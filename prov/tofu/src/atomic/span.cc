// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Spans. See parts.h.
//
// One Get brings the guesses for all words, where loops would guess word by word. It need not be atomic, since each
// word has its own CSWAP. The CSWAPs are a batch: they share one place of the window, and the n-th notice is that of
// the n-th word (guide 2.2.10). A word that has changed since the Get goes on as a loop, from the value that its CSWAP
// found.
#include "atomic/runner.h"

#include <algorithm>

namespace tofu {

using vcq::Notice;
using vcq::Post;

namespace {

std::byte* bytes(std::uint64_t* words) noexcept { return reinterpret_cast<std::byte*>(words); }

} // namespace

bool SpanRunner::meets_another(const AtomicOp& op) noexcept
{
    const utofu_vcq_id_t peer = op.next().vcq;
    const utofu_stadd_t from = op.next().stadd;
    const utofu_stadd_t to = from + std::min(op.left() * op.size, Span::most * 8);
    bool meets = false;
    pool_.each([&](const Span& s) {
        meets |= s.op != nullptr && s.at.vcq == peer && s.at.stadd < to && from < s.at.stadd + s.words * 8;
    });
    return meets;
}

bool SpanRunner::start(AtomicOp& op) noexcept
{
    const Target at = op.next();
    Span* const s = pool_.alloc();
    if (s == nullptr)
        return false;
    s->scratch = ops_.scratch.alloc(Span::most * 8);
    if (s->scratch.data == nullptr) {
        pool_.renew(s);
        return false;
    }
    s->notify = &on_get;
    s->go_on = &go_on;
    s->op = &op;
    s->offset = static_cast<std::uint8_t>(at.stadd & 7);
    s->at = {at.vcq, at.stadd - s->offset};
    s->first = op.started;
    s->piece = op.at_target;
    s->elements = std::min<std::size_t>(op.left(), (Span::most * 8 - s->offset) / op.size);
    s->words = static_cast<std::uint32_t>((s->offset + s->elements * op.size + 7) / 8);
    ++op.pending;
    const std::size_t elements = s->elements;
    const vcq::Signaled how{s, vcq::delivered_flags(op.strong, false)};
    const Post posted = ops_.vcq.get(at.vcq, s->scratch.stadd, s->at.stadd, s->words * 8, how);
    if (posted != Post::done) [[unlikely]]
        release(*s);
    return ops_.took(op, posted, elements);
}

void SpanRunner::release(Span& s) noexcept
{
    ops_.scratch.release(s.scratch);
    pool_.renew(&s);
}

void SpanRunner::on_get(vcq::Waiter* self, const Notice& notice) noexcept
{
    Span& s = *static_cast<Span*>(self);
    AtomicOp& op = *s.op;
    SpanRunner& runner = op.runner->spans;
    s.notify = &on_notice;
    if (notice.code != UTOFU_SUCCESS) [[unlikely]] {
        s.code = notice.code;
        s.words = 0;
        runner.end(s);
        return;
    }
    std::byte operands[Span::most * 8], compares[Span::most * 8];
    if (op.reads_operand)
        op.operand.gather(operands, s.first, s.elements, op.size);
    if (op.reads_compare)
        op.compare.gather(compares, s.first, s.elements, op.size);
    std::memcpy(s.desired, s.found(), s.words * 8);
    op.kernel(bytes(s.desired) + s.offset, operands, compares, s.elements);
    runner.post(s);
}

/// Posts the remaining CSWAPs, or leaves them to progress().
void SpanRunner::post(Span& s) noexcept
{
    constexpr unsigned long flags = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
    if (s.place == 0)
        s.place = ops_.vcq.open_batch(&s, s.words);
    const bool open = s.place != 0;
    Post posted = Post::busy;
    if (open && !ops_.agenda.closed())
        s.posted += static_cast<std::uint32_t>(ops_.vcq.post_batch<std::uint64_t, true>(
            s.place,
            {s.at.vcq, s.at.stadd + s.posted * 8, s.words - s.posted, {}, bytes(s.desired + s.posted),
             bytes(s.found() + s.posted)},
            flags, false, posted));
    if (posted == Post::done) [[likely]]
        return;
    ops_.vcq.start_batch();
    const int code = ops_.put_off(s, posted);
    if (code == UTOFU_SUCCESS)
        return;
    s.code = code;
    for (; s.words > s.posted; --s.words)
        if (open)
            (void)ops_.vcq.window().shorten(s.place);
    if (s.arrived == s.words)
        all_arrived(s);
}

void SpanRunner::on_notice(vcq::Waiter* self, const Notice& notice) noexcept
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
        s.op->runner->spans.all_arrived(s);
}

void SpanRunner::all_arrived(Span& s) noexcept
{
    AtomicOp& op = *s.op;
    if (s.lost.count() + s.failed < s.words)
        op.changed |= static_cast<std::uint8_t>(1u << s.piece);
    if (op.fetches) // words that lost write their results again later
        op.result.scatter(s.scratch.data + s.offset, s.first, s.elements, op.size);
    end(s);
}

/// Lets words that lost go on as loops, unless the operation has failed.
void SpanRunner::end(Span& s) noexcept
{
    AtomicOp& op = *s.op;
    if (s.lost.none()) [[likely]]
        s.tried = s.words;
    for (; s.tried < s.words && s.code == UTOFU_SUCCESS; ++s.tried) {
        if (!s.lost[s.tried])
            continue;
        const Post posted = ops_.agenda.closed() ? Post::busy : retry_word(s);
        if (posted == Post::done)
            continue;
        s.code = ops_.put_off(s, posted);
        if (s.code == UTOFU_SUCCESS)
            return;
    }
    const int code = s.code;
    const unsigned piece = s.piece;
    release(s);
    if (code != UTOFU_SUCCESS) [[unlikely]]
        ops_.settle_part(op, piece, code);
    else
        ops_.end_one(op, code);
}

/// Tries the word number `tried` again, from the value that was found there.
Post SpanRunner::retry_word(Span& s) noexcept
{
    const std::size_t byte = s.tried == 0 ? s.offset : s.tried * 8; // of its first element
    const std::size_t before = (byte - s.offset) / s.op->size;
    return words_.retry(*s.op, s.piece, s.first + before, {s.at.vcq, s.at.stadd + byte}, s.elements - before, s.scratch.data,
                        s.at.stadd);
}

void SpanRunner::go_on(Deferred& span) noexcept
{
    Span& s = static_cast<Span&>(span);
    SpanRunner& runner = s.op->runner->spans;
    if (s.arrived == s.words)
        runner.end(s);
    else
        runner.post(s);
}

} // namespace tofu
