// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The message protocol of one endpoint: fi_msg, fi_tagged, and the CQ data of RMA writes. MessageEngine composes it:
// rings to peers (msg/rx_ring.h), the sending half (msg/sender.h), the receiving half (msg/receiver.h). The entries of
// fi_msg and fi_tagged and the endpoint's progress call it, under the context's lock. Its rounds of progress are
// defined in msg/receiver.cc, into which the polls of the rings are inlined.
#pragma once

#include <cstdint>

#include "core/pool.h"
#include "msg/copies.h"
#include "msg/receive_queue.h"
#include "msg/receiver.h"
#include "msg/rx_ring.h"
#include "msg/sender.h"

namespace tofu::proto {

class MessageEngine final : private Protocol {
  public:
    MessageEngine(TxContext& tx, RxContext& rx) noexcept;

    /// Opens the message area. 0 or -FI_E*. The caller holds no lock of the domain.
    [[nodiscard]] int open() noexcept;
    /// Releases all rings. Called under lock() before the VCQ is closed; nothing is posted afterwards.
    void release_all() noexcept { rings_.release_all(); }
    /// RingSet::stop_writers(), under lock().
    [[nodiscard]] bool stop_writers() noexcept { return rings_.stop_writers() && sender_.requests().writers_gone(); }
    /// RingSet::close_area(), without lock().
    [[nodiscard]] bool close_area() noexcept
    {
        sender_.requests().drop_copies();
        return rings_.close_area() && sender_.requests().writers_gone();
    }
    /// Hands over what receivers have still to fetch, with the area. False: nothing; call close_area(). Called as that.
    [[nodiscard]] bool hand_over_to(OrphanedCopies& orphaned_copies) noexcept;

    [[nodiscard]] Sender& sender() noexcept { return sender_; }
    [[nodiscard]] Receiver& receiver() noexcept { return receiver_; }
    /// One bounded round.
    void progress() noexcept;
    /// progress(), and every few milliseconds what is due then.
    void progress_fully() noexcept;
    /// What peers have brought that waits for a round of progress, or for Receiver::accept_packets().
    [[nodiscard, gnu::always_inline]] PollHint poll_hint() noexcept
    {
        if (rings_.doorbell_rang())
            return {PollHint::work};
        RingPoll* const ring = receiver_.first_arrived();
        return ring != nullptr ? PollHint{PollHint::packets, ring} : PollHint{PollHint::nothing};
    }
    /// Does anything of our own wait for a round of progress? What begins to wait says so (vcq::Posts::set_busy).
    [[nodiscard]] bool waits() noexcept
    {
        return rings_.behind() || receiver_.behind() || receiver_.has_many_rings() || sender_.requests().awaits_any() ||
               receiver_.rendezvous().waits();
    }

  private:
    TxChannel* make_channel() noexcept override { return channels_.alloc(); }
    void channel_failed(TxChannel& channel, vcq::CompletionHandler* handler) noexcept override
    {
        sender_.requests().channel_failed(channel, handler);
    }
    bool accept_anonymous(RxRing& anonymous) noexcept override
    {
        std::uint32_t slots = 1;
        return receiver_.accept(anonymous, slots);
    }
    void tick() noexcept override
    {
        receiver_.answer_fences();
        if (SrxOwner* const owner = receiver_.queue().owner(); owner != nullptr)
            owner->resume(); // messages that found no room
    }

    TxContext& tx_;
    RxContext& rx_;
    Pool<TxChannel> channels_{credit_block_count};
    RingSet rings_;
    Sender sender_;
    Receiver receiver_;
    std::uint32_t rounds_ = 0;
};

} // namespace tofu::proto
