// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What is to be done in a later round of progress. Parts of operations that found no room, or that lost against others
// (RetryList); a place where one item works and others wait for it (WaitList); whole operations that cannot continue
// yet (PendingQueue). Engines add to them, and the context's rounds of progress resume them, under the context's lock.
#pragma once

#include <cstddef>
#include <cstdint>

#include "av/peer_table.h"

namespace tofu {

// --- RetryList: parts that found no room resume in the next round, parts that lost against others after a random pause

/// A part that resumes later. It is in the list at most once.
struct RetryItem {
    using Function = void (*)(RetryItem& self) noexcept;
    Function resume;
    RetryItem* after = nullptr;
    std::uint32_t due = 0; ///< the tick in which it resumes
};

class RetryList {
  public:
    [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
    /// Resumes the item in one of the next `within` rounds, at random.
    void add(RetryItem& item, std::uint32_t within = 1) noexcept { put(item, tick_ + random() % within); }
    void round() noexcept
    {
        ++tick_;
        RetryItem* item = first_; // an item that resumes may add itself again
        first_ = last_ = nullptr;
        while (item != nullptr) {
            RetryItem* const after = item->after;
            if (!closed_ && static_cast<std::int32_t>(tick_ - item->due) < 0) // ticks wrap
                put(*item, item->due);
            else
                item->resume(*item);
            item = after;
        }
    }
    /// From now on nothing is put off: items that resume in finish() see closed(), and end.
    void close() noexcept { closed_ = true; }
    void finish() noexcept
    {
        while (!empty())
            round();
    }
    [[nodiscard]] bool closed() const noexcept { return closed_; }

  private:
    void put(RetryItem& item, std::uint32_t due) noexcept
    {
        item.due = due;
        item.after = nullptr;
        (first_ != nullptr ? last_->after : first_) = &item;
        last_ = &item;
    }
    [[nodiscard]] std::uint32_t random() noexcept
    {
        random_ ^= random_ << 13;
        random_ ^= random_ >> 17;
        random_ ^= random_ << 5;
        return random_;
    }

    RetryItem* first_ = nullptr;
    RetryItem* last_ = nullptr;
    std::uint32_t tick_ = 0; ///< counts rounds
    std::uint32_t random_ = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(this) >> 4) | 1;
    bool closed_ = false;
};

/// A place where one item works and the others queue up behind it.
template <class T>
struct WaitList {
    T* active = nullptr;
    T* waiting = nullptr; ///< oldest first, by T::next
    T* last = nullptr;

    void queue_up(T& item) noexcept
    {
        (waiting != nullptr ? last->next : waiting) = &item;
        last = &item;
    }
    /// Makes the next item active, or none.
    T* pass() noexcept
    {
        active = waiting;
        if (active != nullptr) {
            waiting = active->next;
            active->next = nullptr;
        }
        return active;
    }
};

// --- PendingQueue: operations of a tx context that were accepted and cannot continue yet. It alone decides which
// operation waits behind which, and so which calls are refused, what a fence waits for and what a close has to end.
//
// There is one FIFO, a peer queue, for each peer and sub-queue. A sub-queue is one engine's: order is promised among
// its operations, not between engines (limits::msg_order), so that a message or the CQ data of a write that find no
// room in a stopped peer's ring hold up no atomic there. The cases, by which tests/prov/tx/pending_queue_test.cc is
// ordered:
//
//  1. Nothing waits. A call goes at once; it pays one test.
//  2. An operation of the sub-queue waits for the same peer. A later one waits behind it, or is refused (-FI_EAGAIN).
//  3. Operations wait for other peers, or in other sub-queues. A call goes at once, after a test of one more bit.
//  4. An operation waits for something that all peers share: room in the TOQ or a completion tag. All operations of the
//     sub-queue wait, or else those that need less room would take it all.
//  5. A round tries the first of each peer queue, and those behind it as long as they go; a bounded number of queues,
//     and further ones the next time. No peer's queue starves another's.
//  6. An operation that has left may have to wait again: its event finds no room, or its CQ data do. It goes to the end
//     of its peer queue.
//  7. A fence towards a peer waits for the queues of that peer in all sub-queues, and for no others.
//  8. A close makes progress until nothing waits, for a bounded time (endpoint). Operations that still wait then are
//     cancelled, each queue in its order, and nothing of them is begun any more.
//
// Operations that have left and only wait for an answer are not here: notices, completion words of messages, the
// back-off of atomics under way. Nothing waits behind them; fences ask the engines about them (tx/tx_context.h), and a
// close drops them. The packet of a long message whose payload is in the peer's ring already is not here either: it is
// part of the channel, which sends nothing else before it (msg/tx_ring.h).
//
// Peer queues are kept in a hash table of 64 buckets, by their keys.

/// What blocks an operation.
enum class BlockReason : std::uint8_t {
    nothing,
    peer, ///< something that depends on its peer
    room  ///< room in a queue that all peers share
};

/// Base of an operation that may have to wait: its links in a peer queue.
struct PendingOp {
    struct Links {
        PendingOp* next = nullptr;       ///< the operation behind it
        PendingOp* next_queue = nullptr; ///< in the first of a queue: the first of the bucket's next queue
        PendingOp* last = nullptr;       ///< in the first of a queue: the last of it
        std::uint64_t key = 0;           ///< of the queue
    } links{};
};

class PendingQueue {
  public:
    class SubQueue;

