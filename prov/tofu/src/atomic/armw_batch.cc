// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// ARMWs in a batch. See ops.h.
//
// An operation that fetches asks for a notice of each ARMW. Notices come in the order of the posts (guide 2.2.10), so
// the n-th notice has the n-th value. An operation that does not fetch asks for the notice of the last ARMW only. That
// ARMW has the strong order flag, so it takes effect after all others (guide 6.1.3.1), and its notice comes after that.
// Failures are reported without being asked for, to a place of their own, before the last notice. A batch that meets a
// full TOQ stays open, and progress() continues it.
#include "atomic/atomic.h"

#include <algorithm>

namespace tofu {

using vcq::Notice;
using vcq::Post;

/// With fewer elements a batch does not pay.
constexpr std::size_t least = 4;

/// Elements that are copied at a time from a list in pieces.
constexpr std::size_t gathered = 64;

/// `n` elements of a list as one array: in place, or a copy in `memory`.
template <class Word>
static const std::byte* run_of(const Pieces& list, std::size_t number, std::size_t n, std::byte* memory) noexcept
{
    if (const std::byte* const flat = list.flat(); flat != nullptr) [[likely]]
        return flat + number * sizeof(Word);
    list.gather(memory, number, n, sizeof(Word));
    return memory;
}

/// Skips to the last element, which ends the batch even if others have failed.
static void skip_to_last(AtomicOp& op) noexcept
{
    op.at_target = static_cast<std::uint8_t>(op.targets - 1);
    op.in_target = op.target[op.at_target].length - op.size;
    op.started = op.total - 1;
}

/// Reads go word by word, since a read of read-only memory is done by Get.
bool BatchRunner::fits(const AtomicOp& op) noexcept
{
    if (op.total < least || (op.size != 4 && op.size != 8) || !is_one_armw(op.method) || op.method == Method::read)
        return false;
    // The notices of a batch keep their order at one VCQ only.
    for (unsigned i = 0; i < op.targets; i++)
        if ((op.target[i].at.stadd & (op.size - 1u)) != 0 || op.target[i].at.vcq != op.target[0].at.vcq)
            return false;
    return true;
}

bool BatchRunner::open(AtomicOp& op) noexcept
{
    if (!ops_.has_room(1))
        return false;
    Batch* const batch = pool_.alloc();
    if (batch == nullptr)
        return false;
    batch->notify = &on_notice;
    batch->op = &op;
    batch->lost.notify = &on_lost;
    batch->lost.batch = batch;
    batch->tag = op.fetches ? ops_.vcq.open_batch(batch) : ops_.vcq.open_batch(&batch->lost, true);
    if (batch->tag == 0) {
        pool_.renew(batch);
        return false;
    }
    op.batch = batch;
    ++op.pending;
    return true;
}

bool BatchRunner::start(AtomicOp& op) noexcept
{
    if (op.batch != nullptr && op.batch->broken) [[unlikely]]
        return end_broken(*op.batch);
    if (op.started == op.total)
        return true;
    if (op.batch == nullptr && !open(op))
        return false;
    Batch& batch = *op.batch;
    while (op.started < op.total) {
        if (op.err != 0) [[unlikely]] { // post no more: each failure takes an entry of the MRQ
            if (op.fetches) {
                op.started = op.total;
                break;
            }
            skip_to_last(op);
        }
        std::size_t n = op.left();
        if (op.fetches) {
            const std::size_t most = max_announced / pool_.in_use(), out = batch.announced - batch.arrived;
            n = std::min<std::size_t>(n, most > out ? most - out : 0);
        }
        if (n == 0)
            return false;
        Post posted = Post::done;
        const std::size_t done =
            op.size == 8 ? post_run<std::uint64_t>(op, n, posted) : post_run<std::uint32_t>(op, n, posted);
        if (done != 0)
            ops_.advance(op, done);
        if (posted == Post::done)
            continue;
        if (posted == Post::busy)
            return false;
        return failed(op);
    }
    batch.posted = true;
    if (op.fetches)
        announce_no_more(batch);
    return true;
}

/// Posts up to `n` elements of the current target. Returns how many; `posted` says what stopped the rest.
template <class Word>
std::size_t BatchRunner::post_run(AtomicOp& op, std::size_t n, Post& posted) noexcept
{
    Batch& batch = *op.batch;
    vcq::Words words{};
    words.peer = op.next().vcq;
    words.op = armw_of(op.method);
    const utofu_stadd_t stadd = op.next().stadd;
    const bool swaps = op.method == Method::cswap;
    const unsigned long flags =
        vcq::flags_of(op.strong, false) | (op.fetches ? UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE : 0);
    const std::size_t first = op.started;
    // If the operation does not fetch, its last ARMW has a notice, at a place of its own.
    const bool to_the_end = !op.fetches && first + n == op.total;
    const std::size_t plain = to_the_end ? n - 1 : n;
    std::byte operands[gathered * sizeof(Word)];
    std::byte compares[gathered * sizeof(Word)];
    const bool flat = op.operand.flat() != nullptr && (!swaps || op.compare.flat() != nullptr);
    std::size_t i = 0;
    while (i < plain && posted == Post::done) {
        words.n = flat ? plain - i : std::min(plain - i, gathered);
        words.remote = stadd + i * sizeof(Word);
        words.operands = run_of<Word>(op.operand, first + i, words.n, operands);
        if (swaps)
            words.compares = run_of<Word>(op.compare, first + i, words.n, compares);
        i += swaps ? ops_.vcq.post_batch<Word, true>(batch.tag, words, flags, posted)
                   : ops_.vcq.post_batch<Word, false>(batch.tag, words, flags, posted);
    }
    batch.announced += static_cast<std::uint32_t>(i);
    if (op.fetches)
        ops_.vcq.completions().announce(batch.tag, static_cast<unsigned>(i), false);
    if (posted == Post::done && to_the_end) {
        // No CSWAP, which would fetch: this is an ARMW with one operand.
        const vcq::SignaledArgs how{&batch, vcq::delivered_flags(true, false)};
        Word operand = 0;
        op.operand.gather(&operand, first + i, 1, sizeof(Word));
        posted = ops_.vcq.armw(sizeof(Word), words.peer, words.op, operand, stadd + i * sizeof(Word), how);
        i += posted == Post::done ? 1 : 0;
    }
    return i;
}

/// If all notices have come, the batch ends; else the last one ends it. It is not given up then (Vcq::watch).
void BatchRunner::announce_no_more(Batch& batch) noexcept
{
    if (batch.arrived == batch.announced)
        end(batch);
    else
        ops_.vcq.completions().announce(batch.tag, 0, true);
}

/// Handles a post that was refused for good: nothing more of the batch is posted. Returns as start() does.
bool BatchRunner::failed(AtomicOp& op) noexcept
{
    Batch& batch = *op.batch;
    const bool under_way = op.started != 0;
    ops_.abandon(op, ops_.vcq.last_error());
    if (!op.fetches && under_way) {
        batch.broken = true;
        return end_broken(batch);
    }
    if (op.fetches)
        close(batch);
    else
        end(batch);
    return true;
}

/// Ends a broken batch. Its earlier ARMWs may still fail; an ARMW that changes nothing, in place of the last, shows
/// when they have all ended. Returns as start() does.
bool BatchRunner::end_broken(Batch& batch) noexcept
{
    AtomicOp& op = *batch.op;
    const vcq::SignaledArgs how{&batch, vcq::delivered_flags(true, false)};
    switch (ops_.vcq.armw(4, op.target[0].at.vcq, UTOFU_ARMW_OP_OR, 0, op.target[0].at.stadd, how)) {
    case Post::busy: return false;
    case Post::done: batch.posted = true; return true;
    case Post::error: break;
    }
    close(batch);
    return true;
}

void BatchRunner::close(Batch& batch) noexcept
{
    AtomicOp& op = *batch.op;
    batch.posted = true;
    if (op.fetches) {
        announce_no_more(batch);
        return;
    }
    // A late failure must not reach another owner of the place.
    ops_.vcq.completions().abandon(batch.tag, &batch.lost);
    op.batch = nullptr;
    pool_.renew(&batch);
    (void)count_down(op, UTOFU_SUCCESS); // not the last one: the caller holds a reference
}

/// The notice of the next element if the operation fetches, else of the last.
void BatchRunner::on_notice(vcq::CompletionHandler* self, Notice notice) noexcept
{
    Batch& batch = *static_cast<Batch*>(self);
    AtomicOp& op = *batch.op;
    const std::size_t number = batch.arrived++;
    if (notice.code != UTOFU_SUCCESS) [[unlikely]] {
        note(op, notice.code);
    } else if (op.fetches) {
        if (std::byte* const to = op.result.flat(); to != nullptr && op.size == 8) [[likely]]
            std::memcpy(to + number * 8, &notice.value, 8);
        else
            op.result.scatter(&notice.value, number, 1, op.size);
    }
    if (batch.posted ? batch.arrived == batch.announced || !op.fetches : !op.fetches)
        op.runner->batches.end(batch);
}

void BatchRunner::end(Batch& batch) noexcept
{
    AtomicOp& op = *batch.op;
    ops_.vcq.completions().close(batch.tag, op.fetches ? static_cast<vcq::CompletionHandler*>(&batch) : &batch.lost);
    op.batch = nullptr;
    pool_.renew(&batch);
    ops_.end_one(op, UTOFU_SUCCESS);
}

} // namespace tofu
