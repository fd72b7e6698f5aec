// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The sending half of the message protocol (Sender): eager messages, rendezvous, fences, and the CQ data of RMA writes.
// Fills slots of channels (msg/tx_ring.h) and reports to the context's queue and counter. A send as a call asks for it
// (SendCall), the blocks of its packets (PacketBuffers), sends that wait for their peer (SendRequests) or for room
// (SendQueue). The two fast paths are inline, at the end. Under the context's lock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include <rdma/fi_domain.h>
#include <sys/uio.h>

#include "core/containers.h"
#include "core/limits.h"
#include "core/pool.h"
#include "cq/counter.h"
#include "cq/cq.h"
#include "mem/bounce_pool.h"
#include "mem/local_buffer.h"
#include "msg/copies.h"
#include "msg/rx_ring.h"
#include "msg/wire.h"
#include "tx/operation.h"
#include "tx/pending_queue.h"
#include "tx/tx_context.h"

namespace tofu::proto {

// --- PacketBuffers: a packet, or the payload of a long eager message, stands in a registered block until its Put has
// read it

class PacketBuffers;

struct PacketBuffer : vcq::CompletionHandler {
    PacketBuffers* owner = nullptr;
    Bounce block{};       ///< kept from its first use on
    std::size_t size = 0; ///< asked for then
};

class PacketBuffers {
  public:
    explicit PacketBuffers(BouncePool& bounces) noexcept : bounces_(bounces) {}
    /// A block that is itself the completion handler of the Put that reads it, and is released by the notice. Null:
    /// none is free now.
    [[nodiscard]] PacketBuffer* alloc(std::size_t size) noexcept
    {
        PacketBuffer* buffer = pool_for(size).alloc();
        if (buffer != nullptr && buffer->block.data == nullptr) [[unlikely]]
            return fill(*buffer, size);
        return buffer;
    }
    void release(PacketBuffer& buffer) noexcept { pool_for(buffer.size).release(&buffer); }

  private:
    [[nodiscard]] Pool<PacketBuffer>& pool_for(std::size_t size) noexcept
    {
        return size <= BouncePool::small_size ? small_ : large_;
    }
    /// Allocates the memory of a buffer that is used for the first time.
    [[nodiscard, gnu::cold, gnu::noinline]] PacketBuffer* fill(PacketBuffer& buffer, std::size_t size) noexcept
    {
        buffer.size = size;
        buffer.block = bounces_.alloc(size);
        if (buffer.block.data == nullptr) {
            release(buffer);
            return nullptr;
        }
        buffer.notify = on_sent;
        buffer.owner = this;
        return &buffer;
    }
    static void on_sent(vcq::CompletionHandler* handler, vcq::Notice) noexcept
    {
        auto& buffer = *static_cast<PacketBuffer*>(handler); // the MRQ reports a failure to the channel
        buffer.owner->release(buffer);
    }

    BouncePool& bounces_;
    // Each keeps its block; a quarter of all blocks is left for headers of peers.
    Pool<PacketBuffer> small_{BouncePool::blocks_of[0] / 4 * 3};
    Pool<PacketBuffer> large_{BouncePool::blocks_of[1] / 4 * 3};
};

// --- SendRequests: sends that are not over when their call returns, and the completion words by which peers end them

class SendRequests;

/// How many operations may be under way at a time, where `asked` were asked for (tx_attr.size; 0: as many as possible).
constexpr std::size_t at_most(std::size_t asked, std::size_t limit) noexcept
{
    return asked != 0 && asked < limit ? asked : limit;
}

/// What a call asks for: one send, in any form of the call.
struct SendCall {
    const iovec* iov = nullptr;
    void* const* desc = nullptr; ///< may be null
    std::size_t count = 0;
    std::size_t length = 0; ///< sum of iov
    fi_addr_t dest = FI_ADDR_UNSPEC;
    std::uint64_t tag = 0;
    std::uint64_t data = 0;
    std::uint64_t flags = 0; ///< operation flags (fi_endpoint(3))
    void* context = nullptr;
    std::uint8_t packet_flags = 0; ///< flag_tag, flag_data
    bool is_inject = false;        ///< fi_inject: no entry on success

