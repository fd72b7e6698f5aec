// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Messages whose bytes the receiver fetches: the protocol's description of a message (Kept, Message), the Gets of a
// rendezvous (Fetch, RendezvousReceiver) and those of eager-by-get (EagerGets). Part of the receiving half.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <sys/uio.h>

#include "core/pool.h"
#include "mem/bounce_pool.h"
#include "mem/local_buffer.h"
#include "msg/receive_queue.h"
#include "msg/rx_ring.h"
#include "msg/wire.h"
#include "tx/operation.h"
#include "tx/pending_queue.h"
#include "tx/tx_context.h"

namespace tofu::proto {

// --- Message: a message that has come, between its packet and its receive

/// Writes a completion word: the result of the send that waits for it, 0 or FI_E*. False: no room now.
[[nodiscard]] inline bool put_completion(vcq::Vcq& vcq, utofu_vcq_id_t target_vcq, utofu_stadd_t area, const Ack& ack,
                                         int status) noexcept
{
    const CompletionWord word = completion_word(ack.seq, static_cast<std::uint32_t>(status));
    return vcq.put_inline(target_vcq, &word, area + completion_offset(ack.word), sizeof word, {}) != vcq::Post::busy;
}

/// The protocol's part of a message that waits for its receive; it follows the Unexpected in memory (body).
struct UnexpectedHeader {
    RxRing* in = nullptr; ///< describes the sender
    Ack completion{};
    Type type = Type::none;
    bool ack = false;      ///< a completion word is due when the message has been taken,
    bool at_match = false; ///< and not before it has been matched
    std::uint8_t segment_count = 0;
};

/// A message on its way to a receive, wherever its payload is.
struct Message : UnexpectedHeader {
    bool tagged = false;
    bool has_data = false;
    std::uint64_t tag = 0;
    std::uint64_t data = 0;
    std::size_t length = 0;
    const std::byte* payload = nullptr; ///< eager
    std::uint64_t vcq = 0;              ///< rts
    Segment segments[max_segments] = {};

    /// Bytes that are kept while it waits for its receive: a Kept, then its payload or the body of its RTS.
    [[nodiscard]] std::size_t kept_size() const noexcept
    {
        return sizeof(UnexpectedHeader) + (type == Type::rts ? sizeof vcq + segment_count * sizeof(Segment) : length);
    }
    void pack(Unexpected& to) const noexcept;
    /// Reads the Kept back. payload_of(): the payload of an eager message.
    [[nodiscard]] static UnexpectedHeader kept_of(const Unexpected& from) noexcept
    {
        UnexpectedHeader kept;
        std::memcpy(&kept, from.body(), sizeof kept);
        return kept;
    }
    [[nodiscard]] static const std::byte* payload_of(const Unexpected& from) noexcept
    {
        return from.body() + sizeof(UnexpectedHeader);
    }
    [[nodiscard]] static Message unpack(const Unexpected& from) noexcept;
};

// --- RendezvousReceiver: the receiving side of a rendezvous: Gets from the sender's memory straight into the user's
// buffers, then the completion word by a CSWAP, which shows that the sender has waited until then and that the bytes
// are the sender's.

class RendezvousReceiver;
class Receiver;

struct Fetch : vcq::CompletionHandler, RetryItem {
    RendezvousReceiver* owner = nullptr;
    RecvRequest* receive = nullptr;
    Message message{};
    iovec into[max_segments] = {};
    void* desc[max_segments] = {};
    std::uint8_t into_count = 0;
    std::uint8_t ref_count = 0;
    Rails::Index rail = 0;
    bool live = false;           ///< it has not ended
    std::uint8_t from_index = 0; ///< position of the next Get
    std::uint8_t into_index = 0;
    bool waiting = false; ///< it waits for room
    bool ending = false;  ///< the CSWAP that writes the completion word is due or under way
    std::uint64_t from_offset = 0;
    std::uint64_t into_offset = 0;
    std::size_t to_fetch = 0; ///< bytes for which no Get has been posted
    std::size_t length = 0;   ///< bytes in all
    std::uint32_t pending = 0;
    int err = 0;
    int prov_errno = 0;
    LocalRef refs[max_segments] = {};
};

class RendezvousReceiver {
  public:
    RendezvousReceiver(TxContext& tx, RingContext& own, Receiver& receiver) noexcept;
    RendezvousReceiver(const RendezvousReceiver&) = delete;
    RendezvousReceiver& operator=(const RendezvousReceiver&) = delete;
    ~RendezvousReceiver();

