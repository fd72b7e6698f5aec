// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Operations that wait, in lines: one line a peer, in the order of the calls, so that who waits for one peer holds up
// nobody else. Used by rma and the runner of atomics under the endpoint's lock; calls nothing.
//
// While nothing waits, calls pay one test for it; while something does, most calls to other peers see by one bit, that of
// a bucket without a line, that they are free to go. The lines of a bucket are told apart by their keys.
#pragma once

#include <bit>
#include <cstdint>

namespace tofu {

/// What an operation lacks to go on.
enum class Lack : std::uint8_t {
    nothing,
    peer, ///< something of its peer's: those behind it in its line have to wait, too
    room  ///< room that all share: everybody has to wait, or those who need less would leave none to it
};

/// What an operation that may wait has of its line.
template <class Op>
struct InLine {
    Op* next = nullptr;      ///< behind it in the line
    Op* next_line = nullptr; ///< of the first in a line: of the bucket's next one
    Op* last = nullptr;      ///< of the first in a line
    std::uint64_t key = 0;   ///< of the line
};

/// `Op` has a member `InLine<Op> line`.
template <class Op>
class Lines {
  public:
    /// Nobody waits.
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    /// For the short ways: false where nothing that waits concerns an operation of this line, nor of another whose key
    /// differs in the top byte alone.
    [[nodiscard]] bool may_hold(std::uint64_t key) const noexcept
    {
        if (size_ == 0) [[likely]]
            return false;
        return (closed_ >> bucket_of(key) & 1) != 0;
    }
    /// Must an operation of this line wait behind others?
    [[nodiscard]] bool holds(std::uint64_t key) const noexcept
    {
        return may_hold(key) && (full_ || find(key) != nullptr);
    }
    /// The same for what waits for the peer, whoever waits for room.
    [[nodiscard]] bool has_line(std::uint64_t key) const noexcept { return !empty() && find(key) != nullptr; }
    [[nodiscard]] std::uint32_t size() const noexcept { return size_; }

    /// The last in its line.
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
    /// Tries the first of each line, `go_on(op)`: what it still lacks. Who is through leaves, `through(op)` is
    /// called, which may push, and the next of the line is tried. A bounded number of buckets each time, in turn.
    template <class GoOn, class Through>
    void resume(GoOn&& go_on, Through&& through) noexcept
    {
        constexpr unsigned in_a_round = 16;
        bool room = true;
        for (unsigned n = 0; n < in_a_round && used_ != 0 && room; n++) {
            hand_ = (hand_ + static_cast<unsigned>(std::countr_zero(std::rotr(used_, static_cast<int>(hand_))))) % buckets;
            room = walk(hand_, go_on, through);
            if (room) // else who waits for it is asked first again
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
    /// False: one waits for room.
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
    bool full_ = false;        ///< one waits for room
    std::uint64_t closed_ = 0; ///< buckets whose operations may have to wait: used_, or all
    std::uint64_t used_ = 0;   ///< buckets with lines
    unsigned hand_ = 0;        ///< the bucket that is tried next
    Op* first_[buckets] = {};  ///< the first operation of the first line in each
};

} // namespace tofu
