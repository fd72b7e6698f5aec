// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The receiving half of the message protocol: packets out of rings (ring/inbound.h) into receives (match), the Gets of
// a rendezvous, acknowledgements. Reports to the receive side's queue and counter. Nothing of a packet is trusted.
// Under the endpoint's lock.
//
//   poll.cc  the short way of a message;  receive.cc  all other packets;  far.h  payloads of
//   visits;  fetch.cc  the receiving side of a rendezvous
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <sys/uio.h>

#include "context/rx_context.h"
#include "context/tx_context.h"
#include "local/local_memory.h"
#include "match/receive_queue.h"
#include "message/far.h"
#include "message/packet.h"
#include "ring/rings.h"
#include "transfer/request.h"

namespace tofu::proto {

class Receiver;

/// A ring, and what we keep of its sender.
struct Source : Ring {
    fi_addr_t address = FI_ADDR_NOTAVAIL; ///< as the address vector had it
    std::uint32_t generation = ~0u;       ///< then
};

/// Answered when no message of its sender waits for a receive.
struct Fence {
    Source* in = nullptr;
    Ack ack{};
};

/// What a message that waits for its receive consists of besides (Unexpected::body).
struct Kept {
    Source* in;
    Ack fin;
    Type type;
    bool ack;
    bool at_match;
    std::uint8_t segment_count;
};

/// A message that is to be given to a receive, wherever its payload is.
struct Message {
    Type type = Type::none;
    bool tagged = false;
    bool has_data = false;
    bool ack = false;     ///< FIN is due when it has been received,
    bool at_match = false;///< and not before it has found its receive
    bool kept = false;    ///< it came before its receive: its sender may have gone since
    std::uint8_t segment_count = 0;
    Ack fin{};
    std::uint64_t tag = 0;
    std::uint64_t data = 0;
    std::size_t length = 0;
    const std::byte* payload = nullptr; ///< eager
    Source* in = nullptr;               ///< who sent it
    std::uint64_t vcq = 0;              ///< rts
    Segment segments[max_segments] = {};

    /// What stays of it where it has to wait for its receive: a Kept, and behind that its payload, or the body of its
    /// RTS.
    [[nodiscard]] std::size_t kept_size() const noexcept
    {
        return sizeof(Kept) + (type == Type::rts ? sizeof vcq + segment_count * sizeof(Segment) : length);
    }
    void pack(Unexpected& to) const noexcept;
    [[nodiscard]] static Message unpack(const Unexpected& from) noexcept;
};

/// The receiving side of a rendezvous.
struct Fetch : vcq::Waiter {
    Receiver* owner = nullptr;
    RecvRequest* receive = nullptr;
    Fetch* next = nullptr;         ///< among those that wait for room
    Message message{};
    iovec into[max_segments] = {};
    void* desc[max_segments] = {};
    std::uint8_t into_count = 0;
    std::uint8_t ref_count = 0;
    bool live = false;             ///< its end is still to come
    std::uint8_t from_index = 0;   ///< position of the next Get
    std::uint8_t into_index = 0;
    bool waiting = false;          ///< in the list
    bool unverified = false;         ///< does the sender still wait for it? To be asked before the first Get
    bool lost = false;             ///< it does not: no FIN
    std::uint64_t from_offset = 0;
    std::uint64_t into_offset = 0;
    std::size_t to_fetch = 0;      ///< bytes without a Get yet
    std::size_t length = 0;        ///< bytes in all
    std::uint32_t pending = 0;
    int err = 0;
    int prov_errno = 0;
    Bounce answer{};               ///< of `unverified`
    LocalRef refs[max_segments] = {};
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

    // --- progress
    [[nodiscard, gnu::always_inline]] bool waits() const noexcept { return waiting_fetches_ != nullptr; }
    /// Once per round: fetches that found no room go on, in their order.
    void resume_fetches() noexcept;
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

    // receive.cc
    [[nodiscard]] bool take_message(Source& in, const Packet& packet, std::uint32_t& slots) noexcept;
    [[nodiscard]] bool take_far(Message& message) noexcept;
    void take_write_data(Source& in, const Packet& packet) noexcept;
    [[nodiscard]] bool take_fence(Source& in, const Packet& packet) noexcept;
    [[nodiscard]] fi_addr_t source_of(Source& in) noexcept;
    [[nodiscard]] bool deliver(Message& message) noexcept;
    [[nodiscard]] bool keep(Message& message) noexcept;
    [[nodiscard]] bool give(RecvRequest& receive, Message& message) noexcept;
    [[nodiscard]] bool acknowledge(const Source& in, const Ack& fin) noexcept;
    void received(RecvRequest& receive, const Message& message, void* buffer, std::size_t length,
                  int err, int prov_errno) noexcept;
    // fetch.cc
    [[nodiscard]] Fetch* make_fetch(const Message& message) noexcept;
    void start(Fetch& fetch) noexcept;
    void ask(Fetch& fetch) noexcept;
    void answered(Fetch& fetch, const vcq::Notice& notice) noexcept;
    void advance(Fetch& fetch) noexcept;
    [[nodiscard]] bool get_piece(Fetch& fetch) noexcept;
    void finish(Fetch& fetch) noexcept;
    void wait(Fetch& fetch) noexcept;
    static void on_fetched(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;

    TxContext& tx_; ///< whose VCQ and local registrations fetch
    RxContext& rx_;
    Port& port_;
    vcq::Vcq& vcq_;
    std::size_t max_piece_ = 0; ///< of one Get
    bool wants_source_;         ///< FI_SOURCE
    Array<Fence> fences_;
    FarPayloads far_;
    std::optional<ReceiveQueue> own_queue_; ///< none where the receives are those of a shared context
    ReceiveQueue& queue_;
    Pool<Fetch> fetches_{4096};
    Fetch* waiting_fetches_ = nullptr;
};

} // namespace tofu::proto
