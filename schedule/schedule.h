// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The rounds of each collective of the provider in software: which member sends which bytes to which other one, and how
// it uses what arrives. Pure: it knows ranks and sizes, neither memory nor a network.
//
// Each collective ends in a round before which every member has heard, directly or indirectly, from every other one:
// none completes before all have called (fi_collective(3)). Where the data do not ensure that, a barrier follows.
#pragma once

#include "schedule/blocks.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace tofu::schedule {

// --- lanes

/// A member has lanes to the members at rank ± 2^k (modulo the group): number 2k upwards, 2k + 1 downwards.
inline constexpr unsigned max_bits = 20;
constexpr unsigned up(unsigned bit) noexcept
{
    return 2 * bit;
}
constexpr unsigned down(unsigned bit) noexcept
{
    return 2 * bit + 1;
}
/// The number of a lane at its other end.
constexpr unsigned mirror(unsigned lane) noexcept
{
    return lane ^ 1;
}
/// The number of distances in a group of `n`: the least `bits` with 2^bits >= n.
constexpr unsigned bits_of(unsigned n) noexcept
{
    unsigned bits = 0;
    while ((std::uint64_t{1} << bits) < n)
        bits++;
    return bits;
}
constexpr unsigned member_at(unsigned lane, unsigned rank, unsigned n) noexcept
{
    const std::uint64_t distance = std::uint64_t{1} << lane / 2;
    return static_cast<unsigned>((rank + (lane % 2 == 0 ? distance : n - distance % n)) % n);
}

/// A transfer goes in messages, each into one of the receiver's slots for the lane. A message is two Puts, payload and
/// tail, or the tail alone if the payload fits into it. An empty transfer is one message, too.
inline constexpr unsigned slots = 4;
/// The receiver reports the number of messages that it has taken, after each two.
inline constexpr unsigned messages_per_credit = slots / 2;
inline constexpr std::size_t slot_bytes = 4096;
inline constexpr std::size_t tail_bytes = 32;
inline constexpr std::size_t payload_in_tail = 16;
/// The payload of one message, a multiple of every datatype's size.
inline constexpr std::size_t chunk = slot_bytes - tail_bytes;
static_assert(chunk % 32 == 0);

// --- the choice between algorithms

/// Reductions of vectors longer than this go round a ring: each byte then travels twice, not once for each doubling.
inline constexpr std::size_t doubling_limit = 16384;
/// Shorter slices are not worth as many rounds as there are members.
inline constexpr std::size_t ring_slice = 1024;
/// Own memory that relays of gather, scatter and all-to-all take at most, where the group is not very large.
inline constexpr std::size_t relay_limit = std::size_t{1} << 20;

enum class Kind : std::uint8_t {
    barrier,
    broadcast,
    reduce,
    allreduce,
    reduce_scatter,
    allgather,
    gather,
    scatter,
    alltoall
};

/// Of a reduction to all members: by size, as the provider does it, or one of the two.
enum class Choice : std::uint8_t { by_size, doubling, ring };

struct Call {
    Kind kind = Kind::barrier;
    std::size_t count = 0;   ///< elements of a block, which one member contributes or gets
    std::size_t element = 1; ///< bytes
    unsigned root = 0;
    Choice choice = Choice::by_size;
};

/// The place of a member in its group, and in the binomial tree of the root, whose children are at distances 2^k.
struct TreePosition {
    unsigned rank = 0;
    unsigned members = 1;
    unsigned bits = 0;    ///< number of distances in the group
    unsigned turned = 0;  ///< rank counted from the root
    unsigned reach = 0;   ///< number of distances to children; the parent, if any, is at the next one
    unsigned subtree = 1; ///< number of members at and below this one

    constexpr TreePosition() noexcept = default;
    constexpr TreePosition(unsigned self, unsigned n, unsigned root) noexcept
        : rank(self), members(n), bits(bits_of(n)), turned((self + n - root) % n)
    {
        reach = is_root() ? bits : static_cast<unsigned>(std::countr_zero(turned));
        subtree = static_cast<unsigned>(std::min<std::uint64_t>(std::uint64_t{1} << reach, members - turned));
    }
    [[nodiscard]] constexpr bool is_root() const noexcept { return turned == 0; }
    [[nodiscard]] constexpr bool has_child(unsigned k) const noexcept
    {
        return turned + (std::uint64_t{1} << k) < members;
    }
};

