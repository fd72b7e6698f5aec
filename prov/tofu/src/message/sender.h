// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The sending half of the message protocol: eager messages, requests that wait for their peer, the backlog, fences, and
// the data of RMA writes. Fills slots of channels (ring/outbound.h) and reports to the transmit side's queue and
// counter. Under the endpoint's lock.
//
//   send.h, send.cc  what goes into a ring;  tracked.cc  sends that wait for the peer
//   backlog.cc  sends that wait for room
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <rdma/fi_domain.h>
#include <sys/uio.h>

#include "context/tx_context.h"
#include "local/bounce.h"
#include "local/local_memory.h"
#include "message/packet.h"
#include "provider/array.h"
#include "provider/limits.h"
#include "ring/rings.h"
#include "transfer/request.h"

namespace tofu::proto {

class Sender;

/// One send in any of its forms.
struct SendCall {
    const iovec* iov = nullptr;
    void* const* desc = nullptr; ///< may be null
    std::size_t count = 0;
    std::size_t length = 0;      ///< sum of iov
    fi_addr_t dest = FI_ADDR_UNSPEC;
    std::uint64_t tag = 0;
    std::uint64_t data = 0;
    std::uint64_t flags = 0;     ///< operation flags (fi_endpoint(3))
    void* context = nullptr;
    std::uint8_t packet_flags = 0; ///< flag_tag, flag_data
    bool silent = false;           ///< fi_inject: no entry on success
};

/// A send that was taken when there was no room for it (backlog.cc).
struct PendingSend : PendingOp {
    SendCall call{};
    Channel* to = nullptr;
    ssize_t ret = 0; ///< of the last try
    iovec iov[max_segments] = {};
    void* desc[max_segments] = {};
};

/// A bounce block for packets on their way out.
struct PacketBuffer : vcq::Waiter {
    Sender* owner = nullptr;
    Bounce block{};       ///< kept from its first use on
    std::size_t size = 0; ///< asked for then
};

/// A send that is not over when the call returns.
struct SendRequest : Request {
    Sender* owner = nullptr;
    Channel* to = nullptr;
    std::uint32_t fin = 0;     ///< its FIN word; fixed for the life of the object
    std::uint32_t seq = 0;     ///< of the use of that word
    std::uint32_t place = 0;   ///< in the list of those that wait for FIN
    std::uint8_t ref_count = 0;
    bool numbered = false;
    bool awaits_fin = false;
    PacketBuffer* block = nullptr; ///< its bounce block, where its own notice frees it, or its end
    LocalRef refs[max_segments] = {};
};

/// The marks of a channel are what fences have found: [0] all before it has been taken, [1] and matched.
class Sender final : public Engine {
  public:
    static Sender& of(TxContext& tx) noexcept { return static_cast<Sender&>(*tx.engines()[messages]); }
    Sender(TxContext& tx, Rings& rings) noexcept;
    Sender(const Sender&) = delete;
    Sender& operator=(const Sender&) = delete;
    ~Sender();

    // --- entries. 0 or a refusal without effect (-FI_EAGAIN: progress and retry).
    [[nodiscard]] ssize_t send(const SendCall& call) noexcept;
    /// The short way of send() (send.h): one buffer that goes out in one piggyback Put at once. False: nothing
    /// has happened.
    [[nodiscard]] bool send_short(const SendCall& call, const void* data, std::size_t length) noexcept;
    /// Likewise, in one Put of a slot.
    [[nodiscard]] bool send_slot(const SendCall& call, const void* data, std::size_t length) noexcept;
    /// CQ data behind an RMA write of `length` bytes to `to`: an entry in the peer's receive queue, after
    /// everything that was posted to the peer before. 0, -FI_EAGAIN, -FI_EHOSTDOWN and the like.
    [[nodiscard]] ssize_t write_data(fi_addr_t to, std::uint64_t data, std::uint64_t length) noexcept;

    // --- progress
    [[nodiscard, gnu::always_inline]] bool waits() const noexcept { return !waiting_fin_.empty(); }
    void poll_fins() noexcept;

