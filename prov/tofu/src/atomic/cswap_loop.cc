// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Words of an operation, one after the other; loops of CSWAPs; spans of words that loop together. See ops.h.
#include <algorithm>
#include <utility>

#include "atomic/atomic.h"

namespace tofu {

// --- WordRunner: cuts operations into words, and posts native ARMWs

using vcq::Notice;
using vcq::Post;

/// The word of the element at `at`, the first of `left` neighbours, and how many of these one ARMW can serve. Atomicity
/// is per element, so neighbours in one word may share an ARMW.
static void cut_word(const AtomicOp& op, const Target& at, std::size_t left, WordOp& f) noexcept
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

/// Makes a word operation for element number `first`, which is at `at` with `left` neighbours. Null: none is free.
WordOp* WordRunner::make(AtomicOp& op, std::size_t first, const Target& at, std::size_t left) noexcept
{
    WordOp* const f = pool_.alloc();
    if (!f)
        return nullptr;
    f->op = &op;
    f->resume = &resume;
    f->first = first;
    cut_word(op, at, left, *f);
    if (op.reads_operand)
        op.operand.gather(reinterpret_cast<std::byte*>(&f->operand) + f->offset, f->first, f->elements, op.size);
    if (op.reads_compare)
        op.compare.gather(reinterpret_cast<std::byte*>(&f->compare) + f->offset, f->first, f->elements, op.size);
    // A small sum whose element ends its word cannot carry into a neighbour.
    const bool top_sum = op.method == Method::loop && op.op == FI_SUM && op.size < 4 && f->elements == 1 &&
                         f->offset + op.size == f->width && op.integer;
    f->loops = op.method == Method::loop && !top_sum;
    return f;
}

bool WordRunner::start(AtomicOp& op) noexcept
{
    WordOp* const f = make(op, op.started, op.next(), op.left());
    if (!f)
        return false;
    ++op.pending;
    const Post posted = f->loops ? begin_loop(*f) : op.by_get ? get_word(*f) : post_native(*f);
    const unsigned elements = f->elements;
    if (posted != Post::done) [[unlikely]]
        pool_.renew(f);
    return ops_.took(op, posted, elements);
}

Post WordRunner::retry(AtomicOp& op, std::size_t first, const Target& at, std::size_t left, const std::byte* words,
                       utofu_stadd_t base) noexcept
{
    WordOp* const f = ops_.has_room() ? make(op, first, at, left) : nullptr;
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
    const vcq::SignaledArgs how{&f, vcq::delivered_flags(op.strong, is_event)};
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

void WordRunner::word_done(vcq::CompletionHandler* self, Notice notice) noexcept
{
    WordOp* const f = static_cast<WordOp*>(self);
    WordRunner* const runner = &f->op->runner->words;
    if (notice.code != UTOFU_SUCCESS && f->op->op == FI_ATOMIC_READ) [[unlikely]] {
        // An ARMW may not touch memory registered for reading only (guide 3.6.2.1), a Get may. Only
        // the owner's CPU writes there, and the TNI reads an aligned word within one cache line.
        f->op->by_get = true;
        runner->get_again(*f);
        return;
    }
    runner->complete(*f, notice.value, notice.code);
}

Post WordRunner::get_word(WordOp& f) noexcept
{
    f.notify = &got_word;
    f.scratch = ops_.scratch.alloc(sizeof(std::uint64_t));
    if (f.scratch.data == nullptr)
        return Post::busy;
    const vcq::SignaledArgs how{&f, vcq::delivered_flags(f.op->strong, false)};
    const Post posted = ops_.vcq.get(f.vcq, f.scratch.stadd, f.word, f.width, how);
    if (posted != Post::done)
        ops_.scratch.release(f.scratch);
    return posted;
}

/// get_word() in place of an ARMW, or in a later round.
void WordRunner::get_again(WordOp& f) noexcept
{
    const Post posted = ops_.retry_list.closed() ? Post::busy : get_word(f);
    if (posted != Post::done)
        if (const int code = ops_.retry_later(f, posted); code != UTOFU_SUCCESS)
            complete(f, 0, code);
}

void WordRunner::got_word(vcq::CompletionHandler* self, Notice notice) noexcept
{
    WordOp* const f = static_cast<WordOp*>(self);
    WordRunner* const runner = &f->op->runner->words;
    std::uint64_t value = 0;
    std::memcpy(&value, f->scratch.data, f->width);
    runner->ops_.scratch.release(f->scratch);
    runner->complete(*f, value, notice.code);
}

/// Ends a word operation; the word held `before`. The word operation is gone afterwards, and perhaps the whole
/// operation.
void WordRunner::complete(WordOp& f, std::uint64_t before, int code) noexcept
{
    AtomicOp& op = *f.op;
    if (code == UTOFU_SUCCESS) [[likely]] {
        if (op.fetches)
            op.result.scatter(reinterpret_cast<const std::byte*>(&before) + f.offset, f.first, f.elements, op.size);
    } else {
        op.event_ended(code);
    }
    pool_.renew(&f);
    ops_.end_part(op, code);
}

// --- WordRunner: loops of CSWAPs
//
// A loop needs the word's value. Instead of reading it first, it posts a CSWAP with a guess: the value last seen there,
// else the value that the operation itself expects, else zero. A right guess costs one round trip, a wrong one brings
// the value. A CSWAP that expects `expect` and would write f(expect) answers with `found`:
//   1. found == expect: it was written; the word operations end with what they found.
//   2. found != expect, f(found) == found: there is nothing to write; the operation took effect at the
//      instant of that CSWAP, as a read. (FI_MIN that does not lower, FI_CSWAP_NE that finds equal ...)
//   3. else: again with found, at once the first times, then after a random pause that grows with each
//      loss up to a bound, then without any pause: each of many initiators gets through.
//   4. the CSWAP failed: all operations that it carried fail with its code.
// Word operations of one endpoint on one word do not compete: the first leads, the others wait behind it in its slot,
// and each CSWAP carries those that wait. f is then the composition of their functions, oldest first, and each
// operation gets the value between its predecessors and itself. Word operations on different words that share a slot
// wait, too, but are not carried.

/// Losses after which a word operation begins to pause, the bound of the pause in calls of progress(), and losses after
/// which it no longer pauses, so that operations that have lost often go before those that came last.
constexpr unsigned losses_at_once = 2;
constexpr unsigned max_pause_log2 = 4;
constexpr unsigned losses_of_the_old = 8;

static std::uint64_t applied(const WordOp& f, std::uint64_t value) noexcept
{
    const AtomicOp& op = *f.op;
    auto* const word = reinterpret_cast<std::byte*>(&value);
    const auto* const operand = reinterpret_cast<const std::byte*>(&f.operand);
    const auto* const compare = reinterpret_cast<const std::byte*>(&f.compare);
    op.kernel(word + f.offset, operand + f.offset, compare + f.offset, f.elements);
    return value;
}

/// The value to compare with first.
static std::uint64_t first_guess(const WordSlot& slot, const WordOp& f) noexcept
{
    if (slot == RemoteWord{f})
        return slot.value;
    return f.op->op == FI_CSWAP ? f.compare : 0;
}

/// Begins a loop. `found`, if not null: the value that the word had when it was read before.
Post WordRunner::begin_loop(WordOp& f, const std::uint64_t* found) noexcept
{
    if (!slots_) [[unlikely]] {
        slots_.reset(new (std::nothrow) WordSlot[slot_count]);
        if (!slots_)
            return Post::busy;
    }
    // Words of one array lie in different slots; other peers are spread by a multiplication.
    WordSlot& slot = slots_[((f.word >> 3) + (f.vcq * 0x9e3779b97f4a7c15u >> 48)) % slot_count];
    f.slot = &slot;
    f.notify = &loop_done;
    if (slot.active) {
        slot.queue_up(f);
        return Post::done;
    }
    f.combined = 1;
    compute_combined(f, found != nullptr ? *found : first_guess(slot, f));
    const Post posted = post_combined(f);
    if (posted == Post::done)
        slot.active = &f;
    return posted;
}

/// Prepares the leader's CSWAP for a word that holds `value`; it carries the operations that wait for the same word.
void WordRunner::compute_combined(WordOp& leader, std::uint64_t value) noexcept
{
    leader.expect = value;
    leader.before = value;
    value = applied(leader, value);
    unsigned n = 1;
    WordOp* f = leader.slot->active == &leader ? leader.slot->waiting : nullptr;
    for (; f && n < max_combined && *f == RemoteWord{leader}; f = f->next, ++n) {
        f->before = value;
        value = applied(*f, value);
    }
    leader.combined = static_cast<std::uint16_t>(n);
    leader.desired = value;
}

Post WordRunner::post_combined(WordOp& leader) noexcept
{
    const vcq::SignaledArgs how{&leader, vcq::delivered_flags(leader.op->strong, false)};
    return ops_.vcq.cswap(leader.width, leader.vcq, leader.expect, leader.desired, leader.word, how);
}

void WordRunner::loop_done(vcq::CompletionHandler* self, Notice notice) noexcept
{
    WordOp* const f = static_cast<WordOp*>(self);
    WordRunner* const runner = &f->op->runner->words;
    if (notice.code != UTOFU_SUCCESS) [[unlikely]] {
        runner->end_combined(*f, 0, notice.code); // case 4
        return;
    }
    if (notice.value == f->expect) { // case 1
        runner->end_combined(*f, f->desired, UTOFU_SUCCESS);
        return;
    }
    runner->compute_combined(*f, notice.value);
    if (f->desired == notice.value) { // case 2
        runner->end_combined(*f, notice.value, UTOFU_SUCCESS);
        return;
    }
    // case 3
    runner->ops_.vcq.statistics().count(Stat::loop_retry);
    TOFU_PROBE(retry, f->word, f->attempts);
    const unsigned losses = f->attempts;
    if (losses < losses_of_the_old)
        ++f->attempts;
    if (losses < losses_at_once || losses == losses_of_the_old) {
        runner->repost(*f);
        return;
    }
    const unsigned log2 = losses - losses_at_once + 1;
    runner->ops_.retry_list.add(*f, 1u << std::min(log2, max_pause_log2));
    runner->ops_.vcq.set_busy();
}

/// Posts a prepared CSWAP, or leaves that to progress().
void WordRunner::repost(WordOp& leader) noexcept
{
    const Post posted = ops_.retry_list.closed() ? Post::busy : post_combined(leader);
    if (posted != Post::done)
        if (const int code = ops_.retry_later(leader, posted); code != UTOFU_SUCCESS)
            end_combined(leader, 0, code);
}

void WordRunner::resume(RetryItem& word) noexcept
{
    WordOp& f = static_cast<WordOp&>(word);
    WordRunner& runner = f.op->runner->words;
    f.loops ? runner.repost(f) : runner.get_again(f);
}

/// Called when the leader's CSWAP has ended and the word holds `value`, or when it has failed with `code`. Ends all
/// operations that it carried, and lets the next word operation of the slot lead.
void WordRunner::end_combined(WordOp& leader, std::uint64_t value, int code) noexcept
{
    WordSlot& slot = *leader.slot;
    if (code == UTOFU_SUCCESS) {
        static_cast<RemoteWord&>(slot) = leader;
        slot.value = value;
    }
    // The slot is settled before any end is reported, since completions may start new word operations.
    WordOp** end = &slot.waiting;
    for (unsigned n = 1; n < leader.combined; ++n)
        end = &(*end)->next;
    WordOp* const rest = std::exchange(*end, nullptr);
    WordOp* done = std::exchange(slot.waiting, rest);
    slot.pass();
    complete(leader, leader.before, code);
    while (done) {
        WordOp* const next = done->next;
        complete(*done, done->before, code);
        done = next;
    }
    if (rest) {
        rest->combined = 1;
        compute_combined(*rest, first_guess(slot, *rest));
        repost(*rest);
    }
}

// --- SpanRunner: one Get brings the guesses for all words, where loops would guess word by word. It need not be
// atomic, since each word has its own CSWAP. The CSWAPs are a batch: they share one completion tag, and the n-th
// notice is that of the n-th word (guide 2.2.10). A word that has changed since the Get goes on as a loop, from the
// value that its CSWAP found.

static std::byte* bytes(std::uint64_t* words) noexcept
{
    return reinterpret_cast<std::byte*>(words);
}

bool SpanRunner::overlaps_another(const AtomicOp& op) noexcept
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
    s->resume = &resume;
    s->op = &op;
    s->offset = static_cast<std::uint8_t>(at.stadd & 7);
    s->at = {at.vcq, at.stadd - s->offset};
    s->first = op.started;
    s->elements = std::min<std::size_t>(op.left(), (Span::most * 8 - s->offset) / op.size);
    s->words = static_cast<std::uint32_t>((s->offset + s->elements * op.size + 7) / 8);
    ++op.pending;
    const std::size_t elements = s->elements;
    const vcq::SignaledArgs how{s, vcq::delivered_flags(op.strong, false)};
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

void SpanRunner::on_get(vcq::CompletionHandler* self, Notice notice) noexcept
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

/// Posts the remaining CSWAPs, or leaves them to progress(). Behind a failure no more are posted.
void SpanRunner::post(Span& s) noexcept
{
    constexpr unsigned long flags = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
    vcq::CompletionTable& completions = ops_.vcq.completions();
    if (s.tag == 0)
        s.tag = ops_.vcq.open_batch(&s);
    Post posted = Post::busy;
    if (s.tag != 0 && s.code == UTOFU_SUCCESS && !ops_.retry_list.closed()) {
        const vcq::Words rest{s.at.vcq, s.at.stadd + s.posted * 8,   s.words - s.posted,
                              {},       bytes(s.desired + s.posted), bytes(s.found() + s.posted)};
        const auto n = static_cast<std::uint32_t>(ops_.vcq.post_batch<std::uint64_t, true>(s.tag, rest, flags, posted));
        s.posted += n;
        completions.announce(s.tag, n, posted == Post::done);
        if (posted == Post::done) [[likely]]
            return;
    }
    if (s.code == UTOFU_SUCCESS)
        s.code = ops_.retry_later(s, posted);
    if (s.code == UTOFU_SUCCESS)
        return;
    s.words = s.posted;
    if (s.arrived != s.words) {
        completions.announce(s.tag, 0, true);
        return;
    }
    completions.close(s.tag, &s);
    all_arrived(s);
}

void SpanRunner::on_notice(vcq::CompletionHandler* self, Notice notice) noexcept
{
    Span& s = *static_cast<Span*>(self);
    if (notice.code != UTOFU_SUCCESS) [[unlikely]] {
        s.code = notice.code;
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
        const Post posted = ops_.retry_list.closed() ? Post::busy : retry_word(s);
        if (posted == Post::done)
            continue;
        s.code = ops_.retry_later(s, posted);
        if (s.code == UTOFU_SUCCESS)
            return;
    }
    const int code = s.code;
    release(s);
    ops_.end_part(op, code);
}

/// Tries the word number `tried` again, from the value that was found there.
Post SpanRunner::retry_word(Span& s) noexcept
{
    const std::size_t byte = s.tried == 0 ? s.offset : s.tried * 8; // of its first element
    const std::size_t before = (byte - s.offset) / s.op->size;
    return words_.retry(*s.op, s.first + before, {s.at.vcq, s.at.stadd + byte}, s.elements - before, s.scratch.data,
                        s.at.stadd);
}

void SpanRunner::resume(RetryItem& span) noexcept
{
    Span& s = static_cast<Span&>(span);
    SpanRunner& runner = s.op->runner->spans;
    if (s.arrived == s.words)
        runner.end(s);
    else
        runner.post(s);
}

} // namespace tofu
