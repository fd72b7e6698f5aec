// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Wide elements under lock words; see wide.h for the protocol.
#include "atomic/wide.h"

#include "atomic/atomic.h"
#include "av/address.h"
#include "mem/mr_directory.h"

namespace tofu {

using vcq::Notice;
using vcq::Post;
using State = WideOp::State;

constexpr unsigned max_claim_pause_log2 = 7;

std::uint64_t WideRunner::next_token() noexcept
{
    if (token_ == 0) [[unlikely]] // two initiators must not meet in a token: 64 random bits, then counted on
        token_ = Random::number(static_cast<std::uint64_t>(Clock::now().time_since_epoch().count())) | 1;
    token_ += 2; // odd for ever: never 0, which says free
    return token_;
}

Post WideRunner::start(AtomicOp& op, std::size_t first, const Target& element) noexcept
{
    utofu_stadd_t directory = 0;
    if (ops_.vcq.query_stadd(element.vcq, directory_stag, directory) != 0)
        return Post::error;
    WideOp* const f = pool_.alloc();
    if (!f)
        return Post::busy;
    f->before = ops_.scratch.alloc(WideOp::most);
    if (f->before.data == nullptr) {
        pool_.renew(f);
        return Post::busy;
    }
    f->resume = [](RetryItem& self) noexcept {
        WideOp& op = static_cast<WideOp&>(self);
        WideRunner& runner = op.op->runner->wide;
        if (runner.ops_.retry_list.closed())
            runner.later(op);
        else
            runner.resume(op);
    };
    f->lock.notify = &lock_answer;
    f->data.notify = &data_answer;
    f->lock.op = f->data.op = f;
    f->op = &op;
    f->first = first;
    f->vcq = element.vcq;
    f->element = element.stadd;
    const unsigned index = locks::index_of(element.stadd);
    f->lock_word = directory + directory::locks_offset + index * sizeof(std::uint64_t);
    if (op.reads_operand)
        op.operand.gather(f->operand, first, 1, op.size);
    if (op.reads_compare)
        op.compare.gather(f->compare, first, 1, op.size);
    // Our own do not fight each other for a lock: one tries, the others queue up behind it.
    f->slot = &slots_[(index + (op.peer.target_vcq * 0x9e3779b97f4a7c15u >> 60) * locks::count) % slot_count];
    if (f->slot->active) {
        f->slot->queue_up(*f);
        return Post::done;
    }
    f->slot->active = f;
    resume(*f);
    return Post::done;
}

/// Does what the operation's state asks for as far as the VCQ takes it; the rest is left to later rounds.
void WideRunner::resume(WideOp& f) noexcept
{
    if (f.state == State::waiting)
        post_lock(f);
    else if (!f.put_posted && f.code == UTOFU_SUCCESS && now() - f.posted_at > hold_at_most) // the lease may be gone
        begin_again(f, f.token);
    else if (!post_put(f))
        later(f);
    else if (f.in_air == 0)
        end(f);
}

/// Counts what is under way, and notes why nothing will be. False: refused.
bool WideRunner::took(WideOp& f, Post posted) noexcept
{
    if (posted == Post::done)
        ++f.in_air;
    else if (posted == Post::error && f.code == UTOFU_SUCCESS)
        f.code = ops_.vcq.last_error();
    return posted == Post::done;
}

/// Takes the lock, or renews it, and reads the element in the same round trip.
void WideRunner::post_lock(WideOp& f) noexcept
{
    f.have_data = f.lock_won = f.put_posted = f.free_posted = f.wrote = false;
    f.token = next_token();
    f.posted_at = now();
    const vcq::SignaledArgs first{&f.lock, vcq::delivered_flags(f.op->strong, false)};
    // Strong order: after the CSWAP has read the lock (guide 2.2.10).
    const vcq::SignaledArgs second{&f.data, vcq::delivered_flags(true, false)};
    if (took(f, ops_.vcq.cswap(8, f.vcq, f.expect, f.token, f.lock_word, first))) {
        f.state = State::locking;
        (void)took(f, ops_.vcq.get(f.vcq, f.before.stadd, f.element, f.op->size, second)); // else the lock is renewed
    } else if (f.code == UTOFU_SUCCESS) {
        later(f);
    } else {
        end(f);
    }
}

/// Puts the new value unless that is the old one, and frees the lock behind it. False: not all of it yet.
bool WideRunner::post_put(WideOp& f) noexcept
{
    constexpr unsigned long flags = vcq::delivered_flags(true, false); // freed after the element was written
    if (!f.put_posted) {
        const Post posted =
            ops_.vcq.put_inline(f.vcq, f.value, f.element, f.op->size, vcq::SignaledArgs{&f.data, flags});
        if (posted == Post::busy)
            return false;
        f.put_posted = true;
        f.wrote = took(f, posted);
    }
    if (!f.free_posted) {
        const Post posted = ops_.vcq.cswap(8, f.vcq, f.token, 0, f.lock_word, vcq::SignaledArgs{&f.lock, flags});
        if (posted == Post::busy)
            return false;
        f.free_posted = true;
        if (posted == Post::done || f.wrote) // else the lease runs out without a report
            (void)took(f, posted);
    }
    return true;
}

void WideRunner::lock_answer(vcq::CompletionHandler* self, Notice notice) noexcept
{
    WideOp& f = *static_cast<WideOp::Part*>(self)->op;
    WideRunner& runner = f.op->runner->wide;
    --f.in_air;
    if (f.state == State::putting) {
        runner.judge_free(f, notice);
        return;
    }
    if (notice.code != UTOFU_SUCCESS) {
        f.code = notice.code;
    } else if (notice.value == f.expect) {
        f.lock_won = true;
    } else if (notice.value != f.seen) {
        f.seen = notice.value;
        f.seen_since = now();
    }
    if (f.in_air == 0)
        runner.judge_lock(f);
}

/// The freeing. Where it finds another token the lease was over before: what was written then may have met the work of
/// others, which is reported as an error; without a write, nothing has happened.
void WideRunner::judge_free(WideOp& f, Notice notice) noexcept
{
    const bool held = notice.code == UTOFU_SUCCESS && notice.value == f.token;
    if (!held && f.code == UTOFU_SUCCESS) {
        if (!f.wrote && notice.code == UTOFU_SUCCESS && !ops_.retry_list.closed()) {
            begin_again(f, 0);
            return;
        }
        f.code = notice.code != UTOFU_SUCCESS ? static_cast<int>(notice.code) : int{UTOFU_ERR_MRQ_OTHER};
    }
    if (f.in_air == 0 && f.put_posted && f.free_posted)
        end(f);
}

/// Takes the lock, or renews it, and reads the element anew.
void WideRunner::begin_again(WideOp& f, std::uint64_t expect) noexcept
{
    f.expect = expect;
    f.state = State::waiting;
    resume(f);
}

void WideRunner::data_answer(vcq::CompletionHandler* self, Notice notice) noexcept
{
    WideOp& f = *static_cast<WideOp::Part*>(self)->op;
    WideRunner& runner = f.op->runner->wide;
    --f.in_air;
    f.have_data = notice.code == UTOFU_SUCCESS;
    if (!f.have_data && f.code == UTOFU_SUCCESS)
        f.code = notice.code;
    if (f.in_air != 0)
        return;
    if (f.state == State::locking)
        runner.judge_lock(f);
    else if (f.put_posted && f.free_posted)
        runner.end(f);
}

/// CSWAP and Get have ended.
void WideRunner::judge_lock(WideOp& f) noexcept
{
    if (f.lock_won && (f.have_data || f.code != UTOFU_SUCCESS)) {
        compute(f);
        return;
    }
    if (f.code != UTOFU_SUCCESS) { // the lock itself cannot be reached
        end(f);
        return;
    }
    f.state = State::waiting;
    if (f.lock_won) { // the Get found no room
        f.expect = f.token;
        later(f);
        return;
    }
    f.expect = now() - f.seen_since >= break_after ? f.seen : 0;
    later(f, 1u << f.attempts);
    if (f.attempts < max_claim_pause_log2)
        ++f.attempts;
}

/// Lock and value have arrived, or an error of the Get, after which the lock is freed again.
void WideRunner::compute(WideOp& f) noexcept
{
    const AtomicOp& op = *f.op;
    f.state = State::putting;
    f.put_posted = true; // unless there is something to put
    if (f.code == UTOFU_SUCCESS) {
        std::memcpy(f.value, f.before.data, op.size);
        op.kernel(f.value, f.operand, f.compare, 1);
        f.put_posted = std::memcmp(f.value, f.before.data, op.size) == 0;
    }
    resume(f);
}

void WideRunner::later(WideOp& f, std::uint32_t within) noexcept
{
    if (ops_.retry_list.closed()) { // it will not continue; a lock that it may have is a lease
        if (f.code == UTOFU_SUCCESS)
            f.code = UTOFU_ERR_MRQ_OTHER;
        if (f.in_air == 0)
            end(f);
        else
            f.put_posted = f.free_posted = true, f.state = State::putting;
        return;
    }
    ops_.retry_list.add(f, within);
    ops_.vcq.set_busy();
}

void WideRunner::end(WideOp& f) noexcept
{
    AtomicOp& op = *f.op;
    if (f.code == UTOFU_SUCCESS && op.fetches)
        op.result.scatter(f.before.data, f.first, 1, op.size);
    ops_.scratch.release(f.before);
    WideOp* const rest = f.slot->pass();
    const int code = f.code;
    pool_.renew(&f);
    ops_.end_part(op, code);
    if (rest)
        resume(*rest);
}

} // namespace tofu
