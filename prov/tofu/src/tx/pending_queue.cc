// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See pending_queue.h.
#include "tx/pending_queue.h"

#include <bit>

namespace tofu {

void PendingQueue::resume() noexcept
{
    for (SubQueue* s = first_; s != nullptr; s = s->next_sub_queue_)
        if (!s->empty())
            s->resume();
}

bool PendingQueue::has_pending_for(const Peer& peer) const noexcept
{
    for (const SubQueue* s = first_; s != nullptr; s = s->next_sub_queue_)
        if (s->has_peer_queue(queue_key(peer)))
            return true;
    return false;
}

PendingQueue::SubQueue::~SubQueue()
{
    SubQueue** link = &queue_.first_;
    while (*link != this)
        link = &(*link)->next_sub_queue_;
    *link = next_sub_queue_;
    queue_.size_ -= size_;
}

void PendingQueue::SubQueue::push(PendingOp& op, std::uint64_t key, BlockReason reason) noexcept
{
    op.links = {nullptr, nullptr, &op, key};
    size_++;
    queue_.size_++;
    PendingOp** const queue = link_of(key);
    if (*queue != nullptr) {
        PendingOp::Links& first = (*queue)->links;
        first.last = first.last->links.next = &op;
    } else {
        *queue = &op;
        used_ |= std::uint64_t{1} << bucket_of(key);
    }
    update_blocked(out_of_room_ || reason == BlockReason::room);
}

/// What points to the first of the queue, or would.
PendingOp** PendingQueue::SubQueue::link_of(std::uint64_t key) noexcept
{
    PendingOp** link = &first_[bucket_of(key)];
    while (*link != nullptr && (*link)->links.key != key)
        link = &(*link)->links.next_queue;
    return link;
}

void PendingQueue::SubQueue::resume() noexcept
{
    constexpr unsigned in_a_round = 16;
    bool room = true;
    for (unsigned n = 0; n < in_a_round && used_ != 0 && room; n++) {
        next_bucket_ =
            (next_bucket_ + static_cast<unsigned>(std::countr_zero(std::rotr(used_, static_cast<int>(next_bucket_))))) %
            buckets;
        room = resume_bucket(next_bucket_);
        if (room) // else the operation that waits for room is the first to be asked next time
            next_bucket_ = (next_bucket_ + 1) % buckets;
    }
    update_blocked(!room);
}

void PendingQueue::SubQueue::cancel() noexcept
{
    while (used_ != 0) {
        PendingOp** const queue = &first_[std::countr_zero(used_)];
        PendingOp& op = **queue;
        unlink(queue);
        steps_.cancelled(engine_, op);
    }
    update_blocked(false);
}

void PendingQueue::SubQueue::update_blocked(bool full) noexcept
{
    out_of_room_ = full;
    blocked_buckets_ = full ? ~std::uint64_t{0} : used_;
}

/// Tries the queues of a bucket. False: an operation found no room, which ends the round.
bool PendingQueue::SubQueue::resume_bucket(unsigned bucket) noexcept
{
    for (PendingOp** queue = &first_[bucket]; *queue != nullptr;) {
        PendingOp& op = **queue;
        switch (steps_.resume(engine_, op)) {
        case BlockReason::room: return false;
        case BlockReason::peer: queue = &op.links.next_queue; break;
        case BlockReason::nothing:
            unlink(queue);
            steps_.unblocked(engine_, op);
            break;
        }
    }
    return true;
}

/// The first of a queue leaves it.
void PendingQueue::SubQueue::unlink(PendingOp** queue) noexcept
{
    PendingOp& op = **queue;
    PendingOp* const successor = op.links.next;
    if (successor != nullptr) {
        successor->links.last = op.links.last;
        successor->links.next_queue = op.links.next_queue;
    }
    *queue = successor != nullptr ? successor : op.links.next_queue;
    const unsigned bucket = bucket_of(op.links.key);
    if (first_[bucket] == nullptr)
        used_ &= ~(std::uint64_t{1} << bucket);
    size_--;
    queue_.size_--;
}

} // namespace tofu
