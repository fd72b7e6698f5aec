// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See lanes.h.
#include "coll/lanes.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <new>
#include <utility>

#include <rdma/fi_errno.h>

#include "core/log.h"
#include "core/system.h"
#include "cq/domain_base.h"
#include "tx/tx_context.h"

namespace tofu::coll {

std::uint64_t clock_ms() noexcept
{
    using std::chrono::milliseconds;
    return static_cast<std::uint64_t>(std::chrono::duration_cast<milliseconds>(Clock::now().time_since_epoch()).count());
}

// --- memory

int LaneMemory::open(unsigned lanes) noexcept
{
    slab_ = OwnMemory(lanes * sizeof(LaneArea));
    staging_ = OwnMemory(lanes * slots * sizeof(Slot));
    if (!slab_ || !staging_)
        return -FI_ENOMEM;
    std::memset(slab_.get(), 0, slab_.size());
    std::memset(staging_.get(), 0, staging_.size());
    const int ret = tx_.domain().doors().open(key_, slab_, slab_stadd_);
    door_open_ = ret == 0;
    return ret;
}

int LaneMemory::register_local() noexcept
{
    if (!staging_)
        return 0;
    const int ret = tx_.vcq().reg(staging_.get(), staging_.size(), false, staging_stadd_);
    staging_registered_ = ret == 0;
    return ret;
}

void LaneMemory::deregister_local() noexcept
{
    if (std::exchange(staging_registered_, false))
        tx_.vcq().dereg(staging_stadd_);
}

void LaneMemory::shut_door(bool given_up) noexcept
{
    if (std::exchange(door_open_, false))
        tx_.domain().doors().shut(key_, given_up);
}

void LaneMemory::bury(vcq::Gates& gates, bool quiet) noexcept
{
    if (slab_)
        tx_.domain().doors().release(std::move(slab_), slab_stadd_, gates, quiet);
}

// --- posts

bool Lanes::open(const Roster& roster) noexcept
{
    const unsigned count = 2 * bits_of(roster.size());
    lanes_.reset(new (std::nothrow) Lane[count]);
    if (!lanes_)
        return false;
    count_ = count;
    for (unsigned i = 0; i < count_; i++) {
        Lane& lane = lanes_[i];
        lane.lanes = this;
        lane.number = static_cast<std::uint8_t>(i);
        lane.peer = roster.members[member_at(i, roster.rank, roster.size())];
        lane.notify = on_put;
    }
    return true;
}

vcq::Post Lanes::posted(Lane& lane, vcq::Post post) noexcept
{
    in_flight_ += post == vcq::Post::done;
    if (post == vcq::Post::error)
        lose(lane, fi_error_of(tx_.vcq().last_error()), tx_.vcq().last_error());
    return post;
}

vcq::Post Lanes::get(Lane& lane, vcq::Waiter& waiter, utofu_stadd_t from, std::size_t size) noexcept
{
    // Nothing is sent yet: what is read lands in the first slot.
    return posted(lane, tx_.vcq().get(lane.peer.home, memory_.staged_stadd(lane.number, 0), from, size,
                                      {.when = vcq::When::delivered, .waiter = &waiter}));
}

vcq::Post Lanes::put_bytes(Lane& lane, const void* from, std::size_t offset, std::size_t size) noexcept
{
    return posted(lane, tx_.vcq().put_inline(lane.peer.home, from, lane.remote + offset, size,
                                             {.when = vcq::When::delivered, .strong_order = true, .waiter = &lane}));
}

void Lanes::on_put(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept
{
    Lane& lane = *static_cast<Lane*>(waiter);
    Lanes& lanes = *lane.lanes;
    lanes.in_flight_--;
    // Of a group that is closed the slab may have gone before the last notice (Endpoint::bury).
    if (notice.code == UTOFU_SUCCESS || lane.step == Lane::Step::lost || lanes.memory_.buried()) [[likely]]
        return;
    // A member that has left behind what is under way has given its memory back.
    if (kind_of(lanes.area(lane).said()) == Word::left && lanes.passed_by(lane))
        lane.step = Lane::Step::lost;
    else
        lanes.lose(lane, fi_error_of(notice.code), notice.code);
}

void Lanes::lose(Lane& lane, int err, int prov_errno) noexcept
{
    lane.step = Lane::Step::lost;
    losses_.lost(err, prov_errno);
}

void Lanes::found(Lane& lane, utofu_stadd_t remote) noexcept
{
    lane.remote = remote;
    lane.step = Lane::Step::known;
    lane.owes_word = lane.own_word != 0;
    owes_ |= lane.owes_word;
}

// --- words and counts

/// Tells the peer what it is to be told, as far as there is room. False: later.
bool Lanes::pay(Lane& lane) noexcept
{
    if (lane.step != Lane::Step::known) {
        lane.owes_word = lane.owes_taken = false; // nobody there to be told, or not yet (found())
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

void Lanes::pay_all() noexcept
{
    owes_ = false;
    for (Lane& lane : all())
        if ((lane.owes_taken || lane.owes_word) && !pay(lane))
            owes_ = true;
}

void Lanes::tell(std::uint64_t word) noexcept
{
    for (Lane& lane : all()) {
        lane.own_word = word;
        lane.owes_word = true;
    }
    pay_all();
}

/// A member that is dead says so by the error of a put. One that waits in another operation may wait for us as we for
/// it, without a message that would tell.
void Lanes::probe(std::uint32_t signature) noexcept
{
    const std::uint64_t mine = std::uint64_t{now_} << 32 | signature;
    for (Lane& lane : all())
        if (lane.step == Lane::Step::known)
            (void)put_bytes(lane, &mine, offsetof(LaneArea, probe), sizeof(mine));
}

bool Lanes::passed_by(const Lane& lane) const noexcept
{
    const std::uint64_t word = area(lane).said();
    return kind_of(word) != Word::none && static_cast<std::int32_t>(op_of(word) - now_) > 0;
}

// --- messages

/// None where the peer's count is one that can't be.
bool Lanes::has_room(const Lane& lane) const noexcept
{
    return lane.sent - area(lane).returned() < slots;
}

vcq::Post Lanes::send(Lane& lane, const View& view, std::size_t at, std::size_t size, std::uint32_t signature) noexcept
{
    const std::uint32_t message = lane.sent + 1;
    const std::size_t offset = offsetof(LaneArea, slot) + message % slots * sizeof(Slot);
    Slot& slot = memory_.staged(lane.number, message);
    if (size <= Tail::inline_size) {
        view.read(at, slot.tail.payload, size);
    } else if (!lane.half) {
        view.read(at, slot.payload, size);
        const vcq::Post post =
            posted(lane, tx_.vcq().put(lane.peer.home, memory_.staged_stadd(lane.number, message), lane.remote + offset, size,
                                       {.when = vcq::When::delivered, .strong_order = true, .waiter = &lane}));
        if (post != vcq::Post::done)
            return post;
        lane.half = true;
    }
    slot.tail.signature = signature;
    slot.tail.length = static_cast<std::uint32_t>(size);
    slot.tail.op = now_;
    slot.tail.number = message;
    const vcq::Post post = put_bytes(lane, &slot.tail, offset + offsetof(Slot, tail), sizeof(Tail));
    if (post == vcq::Post::done) {
        lane.half = false;
        lane.sent = message;
    }
    return post;
}

/// The next message of the lane, without those of operations that have ended here: at most as many as there are slots
/// are dropped in a call, for a peer that goes on sending them is not to hold us.
Lanes::Head Lanes::head(Lane& lane, Tail& tail) noexcept
{
    for (unsigned dropped = 0; dropped < slots; dropped++) {
        const std::uint32_t message = lane.taken + 1;
        Tail& at = area(lane).slot[message % slots].tail;
        // Acquire: the rest was put before. Partner: the sender's put in strong order.
        if (std::atomic_ref(at.number).load(std::memory_order_acquire) != message)
            return Head::none;
        std::memcpy(&tail, &at, sizeof(tail));
        if (static_cast<std::int32_t>(tail.op - now_) >= 0)
            return Head::there;
        if (!take(lane))
            return Head::later;
    }
    return Head::later;
}

bool Lanes::take(Lane& lane) noexcept
{
    lane.taken++;
    if (lane.taken % schedule::messages_per_credit != 0)
        return true;
    const Lane::Step before = lane.step;
    lane.owes_taken = true;
    if (!pay(lane))
        owes_ = true;
    return lane.step == before;
}

} // namespace tofu::coll
