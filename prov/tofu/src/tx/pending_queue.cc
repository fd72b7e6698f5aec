// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See pending_queue.h.
#include "tx/pending_queue.h"

#include <bit>

namespace tofu {

void Pending::resume() noexcept
{
    for (Stream* s = first_; s != nullptr; s = s->next_stream_)
        if (!s->empty())
            s->resume();
}

bool Pending::waits_for(const Peer& peer) const noexcept
{
    for (const Stream* s = first_; s != nullptr; s = s->next_stream_)
        if (s->has_line(line_of(peer)))
            return true;
    return false;
}

Pending::Stream::~Stream()
{
    Stream** link = &queue_.first_;
    while (*link != this)
        link = &(*link)->next_stream_;
    *link = next_stream_;
    queue_.size_ -= size_;
}

void Pending::Stream::push(PendingOp& op, std::uint64_t key, BlockReason reason) noexcept
{
    op.line = {nullptr, nullptr, &op, key};
    size_++;
    queue_.size_++;
    PendingOp** const line = link_of(key);
    if (*line != nullptr) {
        PendingOp::Place& first = (*line)->line;
        first.last = first.last->line.next = &op;
    } else {
        *line = &op;
        used_ |= std::uint64_t{1} << bucket_of(key);
    }
    close(full_ || reason == BlockReason::room);
}

/// What points to the first of the line, or would.
PendingOp** Pending::Stream::link_of(std::uint64_t key) noexcept
{
    PendingOp** link = &first_[bucket_of(key)];
    while (*link != nullptr && (*link)->line.key != key)
        link = &(*link)->line.next_line;
    return link;
}

void Pending::Stream::resume() noexcept
{
    constexpr unsigned in_a_round = 16;
    bool room = true;
    for (unsigned n = 0; n < in_a_round && used_ != 0 && room; n++) {
        hand_ = (hand_ + static_cast<unsigned>(std::countr_zero(std::rotr(used_, static_cast<int>(hand_))))) % buckets;
        room = walk(hand_);
        if (room) // else the operation that waits for room is the first to be asked next time
            hand_ = (hand_ + 1) % buckets;
    }
    close(!room);
}

void Pending::Stream::cancel() noexcept
{
    while (used_ != 0) {
        PendingOp** const line = &first_[std::countr_zero(used_)];
        PendingOp& op = **line;
        take_out(line);
        steps_.cancelled(engine_, op);
    }
    close(false);
}

void Pending::Stream::close(bool full) noexcept
{
    full_ = full;
    closed_ = full ? ~std::uint64_t{0} : used_;
}

/// Tries the lines of a bucket. False: an operation found no room, which ends the round.
bool Pending::Stream::walk(unsigned bucket) noexcept
{
    for (PendingOp** line = &first_[bucket]; *line != nullptr;) {
        PendingOp& op = **line;
        switch (steps_.go_on(engine_, op)) {
        case BlockReason::room: return false;
        case BlockReason::peer: line = &op.line.next_line; break;
        case BlockReason::nothing:
            take_out(line);
            steps_.through(engine_, op);
            break;
        }
    }
    return true;
}

/// The first of a line leaves it.
void Pending::Stream::take_out(PendingOp** line) noexcept
{
    PendingOp& op = **line;
    PendingOp* const heir = op.line.next;
    if (heir != nullptr) {
        heir->line.last = op.line.last;
        heir->line.next_line = op.line.next_line;
    }
    *line = heir != nullptr ? heir : op.line.next_line;
    const unsigned bucket = bucket_of(op.line.key);
    if (first_[bucket] == nullptr)
        used_ &= ~(std::uint64_t{1} << bucket);
    size_--;
    queue_.size_--;
}

} // namespace tofu
