// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The message protocol of one endpoint: fi_msg, fi_tagged, and the CQ data of RMA writes. Entered through msg and
// tagged, and by the endpoint's progress; calls the endpoint's VCQ. All of it under the endpoint's lock.
//
// One class, a file for each of its tasks:
//   messenger.cc  beginning and end
//   ring/contact.cc    how a ring at a peer is won, and lost with the peer
//   ring/turnover.cc   how rings and channels are given back while both sides live
//   ring/life.cc       the watch over peers that are silent
//   send.h, .cc   what goes into a ring; tracked.cc: sends that wait for the peer; backlog.cc: sends that wait for room
//   poll.cc       the rounds of progress, and the fast path of a received message; receive.cc: all other packets
//   fetch.cc      the receiving side of a rendezvous
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include <rdma/fi_domain.h>
#include <sys/uio.h>

#include "context/tx_context.h"
#include "match/receive_queue.h"
#include "memory/bounce.h"
#include "provider/array.h"
#include "provider/limits.h"
#include "ring/area.h"
#include "ring/channel.h"
#include "ring/channel_table.h"
#include "ring/wire.h"
#include "transfer/request.h"
#include "vcq/vcq.h"

namespace tofu {
class Endpoint;
}

namespace tofu::proto {

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
struct Backlogged {
    Backlogged* next = nullptr;
    SendCall call{};
    iovec iov[max_segments] = {};
    void* desc[max_segments] = {};
};

class Messenger final : public Engine, private SrxPeer {
  public:
    static Messenger& of(TxContext& tx) noexcept { return static_cast<Messenger&>(*tx.engine(messages)); }
    explicit Messenger(Endpoint& endpoint) noexcept;
    Messenger(const Messenger&) = delete;
    Messenger& operator=(const Messenger&) = delete;
    ~Messenger();

    /// Makes the message area. 0 or -FI_E*. No lock of the domain may be held.
    [[nodiscard]] int open() noexcept;
    /// Says BYE to all peers. Called under lock() before the VCQ is closed; nothing is posted afterwards.
    void leave() noexcept;
    /// Behind leave() and the last notice, under lock(): receives of a shared context that wait for bytes through here
    /// are cancelled, and nothing that came through here is given out any more.
    void part_from_queue() noexcept;
    /// Behind that, without lock(): peers reach the area no more. Takes the home lock.
    void close_area() noexcept { area_.close(); }
    /// Where receives for this endpoint are posted.
    [[nodiscard]] ReceiveQueue& queue() noexcept { return queue_; }

    // --- entries, under the endpoint's lock. 0 or a refusal without effect (-FI_EAGAIN: progress and retry).
    [[nodiscard]] ssize_t send(const SendCall& call) noexcept;
    /// The short way of send() (send.h): one buffer that goes out in one piggyback Put at once. False: nothing
    /// has happened.
    [[nodiscard]] bool send_short(const SendCall& call, const void* data, std::size_t length) noexcept;
    /// Likewise, in one Put of a slot.
    [[nodiscard]] bool send_slot(const SendCall& call, const void* data, std::size_t length) noexcept;
    /// CQ data behind an RMA write of `length` bytes to `to`: an entry in the peer's receive queue, after
    /// everything that was posted to the peer before. 0, -FI_EAGAIN, -FI_EHOSTDOWN and the like.
    [[nodiscard]] ssize_t write_data(fi_addr_t to, std::uint64_t data, std::uint64_t length) noexcept;
    /// Of a receive of the endpoint's own. 0 or -FI_ENOENT.
    [[nodiscard]] ssize_t cancel(void* context) noexcept;

    // --- from the endpoint, under its lock
    void progress() noexcept;
    /// A communication nobody waited for failed: the peer is gone, whoever posted it.
    void lost(int utofu_code, vcq::Orphan, utofu_vcq_id_t peer) noexcept override { peer_failed(peer, utofu_code); }
    /// No packet waits for room to leave.
    [[nodiscard]] bool all_has_left() const noexcept override { return deferred_ == 0 && congested_.empty(); }
    /// No send to the peer waits for it, or for room to leave.
    [[nodiscard]] bool idle_towards(const Peer& peer) const noexcept override;
    /// Where that holds: has the peer taken (matched: and given to receives) what was sent to it, at whatever level?
    /// False: it is asked; its answer is waited for as that of a send, and the question is repeated.
    [[nodiscard]] bool settled(const Peer& peer, bool matched) noexcept override;

