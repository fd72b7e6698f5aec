// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Lanes: messages from neighbour to neighbour through slots of the receiver's memory, and the words that they tell each
// other. See group.h.
#include <atomic>
#include <cstddef>
#include <cstring>
#include <algorithm>

#include <rdma/fi_errno.h>

#include "collective/group.h"
#include "context/tx_context.h"
#include "provider/error.h"

namespace tofu::coll {

LaneArea& Group::area(const Lane& lane) const noexcept
{
    return *reinterpret_cast<LaneArea*>(slab_.get() + lane.number * sizeof(LaneArea));
}

Slot& Group::staged(const Lane& lane, std::uint32_t message) const noexcept
{
    return *reinterpret_cast<Slot*>(staging_.get() + (lane.number * slots + message % slots) * sizeof(Slot));
}

utofu_stadd_t Group::staged_stadd(const Lane& lane, std::uint32_t message) const noexcept
{
    return staging_stadd_ + (lane.number * slots + message % slots) * sizeof(Slot);
}

/// Acquire: what the peer has put before it. Partner: its pay().
std::uint64_t Group::word_from(const Lane& lane) const noexcept
{
    return std::atomic_ref(area(lane).word).load(std::memory_order_acquire);
}

void Group::on_put(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept
{
    Lane& lane = *static_cast<Lane*>(waiter);
    Group& group = *lane.group;
    group.in_flight_--;
    // Of a group that is closed the slab may have gone before the last notice (Endpoint::bury).
    if (notice.code == UTOFU_SUCCESS || lane.step == Lane::Step::lost || !group.slab_) [[likely]]
        return;
    lane.step = Lane::Step::lost;
    // A member that has left behind what is under way has given its memory back.
    const std::uint64_t word = group.word_from(lane);
    if (kind_of(word) != Word::left || static_cast<std::int32_t>(op_of(word) - group.now_) <= 0)
        group.break_up(fi_error_of(notice.code), notice.code);
}

vcq::Post Group::put_bytes(Lane& lane, const void* from, std::size_t offset, std::size_t size) noexcept
{
    const vcq::Post post =
        tx_.vcq().put_inline(lane.peer.home, from, lane.remote + offset, size,
                             {.when = vcq::When::delivered, .strong_order = true, .waiter = &lane});
    in_flight_ += post == vcq::Post::done;
    if (post == vcq::Post::error)
        lose(lane, fi_error_of(tx_.vcq().last_error()), tx_.vcq().last_error());
    return post;
}

// --- words and counts

/// Tells the peer what it is to be told, as far as there is room. False: later.
bool Group::pay(Lane& lane) noexcept
{
    if (lane.step != Lane::Step::known) {
        lane.owes_word = lane.owes_taken = false; // nobody there to be told, or not yet (looked())
        return true;
    }
    if (lane.owes_taken) {
        const std::uint64_t taken = lane.taken;
        lane.owes_taken = put_bytes(lane, &taken, offsetof(LaneArea, taken), sizeof(taken)) == vcq::Post::busy;
    }
    if (lane.owes_word && lane.step == Lane::Step::known) {
        const std::uint64_t word = lane.own_word;
        lane.owes_word = put_bytes(lane, &word, offsetof(LaneArea, word), sizeof(word)) == vcq::Post::busy;
    }
    return !lane.owes_taken && !lane.owes_word;
}

void Group::pay_all() noexcept
{
    owes_ = false;
    for (unsigned i = 0; i < lane_count_; i++)
        if ((lanes_[i].owes_taken || lanes_[i].owes_word) && !pay(lanes_[i]))
            owes_ = true;
}

/// A member that is dead says so by the error of a put. One that waits in another operation may wait for us as we for
/// it, without a message that would tell.
void Group::probe() noexcept
{
    const std::uint64_t mine = std::uint64_t{now_} << 32 | first_->signature;
    for (unsigned i = 0; i < lane_count_; i++)
        if (lanes_[i].step == Lane::Step::known)
            (void)put_bytes(lanes_[i], &mine, offsetof(LaneArea, probe), sizeof(mine));
}

/// What the neighbour sends or waits in contradicts what we have called.
bool Group::contradicts(Lane& lane) noexcept
{
    const std::uint64_t other = std::atomic_ref(area(lane).probe).load(std::memory_order_acquire);
    Tail tail;
    return (op_of(other) == now_ && other != 0 && static_cast<std::uint32_t>(other) != first_->signature) ||
           (head(lane, tail) == Head::there && tail.op == now_ && tail.signature != first_->signature);
}

/// The peer takes part in the operation no more.
bool Group::passed_by(const Lane& lane) const noexcept
{
    const std::uint64_t word = word_from(lane);
    return kind_of(word) != Word::none && static_cast<std::int32_t>(op_of(word) - now_) > 0;
}

// --- messages

/// Posts as many chunks as there is room for. True: all of them.
bool Group::send_some(Transfer& t, bool& moved) noexcept
{
    Lane& lane = lanes_[t.lane];
    const std::size_t bytes = t.view.bytes();
    while (!t.over) {
        if (lane.step != Lane::Step::known) {
            if (passed_by(lane))
                fail(FI_ESHUTDOWN, 0);
            return false;
        }
        const auto taken = static_cast<std::uint32_t>(std::atomic_ref(area(lane).taken).load(std::memory_order_acquire));
        if (lane.sent - taken >= slots) { // none free, or a count that can't be
            if (in_vain_ != 0 && passed_by(lane))
                fail(FI_EINVAL, UTOFU_ERR_BARRIER_MISMATCH);
            return false;
        }
        const std::uint32_t message = lane.sent + 1;
        const std::size_t offset = offsetof(LaneArea, slot) + message % slots * sizeof(Slot);
        const std::size_t size = std::min(chunk, bytes - t.done);
        Slot& slot = staged(lane, message);
        if (size > Tail::inline_size && !lane.half) {
            t.view.read(t.done, slot.payload, size);
            const vcq::Post post =
                tx_.vcq().put(lane.peer.home, staged_stadd(lane, message), lane.remote + offset, size,
                              {.when = vcq::When::delivered, .strong_order = true, .waiter = &lane});
            if (post == vcq::Post::busy)
                return false;
            if (post == vcq::Post::error) {
                lose(lane, fi_error_of(tx_.vcq().last_error()), tx_.vcq().last_error());
                return false;
            }
            in_flight_++;
            lane.half = true;
        }
        Tail& tail = slot.tail;
        if (size <= Tail::inline_size)
            t.view.read(t.done, tail.payload, size);
        tail.signature = first_->signature;
        tail.length = static_cast<std::uint32_t>(size);
        tail.op = now_;
        tail.number = message;
        if (put_bytes(lane, &tail, offset + offsetof(Slot, tail), sizeof(tail)) != vcq::Post::done)
            return false;
        lane.half = false;
        lane.sent = message;
        t.done += size;
        t.over = t.done == bytes;
        moved = true;
    }
    return true;
}

/// The next message of the lane, without those of operations that have ended here: at most as many as there are slots
/// are dropped in a call, for a peer that goes on sending them is not to hold us.
Group::Head Group::head(Lane& lane, Tail& tail) noexcept
{
    const std::uint32_t now = now_;
    for (unsigned dropped = 0; dropped < slots && now == now_; dropped++) { // else the peer was found dead
        const std::uint32_t message = lane.taken + 1;
        Tail& at = area(lane).slot[message % slots].tail;
        // Acquire: the rest was put before. Partner: the sender's put in strong order.
        if (std::atomic_ref(at.number).load(std::memory_order_acquire) != message)
            return Head::none;
        std::memcpy(&tail, &at, sizeof(tail));
        if (static_cast<std::int32_t>(tail.op - now_) >= 0)
            return Head::there;
        take(lane);
    }
    return Head::later;
}

void Group::take(Lane& lane) noexcept
{
    lane.taken++;
    if (lane.taken % (slots / 2) != 0)
        return;
    lane.owes_taken = true;
    if (!pay(lane))
        owes_ = true;
}

/// Takes as many chunks as are there. True: all of them.
bool Group::receive_some(Transfer& t, bool& moved) noexcept
{
    Lane& lane = lanes_[t.lane];
    const std::size_t bytes = t.view.bytes();
    const Transfer* const before = t.behind == Transfer::none ? nullptr : &round_.send[t.behind];
    while (!t.over) {
        if (before != nullptr && !before->over && before->done <= t.done)
            return false;
        Tail tail;
        const Head found = head(lane, tail);
        if (found != Head::there) {
            // The word first, then the lane once more: its last message was put before the word.
            if (found == Head::none && in_vain_ != 0 && passed_by(lane) && head(lane, tail) == Head::none)
                fail(FI_EINVAL, UTOFU_ERR_BARRIER_MISMATCH);
            return false;
        }
        const std::size_t size = std::min(chunk, bytes - t.done);
        if (tail.op != now_ || tail.signature != first_->signature || tail.length != size) {
            fail(FI_EINVAL, UTOFU_ERR_BARRIER_MISMATCH);
            return false;
        }
        const Slot& slot = area(lane).slot[(lane.taken + 1) % slots];
        const std::byte* const payload = size > Tail::inline_size ? slot.payload : tail.payload;
        if (t.take == Take::copy) {
            t.view.write(t.done, payload, size);
        } else {
            alignas(32) std::byte theirs[chunk];
            std::memcpy(theirs, payload, size);
            first_->plan.combine(t.view.base + t.done, theirs, size, t.take);
        }
        t.done += size;
        t.over = t.done == bytes;
        moved = true;
        const std::uint32_t now = now_;
        take(lane);
        if (now != now_)
            return false; // the peer was found dead
    }
    return true;
}

} // namespace tofu::coll
