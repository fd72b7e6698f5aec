// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See plan.h. Every collective ends in a round before which each member has heard, at first or second hand, from every
// other: none completes before all have called (fi_collective(3)). Where the data do not see to that, a barrier follows.
#include "plan/plan.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include <rdma/fi_errno.h>

#include "kernel/table.h"
#include "memory/directory.h"
#include "plan/support.h"

namespace tofu::coll {

namespace {
/// Reductions of vectors longer than this go round a ring: each byte then travels twice, not once for each doubling.
constexpr std::size_t doubling_limit = 16384;
/// Shorter slices are not worth as many rounds as there are members.
constexpr std::size_t ring_slice = 1024;
/// Memory of our own that relays of gather, scatter and all to all take at most, where the group is not very large.
constexpr std::size_t relay_limit = std::size_t{1} << 20;

View flat(std::byte* at, std::size_t bytes) noexcept { return {at, 0, bytes}; }

/// Of a subtree's blocks those of the child at distance 2^k; none where there is no child.
View below(const View& all, unsigned k) noexcept
{
    const std::uint64_t child = std::uint64_t{1} << k;
    View view = all;
    view.first = static_cast<unsigned>((all.first + child) % all.ring);
    view.count = child < all.count ? static_cast<unsigned>(std::min<std::uint64_t>(child, all.count - child)) : 0;
    return view;
}
} // namespace

// --- views

std::size_t View::block(unsigned i) const noexcept
{
    if (bit >= 0) {
        const unsigned low = i & ((1u << bit) - 1);
        return std::size_t{i - low} * 2 + (std::size_t{1} << bit) + low;
    }
    return (std::size_t{first} + i) % ring;
}

template <class Visit>
void View::each(std::size_t at, std::size_t size, Visit&& visit) const noexcept
{
    for (std::size_t done = 0; done < size;) {
        const std::size_t offset = at % piece;
        const std::size_t take = std::min(size - done, piece - offset);
        visit(base + block(static_cast<unsigned>(at / piece)) * stride + offset, done, take);
        done += take;
        at += take;
    }
}

void View::read(std::size_t at, void* to, std::size_t size) const noexcept
{
    each(at, size, [&](const std::byte* here, std::size_t done, std::size_t take) {
        std::memcpy(static_cast<std::byte*>(to) + done, here, take);
    });
}

void View::write(std::size_t at, const void* from, std::size_t size) const noexcept
{
    each(at, size, [&](std::byte* here, std::size_t done, std::size_t take) {
        std::memcpy(here, static_cast<const std::byte*>(from) + done, take);
    });
}

// --- what is common

std::uint32_t signature_of(const Shape& s) noexcept
{
    std::uint64_t all = directory::mix(static_cast<std::uint64_t>(s.coll) + 1);
    for (const std::uint64_t word : {static_cast<std::uint64_t>(s.type), static_cast<std::uint64_t>(s.op),
                                     std::uint64_t{s.count}, std::uint64_t{s.root}})
        all = directory::mix(all ^ (word + 0x632be59bd9b4e019u));
    return (static_cast<std::uint32_t>(all) & 0x7fffffff) | 1;
}

void Standing::count_from(unsigned root) noexcept
{
    turned = (rank + members - root) % members;
    reach = is_root() ? bits : static_cast<unsigned>(std::countr_zero(turned));
    subtree = static_cast<unsigned>(std::min<std::uint64_t>(std::uint64_t{1} << reach, members - turned));
}

void Round::add_send(unsigned lane, const View& view) noexcept
{
    send[sends++] = {.view = view, .lane = static_cast<std::uint8_t>(lane)};
}

void Round::add_receive(unsigned lane, const View& view, Take take, std::uint8_t behind) noexcept
{
    receive[receives++] = {.view = view, .lane = static_cast<std::uint8_t>(lane), .take = take, .behind = behind};
}

void Plan::combine(std::byte* mine, std::byte* theirs, std::size_t bytes, Take take) const noexcept
{
    if (take == Take::left) {
        kernel_(mine, theirs, nullptr, bytes / size_);
    } else {
        kernel_(theirs, mine, nullptr, bytes / size_);
        std::memcpy(mine, theirs, bytes);
    }
}

bool Plan::make_own(std::size_t bytes) noexcept
{
    if (bytes == 0)
        return true;
    own_.reset(new (std::nothrow) std::byte[bytes]);
    work_ = own_.get();
    return own_ != nullptr;
}

int Plan::open(const Shape& shape, unsigned rank, unsigned members, const void* in, void* out) noexcept
{
    shape_ = shape;
    self_ = {rank, members, bits_of(members)};
    in_ = static_cast<std::byte*>(const_cast<void*>(in)); // views write to what is received only
    out_ = static_cast<std::byte*>(out);
    work_ = out_;
    own_.reset();
    step_ = 0;
    at_ = 0;
    if (shape.coll == FI_BARRIER || shape.count == 0) {
        way_ = &Plan::barrier;
        return 0;
    }
    size_ = datatypes[shape.type].size;
    bytes_ = shape.count * size_;
    kernel_ = reduces(shape.coll) ? kernel_of(shape.op, shape.type) : nullptr;
    self_.count_from(shape.root);
    // Relays hold pieces of as many blocks as there are members below them; chunks of a segment follow each other.
    segment_ = std::min(bytes_, std::max(relay_limit / members / chunk * chunk, chunk));
    bool have = true;
    switch (shape.coll) {
    case FI_BROADCAST:
        way_ = &Plan::broadcast;
        segment_ = std::min(bytes_, chunk);
        break;
    case FI_REDUCE:
        way_ = &Plan::reduce;
        segment_ = std::min(bytes_, chunk);
        have = self_.is_root() || make_own(segment_);
        break;
    case FI_ALLREDUCE:
        way_ = bytes_ > doubling_limit && bytes_ / members >= ring_slice ? &Plan::ring : &Plan::doubling;
        std::memmove(out_, in_, bytes_);
        break;
    case FI_REDUCE_SCATTER:
        way_ = bytes_ * members > doubling_limit && bytes_ >= ring_slice ? &Plan::ring : &Plan::doubling;
        have = make_own(bytes_ * members);
        if (have)
            std::memcpy(work_, in_, bytes_ * members);
        break;
    case FI_ALLGATHER:
        way_ = &Plan::allgather;
        std::memmove(out_ + rank * bytes_, in_, bytes_);
        break;
    case FI_GATHER:
    case FI_SCATTER:
        way_ = shape.coll == FI_GATHER ? &Plan::gather : &Plan::scatter;
        have = self_.is_root() || make_own(segment_ * self_.subtree);
        break;
    case FI_ALLTOALL:
        way_ = &Plan::alltoall;
        have = make_own(segment_ * members);
        break;
    default: break;
    }
    return have ? 0 : -FI_ENOMEM;
}

bool Plan::next(Round& round) noexcept
{
    do {
        round.sends = round.receives = 0;
        if (!(this->*way_)(round))
            return false;
    } while (round.sends + round.receives == 0);
    return true;
}

/// To the next piece of the blocks. False: that was the last one.
bool Plan::next_segment() noexcept
{
    step_ = 0;
    at_ += segment_;
    if (at_ >= bytes_)
        return false;
    segment_ = std::min(segment_, bytes_ - at_);
    return true;
}

/// The data have gone one way; nobody completes before all have called.
bool Plan::confirm(Round& round) noexcept
{
    way_ = &Plan::barrier;
    step_ = 0;
    return barrier(round);
}

// --- the collectives: each call fills in round number step_, or none

/// Dissemination: after round k a member has heard from the 2^(k + 1) - 1 below it.
bool Plan::barrier(Round& round) noexcept
{
    if (step_ == self_.bits)
        return false;
    round.add_send(up(step_), {});
    round.add_receive(down(step_), {});
    step_++;
    return true;
}

/// Down a binomial tree, chunk behind chunk.
bool Plan::broadcast(Round& round) noexcept
{
    if (step_ == 2 && !next_segment())
        return confirm(round);
    const View view = flat(out_ + at_, segment_);
    if (step_++ == 0) {
        if (!self_.is_root())
            round.add_receive(down(self_.reach), view);
        return true;
    }
    for (unsigned k = self_.reach; k-- > 0;)
        if (self_.has_child(k))
            round.add_send(up(k), view);
    return true;
}

/// Up the same tree. The order of the sum: own, then the children's from the nearest on.
bool Plan::reduce(Round& round) noexcept
{
    if (step_ == self_.bits + 1 && !next_segment())
        return confirm(round);
    std::byte* const mine = self_.is_root() ? out_ + at_ : work_;
    if (step_ == 0 && mine != in_ + at_)
        std::memcpy(mine, in_ + at_, segment_);
    const unsigned k = step_++;
    const View view = flat(mine, segment_);
    if (k < self_.reach && self_.has_child(k))
        round.add_receive(up(k), view, Take::left);
    else if (k == self_.bits && !self_.is_root())
        round.add_send(down(self_.reach), view);
    return true;
}

/// Recursive doubling among the first 2^m members; each further one lends its operand to the one 2^m below. Both of a
/// pair compute lower op upper, so that all have the same bits.
bool Plan::doubling(Round& round) noexcept
{
    const bool slices = shape_.coll == FI_REDUCE_SCATTER;
    const View view = flat(work_, slices ? bytes_ * self_.members : bytes_);
    const auto m = static_cast<unsigned>(std::bit_width(self_.members)) - 1;
    const unsigned whole = 1u << m;
    const bool extra = self_.rank >= whole;
    const bool helps = self_.rank + whole < self_.members;
    const unsigned step = step_++;
    if (step == 0) {
        if (extra)
            round.add_send(down(m), view);
        else if (helps)
            round.add_receive(up(m), view, Take::left);
    } else if (step <= m) {
        const unsigned k = step - 1;
        if (!extra) {
            const bool upper = (self_.rank >> k & 1) != 0;
            const unsigned lane = upper ? down(k) : up(k);
            round.add_send(lane, view);
            round.add_receive(lane, view, upper ? Take::right : Take::left, 0);
        }
    } else if (step == m + 1) {
        if (extra)
            round.add_receive(down(m), view);
        else if (helps)
            round.add_send(up(m), view);
    } else {
        if (slices)
            std::memcpy(out_, work_ + self_.rank * bytes_, bytes_);
        return false;
    }
    return true;
}

/// A member's slice of the vector.
View Plan::part(unsigned block) const noexcept
{
    if (shape_.coll == FI_REDUCE_SCATTER)
        return flat(work_ + block * bytes_, bytes_);
    const std::size_t each = shape_.count / self_.members;
    const std::size_t longer = shape_.count % self_.members; // by an element: so many, the first ones
    return flat(work_ + (block * each + std::min<std::size_t>(block, longer)) * size_, (each + (block < longer)) * size_);
}

/// Slices go upwards round the ring: n - 1 rounds add to them, and for an allreduce n - 1 more tell the sums. Slice b
/// is summed from member b + 1 on, and ends at member b.
bool Plan::ring(Round& round) noexcept
{
    const unsigned step = step_++;
    const auto slice = [&](unsigned back) { return part((self_.rank + 2 * self_.members - back) % self_.members); };
    if (step < self_.members - 1) {
        round.add_send(up(0), slice(step + 1));
        round.add_receive(down(0), slice(step + 2), Take::right);
        return true;
    }
    if (shape_.coll == FI_REDUCE_SCATTER) {
        std::memcpy(out_, work_ + self_.rank * bytes_, bytes_);
        return false;
    }
    const unsigned told = step - (self_.members - 1);
    if (told == self_.members - 1)
        return false;
    round.add_send(up(0), slice(told));
    round.add_receive(down(0), slice(told + 1));
    return true;
}

/// Doubling: in round k a member has the blocks of 2^k, from its own on, and gets those of the next 2^k (Bruck).
bool Plan::allgather(Round& round) noexcept
{
    if (step_ == self_.bits)
        return false;
    const unsigned k = step_++;
    const unsigned have = 1u << k;
    const unsigned some = std::min(have, self_.members - have);
    round.add_send(down(k), {out_, bytes_, bytes_, self_.rank, some, self_.members});
    round.add_receive(up(k), {out_, bytes_, bytes_, (self_.rank + have) % self_.members, some, self_.members});
    return true;
}

/// A piece of each block of this member's subtree; `whole` is the root's array of blocks.
View Plan::subtree(std::byte* whole) const noexcept
{
    const bool root = self_.is_root();
    return {root ? whole + at_ : work_, root ? bytes_ : segment_, segment_, root ? self_.rank : 0, self_.subtree,
            root ? self_.members : self_.subtree};
}

/// Up the tree, a piece of each block at a time.
bool Plan::gather(Round& round) noexcept
{
    if (step_ == 2 && !next_segment())
        return confirm(round);
    const View all = subtree(out_);
    if (step_++ == 0) {
        std::byte* const mine = all.base + all.first * all.stride;
        if (mine != in_ + at_)
            std::memcpy(mine, in_ + at_, segment_);
        for (unsigned k = 0; k < self_.reach; k++)
            if (const View view = below(all, k); view.count != 0)
                round.add_receive(up(k), view);
    } else if (!self_.is_root()) {
        round.add_send(down(self_.reach), all);
    }
    return true;
}

/// Down the tree likewise.
bool Plan::scatter(Round& round) noexcept
{
    if (step_ == 2 && !next_segment())
        return confirm(round);
    const View all = subtree(in_);
    if (step_++ == 0) {
        if (!self_.is_root())
            round.add_receive(down(self_.reach), all);
        return true;
    }
    const std::byte* const mine = all.base + all.first * all.stride;
    if (out_ + at_ != mine)
        std::memcpy(out_ + at_, mine, segment_);
    for (unsigned k = self_.reach; k-- > 0;)
        if (const View view = below(all, k); view.count != 0)
            round.add_send(up(k), view);
    return true;
}

/// Bruck: a block for the member d above goes by the bits of d.
bool Plan::alltoall(Round& round) noexcept
{
    if (step_ == 0)
        for (unsigned i = 0; i < self_.members; i++)
            std::memcpy(work_ + i * segment_, in_ + (self_.rank + i) % self_.members * bytes_ + at_, segment_);
    if (step_ == self_.bits) {
        for (unsigned i = 0; i < self_.members; i++)
            std::memcpy(out_ + (self_.rank + self_.members - i) % self_.members * bytes_ + at_, work_ + i * segment_, segment_);
        return next_segment(); // with an empty round
    }
    const unsigned k = step_++;
    unsigned some = 0; // blocks whose number has the bit
    for (unsigned i = 0; i < self_.members; i++)
        some += i >> k & 1;
    const View view{work_, segment_, segment_, 0, some, self_.members, static_cast<int>(k)};
    round.add_send(up(k), view);
    round.add_receive(down(k), view, Take::copy, 0);
    return true;
}

} // namespace tofu::coll
