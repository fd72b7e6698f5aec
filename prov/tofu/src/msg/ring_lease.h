// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The lease of a ring, at both ends. At the receiver: the rings of our area are granted to senders that request one,
// revoked if there are too few, and freed when their senders have left or died; credit updates to senders (Grants, part
// of Inbound). At the sender: a ring is requested, used and released, and credit blocks are read (RingLeases, part of
// Outbound). The cases are numbered in msg/ring_lease.cc.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/containers.h"
#include "msg/anon_slots.h"
#include "msg/channel.h"

namespace tofu::proto {

// --- Grants: the receiver's side

class Grants {
  public:
    /// The place where the next packet of a ring will appear.
    struct Poll {
        std::uint64_t* word; ///< control word of the next slot
        std::uint32_t seq;
        std::uint32_t ring;
        /// acquire: pairs with the sender's Put, whose last 8 bytes are written last
        [[nodiscard]] std::uint64_t read() const noexcept
        {
            return std::atomic_ref<std::uint64_t>(*word).load(std::memory_order_acquire);
        }
        [[nodiscard]] bool arrived(std::uint64_t control) const noexcept
        {
            return static_cast<std::uint32_t>(control >> 32) == seq;
        }
    };
    explicit Grants(Port& port) noexcept : port_(port) {}
    /// 0 or -FI_ENOMEM.
    [[nodiscard]] int open(const Geometry& geometry) noexcept;
    /// One for each granted ring.
    [[nodiscard]] Array<Poll>& polls() noexcept { return polls_; }
    [[nodiscard]] const Array<Poll>& polls() const noexcept { return polls_; }
    [[nodiscard]] Ring& operator[](const Poll& poll) noexcept { return *rings_[poll.ring]; }

    /// Answers an anonymous sender that asks for a ring: grants one or denies it. False: no room in the queue of the
    /// TNI.
    [[nodiscard]] bool answer(const Envelope& who, utofu_stadd_t area) noexcept;
    /// Answers a BYE. False: no room in the queue of the TNI.
    [[nodiscard]] bool answer_bye(Ring& ring) noexcept;
    /// Reports the number of consumed slots to the sender. If the TNI has no room, report_late() retries.
    void report(Ring& ring) noexcept;
    [[nodiscard]] bool reports_due() const noexcept { return reports_due_; }
    void report_late() noexcept;
    /// Frees a ring whose sender has left or died.
    void close(Ring& ring) noexcept;
    /// Frees the rings whose senders have died and whose packets have all been taken.
    void close_gone() noexcept;
    /// Asks some rings back, if one had to be denied.
    void ask_back() noexcept;
    /// Asks all rings back and grants none from now on: the endpoint closes.
    void revoke() noexcept;
    /// True if no sender can write into a ring any more: each has released its ring or is dead.
    [[nodiscard]] bool writers_gone() const noexcept { return polls_.size() == gone_; }
    /// Probes whether senders are alive, one per call.
    void watch() noexcept;
    /// Probes the senders with this home VCQ, to which a post has failed.
    void peer_failed(utofu_vcq_id_t home) noexcept;

  private:
    void start_probe(Ring& ring) noexcept;
    void set_gone(Ring& ring) noexcept;
    static void on_life(vcq::CompletionHandler* handler, const vcq::Notice& notice) noexcept;

    Port& port_;
    Geometry geometry_{};
    std::unique_ptr<std::unique_ptr<Ring>[]> rings_; ///< by number
    Array<Poll> polls_;
    unsigned gone_ = 0; ///< rings whose senders are dead
    bool reports_due_ = false;
    bool wanted_ = false;      ///< a ring had to be denied
    bool revoked_ = false;     ///< revoke() was called
    std::size_t ask_hand_ = 0; ///< index of the ring that ask_back() looks at next
    std::size_t next_watched_ = 0;
    std::unique_ptr<Ring> retired_; ///< the ring closed last, which callers use until its last packet is handled
};

// --- RingLeases: the rings that we hold at peers: we ask for one with an anonymous packet, get it, and give it back,
// so that other senders have their turn and the channel can serve another peer

class RingLeases {
  public:
    RingLeases(Port& port, Channels& channels, AnonTx& anon_tx) noexcept
        : port_(port), channels_(channels), anon_tx_(anon_tx)
    {
    }
    /// The envelope of the next packet without a ring: its sender, and whether it asks for a ring.
    [[nodiscard]] Envelope envelope(Channel& ch) noexcept;
    /// The packet with that envelope has been posted.
    void sent_anonymously(Channel& ch) noexcept;
    /// Reads the channel's credit block and acts on it.
    void check(Channel& ch) noexcept;
    /// Does so for `most` channels, in turn, and says BYE where a ring is asked back.
    void poll_credit_blocks(std::size_t most) noexcept;
    /// Gives all rings back as poll_credit_blocks() comes by: the endpoint closes.
    void give_all_back() noexcept;
    /// True if no peer can write to our credit blocks and completion words any more: nothing is outstanding, no answer
    /// is due, and each ring was released or was at a dead peer.
    [[nodiscard]] bool writers_gone() const noexcept;
    /// Gives the ring back. False: not now, for want of credit or of room in the queue of the TNI.
    [[nodiscard]] bool say_bye(Channel& ch) noexcept;
    [[nodiscard]] vcq::Post put_bye(Channel& ch, std::uint16_t kind) noexcept;
    /// Takes a channel from its peer, for another peer. Null: none is free now, but some are being given up.
    [[nodiscard]] Channel* reuse() noexcept;
    /// The channel is failing: its ring, or its request for one, is void.
    void lost(Channel& ch) noexcept;

  private:
    [[nodiscard]] bool wants(Channel& ch) noexcept;
    void on_grant(Channel& ch, const Grant& grant) noexcept;
    void give_up() noexcept;

    Port& port_;
    Channels& channels_;
    AnonTx& anon_tx_;
    unsigned held_ = 0;          ///< channels that have a ring or have asked for one
    std::size_t next_block_ = 0; ///< index of the credit block that is polled next
    std::size_t hand_ = 0;       ///< index of the channel that reuse() and give_up() look at next
};

} // namespace tofu::proto
