// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// CSWAP loops. See parts.h.
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
#include "atomic/runner.h"

#include <algorithm>
#include <utility>

namespace tofu {

using vcq::Notice;
using vcq::Post;

namespace {

/// Losses after which a word operation begins to pause, the bound of the pause in calls of progress(), and losses after
/// which it no longer pauses, so that operations that have lost often go before those that came last.
constexpr unsigned losses_at_once = 2;
constexpr unsigned max_pause_log2 = 4;
constexpr unsigned losses_of_the_old = 8;

std::uint64_t applied(const WordOp& f, std::uint64_t value) noexcept
{
    const AtomicOp& op = *f.op;
    auto* const word = reinterpret_cast<std::byte*>(&value);
    const auto* const operand = reinterpret_cast<const std::byte*>(&f.operand);
    const auto* const compare = reinterpret_cast<const std::byte*>(&f.compare);
    op.kernel(word + f.offset, operand + f.offset, compare + f.offset, f.elements);
    return value;
}

/// The value to compare with first.
std::uint64_t first_guess(const WordSlot& slot, const WordOp& f) noexcept
{
    if (slot == RemoteWord{f})
        return slot.value;
    return f.op->op == FI_CSWAP ? f.compare : 0;
}

} // namespace

WordSlot& WordRunner::slot_of(const WordOp& f) noexcept
{
    // Words of one array lie in different slots; other peers are spread by a multiplication.
    const std::uint64_t mixed = (f.word >> 3) + (f.vcq * 0x9e3779b97f4a7c15u >> 48);
    return slots_[mixed % slot_count];
}

/// Begins a loop. `found`, if not null: the value that the word had when it was read before.
Post WordRunner::begin_loop(WordOp& f, const std::uint64_t* found) noexcept
{
    if (!slots_) [[unlikely]] {
        slots_.reset(new (std::nothrow) WordSlot[slot_count]);
        if (!slots_)
            return Post::busy;
    }
    WordSlot& slot = slot_of(f);
    f.slot = &slot;
    f.notify = &loop_done;
    if (slot.active) {
        slot.queue_up(f);
        return Post::done;
    }
    f.group = 1;
    compute_group(f, found != nullptr ? *found : first_guess(slot, f));
    const Post posted = post_group(f);
    if (posted == Post::done)
        slot.active = &f;
    return posted;
}

/// Prepares the leader's CSWAP for a word that holds `value`; it carries the operations that wait for the same word.
void WordRunner::compute_group(WordOp& leader, std::uint64_t value) noexcept
{
    leader.expect = value;
    leader.before = value;
    value = applied(leader, value);
    unsigned n = 1;
    WordOp* f = leader.slot->active == &leader ? leader.slot->waiting : nullptr;
    for (; f && n < max_group && *f == RemoteWord{leader}; f = f->next, ++n) {
        f->before = value;
        value = applied(*f, value);
    }
    leader.group = static_cast<std::uint16_t>(n);
    leader.desired = value;
}

Post WordRunner::post_group(WordOp& leader) noexcept
{
    const vcq::Signaled how{&leader, vcq::delivered_flags(leader.op->strong, false)};
    return ops_.vcq.cswap(leader.width, leader.vcq, leader.expect, leader.desired, leader.word, how);
}

void WordRunner::loop_done(vcq::Waiter* self, const Notice& notice) noexcept
{
    WordOp* const f = static_cast<WordOp*>(self);
    WordRunner* const runner = &f->op->runner->words;
    if (notice.code != UTOFU_SUCCESS) [[unlikely]] {
        runner->end_group(*f, 0, notice.code); // case 4
        return;
    }
    if (notice.value == f->expect) { // case 1
        runner->end_group(*f, f->desired, UTOFU_SUCCESS);
        return;
    }
    runner->compute_group(*f, notice.value);
    if (f->desired == notice.value) { // case 2
        runner->end_group(*f, notice.value, UTOFU_SUCCESS);
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
    runner->ops_.agenda.add(*f, 1u << std::min(log2, max_pause_log2));
    runner->ops_.vcq.set_busy();
}

/// Posts a prepared CSWAP, or leaves that to progress().
void WordRunner::repost(WordOp& leader) noexcept
{
    const Post posted = ops_.agenda.closed() ? Post::busy : post_group(leader);
    if (posted != Post::done)
        if (const int code = ops_.put_off(leader, posted); code != UTOFU_SUCCESS)
            end_group(leader, 0, code);
}

void WordRunner::go_on(Deferred& word) noexcept
{
    WordOp& f = static_cast<WordOp&>(word);
    WordRunner& runner = f.op->runner->words;
    f.loops ? runner.repost(f) : runner.get_again(f);
}

/// Called when the leader's CSWAP has ended and the word holds `value`, or when it has failed with `code`. Ends all
/// operations that it carried, and lets the next word operation of the slot lead.
void WordRunner::end_group(WordOp& leader, std::uint64_t value, int code) noexcept
{
    WordSlot& slot = *leader.slot;
    if (code == UTOFU_SUCCESS) {
        static_cast<RemoteWord&>(slot) = leader;
        slot.value = value;
    }
    // The slot is settled before any end is told, since completions may start new word operations.
    WordOp** end = &slot.waiting;
    for (unsigned n = 1; n < leader.group; ++n)
        end = &(*end)->next;
    WordOp* const rest = std::exchange(*end, nullptr);
    WordOp* done = std::exchange(slot.waiting, rest);
    slot.pass();
    settle(leader, leader.before, code);
    while (done) {
        WordOp* const next = done->next;
        settle(*done, done->before, code);
        done = next;
    }
    if (rest) {
        rest->group = 1;
        compute_group(*rest, first_guess(slot, *rest));
        repost(*rest);
    }
}

} // namespace tofu
