// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Rounds of collectives as other libraries play them, beside those of the provider (schedule/schedule.h): what a
// prediction can be compared with. Each transfer is a message to the place in the user's memory, with no relay buffer.
#pragma once

#include "schedule/schedule.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tofu::schedule {

enum class FieldAlgorithm : std::uint8_t {
    linear,      ///< all-to-all: each member starts all its messages, then waits for those of the others
    pairwise,    ///< all-to-all: a round for each distance
    ring,        ///< allgather: blocks go round a ring
    chain,       ///< broadcast: segments from each member to the next one
    double_tree, ///< broadcast: segments alternate between two binary trees; a relay in one is a leaf of the other
    scatter_allgather, ///< broadcast: slices down a binomial tree, then round a ring
};

struct FieldCall {
    FieldAlgorithm algorithm = FieldAlgorithm::linear;
    std::size_t bytes = 0;   ///< of a block
    std::size_t segment = 0; ///< of chain and double_tree; 0: all bytes at once
    unsigned root = 0;
    /// Of double_tree: the segments that one of two threads of a member handles; 2: all of them, by a single thread.
    /// Two threads are faster: a member's place in one tree may be far below its place in the other.
    unsigned strand = 2;
};

/// A binary tree of the numbers 1 to `size` in order: left of a node are smaller numbers, right of it larger ones. Odd
/// numbers are leaves.
struct OrderedTree {
    unsigned size = 0;

    /// 0 at the root.
    [[nodiscard]] constexpr unsigned parent(unsigned v) const noexcept
    {
        const unsigned bit = v & (0u - v);
        const unsigned above = (v ^ bit) | bit << 1;
        return above <= size ? above : v ^ bit;
    }
    /// 0: none.
    [[nodiscard]] constexpr unsigned left(unsigned v) const noexcept
    {
        const unsigned half = (v & (0u - v)) >> 1;
        return half != 0 ? v - half : 0;
    }
    [[nodiscard]] constexpr unsigned right(unsigned v) const noexcept
    {
        unsigned half = (v & (0u - v)) >> 1;
        while (half != 0 && v + half > size)
            half >>= 1;
        return half != 0 ? v + half : 0;
    }
    [[nodiscard]] constexpr unsigned root() const noexcept { return std::bit_floor(size); }
};

/// One collective of one member. A Sink gets copy(from, to), send_to(rank, blocks, tag) and receive_from(rank, blocks,
/// tag); rounds are those of Schedule. A message has the same tag at both ends, and another one than all others between
/// the two in this direction: less than tags().
class FieldSchedule {
  public:
    FieldSchedule() noexcept = default;
    FieldSchedule(const FieldCall& call, unsigned rank, unsigned members) noexcept
        : self_(rank, members, call.root), bytes_(call.bytes),
          segment_(call.segment == 0 ? std::max<std::size_t>(call.bytes, 1) : call.segment), strand_(call.strand),
          algorithm_(call.algorithm)
    {
    }
    [[nodiscard]] static constexpr std::size_t own_bytes() noexcept { return 0; }
    [[nodiscard]] std::uint64_t tags() const noexcept
    {
        switch (algorithm_) {
        case FieldAlgorithm::linear:
        case FieldAlgorithm::pairwise: break;
        case FieldAlgorithm::ring:
        case FieldAlgorithm::scatter_allgather: return self_.members;
        case FieldAlgorithm::chain:
        case FieldAlgorithm::double_tree: return segments();
        }
        return 1;
    }

    template <class Sink>
    [[nodiscard]] bool next(Sink& sink) noexcept
    {
        for (moved_ = false; !moved_; step_++)
            if (!step(sink))
                return false;
        return true;
    }

  private:
    template <class Sink>
    bool step(Sink& sink) noexcept
    {
        switch (algorithm_) {
        case FieldAlgorithm::linear: return linear(sink);
        case FieldAlgorithm::pairwise: return pairwise(sink);
        case FieldAlgorithm::ring: return ring(sink);
        case FieldAlgorithm::chain: return chain(sink);
        case FieldAlgorithm::double_tree: return double_tree(sink);
        case FieldAlgorithm::scatter_allgather: return scatter_allgather(sink);
        }
        return false;
    }
    template <class Sink>
    void send(Sink& sink, unsigned rank, const Blocks& blocks, std::uint64_t tag) noexcept
    {
        moved_ = true;
        sink.send_to(rank, blocks, tag);
    }
    template <class Sink>
    void receive(Sink& sink, unsigned rank, const Blocks& blocks, std::uint64_t tag) noexcept
    {
        moved_ = true;
        sink.receive_from(rank, blocks, tag);
    }
    [[nodiscard]] unsigned above(std::uint64_t distance) const noexcept
    {
        return static_cast<unsigned>((self_.rank + distance) % self_.members);
    }
    [[nodiscard]] unsigned below(std::uint64_t distance) const noexcept { return above(self_.members - distance); }
    [[nodiscard]] Blocks block(Buffer buffer, unsigned of) const noexcept { return flat(buffer, of * bytes_, bytes_); }
    /// The rank of the member that is `turned` behind the root.
    [[nodiscard]] unsigned rank_of(std::uint64_t turned) const noexcept
    {
        return static_cast<unsigned>((self_.rank + self_.members - self_.turned + turned) % self_.members);
    }

