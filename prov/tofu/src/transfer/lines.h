// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Operations that cannot go on yet, queued by peer. A line is the queue of one peer, in the order of the calls: an
// operation that waits for one peer holds up none to another. Used by rma and the runner of atomics under the
// endpoint's lock; calls nothing.
//
// Lines hang in a hash table of 64 buckets and are told apart by their keys. While nothing waits, a call pays one test
// for it. While something does, a call to another peer usually sees by one bit that its bucket is empty, and that it
// may go.
#pragma once

#include <bit>
#include <cstdint>

namespace tofu {

/// What an operation is still missing.
enum class Lack : std::uint8_t {
    nothing,
    peer, ///< something that depends on its peer: those behind it in its line have to wait, too
    room  ///< room in a queue that all peers share: every line waits, else operations that need less would take it all
};

/// The links that each operation carries for its line.
template <class Op>
struct InLine {
    Op* next = nullptr;      ///< the operation behind it
    Op* next_line = nullptr; ///< in the first of a line: the first of the bucket's next line
    Op* last = nullptr;      ///< in the first of a line: the last of it
    std::uint64_t key = 0;   ///< the peer that the line is for
};

/// `Op` has a member `InLine<Op> line`.
template <class Op>
class Lines {
  public:
    /// Nobody waits.
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    /// A quick look for the fast paths. False: an operation with this key may go at once, and so may one whose key
    /// differs in the top byte alone. True: holds() has to be asked.
    [[nodiscard]] bool may_hold(std::uint64_t key) const noexcept
    {
        if (size_ == 0) [[likely]]
            return false;
        return (closed_ >> bucket_of(key) & 1) != 0;
    }
    /// Must a new operation with this key wait behind others?
    [[nodiscard]] bool holds(std::uint64_t key) const noexcept
    {
        return may_hold(key) && (full_ || find(key) != nullptr);
    }
    /// Does anything wait for this peer? Leaves out that other lines may wait for room.
    [[nodiscard]] bool has_line(std::uint64_t key) const noexcept { return !empty() && find(key) != nullptr; }
    [[nodiscard]] std::uint32_t size() const noexcept { return size_; }

    /// Puts an operation at the end of its line; `lack` is what it misses.
    void push(Op& op, std::uint64_t key, Lack lack) noexcept
    {
        op.line = {nullptr, nullptr, &op, key};
        size_++;
        if (Op* const first = find(key); first != nullptr) {
            first->line.last = first->line.last->line.next = &op;
        } else {
            Op** end = &first_[bucket_of(key)];
            while (*end != nullptr)
                end = &(*end)->line.next_line;
            *end = &op;
            used_ |= std::uint64_t{1} << bucket_of(key);
        }
        close(full_ || lack == Lack::room);
    }
    /// Tries the first operation of each line: `go_on(op)` answers what it still lacks. One that lacks nothing leaves
    /// its line, `through(op)` is called (it may push), and the next one of the line is tried. Each call looks at a
    /// bounded number of buckets and goes on behind them the next time.
    template <class GoOn, class Through>
    void resume(GoOn&& go_on, Through&& through) noexcept
    {
        constexpr unsigned in_a_round = 16;
        bool room = true;
        for (unsigned n = 0; n < in_a_round && used_ != 0 && room; n++) {
            hand_ =
                (hand_ + static_cast<unsigned>(std::countr_zero(std::rotr(used_, static_cast<int>(hand_))))) % buckets;
            room = walk(hand_, go_on, through);
            if (room) // else the operation that waits for room is the first to be asked next time
                hand_ = (hand_ + 1) % buckets;
        }
        close(!room);
    }

  private:
    static constexpr unsigned buckets = 64;

    static constexpr unsigned bucket_of(std::uint64_t key) noexcept
    {
        return static_cast<unsigned>((key << 8) * 0x9e3779b97f4a7c15u >> 58);
    }
    [[nodiscard]] Op* find(std::uint64_t key) const noexcept
    {
        Op* first = first_[bucket_of(key)];
        while (first != nullptr && first->line.key != key)
            first = first->line.next_line;
        return first;
    }
    void close(bool full) noexcept
    {
        full_ = full;
        closed_ = full ? ~std::uint64_t{0} : used_;
    }
    /// Tries the lines of a bucket. False: an operation found no room, which ends the round.
    template <class GoOn, class Through>
    [[nodiscard]] bool walk(unsigned bucket, GoOn& go_on, Through& through) noexcept
    {
        for (Op** line = &first_[bucket]; *line != nullptr;) {
            Op& op = **line;
            const Lack lack = go_on(op);
            if (lack == Lack::room)
                return false;
            if (lack == Lack::peer) {
                line = &op.line.next_line;
                continue;
            }
            Op* const heir = op.line.next;
            if (heir != nullptr) {
                heir->line.last = op.line.last;
                heir->line.next_line = op.line.next_line;
            }
            *line = heir != nullptr ? heir : op.line.next_line;
            if (first_[bucket] == nullptr)
                used_ &= ~(std::uint64_t{1} << bucket);
            size_--;
            through(op);
        }
        return true;
    }

    std::uint32_t size_ = 0;   ///< operations
    bool full_ = false;        ///< an operation waits for room
    std::uint64_t closed_ = 0; ///< buckets whose new operations may have to wait: used_, or all where full_
    std::uint64_t used_ = 0;   ///< buckets with lines
    unsigned hand_ = 0;        ///< the bucket that is tried next
    Op* first_[buckets] = {};  ///< the first operation of the first line in each
};

} // namespace tofu
