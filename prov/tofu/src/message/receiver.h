// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The receiving half of the message protocol: packets out of rings (ring/inbound.h) into receives (match), the Gets of
// a rendezvous, acknowledgements. Reports to the receive side's queue and counter. Nothing of a packet is trusted.
// Under the endpoint's lock.
//
//   poll.cc  the short way of a message;  receive.cc  all other packets;  far.h  payloads of
//   visits;  fetch.h  the receiving side of a rendezvous
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "area/packet.h"
#include "context/rx_context.h"
#include "context/tx_context.h"
#include "match/receive_queue.h"
#include "message/far.h"
#include "message/fetch.h"
#include "message/message.h"
#include "ring/rings.h"
#include "transfer/request.h"

namespace tofu::proto {

/// Answered when no message of its sender waits for a receive.
struct Fence {
    Ring* in = nullptr;
    Ack ack{};
};

class Receiver final : public Inbound, private SrxPeer {
  public:
    Receiver(TxContext& tx, RxContext& rx, Port& port) noexcept;
    ~Receiver();

    /// Behind Rings::open(). 0 or -FI_ENOMEM. Takes the endpoint's lock.
    [[nodiscard]] int join_queue() noexcept;
    /// Behind Rings::leave() and the last notice: receives of a shared context that wait for bytes through here are
    /// cancelled, and nothing that came through here is given out any more.
    void part_from_queue() noexcept;
    /// Where receives for this endpoint are posted.
    [[nodiscard]] ReceiveQueue& queue() noexcept { return queue_; }
    /// Of a receive of the endpoint's own. 0 or -FI_ENOENT.
    [[nodiscard]] ssize_t cancel(void* context) noexcept;

    [[nodiscard]] Fetches& fetches() noexcept { return fetches_; }
    /// The end of a message for its receive: one entry, one count.
    void received(RecvRequest& receive, const Message& message, void* buffer, std::size_t length, int err,
                  int prov_errno) noexcept;
    /// Those whose senders have no message here that waits for its receive: also none that came later, which is safe.
    void answer_fences() noexcept;

    // --- of Inbound::poll
    [[nodiscard]] bool take_short(Ring& ring, std::uint64_t control, std::uint32_t& slots) noexcept;
    [[nodiscard]] bool take(Ring& ring, std::uint32_t& slots) noexcept;

  private:
    // of SrxPeer
    bool start(RecvRequest& receive, Unexpected& message) noexcept override;
    bool discard(Unexpected& message) noexcept override;
    void forgotten(Unexpected& message) noexcept override;
    fi_addr_t source_of(const Unexpected& message) noexcept override;
    void progress(bool everywhere) noexcept override;

    struct Short;
    void finish_short(RecvRequest& receive, const Short& message, const std::byte* payload) noexcept;
    [[nodiscard]] bool take_message(Ring& in, const Packet& packet, std::uint32_t& slots) noexcept;
    [[nodiscard]] bool take_far(Message& message) noexcept;
    void take_write_data(Ring& in, const Packet& packet) noexcept;
    [[nodiscard]] bool take_fence(Ring& in, const Packet& packet) noexcept;
    [[nodiscard]] fi_addr_t source_of(Ring& in) noexcept;
    /// The entry of what has succeeded, its source not told yet.
    void report(CompletionQueue& cq, Completion& entry, Ring& in) noexcept;
    [[nodiscard]] bool deliver(Message& message) noexcept;
    [[nodiscard]] bool ask(SrxOwner& owner, Message& message) noexcept;
    [[nodiscard]] bool discard(const Message& message) noexcept;
    [[nodiscard]] bool keep(Message& message, RecvRequest* owned) noexcept;
    [[nodiscard]] bool give(RecvRequest& receive, const Message& message) noexcept;

    TxContext& tx_;
    RxContext& rx_;
    bool wants_source_;         ///< FI_SOURCE
    bool wants_strangers_;      ///< FI_SOURCE_ERR
    Array<Fence> fences_;
    FarPayloads far_;
    std::optional<ReceiveQueue> own_queue_; ///< none where the receives are those of a shared context
    ReceiveQueue& queue_;
    Fetches fetches_;
};

} // namespace tofu::proto
