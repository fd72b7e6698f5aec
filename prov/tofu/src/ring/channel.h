// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The two ends of a ring: Channel, how we send to a peer; Inbound, what a peer sends to us; and the requests
// that go through them. Data of the messenger's parts; calls nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <sys/uio.h>

#include "address/peers.h"
#include "match/entry.h"
#include "memory/bounce.h"
#include "memory/local_memory.h"
#include "ring/wire.h"
#include "transfer/request.h"

namespace tofu::proto {

class Messenger;
struct Hold;
struct SendRequest;

enum class ChannelState : std::uint8_t {
    idle,     ///< -> reading: somebody wants to send
    reading,  ///< the peer's header is on its way: -> claiming; -> failed: another version or process
    claiming, ///< a CSWAP on a claim word is under way: -> open; -> claiming: the word was taken
    pausing,  ///< no free ring or no area yet at the peer: -> reading, a little later
    open,     ///< -> leaving: BYE was said; -> failed: a post failed or the peer refused us
    leaving,  ///< -> idle: the peer has taken the BYE and writes nothing for this claim any more; -> failed
    failed    ///< for good: this process of the peer is gone
};

struct Backlogged;

/// A peer that we send to, and our ring in its area while we have one. Its number is that of its return block. At
/// any time a pair of endpoints has one ring in each direction at most: that alone keeps their messages in order.
struct Channel {
    struct Step : vcq::Waiter {
        Channel* channel;
    };

    Messenger* owner = nullptr;
    Peer peer{};
    utofu_stadd_t ring = 0;
    Backlogged* backlog = nullptr; ///< sends that were taken and not yet sent, in their order: nobody overtakes them
    std::uint32_t next_seq = 1; ///< of the next slot
    std::uint32_t consumed = 0; ///< slots the peer has taken out, as far as we know (low 32 bits)
    std::uint32_t slots = 0;
    ChannelState state = ChannelState::idle;
    bool probing = false;       ///< a sign of life is awaited
    bool leave = false;         ///< BYE is to be said: the peer, or another peer of ours, needs the room
    bool counted = false;       ///< in the domain's count of claims without HELLO
    bool contacting = false;    ///< `contact` waits for a notice
    bool aliased = false;       ///< several places of the address vector lead here
    std::uint8_t deferred_size = 0;
    std::uint16_t number = 0;
    std::uint16_t serial = 0;
    int err = 0;                ///< of failed: FI_E*
    int prov_errno = 0;

    std::uint32_t ring_number = 0;
    std::uint32_t probe = 0;    ///< claim words tried
    std::uint32_t seen_seq = 0; ///< next_seq when room was last looked for: unchanged, it is idle
    fi_addr_t dest = FI_ADDR_UNSPEC; ///< the place of the address vector that leads here
    std::uint32_t outstanding = 0; ///< requests that wait for the peer
    Backlogged* backlog_end = nullptr; ///< the last of `backlog`
    /// next_seq when all before it had been taken, and when it had been matched, as fences found: [match].
    std::uint32_t settled[2] = {1, 1};
    std::uint32_t starved = 0;  ///< refusals for want of credit since the last probe
    std::uint64_t pause_until = 0; ///< milliseconds
    std::uint64_t first_try = 0;
    utofu_stadd_t area = 0;
    Geometry geometry{};
    Bounce scratch{};           ///< where a peer's header is read to, by `contact`
    Bounce life_scratch{};      ///< and by `life`
    Step contact{};
    Step life{};
    /// The header of a long eager message whose payload went out already and may not be left behind.
    alignas(8) std::byte deferred[32];
    std::uint32_t deferred_seq = 0;
    SendRequest* deferred_waiter = nullptr;