/// One collective of one member, round by round. A Sink gets a round in this order:
///     copy(from, to)                       within the member, at once
///     send(lane, blocks)
///     receive(lane, blocks, take, behind)  `behind`: the send of this round, by its number, that reads the same memory
///                                          and goes before it message by message; or no_send
/// The transfers of a round go on side by side. The next round begins when all are over: data to send has been read,
/// received data has been stored.
class Schedule {
  public:
    Schedule() noexcept = default;
    Schedule(const Call& call, unsigned rank, unsigned members) noexcept
        : self_(rank, members, call.root), count_(call.count), size_(call.element), bytes_(call.count * call.element)
    {
        if (call.kind == Kind::barrier || bytes_ == 0) {
            kind_ = Kind::barrier;
            return;
        }
        kind_ = call.kind;
        const bool tree = kind_ == Kind::broadcast || kind_ == Kind::reduce;
        // Relays hold pieces of as many blocks as there are members below them; messages of a segment follow each
        // other.
        segment_ = std::min(bytes_, tree ? chunk : std::max(relay_limit / members / chunk * chunk, chunk));
        const std::size_t vector = kind_ == Kind::reduce_scatter ? bytes_ * members : bytes_;
        ring_ = call.choice == Choice::ring ||
                (call.choice == Choice::by_size && vector > doubling_limit && vector / members >= ring_slice);
        ring_ = ring_ && (kind_ == Kind::allreduce || kind_ == Kind::reduce_scatter);
    }

    /// The size of Buffer::own.
    [[nodiscard]] std::size_t own_bytes() const noexcept
    {
        switch (kind_) {
        case Kind::reduce: return self_.is_root() ? 0 : segment_;
        case Kind::reduce_scatter: return bytes_ * self_.members;
        case Kind::gather:
        case Kind::scatter: return self_.is_root() ? 0 : segment_ * self_.subtree;
        case Kind::alltoall: return segment_ * self_.members;
        case Kind::barrier:
        case Kind::broadcast:
        case Kind::allreduce:
        case Kind::allgather: break;
        }
        return 0;
    }

    /// A reduction to all members whose slices pass around a ring.
    [[nodiscard]] bool goes_round_a_ring() const noexcept { return ring_; }

    /// The next round with a transfer, and the copies before it. False: the collective is over.
    template <class Sink>
    [[nodiscard]] bool next(Sink& sink) noexcept
    {
        for (sends_ = receives_ = 0; sends_ + receives_ == 0;)
            if (!step(sink))
                return false;
        return true;
    }

  private:
    template <class Sink>
    bool step(Sink& sink) noexcept
    {
        switch (kind_) {
        case Kind::barrier: return barrier(sink);
        case Kind::broadcast: return broadcast(sink);
        case Kind::reduce: return reduce(sink);
        case Kind::allreduce:
        case Kind::reduce_scatter: return ring_ ? ring(sink) : doubling(sink);
        case Kind::allgather: return allgather(sink);
        case Kind::gather: return gather(sink);
        case Kind::scatter: return scatter(sink);
        case Kind::alltoall: return alltoall(sink);
        }
        return false;
    }

    template <class Sink>
    void send(Sink& sink, unsigned lane, const Blocks& blocks) noexcept
    {
        sends_++;
        sink.send(lane, blocks);
    }
    template <class Sink>
    void receive(Sink& sink, unsigned lane, const Blocks& blocks, Take take = Take::copy,
                 unsigned behind = no_send) noexcept
    {
        receives_++;
        sink.receive(lane, blocks, take, behind);
    }

    /// To the next piece of the blocks. False: that was the last one.
    bool next_segment() noexcept
    {
        step_ = 0;
        at_ += segment_;
        if (at_ >= bytes_)
            return false;
        segment_ = std::min(segment_, bytes_ - at_);
        return true;
    }

    /// The data have gone one way; none completes before all have called.
    template <class Sink>
    bool confirm(Sink& sink) noexcept
    {
        kind_ = Kind::barrier;
        step_ = 0;
        return barrier(sink);
    }

    /// Dissemination: after round k a member has heard from the 2^(k + 1) - 1 below it.
    template <class Sink>
    bool barrier(Sink& sink) noexcept
    {
        if (step_ == self_.bits)
            return false;
        send(sink, up(step_), nothing);
        receive(sink, down(step_), nothing);
        step_++;
        return true;
    }

    /// Down a binomial tree, message behind message.
    template <class Sink>
    bool broadcast(Sink& sink) noexcept
    {
        if (step_ == 2 && !next_segment())
            return confirm(sink);
        const Blocks piece = flat(Buffer::out, at_, segment_);
        if (step_++ == 0) {
            if (!self_.is_root())
                receive(sink, down(self_.reach), piece);
            return true;
        }
        for (unsigned k = self_.reach; k-- > 0;)
            if (self_.has_child(k))
                send(sink, up(k), piece);
        return true;
    }