    /// The flags of its completion entry (fi_cq(3)).
    [[nodiscard]] std::uint64_t entry_flags() const noexcept
    {
        return FI_SEND | ((packet_flags & flag_tag) != 0 ? FI_TAGGED : FI_MSG);
    }
};

/// A send that is not over: it waits for the notice of its Put, or for its completion word.
struct SendRequest : Request {
    SendRequests* owner = nullptr;
    TxChannel* to = nullptr;
    std::uint32_t word = 0;  ///< index of its completion word; fixed for the life of the object
    std::uint32_t seq = 0;   ///< counts the uses of that word
    std::uint32_t place = 0; ///< in the list of requests that wait for the completion word
    std::uint8_t ref_count = 0;
    Rails::Index rail = 0; ///< the peer fetches from its VCQ, with which `refs` are registered
    bool numbered = false;
    bool awaits_completion = false;
    bool completion_has_come = false;
    bool late = false;             ///< made by make_late(): it has no completion word
    PacketBuffer* block = nullptr; ///< of its packet; the notice of its Put frees it
    Copy* copy = nullptr;          ///< the message, which was reported as sent, until the receiver has fetched it
    LocalRef refs[max_segments] = {};
};

class SendRequests {
  public:
    SendRequests(TxContext& tx, RingSet& rings, PacketBuffers& buffers) noexcept;
    ~SendRequests();

    /// Null: too many are under way.
    [[nodiscard]] SendRequest* make(TxChannel& to, const SendCall& call) noexcept;
    /// For a send whose packet waits in its channel (TxRings::defer): it is reported when the packet has arrived.
    /// Null: no memory.
    [[nodiscard]] SendRequest* make_late(TxChannel& to, const SendCall& call) noexcept;
    /// A block for a copy of `size` bytes, at most BouncePool::large_size. Null: none is free now.
    [[nodiscard]] Copy* make_copy(std::size_t size) noexcept;
    /// Frees a request of which nothing was posted.
    void drop(SendRequest& request) noexcept;
    /// The packet of the request has been posted: from now on its completion word ends it, or the failure of its
    /// channel.
    void await_completion(SendRequest& request) noexcept;
    [[nodiscard, gnu::always_inline]] bool awaits_any() const noexcept { return !awaited_.empty(); }
    /// True if the receivers have fetched every message that was reported as sent.
    [[nodiscard]] bool all_fetched() const noexcept { return copies_ == nullptr || copies_->in_use() == 0; }
    /// For a sender that closes, and posts nothing any more: hands over the copies that receivers have still to fetch,
    /// and lets them find that all other messages have been given up. Null: no receiver has to fetch any.
    [[nodiscard]] std::unique_ptr<Copies> hand_over_copies() noexcept;
    /// Frees the copies of a sender that closes. Takes the target lock.
    void drop_copies() noexcept { copies_.reset(); }
    /// Looks at the completion words that requests wait for, a bounded number of them each time.
    void poll() noexcept;
    /// True if no completion word of a request that has ended can still come.
    [[nodiscard]] bool writers_gone() const noexcept { return retired_ == 0; }
    /// Ends all requests of the channel with its error. `handler`: that of a packet that has not gone out, or null.
    void channel_failed(TxChannel& channel, vcq::CompletionHandler* handler) noexcept;