    [[nodiscard]] std::uint32_t free_slots() const noexcept
    {
        return slots - (next_seq - 1 - consumed);
    }
    [[nodiscard]] utofu_stadd_t slot(std::uint32_t seq) const noexcept
    {
        return ring + std::uint64_t{(seq - 1) & (slots - 1)} * slot_size;
    }
};

inline constexpr std::uint32_t no_place = ~std::uint32_t{0};

/// A ring of our area, from its HELLO to its BYE; and who sends, as long as there are messages of his.
struct Inbound {
    Messenger* owner = nullptr;
    std::byte* base = nullptr;
    std::uint32_t next_seq = 1;
    std::uint32_t reported = 0; ///< slots taken out that the sender knows of
    bool greeted = false;       ///< HELLO was accepted
    bool gone = false;          ///< the sender is no more: to be closed when its packets have been taken
    bool closing = false;       ///< to be closed when its probe has ended
    bool probing = false;
    bool asked_domain = false;  ///< `life` asks the claimant's domain, not its endpoint
    bool asked = false;         ///< the sender was asked to give the ring back
    bool report_due = false;    ///< a report found no room in the queue of the TNI
    bool fence_due = false;     ///< `fence` is answered when no message waits for a receive
    Ack fence{};
    std::uint8_t index = 0;     ///< of the sending endpoint,
    std::uint8_t identity = 0;  ///< and of the address it is known by
    std::uint16_t serial = 0;
    std::uint32_t seen_seq = 0; ///< next_seq when rings were last asked back: unchanged, it is idle
    std::uint32_t number = 0;   ///< of the ring
    std::uint32_t place = 0;    ///< in the list that is polled
    std::uint32_t held = 0;     ///< messages of it that wait for a receive or for their bytes
    bool parted = false;        ///< closed: it goes with the last of these
    ReturnStatus status = ReturnStatus::open; ///< what reports say
    std::uint64_t home = 0;     ///< as claimed
    std::uint64_t nonce = 0;
    std::uint64_t key = 0;
    utofu_stadd_t area = 0;     ///< of the sender
    utofu_stadd_t returns = 0;  ///< its return block
    fi_addr_t source = FI_ADDR_NOTAVAIL;
    std::uint32_t source_generation = ~0u;
    Bounce scratch{};
    struct Step : vcq::Waiter {
        Inbound* inbound;
    } life{};

    /// Control word of slot number `seq`.
    [[nodiscard]] std::uint64_t* control(std::uint32_t seq, std::uint32_t slots) const noexcept
    {
        return reinterpret_cast<std::uint64_t*>(
            base + (std::size_t{(seq - 1) & (slots - 1)} + 1) * slot_size - sizeof(Control));
    }
};

/// A send that is not over when the call returns.
struct SendRequest : Request {
    Messenger* owner = nullptr;
    Channel* channel = nullptr;
    std::uint32_t fin = 0;     ///< its FIN word; fixed for the life of the object
    std::uint32_t seq = 0;     ///< of the use of that word
    std::uint32_t place = 0;   ///< in the list of those that wait for FIN
    std::uint8_t ref_count = 0;
    bool numbered = false;
    bool awaits_fin = false;
    Hold* block = nullptr; ///< its bounce block, where its own notice frees it
    LocalRef refs[max_segments] = {};
};

/// A bounce block for packets on their way out.
struct Hold : vcq::Waiter {
    Messenger* owner = nullptr;
    Bounce block{};       ///< kept from its first use on
    std::size_t size = 0; ///< asked for then
};

/// What a message that waits for its receive consists of besides (Unexpected::body).
struct Kept {
    Inbound* in;
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
    Inbound* in = nullptr;              ///< who sent it
    std::uint64_t vcq = 0;              ///< rts
    Segment segments[max_segments] = {};

    /// What stays of it where it has to wait for its receive: a Kept, and behind that its payload, or the body of its RTS.
    [[nodiscard]] std::size_t kept_size() const noexcept
    {
        return sizeof(Kept) + (type == Type::rts ? sizeof vcq + segment_count * sizeof(Segment) : length);
    }
    void pack(Unexpected& to) const noexcept;
    [[nodiscard]] static Message unpack(const Unexpected& from) noexcept;
};

/// The receiving side of a rendezvous.
struct Fetch : vcq::Waiter {
    Messenger* owner = nullptr;
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
    bool doubtful = false;         ///< does the sender still wait for it? To be asked before the first Get
    bool lost = false;             ///< it does not: no FIN
    std::uint64_t from_offset = 0;
    std::uint64_t into_offset = 0;
    std::size_t to_fetch = 0;      ///< bytes without a Get yet
    std::size_t length = 0;        ///< bytes in all
    std::uint32_t pending = 0;
    int err = 0;
    int prov_errno = 0;
    Bounce answer{};               ///< of `doubtful`
    LocalRef refs[max_segments] = {};
};

} // namespace tofu::proto

