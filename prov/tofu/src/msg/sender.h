// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The sending half of the message protocol: eager messages, sends that wait for their peer, fences, and the CQ data of
// RMA writes. Fills slots of channels (msg/tx_ring.h) and reports to the context's queue and counter. Under the
// context's lock.
//
//   fast_path.h, eager.cc  packets into a ring;  tracked.cc  sends that wait for the peer send_buffers.h  blocks of
//   packets;  send_requests.h  requests that wait for the peer;  send_queue.h  sends that wait for room
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <rdma/fi_domain.h>

#include "msg/packet.h"
#include "msg/rings.h"
#include "msg/send_buffers.h"
#include "msg/send_queue.h"
#include "msg/send_requests.h"
#include "tx/tx_context.h"

namespace tofu::proto {

/// The two marks of a channel (Channel::mark) are what fences have found: up to this packet all have been [0] taken by
/// the peer, [1] matched with receives.
class Sender final : public Engine {
  public:
    static Sender& of(TxContext& tx) noexcept { return static_cast<Sender&>(*tx.engines()[messages]); }
    Sender(TxContext& tx, Rings& rings) noexcept;
    Sender(const Sender&) = delete;
    Sender& operator=(const Sender&) = delete;

    // --- entries
    /// Sends a message in the way that its length and flags ask for. 0, or a refusal without effect (-FI_EAGAIN: make
    /// progress and retry).
    [[nodiscard]] ssize_t send(const SendCall& call) noexcept;
    /// Sends one buffer in one piggyback Put, if that can be done at once (fast_path.h). False: nothing has happened.
    [[nodiscard]] bool send_short(const SendCall& call, const void* data, std::size_t length) noexcept;
    /// Sends one buffer in one Put of a slot, if that can be done at once. False: nothing has happened.
    [[nodiscard]] bool send_slot(const SendCall& call, const void* data, std::size_t length) noexcept;
    /// Sends the CQ data of an RMA write of `length` bytes to `to`: the peer gets an entry in its receive queue after
    /// everything that was posted to it before. 0, -FI_EAGAIN, -FI_EHOSTDOWN and the like.
    [[nodiscard]] ssize_t write_data(fi_addr_t to, std::uint64_t data, std::uint64_t length) noexcept;

    /// As send(), without fences and without progress. `is_first`: the send waits in the backlog, at the head of its
    /// line.
    [[nodiscard]] ssize_t try_send(const SendCall& call, bool is_first = false) noexcept;
    [[nodiscard]] SendRequests& requests() noexcept { return requests_; }

    // --- of Engine
    void close() noexcept override
    {
        backlog_.cancel();
        rings_.leave();
    }
    /// No packet waits for room at the TNI, no slot has been claimed that would stay empty, and receivers have fetched
    /// every message that was reported as sent. What they have not fetched can stay with the domain (estate.h).
    [[nodiscard]] bool all_has_left() const noexcept override
    {
        return !out_.deferred() && !out_.anon_tx.asks() && requests_.all_fetched();
    }
    /// No send to the peer waits for an answer of the peer, and none for room at the TNI.
    [[nodiscard]] bool idle_towards(const Peer& peer) const noexcept override;
    /// Where idle_towards() holds: has the peer taken (`matched`: and matched with receives) all that was sent to it,
    /// at whatever completion level? False: the peer is asked by a packet that waits for its answer as a send does;
    /// call again.
    [[nodiscard]] bool settled(const Peer& peer, bool matched) noexcept override;
    /// An unsignaled post failed, whichever engine posted it: the peer may be gone.
    void lost(int, vcq::Unsignaled, utofu_vcq_id_t peer) noexcept override
    {
        rings_.peer_failed(peer);
    }

  private:
    static constexpr ssize_t reported_later = 1; ///< of put_packet(): a request reports the send
    // fast_path.h, eager.cc
    [[nodiscard]] int channel_to(fi_addr_t dest, Channel*& to) noexcept;
    [[nodiscard]] Channel* open_channel(const SendCall& call) const noexcept;
    [[nodiscard]] ssize_t send_again(const SendCall& call) noexcept;
    template <class Fill>
    [[nodiscard]] int put_slot(Channel& to, Type type, std::uint8_t flags, std::size_t length, std::size_t size,
                               SendRequest* delivered, Fill&& fill) noexcept;
    [[nodiscard]] ssize_t put_packet(Channel& to, const SendCall& call, const Ack* ack, std::uint8_t flags,
                                     SendRequest* delivered) noexcept;
    [[nodiscard]] vcq::Post put_block(Channel& to, const PacketWriter& packet, PacketBuffer& block,
                                      SendRequest* delivered) noexcept;
    [[nodiscard]] ssize_t put_long(Channel& to, const SendCall& call, const Ack* ack, std::uint8_t flags,
                                   SendRequest* delivered) noexcept;
    [[nodiscard]] int put_words(Channel& to, Type type, std::uint8_t flags, std::uint64_t first,
                                std::optional<std::uint64_t> second = {}) noexcept;
    // tracked.cc
    [[nodiscard]] ssize_t send_tracked(Channel& to, const SendCall& call, std::uint64_t level) noexcept;
    [[nodiscard]] ssize_t send_rendezvous(Channel& to, const SendCall& call) noexcept;
    [[nodiscard]] ssize_t put_rts(Channel& to, const SendCall& call, SendRequest& request,
                                  const Segment* segments) noexcept;
    void ask_settled(Channel& to, bool matched) noexcept;

    TxContext& tx_;
    Rings& rings_;
    Outbound& out_;
    vcq::Vcq& vcq_;
    PacketBuffers buffers_;
    SendRequests requests_;
    Backlog backlog_;
};

} // namespace tofu::proto