  private:
    struct Poll {
        std::uint64_t* word; ///< control word of the slot expected next
        std::uint32_t seq;
        std::uint32_t ring;
    };

    // ring/contact.cc
    [[nodiscard]] int channel_to(fi_addr_t dest, Channel*& channel) noexcept;
    void use_last(fi_addr_t dest, const Peer& peer, Channel& ch) noexcept
    {
        last_dest_ = dest;
        last_peer_ = &peer;
        last_channel_ = &ch;
    }
    [[nodiscard]] int make_channel(fi_addr_t dest, const Peer& peer, Channel*& channel) noexcept;
    [[nodiscard]] int contact(Channel& ch) noexcept;
    void start_reading(Channel& ch) noexcept;
    void start_claiming(Channel& ch) noexcept;
    void pause(Channel& ch, unsigned ms) noexcept;
    void greet(Channel& ch) noexcept;
    [[nodiscard]] std::uint32_t next_guess(const Channel& ch) const noexcept;
    void count_claim(Channel& ch) noexcept;
    void uncount_claim(Channel& ch) noexcept;
    void on_hello(Channel& ch, const vcq::Notice& notice) noexcept;
    void on_header(Channel& ch, const vcq::Notice& notice) noexcept;
    void on_claim(Channel& ch, const vcq::Notice& notice) noexcept;
    static void on_contact(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;
    void fail(Channel& ch, int err, int prov_errno) noexcept;
    void peer_failed(utofu_vcq_id_t home, int utofu_code) noexcept;

    // ring/turnover.cc
    void check_return(Channel& ch) noexcept;
    [[nodiscard]] bool say_bye(Channel& ch) noexcept;
    void look_at_returns(std::size_t most) noexcept;
    [[nodiscard]] Channel* reuse_channel() noexcept;
    [[nodiscard]] static bool reusable(const Channel& ch) noexcept;
    void unlink(Channel& ch) noexcept;
    void on_wish() noexcept;
    void ask_back() noexcept;
    [[nodiscard]] bool farewell(Inbound& in) noexcept;

    // ring/life.cc
    void watch() noexcept;
    void start_probe(Channel& ch) noexcept;
    void start_probe(Inbound& in) noexcept;
    void set_gone(Inbound& in) noexcept;
    static void on_life(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;
    static void on_inbound_life(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;
    [[nodiscard]] bool same_process(const Bounce& scratch, std::uint64_t nonce) const noexcept;
    [[nodiscard]] bool shows_death(const Inbound& in, const vcq::Notice& notice) const noexcept;

    // send.h, send.cc
    [[nodiscard]] ssize_t try_send(const SendCall& call) noexcept;
    [[nodiscard]] ssize_t send_again(const SendCall& call) noexcept;
    [[nodiscard]] ssize_t put_packet(Channel& ch, const SendCall& call, const Ack* ack,
                                     std::uint8_t flags, SendRequest* delivered) noexcept;
    [[nodiscard]] vcq::Post put_small(Channel& ch, const PacketWriter& packet,
                                      SendRequest* delivered) noexcept;
    [[nodiscard]] vcq::Post put_block(Channel& ch, const PacketWriter& packet, Hold& block,
                                      SendRequest* delivered) noexcept;
    [[nodiscard]] ssize_t put_long(Channel& ch, const SendCall& call, const Ack* ack,
                                   std::uint8_t flags, SendRequest* delivered) noexcept;
    /// Is there room for that many slots?
    [[nodiscard]] bool room(Channel& ch, std::uint32_t slots) noexcept
    {
        return ch.free_slots() >= slots || look_for_room(ch, slots);
    }
    [[nodiscard]] bool look_for_room(Channel& ch, std::uint32_t slots) noexcept;
    [[nodiscard]] bool flush(Channel& ch) noexcept;
    [[nodiscard]] ssize_t post_failed(Channel& ch, vcq::Post post) noexcept;
    void report_sent(const SendCall& call) noexcept;
    void sent(Channel& ch, const SendCall& call) noexcept;
    [[nodiscard]] Channel* open_channel(const SendCall& call) const noexcept;
    [[nodiscard]] Hold* hold(std::size_t size) noexcept
    {
        Hold* h = holds_for(size).alloc();
        if (h != nullptr && h->block.data == nullptr) [[unlikely]]
            return furnish(*h, size);
        return h;
    }
    [[nodiscard]] Hold* furnish(Hold& hold, std::size_t size) noexcept;
    [[nodiscard]] Pool<Hold>& holds_for(std::size_t size) noexcept
    {
        return size <= BouncePool::small_size ? small_holds_ : large_holds_;
    }
    void release(Hold& block) noexcept { holds_for(block.size).release(&block); }
    static void on_block_sent(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;

    // tracked.cc
    [[nodiscard]] ssize_t send_tracked(Channel& ch, const SendCall& call, std::uint64_t level) noexcept;
    [[nodiscard]] ssize_t send_rendezvous(Channel& ch, const SendCall& call) noexcept;
    [[nodiscard]] ssize_t put_rts(Channel& ch, const SendCall& call, SendRequest& request,
                                  const Segment* segments) noexcept;
    [[nodiscard]] SendRequest* make_request(Channel& ch, const SendCall& call) noexcept;
    void await_fin(SendRequest& request) noexcept;
    void end(SendRequest& request, int err, int prov_errno) noexcept;
    void drop(SendRequest& request) noexcept;
    void ask_settled(Channel& ch, bool matched) noexcept;
    void poll_fins() noexcept;
    static void on_delivered(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;

    // backlog.cc
    [[nodiscard]] bool can_wait(const SendCall& call) const noexcept;
    [[nodiscard]] ssize_t put_aside(const SendCall& call) noexcept;
    void work_off() noexcept;
    void work_off(Channel& ch) noexcept;

    // poll.cc
    void poll_rings() noexcept;
    void poll_in_turn() noexcept;
    [[nodiscard]] unsigned drain(const Poll& poll) noexcept;
    [[nodiscard]] unsigned empty(Inbound& in, std::uint64_t control) noexcept;
    [[nodiscard]] bool take_short(Inbound& in, std::uint64_t control, std::uint32_t& slots) noexcept;

    // receive.cc
    [[nodiscard]] bool take(Inbound& in, std::uint32_t& slots) noexcept;
    [[nodiscard]] bool take_hello(Inbound& in, const Packet& packet) noexcept;
    [[nodiscard]] bool take_message(Inbound& in, const Packet& packet, std::uint32_t& slots) noexcept;
    void blank(const Inbound& in, std::uint32_t slots) noexcept;
    [[nodiscard]] bool read_rts(Inbound& in, const Packet& packet, Message& message) const noexcept;
    void take_write_data(Inbound& in, const Packet& packet) noexcept;
    [[nodiscard]] bool take_fence(Inbound& in, const Packet& packet) noexcept;
    void answer_fences() noexcept;
    void bad_packet(const Inbound& in, const char* what) noexcept;
    void report(Inbound& in) noexcept;
    void refuse(Inbound& in, ReturnStatus status) noexcept;
    void open_ring(unsigned ring) noexcept;
    void close_ring(Inbound& in) noexcept;
    [[nodiscard]] fi_addr_t source_of(Inbound& in) noexcept;
    void let_go(Inbound& in) noexcept;
    [[nodiscard]] bool deliver(Message& message) noexcept;
    [[nodiscard]] bool keep(Message& message) noexcept;
    [[nodiscard]] bool give(RecvRequest& receive, Message& message) noexcept;
    [[nodiscard]] bool acknowledge(const Inbound& in, const Ack& fin) noexcept;
    void received(RecvRequest& receive, const Message& message, void* buffer, std::size_t length,
                  int err, int prov_errno) noexcept;
    // of SrxPeer
    bool start(RecvRequest& receive, Unexpected& message) noexcept override;
    bool discard(Unexpected& message) noexcept override;
    void forgotten(Unexpected& message) noexcept override;
    fi_addr_t source_of(const Unexpected& message) noexcept override;
    void progress(bool everywhere) noexcept override;

    // fetch.cc
    [[nodiscard]] Fetch* make_fetch(const Message& message) noexcept;
    void start(Fetch& fetch) noexcept;
    void ask(Fetch& fetch) noexcept;
    void answered(Fetch& fetch, const vcq::Notice& notice) noexcept;
    void advance(Fetch& fetch) noexcept;
    [[nodiscard]] bool get_piece(Fetch& fetch) noexcept;
    void finish(Fetch& fetch) noexcept;
    void wait(Fetch& fetch) noexcept;
    void resume_fetches() noexcept;
    static void on_fetched(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;

    // messenger.cc
    void ring_bell(utofu_vcq_id_t home, utofu_stadd_t area, Bell bell) noexcept;
    void scan_claims() noexcept;
    void catch_up() noexcept;
    void close_gone() noexcept;
    void slow_round() noexcept;

    Endpoint& ep_;
    vcq::Vcq& vcq_;
    Area area_;
    BouncePool bounces_;
    bool open_ = false;
    bool wants_source_ = false; ///< FI_SOURCE
    std::size_t max_piece_ = 0; ///< of one Get

    // outgoing
    // The channel used last, or null, and the place of the address vector that led to it.
    fi_addr_t last_dest_ = FI_ADDR_NOTAVAIL;
    const Peer* last_peer_ = nullptr;
    Channel* last_channel_ = nullptr;
    ChannelTable channel_of_; ///< by address
    Array<Channel*> channels_;
    Pool<Channel> channel_pool_{return_count};
    Pool<SendRequest> sends_;
    // Each keeps its block; a quarter of all blocks is left for headers of peers.
    Pool<Hold> small_holds_{BouncePool::blocks_of[0] / 4 * 3};
    Pool<Hold> large_holds_{BouncePool::blocks_of[1] / 4 * 3};
    Pool<Backlogged> backlog_;
    Array<Channel*> congested_; ///< channels with a backlog; room for all
    Array<SendRequest*> waiting_fin_; ///< room for all that were made
    std::size_t next_fin_ = 0;   ///< where the next round of polling FIN words starts
    std::uint32_t fins_made_ = 0;
    const std::uint32_t first_seq_; ///< of FIN words: an earlier endpoint's number fits nothing of ours
    unsigned deferred_ = 0;      ///< channels with a deferred packet
    std::size_t next_return_ = 0; ///< the return block looked at next
    std::size_t reuse_hand_ = 0;  ///< where a channel to reuse is looked for next

    // incoming
    std::unique_ptr<std::unique_ptr<Inbound>[]> inbound_; ///< by ring
    Array<Poll> polls_;
    std::size_t next_poll_ = 0;
    std::size_t hot_ = 0;
    unsigned gone_ = 0; ///< rings of senders that are no more
    unsigned fences_due_ = 0; ///< rings with one
    bool reports_due_ = false;
    bool wished_ = false;        ///< a peer finds no free ring here, and rang
    std::size_t ask_hand_ = 0;   ///< where rings are asked back next
    std::unique_ptr<Inbound> retired_; ///< closed last; still looked at while its last packet is handled
    std::optional<ReceiveQueue> own_queue_; ///< none where the receives are those of a shared context
    ReceiveQueue& queue_;
    Pool<Fetch> fetches_;
    Fetch* waiting_fetches_ = nullptr;

    // time
    std::uint32_t rounds_ = 0;
    std::uint64_t now_ = 0;       ///< milliseconds, as of the last slow round
    std::uint64_t last_tick_ = 0;
    std::uint64_t last_watch_ = 0;
    std::size_t next_watched_ = 0; ///< among senders
    std::size_t next_asked_ = 0;   ///< among channels
    bool bad_packets_ = false; ///< there was one
};

} // namespace tofu::proto
