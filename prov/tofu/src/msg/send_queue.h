// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Sends that wait, part of the sending half: the blocks of their packets (PacketBuffers), a send as a call asks for it
// (SendCall), sends that wait for their peer (SendRequests) and sends that wait for room (Backlog).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <sys/uio.h>

#include "core/containers.h"
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
    static void on_sent(vcq::CompletionHandler* handler, const vcq::Notice&) noexcept
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
    Channel* to = nullptr;
    std::uint32_t fin = 0;   ///< index of its completion word; fixed for the life of the object
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
    SendRequests(TxContext& tx, Rings& rings, PacketBuffers& buffers) noexcept;
    SendRequests(const SendRequests&) = delete;
    SendRequests& operator=(const SendRequests&) = delete;
    ~SendRequests();

    /// Null: too many are under way.
    [[nodiscard]] SendRequest* make(Channel& to, const SendCall& call) noexcept;
    /// For a send whose packet waits in its channel (Outbound::defer): it is reported when the packet has arrived.
    /// Null: no memory.
    [[nodiscard]] SendRequest* make_late(Channel& to, const SendCall& call) noexcept;
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
    /// Frees the copies of a sender that closes. Takes the home lock.
    void drop_copies() noexcept { copies_.reset(); }
    /// Looks at the completion words that requests wait for, a bounded number of them each time.
    void poll() noexcept;
    /// True if no completion word of a request that has ended can still come.
    [[nodiscard]] bool writers_gone() const noexcept { return retired_ == 0; }
    /// Ends all requests of the channel with its error. `handler`: that of a packet that has not gone out, or null.
    void channel_failed(Channel& channel, vcq::CompletionHandler* handler) noexcept;

  private:
    [[nodiscard]] bool take_completion(SendRequest& request) noexcept;
    void end(SendRequest& request, int err, int prov_errno) noexcept;
    void release(SendRequest& request) noexcept;
    void begin(SendRequest& request, Channel& to, const SendCall& call) noexcept;
    static void on_delivered(vcq::CompletionHandler* handler, const vcq::Notice& notice) noexcept;

    TxContext& tx_;
    Rings& rings_;
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

// --- Backlog: sends that found no room at their peer wait here, in order, until the peer has read (fi_endpoint(3): at
// most tx_attr.size of them). So a program that posts and then waits for its completions is not refused.

class Sender;

struct PendingSend : PendingOp {
    SendCall call{};
    Channel* to = nullptr;
    ssize_t ret = 0; ///< of the last try
    iovec iov[max_segments] = {};
    void* desc[max_segments] = {};
};

class Backlog {
  public:
    Backlog(TxContext& tx, Sender& sender) noexcept;
    /// The sends that were accepted and have not been sent. No later send to the same peer overtakes them.
    [[nodiscard]] const Pending::Stream& waiting() const noexcept { return waiting_; }
    /// May this call, which has found no room, wait here?
    [[nodiscard]] bool takes(const SendCall& call) const noexcept;
    /// Accepts a send that waits. 0; -FI_EAGAIN: too many wait; or the error of a failed channel.
    [[nodiscard]] ssize_t put_aside(Channel& to, const SendCall& call) noexcept;
    void cancel() noexcept { waiting_.cancel(); }

  private:
    static const Pending::Stream::Steps steps;
    [[nodiscard]] BlockReason go_on(PendingSend& send) noexcept;
    void through(PendingSend& send) noexcept;
    void give_back(PendingSend& send) noexcept;

    TxContext& tx_;
    Sender& sender_;
    Pending::Stream waiting_;
    Pool<PendingSend> pool_;
};

} // namespace tofu::proto