    /// True if nothing waits in any sub-queue.
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    /// One bounded round of all sub-queues.
    void resume() noexcept;
    /// Does anything wait for this peer (case 7)?
    [[nodiscard]] bool has_pending_for(const Peer& peer) const noexcept;

    /// The key of the queue of a peer's endpoint, the same for all indices of the address vector that lead there.
    [[nodiscard]] static std::uint64_t queue_key(const Peer& peer) noexcept
    {
        return peer.target_vcq ^ std::uint64_t{peer.index} << 56;
    }

  private:
    std::size_t size_ = 0; ///< operations
    SubQueue* first_ = nullptr;
};

/// The peer queues of one engine.
class PendingQueue::SubQueue {
  public:
    /// What the engine does with the first operation of a peer queue. resume: takes its next steps and says why it is
    /// blocked. unblocked: the operation lacks nothing and has left its queue; it may enter it again. cancelled:
    /// instead of both, ends it.
    struct Steps {
        BlockReason (*resume)(void* engine, PendingOp& op) noexcept;
        void (*unblocked)(void* engine, PendingOp& op) noexcept;
        void (*cancelled)(void* engine, PendingOp& op) noexcept;
    };
    /// The steps of an engine that has member functions of these names. If they are private, SubQueue is its friend.
    template <class Engine, class Op>
    static constexpr Steps steps_of{
        [](void* engine, PendingOp& op) noexcept { return static_cast<Engine*>(engine)->resume(static_cast<Op&>(op)); },
        [](void* engine, PendingOp& op) noexcept { static_cast<Engine*>(engine)->unblocked(static_cast<Op&>(op)); },
        [](void* engine, PendingOp& op) noexcept { static_cast<Engine*>(engine)->cancel(static_cast<Op&>(op)); },
    };
    /// A sub-queue of `queue`, for as long as it lives.
    SubQueue(PendingQueue& queue, void* engine, const Steps& steps) noexcept
        : queue_(queue), next_sub_queue_(queue.first_), engine_(engine), steps_(steps)
    {
        queue.first_ = this;
    }
    SubQueue(const SubQueue&) = delete;
    SubQueue& operator=(const SubQueue&) = delete;
    ~SubQueue();

    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    /// A quick test for the fast paths. False: an operation with this key may go at once, and so may one whose key
    /// differs in the top byte only. True: ask holds().
    [[nodiscard]] bool may_block(std::uint64_t key) const noexcept
    {
        if (size_ == 0) [[likely]]
            return false;
        return (blocked_buckets_ >> bucket_of(key) & 1) != 0;
    }
    /// Must a new operation with this key wait behind others?
    [[nodiscard]] bool blocks(std::uint64_t key) const noexcept
    {
        return may_block(key) && (out_of_room_ || find(key) != nullptr);
    }
    /// Whether anything waits in this peer queue. Other queues, which may wait for room, are not checked.
    [[nodiscard]] bool has_peer_queue(std::uint64_t key) const noexcept { return !empty() && find(key) != nullptr; }

    /// Puts an operation at the end of its queue; `reason` says why it waits.
    void push(PendingOp& op, std::uint64_t key, BlockReason reason) noexcept;
    /// One bounded round (case 5).
    void resume() noexcept;
    /// Cancels all operations that wait.
    void cancel() noexcept;

  private:
    friend class PendingQueue;
    static constexpr unsigned buckets = 64;

    static constexpr unsigned bucket_of(std::uint64_t key) noexcept
    {
        return static_cast<unsigned>((key << 8) * 0x9e3779b97f4a7c15u >> 58);
    }
    [[nodiscard]] PendingOp* find(std::uint64_t key) const noexcept
    {
        PendingOp* first = first_[bucket_of(key)];
        while (first != nullptr && first->links.key != key)
            first = first->links.next_queue;
        return first;
    }
    void update_blocked(bool full) noexcept;
    [[nodiscard]] bool resume_bucket(unsigned bucket) noexcept;
    [[nodiscard]] PendingOp** link_of(std::uint64_t key) noexcept;
    void unlink(PendingOp** queue) noexcept;

    std::size_t size_ = 0;              ///< operations
    std::uint64_t blocked_buckets_ = 0; ///< their new operations may have to wait: used_, or all where out_of_room_
    bool out_of_room_ = false;          ///< an operation waits for room
    unsigned next_bucket_ = 0;          ///< the bucket that is tried next
    std::uint64_t used_ = 0;            ///< buckets with queues
    PendingOp* first_[buckets] = {};    ///< the first operation of the first queue in each
    PendingQueue& queue_;
    SubQueue* next_sub_queue_;
    void* engine_;
    Steps steps_;
};

} // namespace tofu