    // --- of Engine
    void close() noexcept override
    {
        waiting_.cancel();
        rings_.leave();
    }
    /// No header waits for room to leave, no slot that would stay empty is asked for, and of what was reported as sent all
    /// has been fetched.
    [[nodiscard]] bool all_has_left() const noexcept override
    {
        return !out_.deferred() && !out_.asks() && kept_ == 0;
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

    // --- of Protocol
    void channel_failed(Channel& channel, vcq::Waiter* waiter) noexcept;

  private:
    static const Pending::Stream::Steps steps;
    // send.h, send.cc
    [[nodiscard]] int channel_to(fi_addr_t dest, Channel*& to) noexcept;
    [[nodiscard]] Channel* open_channel(const SendCall& call) const noexcept;
    [[nodiscard]] ssize_t try_send(const SendCall& call, bool is_first = false) noexcept;
    [[nodiscard]] ssize_t send_again(const SendCall& call) noexcept;
    [[nodiscard]] ssize_t put_packet(Channel& to, const SendCall& call, const Ack* ack, std::uint8_t flags,
                                     SendRequest* delivered) noexcept;
    [[nodiscard]] vcq::Post put_block(Channel& to, const PacketWriter& packet, PacketBuffer& block,
                                      SendRequest* delivered) noexcept;
    [[nodiscard]] ssize_t put_long(Channel& to, const SendCall& call, const Ack* ack, std::uint8_t flags,
                                   SendRequest* delivered) noexcept;
    void write_head(PacketWriter& packet, Channel& to, Type type, std::uint8_t flags, std::size_t length) noexcept;
    [[nodiscard]] int put_words(Channel& to, Type type, std::uint8_t flags, std::uint64_t first,
                                std::optional<std::uint64_t> second = {}) noexcept;
    void report_sent(const SendCall& call) noexcept;
    void sent(Channel& to, const SendCall& call) noexcept;
    [[nodiscard]] PacketBuffer* alloc_buffer(std::size_t size) noexcept
    {
        PacketBuffer* buffer = buffers_for(size).alloc();
        if (buffer != nullptr && buffer->block.data == nullptr) [[unlikely]]
            return register_buffer(*buffer, size);
        return buffer;
    }
    [[nodiscard]] PacketBuffer* register_buffer(PacketBuffer& buffer, std::size_t size) noexcept;
    [[nodiscard]] Pool<PacketBuffer>& buffers_for(std::size_t size) noexcept
    {
        return size <= BouncePool::small_size ? small_buffers_ : large_buffers_;
    }
    void release(PacketBuffer& buffer) noexcept { buffers_for(buffer.size).release(&buffer); }
    static void on_buffer_sent(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;
    // tracked.cc
    [[nodiscard]] ssize_t send_tracked(Channel& to, const SendCall& call, std::uint64_t level) noexcept;
    [[nodiscard]] ssize_t send_rendezvous(Channel& to, const SendCall& call) noexcept;
    [[nodiscard]] ssize_t put_rts(Channel& to, const SendCall& call, SendRequest& request,
                                  const Segment* segments) noexcept;
    [[nodiscard]] SendRequest* make_request(Channel& to, const SendCall& call) noexcept;
    void await_fin(SendRequest& request) noexcept;
    [[nodiscard]] bool take_fin(SendRequest& request) noexcept;
    void end(SendRequest& request, int err, int prov_errno) noexcept;
    void drop(SendRequest& request) noexcept;
    void ask_settled(Channel& to, bool matched) noexcept;
    static void on_delivered(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;
    // backlog.cc
    [[nodiscard]] bool can_wait(const SendCall& call) const noexcept;
    [[nodiscard]] ssize_t put_aside(const SendCall& call) noexcept;
    [[nodiscard]] Lack go_on(PendingSend& send) noexcept;
    void through(PendingSend& send) noexcept;
    void give_back(PendingSend& send) noexcept;

    TxContext& tx_;
    Rings& rings_;
    Outbound& out_;
    vcq::Vcq& vcq_;
    Pending::Stream waiting_; ///< those that were taken and have not been sent: nobody overtakes them
    Pool<SendRequest> requests_;
    // Each keeps its block; a quarter of all blocks is left for headers of peers.
    Pool<PacketBuffer> small_buffers_{BouncePool::blocks_of[0] / 4 * 3};
    Pool<PacketBuffer> large_buffers_{BouncePool::blocks_of[1] / 4 * 3};
    Pool<PendingSend> backlog_;
    Array<SendRequest*> waiting_fin_; ///< room for all that were made
    std::size_t next_fin_ = 0;   ///< where the next round of polling FIN words starts
    std::uint32_t fins_made_ = 0;
    unsigned kept_ = 0;          ///< sends that were reported, and have not been fetched
    const std::uint32_t first_seq_; ///< of FIN words: an earlier endpoint's number fits nothing of ours
};

} // namespace tofu::proto