    /// Up the same tree. The order of the sum: own, then the children's from the nearest on.
    template <class Sink>
    bool reduce(Sink& sink) noexcept
    {
        if (step_ == self_.bits + 1 && !next_segment())
            return confirm(sink);
        const Blocks mine = self_.is_root() ? flat(Buffer::out, at_, segment_) : flat(Buffer::own, 0, segment_);
        if (step_ == 0)
            sink.copy(flat(Buffer::in, at_, segment_), mine);
        const unsigned k = step_++;
        if (k < self_.reach && self_.has_child(k))
            receive(sink, up(k), mine, Take::left);
        else if (k == self_.bits && !self_.is_root())
            send(sink, down(self_.reach), mine);
        return true;
    }

    /// The vector that a reduction to all members works in.
    [[nodiscard]] Blocks vector() const noexcept
    {
        return kind_ == Kind::reduce_scatter ? flat(Buffer::own, 0, bytes_ * self_.members)
                                             : flat(Buffer::out, 0, bytes_);
    }
    template <class Sink>
    void begin_vector(Sink& sink) noexcept
    {
        const Blocks all = vector();
        sink.copy(flat(Buffer::in, 0, all.bytes()), all);
    }
    /// False, as at the end of a collective.
    template <class Sink>
    bool end_vector(Sink& sink) noexcept
    {
        if (kind_ == Kind::reduce_scatter)
            sink.copy(flat(Buffer::own, self_.rank * bytes_, bytes_), flat(Buffer::out, 0, bytes_));
        return false;
    }

    /// Recursive doubling among the first 2^m members; each further one lends its operand to the one 2^m below. Both of
    /// a pair compute lower op upper, so that all have the same bits.
    template <class Sink>
    bool doubling(Sink& sink) noexcept
    {
        const auto m = static_cast<unsigned>(std::bit_width(self_.members)) - 1;
        const unsigned whole = 1u << m;
        const bool extra = self_.rank >= whole;
        const bool helps = self_.rank + std::uint64_t{whole} < self_.members;
        const unsigned now = step_++;
        if (now == 0) {
            begin_vector(sink);
            if (extra)
                send(sink, down(m), vector());
            else if (helps)
                receive(sink, up(m), vector(), Take::left);
        } else if (now <= m) {
            const unsigned k = now - 1;
            if (!extra) {
                const bool upper = (self_.rank >> k & 1) != 0;
                const unsigned lane = upper ? down(k) : up(k);
                send(sink, lane, vector());
                receive(sink, lane, vector(), upper ? Take::right : Take::left, 0);
            }
        } else if (now == m + 1) {
            if (extra)
                receive(sink, down(m), vector());
            else if (helps)
                send(sink, up(m), vector());
        } else {
            return end_vector(sink);
        }
        return true;
    }

    /// A member's slice of the vector.
    [[nodiscard]] Blocks part(unsigned block) const noexcept
    {
        if (kind_ == Kind::reduce_scatter)
            return flat(Buffer::own, block * bytes_, bytes_);
        const std::size_t each = count_ / self_.members;
        const std::size_t longer = count_ % self_.members; // so many slices, the first ones, have an element more
        return flat(Buffer::out, (block * each + std::min<std::size_t>(block, longer)) * size_,
                    (each + (block < longer)) * size_);
    }

    /// Slices go upwards round the ring: n - 1 rounds add to them, and for an allreduce n - 1 more distribute the sums.
    /// Slice b is summed from member b + 1 on, and ends at member b.
    template <class Sink>
    bool ring(Sink& sink) noexcept
    {
        const unsigned now = step_++;
        const auto slice = [&](unsigned back) {
            return part(static_cast<unsigned>((self_.rank + std::uint64_t{2} * self_.members - back) % self_.members));
        };
        if (now == 0)
            begin_vector(sink);
        if (now < self_.members - 1) {
            send(sink, up(0), slice(now + 1));
            receive(sink, down(0), slice(now + 2), Take::right);
            return true;
        }
        const unsigned told = now - (self_.members - 1);
        if (kind_ == Kind::reduce_scatter || told == self_.members - 1)
            return end_vector(sink);
        send(sink, up(0), slice(told));
        receive(sink, down(0), slice(told + 1));
        return true;
    }

    /// Doubling: in round k a member has the blocks of 2^k, from its own on, and gets those of the next 2^k (Bruck).
    template <class Sink>
    bool allgather(Sink& sink) noexcept
    {
        if (step_ == 0)
            sink.copy(flat(Buffer::in, 0, bytes_), flat(Buffer::out, self_.rank * bytes_, bytes_));
        if (step_ == self_.bits)
            return false;
        const unsigned k = step_++;
        const unsigned have = 1u << k;
        const unsigned some = std::min(have, self_.members - have);
        const auto from = [&](unsigned first) {
            return Blocks{.buffer = Buffer::out,
                          .stride = bytes_,
                          .piece = bytes_,
                          .first = first,
                          .count = some,
                          .ring = self_.members};
        };
        send(sink, down(k), from(self_.rank));
        receive(sink, up(k), from((self_.rank + have) % self_.members));
        return true;
    }