    template <class Sink>
    bool linear(Sink& sink) noexcept
    {
        const unsigned others = self_.members - 1;
        if (step_ == 0)
            sink.copy(block(Buffer::in, self_.rank), block(Buffer::out, self_.rank));
        if (step_ >= std::uint64_t{2} * others)
            return false;
        const auto distance = static_cast<unsigned>(step_ % others + 1);
        if (step_ < others)
            send(sink, above(distance), block(Buffer::in, above(distance)), 0);
        else
            receive(sink, below(distance), block(Buffer::out, below(distance)), 0);
        return true;
    }

    template <class Sink>
    bool pairwise(Sink& sink) noexcept
    {
        if (step_ == 0)
            sink.copy(block(Buffer::in, self_.rank), block(Buffer::out, self_.rank));
        const std::uint64_t distance = step_ + 1;
        if (distance >= self_.members)
            return false;
        send(sink, above(distance), block(Buffer::in, above(distance)), 0);
        receive(sink, below(distance), block(Buffer::out, below(distance)), 0);
        return true;
    }

    template <class Sink>
    bool ring(Sink& sink) noexcept
    {
        if (step_ == 0)
            sink.copy(flat(Buffer::in, 0, bytes_), block(Buffer::out, self_.rank));
        if (step_ + 1 >= self_.members)
            return false;
        send(sink, above(1), block(Buffer::out, below(step_)), step_);
        receive(sink, below(1), block(Buffer::out, below(step_ + 1)), step_);
        return true;
    }

    [[nodiscard]] std::uint64_t segments() const noexcept
    {
        return std::max<std::uint64_t>(1, (bytes_ + segment_ - 1) / segment_);
    }
    [[nodiscard]] Blocks piece(std::uint64_t number) const noexcept
    {
        const std::size_t at = number * segment_;
        return flat(Buffer::out, at, std::min(segment_, bytes_ - at));
    }

    template <class Sink>
    bool chain(Sink& sink) noexcept
    {
        const std::uint64_t number = step_ / 2;
        if (number == segments())
            return false;
        if (step_ % 2 == 0 && self_.turned != 0)
            receive(sink, rank_of(self_.turned - 1), piece(number), number);
        if (step_ % 2 == 1 && self_.turned + 1 < self_.members)
            send(sink, rank_of(self_.turned + 1), piece(number), number);
        return true;
    }

    /// Members behind the root are numbered from 1 on. In the second tree they have other numbers: a number that is
    /// even in one tree is odd in the other.
    template <class Sink>
    bool double_tree(Sink& sink) noexcept
    {
        const std::uint64_t number = step_ / 2;
        if (number == segments() || self_.members == 1)
            return false;
        const bool second = number % 2 == 1;
        if (number % 2 + strand_ == 1) // the other thread's
            return true;
        const OrderedTree tree{self_.members - 1};
        const auto in_tree = [&](unsigned turned) { // and back, where the tree is mirrored
            return !second              ? turned
                   : tree.size % 2 == 0 ? tree.size + 1 - turned
                   : turned == 1        ? tree.size
                                        : turned - 1;
        };
        const auto turned_of = [&](unsigned v) {
            return !second || tree.size % 2 == 0 ? in_tree(v) : v == tree.size ? 1 : v + 1;
        };
        if (self_.turned == 0) {
            if (step_ % 2 == 1)
                send(sink, rank_of(turned_of(tree.root())), piece(number), number);
            return true;
        }
        const unsigned v = in_tree(self_.turned);
        if (step_ % 2 == 0) {
            const unsigned from = tree.parent(v);
            receive(sink, rank_of(from == 0 ? 0 : turned_of(from)), piece(number), number);
            return true;
        }
        for (const unsigned child : {tree.left(v), tree.right(v)})
            if (child != 0)
                send(sink, rank_of(turned_of(child)), piece(number), number);
        return true;
    }

    /// Slices `first` to `first + count - 1`, all about as long.
    [[nodiscard]] Blocks slices(std::uint64_t first, std::uint64_t count) const noexcept
    {
        const auto begin = [&](std::uint64_t slice) {
            return slice * (bytes_ / self_.members) + std::min<std::uint64_t>(slice, bytes_ % self_.members);
        };
        return flat(Buffer::out, begin(first), begin(first + count) - begin(first));
    }
    template <class Sink>
    bool scatter_allgather(Sink& sink) noexcept
    {
        const unsigned n = self_.members;
        if (step_ == 0) {
            if (!self_.is_root())
                receive(sink, rank_of(self_.turned - (std::uint64_t{1} << self_.reach)),
                        slices(self_.turned, self_.subtree), 0);
            return true;
        }
        if (step_ == 1) {
            for (unsigned k = self_.reach; k-- > 0;)
                if (const std::uint64_t child = self_.turned + (std::uint64_t{1} << k); child < n)
                    send(sink, rank_of(child), slices(child, std::min<std::uint64_t>(std::uint64_t{1} << k, n - child)),
                         0);
            return true;
        }
        const std::uint64_t round = step_ - 2;
        if (round + 1 >= n)
            return false;
        send(sink, above(1), slices((self_.turned + n - round) % n, 1), round + 1);
        receive(sink, below(1), slices((self_.turned + 2 * std::uint64_t{n} - round - 1) % n, 1), round + 1);
        return true;
    }

    TreePosition self_;
    std::size_t bytes_ = 0;
    std::size_t segment_ = 1;
    std::uint64_t step_ = 0;
    unsigned strand_ = 2;
    FieldAlgorithm algorithm_ = FieldAlgorithm::linear;
    bool moved_ = false;
};

} // namespace tofu::schedule
