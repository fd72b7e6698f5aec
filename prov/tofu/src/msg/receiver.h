// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The receiving half of the message protocol (Receiver): packets, which come out of rings (msg/rx_ring.h), and what
// each asks for; nothing in a packet is trusted. A message is matched or kept, copied or fetched, acknowledged,
// reported. The receive queue calls it for kept messages (SrxPeer). msg/rendezvous.h has the payloads that are fetched.
// Under the endpoint's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "msg/receive_queue.h"
#include "msg/rendezvous.h"
#include "msg/rx_ring.h"
#include "msg/wire.h"
#include "tx/tx_context.h"

namespace tofu::proto {

/// A fence of a sender; it is answered when no message of that sender waits for a receive.
struct PendingFence {
    RxRing* in = nullptr;
    Ack ack{};
};

class Receiver final : public RxRings, private SrxPeer {
  public:
    Receiver(TxContext& tx, const RxContext& rx, RingContext& own) noexcept;
    ~Receiver();

    // --- from the engine
    /// Called after RingSet::open(). 0 or -FI_ENOMEM. Takes the endpoint's lock.
    [[nodiscard]] int join_queue() noexcept;
    /// Cancels receives of a shared context that wait for bytes from here. Called after RingSet::release_all(), when no
    /// Get writes into their buffers any more.
    void cancel_rendezvous() noexcept;
    /// Drops the messages that came through here. Called after RingSet::release_all() and, if possible,
    /// cancel_rendezvous().
    void part_from_queue() noexcept;
    /// The queue to which receives for this endpoint are posted.
    [[nodiscard]] ReceiveQueue& queue() noexcept { return queue_; }
    /// Cancels a receive in the endpoint's own queue. 0 or -FI_ENOENT.
    [[nodiscard]] ssize_t cancel(void* context) noexcept
    {
        return own_queue_ ? own_queue_->cancel(context) : -FI_ENOENT;
    }
    [[nodiscard]] RendezvousReceiver& rendezvous() noexcept { return rendezvous_; }
    /// Takes packets from the ring of first_arrived() on, a bounded number.
    void accept_packets(RingPoll& first) noexcept;
    /// Answers the fences of senders without a message that waits for its receive. Messages that came after the
    /// fence count, too, which may delay the answer but is safe.
    void answer_fences() noexcept;

    // --- from RxRings::poll
    [[nodiscard]] std::uint32_t accept_fast(RxRing& ring, const std::uint64_t* end, std::uint64_t control) noexcept;
    [[nodiscard]] bool accept(RxRing& ring, std::uint32_t& slots) noexcept;

    // --- from RendezvousReceiver
    /// Reports a message that has ended to its receive: one entry, one count.
    void received(RecvRequest& receive, const Message& message, void* buffer, std::size_t length, int err,
                  int prov_errno) noexcept;

  private:
    // --- packets that the fast path leaves
    [[nodiscard]] bool accept_message(RxRing& in, const Packet& packet, std::uint32_t& slots) noexcept;
    [[nodiscard]] bool accept_eager_by_get(Message& message) noexcept;
    void accept_write_data(RxRing& in, const Packet& packet) noexcept;
    [[nodiscard]] bool accept_fence(RxRing& in, const Packet& packet) noexcept;
    // --- from a message to its receive
    /// Gives a message to a receive or keeps it. False: there is no room, nothing has happened.
    [[nodiscard]] bool deliver(Message& message) noexcept;
    [[nodiscard]] bool query_owner(SrxOwner& owner, Message& message) noexcept;
    [[nodiscard]] bool deliver_to(RecvRequest& receive, const Message& message) noexcept;
    [[nodiscard]] bool keep(Message& message, RecvRequest* owned) noexcept;
    /// Queues a message that is filled in but for its source.
    void enqueue(Unexpected& kept, RxRing& in) noexcept;
    [[nodiscard]] bool deliver_kept(RecvRequest& receive, Unexpected& message) noexcept;
    [[nodiscard]] bool discard(const Message& message) noexcept;
    /// Writes the entry of a message that has succeeded, and finds its source for that.
    void report_success(CompletionQueue& cq, Completion& entry, RxRing& in) noexcept;
    /// The address of the sender, found again when the address vector has changed.
    [[nodiscard, gnu::always_inline]] fi_addr_t source_of(RxRing& in) noexcept
    {
        if (in.generation != tx_.peers().generation()) [[unlikely]]
            find_source(in);
        return in.address;
    }
    [[gnu::noinline]] void find_source(RxRing& in) noexcept;
    // --- the fast path
    struct FastMessage;
    template <bool tagged, bool has_data>
    [[nodiscard, gnu::always_inline]] std::uint32_t accept_eager(RxRing& in, const std::uint64_t* end,
                                                                 std::size_t length) noexcept;
    [[nodiscard]] std::uint32_t accept_with_data_or_long(RxRing& in, const std::uint64_t* end,
                                                         const Control& control) noexcept;
    [[nodiscard]] std::uint32_t accept_long(RxRing& ring, const std::uint64_t* end, const Control& control) noexcept;
    /// As deliver(), for a message that stands in its ring and asks for no answer. False: deliver() has to do it.
    [[nodiscard]] bool deliver_fast(RxRing& in, const FastMessage& message) noexcept;
    [[nodiscard]] bool deliver_otherwise(RxRing& in, const FastMessage& message, fi_addr_t source) noexcept;
    template <bool polled>
    void finish_fast(RecvRequest& receive, const FastMessage& message, fi_addr_t source) noexcept;
    // --- of SrxPeer
    bool start(RecvRequest& receive, Unexpected& message) noexcept override;
    bool discard(Unexpected& kept) noexcept override { return discard(Message::unpack(kept)); }
    void forgotten(Unexpected& kept) noexcept override { Message::kept_of(kept).in->unref(); }
    fi_addr_t source_of(const Unexpected& kept) noexcept override
    {
        return wants_source_ ? source_of(*Message::kept_of(kept).in) : FI_ADDR_NOTAVAIL;
    }
    void progress(bool everywhere) noexcept override;

    TxContext& tx_;
    bool wants_source_;                     ///< FI_SOURCE
    bool reports_unknown_sources_;          ///< FI_SOURCE_ERR
    std::optional<ReceiveQueue> own_queue_; ///< none where a shared context has the receives
    ReceiveQueue& queue_;
    RendezvousReceiver rendezvous_;
    EagerGets eager_gets_;
    Array<PendingFence> fences_;
    /// A message of this endpoint holds up a multi-receive (ReceiveQueue::catch_up) until there is room.
    struct MultiRecvStall : RetryItem {
        Receiver* owner;
        bool waiting = false;
    } stall_;
};

} // namespace tofu::proto
