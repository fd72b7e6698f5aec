// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The sending half of the message protocol: eager messages, sends that wait for their peer, fences, and the data of RMA
// writes. Fills slots of channels (ring/outbound.h) and reports to the transmit side's queue and counter. Under the
// endpoint's lock.
//
//   short.h, eager.cc  what goes into a ring;  tracked.cc  sends that wait for the peer
//   buffers.h  blocks of packets;  requests.h  what waits for the peer;  backlog.h  what waits for room
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <rdma/fi_domain.h>

#include "area/packet.h"
#include "context/tx_context.h"
#include "ring/rings.h"
#include "send/backlog.h"
#include "send/buffers.h"
#include "send/requests.h"

namespace tofu::proto {

/// The marks of a channel are what fences have found: [0] all before it has been taken, [1] and matched.
class Sender final : public Engine {
  public:
    static Sender& of(TxContext& tx) noexcept { return static_cast<Sender&>(*tx.engines()[messages]); }
    Sender(TxContext& tx, Rings& rings) noexcept;
    Sender(const Sender&) = delete;
    Sender& operator=(const Sender&) = delete;

    // --- entries. 0 or a refusal without effect (-FI_EAGAIN: progress and retry).
    [[nodiscard]] ssize_t send(const SendCall& call) noexcept;
    /// The short way of send() (short.h): one buffer that goes out in one piggyback Put at once. False: nothing
    /// has happened.
    [[nodiscard]] bool send_short(const SendCall& call, const void* data, std::size_t length) noexcept;
    /// Likewise, in one Put of a slot.
    [[nodiscard]] bool send_slot(const SendCall& call, const void* data, std::size_t length) noexcept;
    /// CQ data behind an RMA write of `length` bytes to `to`: an entry in the peer's receive queue, after
    /// everything that was posted to the peer before. 0, -FI_EAGAIN, -FI_EHOSTDOWN and the like.
    [[nodiscard]] ssize_t write_data(fi_addr_t to, std::uint64_t data, std::uint64_t length) noexcept;

    /// Without a refused call's rounds of progress. `is_first`: it waits already, and nobody before it.
    [[nodiscard]] ssize_t try_send(const SendCall& call, bool is_first = false) noexcept;
    [[nodiscard]] SendRequests& requests() noexcept { return requests_; }

    // --- of Engine
    void close() noexcept override
    {
        backlog_.cancel();
        rings_.leave();
    }
    /// No header waits for room to leave, no slot that would stay empty is asked for, and of what was reported as sent all
    /// has been fetched.
    [[nodiscard]] bool all_has_left() const noexcept override
    {
        return !out_.deferred() && !out_.visits.asks() && requests_.all_fetched();
    }
    /// No send to the peer waits for it, or for room to leave.
    [[nodiscard]] bool idle_towards(const Peer& peer) const noexcept override;
    /// Where that holds: has the peer taken (matched: and given to receives) what was sent to it, at whatever level?
    /// False: it is asked; its answer is waited for as that of a send, and the question is repeated.
    [[nodiscard]] bool settled(const Peer& peer, bool matched) noexcept override;
    /// Whoever posted it: is the peer gone?
    void lost(int utofu_code, vcq::Unsignaled, utofu_vcq_id_t peer) noexcept override
    {
        rings_.peer_failed(peer, utofu_code);
    }

  private:
    // short.h, eager.cc
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