    /// A piece of each block of this member's subtree; `whole` is the root's array of blocks.
    [[nodiscard]] Blocks subtree(Buffer whole) const noexcept
    {
        if (self_.is_root())
            return {.buffer = whole,
                    .offset = at_,
                    .stride = bytes_,
                    .piece = segment_,
                    .first = self_.rank,
                    .count = self_.subtree,
                    .ring = self_.members};
        return {.buffer = Buffer::own,
                .stride = segment_,
                .piece = segment_,
                .count = self_.subtree,
                .ring = self_.subtree};
    }
    /// Its first block, which is this member's own.
    [[nodiscard]] Blocks own_block(Buffer whole) const noexcept
    {
        Blocks all = subtree(whole);
        all.count = 1;
        return all;
    }
    /// Of a subtree's blocks those of the child at distance 2^k; none where there is no child.
    [[nodiscard]] static Blocks below(const Blocks& all, unsigned k) noexcept
    {
        const std::uint64_t child = std::uint64_t{1} << k;
        Blocks part = all;
        part.first = static_cast<unsigned>((all.first + child) % all.ring);
        part.count = child < all.count ? static_cast<unsigned>(std::min<std::uint64_t>(child, all.count - child)) : 0;
        return part;
    }

    /// Up the tree, a piece of each block at a time.
    template <class Sink>
    bool gather(Sink& sink) noexcept
    {
        if (step_ == 2 && !next_segment())
            return confirm(sink);
        const Blocks all = subtree(Buffer::out);
        if (step_++ == 0) {
            sink.copy(flat(Buffer::in, at_, segment_), own_block(Buffer::out));
            for (unsigned k = 0; k < self_.reach; k++)
                if (const Blocks part = below(all, k); part.count != 0)
                    receive(sink, up(k), part);
        } else if (!self_.is_root()) {
            send(sink, down(self_.reach), all);
        }
        return true;
    }

    /// Down the tree likewise.
    template <class Sink>
    bool scatter(Sink& sink) noexcept
    {
        if (step_ == 2 && !next_segment())
            return confirm(sink);
        const Blocks all = subtree(Buffer::in);
        if (step_++ == 0) {
            if (!self_.is_root())
                receive(sink, down(self_.reach), all);
            return true;
        }
        sink.copy(own_block(Buffer::in), flat(Buffer::out, at_, segment_));
        for (unsigned k = self_.reach; k-- > 0;)
            if (const Blocks part = below(all, k); part.count != 0)
                send(sink, up(k), part);
        return true;
    }

    /// Bruck: a block for the member d above goes by the bits of d.
    template <class Sink>
    bool alltoall(Sink& sink) noexcept
    {
        const Blocks relayed{.buffer = Buffer::own,
                             .stride = segment_,
                             .piece = segment_,
                             .count = self_.members,
                             .ring = self_.members};
        const auto user = [&](Buffer buffer, bool downwards) {
            return Blocks{.buffer = buffer,
                          .offset = at_,
                          .stride = bytes_,
                          .piece = segment_,
                          .first = self_.rank,
                          .count = self_.members,
                          .ring = self_.members,
                          .downwards = downwards};
        };
        if (step_ == 0)
            sink.copy(user(Buffer::in, false), relayed);
        if (step_ == self_.bits) {
            sink.copy(relayed, user(Buffer::out, true));
            return next_segment(); // with an empty round
        }
        const unsigned k = step_++;
        // Blocks whose number has the bit: half of the whole periods, and those of the last one.
        const std::uint64_t half = std::uint64_t{1} << k;
        const std::uint64_t rest = self_.members % (2 * half);
        const std::uint64_t some = self_.members / (2 * half) * half + (rest > half ? rest - half : 0);
        const Blocks moved{.buffer = Buffer::own,
                           .stride = segment_,
                           .piece = segment_,
                           .count = static_cast<unsigned>(some),
                           .ring = self_.members,
                           .bit = static_cast<int>(k)};
        send(sink, up(k), moved);
        receive(sink, down(k), moved, Take::copy, 0);
        return true;
    }

    TreePosition self_;
    std::size_t count_ = 0;
    std::size_t size_ = 1;    ///< of an element
    std::size_t bytes_ = 0;   ///< of a block
    std::size_t segment_ = 0; ///< bytes of a block that go at a time
    std::size_t at_ = 0;      ///< offset of the segment in the block
    unsigned step_ = 0;
    unsigned sends_ = 0; ///< of the round
    unsigned receives_ = 0;
    Kind kind_ = Kind::barrier;
    bool ring_ = false;
};

} // namespace tofu::schedule