  private:
    [[nodiscard]] bool poll_completion(SendRequest& request) noexcept;
    void end(SendRequest& request, int err, int prov_errno) noexcept;
    void release(SendRequest& request) noexcept;
    void begin(SendRequest& request, TxChannel& to, const SendCall& call) noexcept;
    static void on_delivered(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept;

    TxContext& tx_;
    RingSet& rings_;
    PacketBuffers& buffers_;
    Pool<SendRequest> pool_;
    Pool<SendRequest> late_{credit_block_count}; ///< one for each channel at most
    std::unique_ptr<Copies> copies_;             ///< null until the first is made
    Array<SendRequest*> awaited_; ///< requests that wait for the completion word; has room for all that were made
    std::size_t next_ = 0;        ///< where the next round of polling completion words starts
    std::uint32_t made_ = 0;
    unsigned retired_ = 0; ///< requests that have failed, whose completion words a live peer may still write
    const std::uint32_t
        first_seq_; ///< of completion words: unlike an earlier endpoint's, so its late words do not match
};

// --- SendQueue: sends that found no room at their peer wait here, in order, until the peer has read (fi_endpoint(3):
// at most tx_attr.size of them). So a program that posts and then waits for its completions is not refused.

class Sender;

struct PendingSend : PendingOp {
    SendCall call{};
    TxChannel* to = nullptr;
    ssize_t ret = 0; ///< of the last try
    iovec iov[max_segments] = {};
    void* desc[max_segments] = {};
};

class SendQueue {
  public:
    SendQueue(TxContext& tx, Sender& sender) noexcept;
    /// May this call, which has found no room, wait here?
    [[nodiscard]] bool takes(const SendCall& call) const noexcept;
    /// Accepts a send that waits. 0; -FI_EAGAIN: too many wait; or the error of a failed channel.
    [[nodiscard]] ssize_t enqueue(TxChannel& to, const SendCall& call) noexcept;
    void cancel() noexcept { waiting_.cancel(); }

  private:
    friend class PendingQueue::SubQueue;
    [[nodiscard]] BlockReason resume(PendingSend& send) noexcept;
    void unblocked(PendingSend& send) noexcept;
    /// Drops a send, which was not sent or is not reported here.
    void cancel(PendingSend& send) noexcept;

    TxContext& tx_;
    Sender& sender_;
    PendingQueue::SubQueue waiting_;
    Pool<PendingSend> pool_;
};

// --- Sender

/// TxChannel::confirmed_seq holds what fences have found: up to this packet all have been [0] taken by the peer, [1]
/// matched with receives.
class Sender final : public Engine {
  public:
    static Sender& of(TxContext& tx) noexcept { return static_cast<Sender&>(*tx.engines()[messages]); }
    Sender(TxContext& tx, RingSet& rings) noexcept;

    // --- entries
    /// Sends a message in the way that its length and flags ask for. 0, or a refusal without effect (-FI_EAGAIN: make
    /// progress and retry).
    [[nodiscard]] ssize_t send(const SendCall& call) noexcept;
    /// Sends one buffer in one piggyback Put, if that can be done at once. False: nothing has happened.
    [[nodiscard]] bool send_inline(const SendCall& call, const void* data, std::size_t length) noexcept;
    /// Sends one buffer in one Put of a slot, if that can be done at once. False: nothing has happened.
    [[nodiscard]] bool send_eager(const SendCall& call, const void* data, std::size_t length) noexcept;
    /// Sends the CQ data of an RMA write of `length` bytes to `to`: the peer gets an entry in its receive queue after
    /// everything that was posted to it before. 0, -FI_EAGAIN, -FI_EHOSTDOWN and the like.
    [[nodiscard]] ssize_t write_data(fi_addr_t to, std::uint64_t data, std::uint64_t length) noexcept;

    /// As send(), without fences and without progress. `is_first`: the send waits in the send queue, first in its peer
    /// queue.
    [[nodiscard]] ssize_t try_send(const SendCall& call, bool is_first = false) noexcept;
    [[nodiscard]] SendRequests& requests() noexcept { return requests_; }

    // --- of Engine
    void close() noexcept override
    {
        queue_.cancel();
        rings_.release_all();
    }
    /// No packet waits for room at the TNI, no slot has been claimed that would stay empty, and receivers have fetched
    /// every message that was reported as sent. What they have not fetched can stay with the domain (copies.h).
    [[nodiscard]] bool all_has_left() const noexcept override
    {
        return !out_.deferred() && !out_.awaits_anon_slot() && requests_.all_fetched();
    }
    /// No send to the peer waits for an answer of the peer, and none for room at the TNI.
    [[nodiscard]] bool idle_towards(const Peer& peer) const noexcept override;
    /// Where idle_towards() holds: has the peer taken (`matched`: and matched with receives) all that was sent to it,
    /// at whatever completion level? False: the peer is asked by a packet that waits for its answer as a send does;
    /// call again.
    [[nodiscard]] bool confirmed(const Peer& peer, bool matched) noexcept override;
    /// An unsignaled post failed, whichever engine posted it: the peer may be gone.
    void on_unsignaled_error(int, vcq::Unsignaled, utofu_vcq_id_t peer) noexcept override { rings_.peer_failed(peer); }

