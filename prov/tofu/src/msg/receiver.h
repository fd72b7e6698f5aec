// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The receiving half of the message protocol: takes packets out of rings (msg/rx_ring.h) and acts on them. delivery.h
// brings messages to their receives. Nothing in a packet is trusted. Under the endpoint's lock.
//
//   poll.cc  the short way of a message;  receiver.cc  all other packets;  eager_by_get.h  payloads of anonymous
//   packets
#pragma once

#include <cstdint>

#include "msg/delivery.h"
#include "msg/eager_by_get.h"
#include "msg/packet.h"
#include "msg/rings.h"
#include "tx/tx_context.h"

namespace tofu::proto {

/// A fence of a sender; it is answered when no message of that sender waits for a receive.
struct Fence {
    Ring* in = nullptr;
    Ack ack{};
};

class Receiver final : public Inbound {
  public:
    Receiver(TxContext& tx, RxContext& rx, Port& port) noexcept;
    ~Receiver();

    [[nodiscard]] Delivery& delivery() noexcept { return delivery_; }
    /// Takes packets from the place of first_arrived() on, a bounded number.
    void take_packets(std::size_t ring) noexcept;
    /// Answers the fences whose senders have no message here that waits for its receive. Messages that came after the
    /// fence count, too, which may delay the answer but is safe.
    void answer_fences() noexcept;

    // --- of Inbound::poll
    [[nodiscard]] std::uint32_t take_short(Ring& ring, const std::uint64_t* end, std::uint64_t control) noexcept;
    [[nodiscard]] bool take(Ring& ring, std::uint32_t& slots) noexcept;

  private:
    [[nodiscard]] std::uint32_t take_long(Ring& ring, const std::uint64_t* end, const Control& control) noexcept;
    [[nodiscard]] bool take_message(Ring& in, const Packet& packet, std::uint32_t& slots) noexcept;
    [[nodiscard]] bool take_eager_by_get(Message& message) noexcept;
    void take_write_data(Ring& in, const Packet& packet) noexcept;
    [[nodiscard]] bool take_fence(Ring& in, const Packet& packet) noexcept;

    TxContext& tx_;
    RxContext& rx_;
    Array<Fence> fences_;
    EagerGets eager_gets_;
    Delivery delivery_;
};

} // namespace tofu::proto