    /// Makes a fetch. Null: too many are under way.
    [[nodiscard]] Fetch* make(const Message& message) noexcept;
    /// Starts a fetch whose source and destination are filled in; one with nothing to fetch only writes the completion
    /// word. The fetch may have ended, and been freed, when this returns.
    void start(Fetch& fetch) noexcept;
    [[nodiscard, gnu::always_inline]] bool waits() const noexcept { return !waiting_.empty(); }
    /// Lets the item go on in the next round, like a fetch that found no room.
    void retry_later(RetryItem& item) noexcept
    {
        waiting_.add(item);
        vcq_.set_busy();
    }
    /// Continues fetches that found no room, in order. Called once per round.
    void resume() noexcept { waiting_.round(); }
    /// Ends all fetches with FI_ECANCELED. Called after the last notice.
    void cancel() noexcept;

  private:
    void advance(Fetch& fetch) noexcept;
    [[nodiscard]] bool get_piece(Fetch& fetch) noexcept;
    void post_completion(Fetch& fetch) noexcept;
    void on_completion_posted(Fetch& fetch, vcq::Notice notice) noexcept;
    void end(Fetch& fetch, std::size_t length, int err, int prov_errno) noexcept;
    void wait(Fetch& fetch) noexcept;
    static void resume(RetryItem& fetch) noexcept;
    static void on_fetched(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept;

    TxContext& tx_; ///< its VCQ posts the Gets, with its local registrations
    RingContext& own_;
    vcq::Vcq& vcq_;
    Receiver& receiver_;
    const std::size_t max_piece_; ///< bytes of one Get
    Pool<Fetch> pool_{4096};
    RetryList waiting_; ///< fetches that found no room
};

// --- EagerGets: payloads of messages that came as anonymous packets and stand in blocks of their senders
// (Type::eager_by_get). The payload is fetched before the message is matched, so that the message is matched and
// reported in order, like one whose payload stands in its slot. Until then the anonymous packet stays in its slot, and
// so do later anonymous packets of its sender.

class EagerGets {
  public:
    explicit EagerGets(RingContext& own) noexcept : own_(own) {}

    enum class Stage : std::uint8_t {
        getting, ///< -> asking: the Gets of the segments have ended
        asking,  ///< reads the completion word. -> here; -> lost: the sender no longer waits, or a read failed
        here,    ///< the payload is available, until release()
        lost     ///< the payload never comes; the packet is ignored
    };
    /// Begins to fetch the payload of a new message, and returns its state. `round`: number of the round in which all
    /// anonymous packets are offered. Sets the message's payload when it is here.
    [[nodiscard]] Stage look(Message& message, std::uint32_t round) noexcept;
    /// The message has been taken.
    void release(const Message& message) noexcept;

  private:
    struct Transfer : vcq::CompletionHandler {
        Message what{}; ///< without Message::in, which belongs to one round
        PeerArea from{};
        Stage stage = Stage::getting;
        bool live = false;
        std::uint32_t round = 0; ///< the round in which it was last asked for
        unsigned next = 0;       ///< the segment that is fetched next
        unsigned pending = 0;
        bool asks = false; ///< the Get under way is that of the completion word
        int code = UTOFU_SUCCESS, asked = UTOFU_SUCCESS;
        std::size_t offset = 0;
        Bounce bytes{};
        Bounce word{};
    };
    /// A sender whose completion word was read, and no notice came: its endpoint is gone, and all its messages that
    /// have arrived by then are lost.
    struct DeadSender {
        PeerArea sender{};
        std::uint32_t round = 0; ///< a later message may be a successor's
    };
    [[nodiscard]] static PeerArea sender_of(const Message& message) noexcept
    {
        return {message.in->known.target_vcq, message.in->area, message.in->known.nonce};
    }
    [[nodiscard]] Transfer* find(const Message& message) noexcept;
    [[nodiscard]] Transfer* make(const Message& message, std::uint32_t round) noexcept;
    void get(Transfer& transfer) noexcept;
    void judge(Transfer& transfer) noexcept;
    [[nodiscard]] bool post(Transfer& transfer, utofu_vcq_id_t from, utofu_stadd_t to, utofu_stadd_t at,
                            std::size_t size) noexcept;
    void release(Transfer& transfer) noexcept;
    static void on_notice(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept;

    static constexpr unsigned at_once = 8; ///< payloads; as many blocks as senders leave free (PacketBuffers)
    static constexpr unsigned max_dead_senders = 16;

    RingContext& own_;
    Pool<Transfer> transfers_{at_once};
    DeadSender dead_senders_[max_dead_senders]; ///< the latest ones
    unsigned next_dead_senders_ = 0;
};

} // namespace tofu::proto