  private:
    static constexpr ssize_t reported_later = 1; ///< of put_eager(): a request reports the send
    // --- packets into a ring
    [[nodiscard]] int channel_to(fi_addr_t dest, TxChannel*& to) noexcept;
    [[nodiscard]] TxChannel* open_channel(const SendCall& call) const noexcept;
    [[nodiscard]] ssize_t send_again(const SendCall& call) noexcept;
    template <class Fill>
    [[nodiscard]] int put_slot(TxChannel& to, Type type, std::uint8_t flags, std::size_t length, std::size_t size,
                               SendRequest* delivered, Fill&& fill) noexcept;
    [[nodiscard]] ssize_t put_eager(TxChannel& to, const SendCall& call, const Ack* ack, std::uint8_t flags,
                                    SendRequest* delivered) noexcept;
    [[nodiscard]] vcq::Post put_block(TxChannel& to, const PacketWriter& packet, PacketBuffer& block,
                                      SendRequest* delivered) noexcept;
    [[nodiscard]] ssize_t put_eager_multi(TxChannel& to, const SendCall& call, const Ack* ack, std::uint8_t flags,
                                          SendRequest* delivered) noexcept;
    [[nodiscard]] int put_words(TxChannel& to, Type type, std::uint8_t flags, std::uint64_t first,
                                std::optional<std::uint64_t> second = {}) noexcept;
    // --- sends that are not over when the call returns
    [[nodiscard]] ssize_t send_signaled(TxChannel& to, const SendCall& call, std::uint64_t level) noexcept;
    [[nodiscard]] ssize_t send_rendezvous(TxChannel& to, const SendCall& call) noexcept;
    [[nodiscard]] ssize_t put_rts(TxChannel& to, const SendCall& call, SendRequest& request,
                                  const Segment* segments) noexcept;
    void request_confirmation(TxChannel& to, bool matched) noexcept;

    TxContext& tx_;
    RingSet& rings_;
    TxRings& out_;
    vcq::Vcq& vcq_;
    PacketBuffers buffers_;
    SendRequests requests_;
    SendQueue queue_;
};

// --- Sender: what all sends share, and the two fast paths: a packet that goes out in one Put, to a peer that was sent
// to lately, and is complete when the call returns

/// Completion levels at which a send is not over when its packet is posted.
inline constexpr std::uint64_t levels = FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE;

/// Writes the fields between the payload and the head: data, tag, ack.
inline void write_fields(PacketWriter& packet, const SendCall& call, const Ack* ack, std::uint8_t flags) noexcept
{
    if (flags & flag_data)
        packet.put64(call.data);
    if (flags & flag_tag)
        packet.put64(call.tag);
    if (ack != nullptr)
        packet.put(*ack);
}

/// Writes the head, with which a packet ends; without a ring the sender's envelope stands behind it.
inline void write_head(PacketWriter& packet, TxRings& out, TxChannel& to, Type type, std::uint8_t flags,
                       std::size_t length) noexcept
{
    packet.control(type, flags, length, to.seq());
    if (to.state != ChannelState::open) [[unlikely]]
        packet.put(out.envelope(to));
}

/// The last `n` bytes of a payload, 1 to 7, as a word that is filled up with zeros.
[[nodiscard]] inline std::uint64_t load_tail(const std::byte* from, std::size_t n) noexcept
{
    if (n >= 4) {
        std::uint32_t first, last; // the two overlap
        std::memcpy(&first, from, sizeof first);
        std::memcpy(&last, from + n - sizeof last, sizeof last);
        return first | std::uint64_t{last} << (8 * (n - sizeof last));
    }
    std::uint64_t word = std::to_integer<std::uint64_t>(from[0]);
    if (n >= 2)
        word |= std::to_integer<std::uint64_t>(from[1]) << 8 | std::to_integer<std::uint64_t>(from[n - 1])
                                                                   << (8 * (n - 1));
    return word;
}

/// Reports a send whose bytes are on their way and whose buffer is the user's again (FI_INJECT_COMPLETE).
[[gnu::always_inline]] inline void report_sent(const TxContext& context, const SendCall& call) noexcept
{
    const Reports& reports = context.reports();
    if (!call.is_inject && reports.binding.reports(call.flags))
        reports.binding.cq->write({.context = call.context, .flags = call.entry_flags()});
    if (Counter* counter = reports.counters.send)
        counter->count();
}

/// The channel to the peer, if it was used lately and one packet may go out now and complete the send. Else null.
[[gnu::always_inline]] inline TxChannel* Sender::open_channel(const SendCall& call) const noexcept
{
    if ((call.flags & (levels | FI_FENCE | FI_TRIGGER)) != 0) [[unlikely]]
        return nullptr;
    auto* const to = out_.channels.recent(call.dest);
    if (to == nullptr || to->state != ChannelState::open || to->deferred.size != 0 || to->waiting != 0 ||
        to->free_slots() == 0) [[unlikely]]
        return nullptr;
    return to;
}

[[gnu::always_inline]] inline bool Sender::send_inline(const SendCall& call, const void* data,
                                                       std::size_t length) noexcept
{
    if (length > inline_limit - overhead(call.packet_flags) || is_null(data, length))
        return false;
    TxChannel* const ch = open_channel(call);
    if (ch == nullptr) [[unlikely]]
        return false;
    alignas(8) std::byte image[inline_limit]; // the end of a slot
    PacketWriter packet(image + inline_limit);
    packet.control(Type::eager, call.packet_flags, length, ch->next_seq);
    write_fields(packet, call, nullptr, call.packet_flags);
    std::byte* const to = packet.reserve(length);
    const auto* const from = static_cast<const std::byte*>(data);
    const std::size_t words = length & ~std::size_t{7};
    for (std::size_t at = 0; at != words; at += 8)
        std::memcpy(to + at, from + at, 8);
    if (length != words) {
        const std::uint64_t word = load_tail(from + words, length - words);
        std::memcpy(to + words, &word, sizeof word);
    }
    const vcq::Post post = vcq_.put_inline(
        ch->peer.target_vcq, packet.data(), ch->slot(ch->next_seq) + slot_size - packet.size(), packet.size(),
        vcq::UnsignaledArgs{vcq::Unsignaled::message, vcq::flags_of(true, false) | vcq::whole_line});
    if (post != vcq::Post::done) [[unlikely]]
        return false;
    vcq_.statistics().count(Stat::send_short);
    ch->next_seq++;
    report_sent(tx_, call);
    return true;
}

/// Builds the packet in a registered block and puts it by one Put.
[[gnu::always_inline]] inline bool Sender::send_eager(const SendCall& call, const void* data,
                                                      std::size_t length) noexcept
{
    constexpr std::size_t always = std::min(inline_room(flag_data | flag_tag), limits::inject_size);
    const bool injected = call.is_inject || (call.flags & FI_INJECT) != 0;
    if ((length > always && (injected || length > inline_room(call.packet_flags))) || is_null(data, length))
        return false;
    TxChannel* const ch = open_channel(call);
    PacketBuffer* const block = ch != nullptr ? buffers_.alloc(slot_size) : nullptr;
    if (block == nullptr) [[unlikely]]
        return false;
    PacketWriter packet(block->block.data + slot_size);
    packet.control(Type::eager, call.packet_flags, length, ch->next_seq);
    write_fields(packet, call, nullptr, call.packet_flags);
    if (length != 0) {
        std::byte* const to = packet.reserve(length);
        std::memset(to + (length + 7) / 8 * 8 - 8, 0, 8); // the padding shows nothing of our memory
        std::memcpy(to, data, length);
    }
    const vcq::Post post =
        vcq_.put(ch->peer.target_vcq, block->block.stadd + slot_size - packet.size(),
                 ch->slot(ch->next_seq) + slot_size - packet.size(), packet.size(),
                 vcq::PostOptions{.level = vcq::CompletionLevel::sent, .strong_order = true, .handler = block});
    if (post != vcq::Post::done) [[unlikely]] {
        buffers_.release(*block);
        return false;
    }
    vcq_.statistics().count(Stat::send_slot);
    ch->next_seq++;
    report_sent(tx_, call);
    return true;
}

} // namespace tofu::proto
