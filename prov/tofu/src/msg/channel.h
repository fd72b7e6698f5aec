// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What both directions of an endpoint's rings know. The two ends of a ring: Channel, by which we send to a peer, and
// Ring, in which a peer sends to us. What they share: our identity (Local), the protocol above (Protocol), the area and
// the VCQ (Port). The channels of an endpoint by address (Destination, ChannelTable, Channels).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include <rdma/fi_errno.h>

#include "av/peer_table.h"
#include "core/containers.h"
#include "core/lock.h"
#include "mem/bounce_pool.h"
#include "msg/rx_area.h"
#include "msg/wire.h"
#include "utofu/vcq.h"

namespace tofu::proto {

// --- Channel, Ring: the data of Outbound (msg/tx_ring.h) and Inbound (msg/rx_ring.h)

class Grants;
class Outbound;

/// A read of a peer's memory that answers a question. Each object has one under way at most.
template <class Of>
struct Inquiry : vcq::CompletionHandler {
    Of* of = nullptr;
    Bounce answer{}; ///< where the Get writes
    bool under_way = false;
};

enum class ChannelState : std::uint8_t {
    idle,    ///< packets go anonymously. -> open: a ring was granted; -> reading, pausing: the gate is not the peer's
    reading, ///< we read the header of the area to learn why. -> failed
    pausing, ///< the peer has no area yet. -> idle, a little later; -> failed, much later
    open,    ///< we have a ring. -> leaving: we have said BYE; -> failed: a post failed
    leaving, ///< we wait for the answer to BYE, the last word of the peer about this ring. -> idle; -> failed
    failed   ///< for good: this process of the peer is gone
};

/// A peer that we send to, and our ring in its area while we have one. A channel and its credit block have the same
/// number. A pair of endpoints has at most one ring in each direction at any time, which keeps its messages in order.
struct Channel {
    Outbound* owner = nullptr;
    Peer peer{};
    utofu_stadd_t ring = 0;
    std::uint32_t next_seq = 1; ///< sequence number of the next slot
    std::uint32_t consumed = 0; ///< slots that the peer has taken, as far as we know (low 32 bits)
    std::uint32_t slots = 0;
    ChannelState state = ChannelState::idle;
    bool leave = false;   ///< the ring has to be released: the peer, or another peer of this endpoint, needs it
    bool met = false;     ///< its area has been seen; until then a missing area does not show that it is gone
    bool aliased = false; ///< several places of the address vector lead here
    std::uint16_t number = 0;
    std::uint16_t serial = 0; ///< of the last request for a ring
    int err = 0;              ///< why it has failed: FI_E*
    int prov_errno = 0;
    std::uint32_t outstanding = 0; ///< requests of the protocol: the peer is watched, the channel is not reused
    std::uint32_t starved = 0;     ///< refusals for want of credit since the last probe
    std::uint32_t seen_seq = 0; ///< next_seq when a ring to give up was last looked for; if unchanged, this one is idle
    /// Two values of next_seq that the protocol has noted. A mark that equals next_seq (nothing was sent since) does so
    /// after a change of rings, too.
    std::uint32_t mark[2] = {1, 1};
    std::uint64_t place = 0; ///< the place of the address vector that leads here,
    unsigned context = 0;    ///< and the receive context
    utofu_stadd_t area = 0;

    /// A packet without a ring (anon_slots.cc). `under_way`: we ask the gate for a slot, or read the gate or the
    /// header.
    struct Anonymous : Inquiry<Channel> {
        utofu_stadd_t slot = 0;        ///< ours, for one packet; 0: none
        std::uint32_t seq = 0;         ///< sequence number of the packet in it
        bool reads = false;            ///< what is under way is a Get, not an ADD
        bool full = false;             ///< the gate had no slot: read it before asking again
        bool lingers = false;          ///< the slot was unused at the last pass over the channels
        bool asks = false;             ///< the packet that is being built asks for a ring
        bool asked = false;            ///< a packet has asked for a ring, and no answer has come
        std::uint32_t pause = 0;       ///< rounds to wait before a full gate is read again,
        std::uint32_t rounds = 0;      ///< and how many of them are left
        std::uint32_t count = 0;       ///< packets since a ring was last asked for,
        std::uint32_t enough = 0;      ///< and how many it takes until the next request; 0: `least`
        std::uint64_t pause_until = 0; ///< milliseconds; the peer has no area
        std::uint64_t first_try = 0;   ///< milliseconds: when the missing area was first asked for; 0: it was not

        static constexpr std::uint32_t least = 4, most = 64; ///< packets before a ring is asked for, and again
        /// The peer had no ring for us: doubles the number of packets before the next request.
        void ask_later() noexcept
        {
            enough = std::clamp(2 * enough, 2 * least, most);
            count = 0;
        }
    } anonymous{};
    Inquiry<Channel> life{}; ///< is the peer alive?
    /// A packet that found no room in the queue of the TNI and must go out before any other.
    struct Deferred {
        std::uint8_t size = 0; ///< 0: there is none
        std::uint32_t seq = 0;
        vcq::CompletionHandler* handler = nullptr;
        alignas(8) std::byte image[32];
    } deferred{};

    /// The next packet, in a ring or an anonymous slot: its sequence number, the bytes of its envelope, the end of its
    /// slot.
    [[nodiscard]] std::uint32_t seq() const noexcept { return state == ChannelState::open ? next_seq : anonymous.seq; }
    [[nodiscard]] std::size_t envelope_size() const noexcept
    {
        return state == ChannelState::open ? 0 : sizeof(Envelope);
    }
    [[nodiscard]] utofu_stadd_t slot_end() const noexcept
    {
        return (state == ChannelState::open ? slot(next_seq) : anonymous.slot) + slot_size;
    }
    /// Why nothing can be sent now: -FI_EAGAIN, or the error of a failed channel.
    [[nodiscard]] int refusal() const noexcept { return state == ChannelState::failed ? -err : -FI_EAGAIN; }
    /// After -FI_EAGAIN: is it a matter of one or two round trips, which may be worth waiting for?
    [[nodiscard]] bool soon() const noexcept { return anonymous.under_way || state == ChannelState::leaving; }
    [[nodiscard]] bool is_to(const Peer& other, unsigned index) const noexcept
    {
        return peer.home == other.home && peer.nonce == other.nonce && peer.index == index;
    }
    [[nodiscard]] std::uint32_t free_slots() const noexcept { return slots - (next_seq - 1 - consumed); }
    [[nodiscard]] utofu_stadd_t slot(std::uint32_t seq) const noexcept
    {
        return ring + std::uint64_t{(seq - 1) & (slots - 1)} * slot_size;
    }
};

inline constexpr std::uint32_t no_place = ~std::uint32_t{0};

/// A ring of our area, from its grant to its BYE. It also describes the sender, for as long as the protocol has
/// messages of that sender.
struct Ring {
    Grants* owner = nullptr;
    std::byte* base = nullptr;
    std::uint32_t next_seq = 1;
    std::uint32_t reported = 0; ///< consumed slots that were reported to the sender
    std::uint32_t seen_seq = 0; ///< next_seq when rings were last asked back; if unchanged, this one is idle
    std::uint32_t number = 0;
    std::uint32_t place = 0;  ///< index in the list of rings that are polled
    std::uint32_t users = 0;  ///< messages from this ring that the protocol still has
    bool begun = false;       ///< its first packet was taken, and before that all anonymous packets of its sender
    bool gone = false;        ///< the sender is dead: close the ring when its packets have been taken
    bool closing = false;     ///< close the ring when its probe has ended
    bool parted = false;      ///< closed; the last of its users frees the object
    bool asked = false;       ///< the sender was asked to give the ring back
    bool report_due = false;  ///< a report found no room in the queue of the TNI
    std::uint8_t index = 0;   ///< of the sending endpoint
    std::uint16_t serial = 0; ///< of the sender's request for this ring
    LeaseStatus status = LeaseStatus::granted; ///< goes out with each report
    EndpointAddress known{};                   ///< the sender's address, as peers know it
    std::uint64_t key = 0;                     ///< peer_key of the sender
    fi_addr_t address = FI_ADDR_NOTAVAIL;      ///< for the protocol: the sender in the address vector,
    std::uint32_t generation = ~0u;            ///< as of this generation of it
    utofu_stadd_t area = 0;                    ///< the sender's
    utofu_stadd_t credits = 0;                 ///< the sender's credit block
    Inquiry<Ring> life{};

    /// Do both come from the same endpoint? `key` is not enough: the transmit contexts of a scalable endpoint share it.
    [[nodiscard]] bool same_sender(const Ring& other) const noexcept
    {
        return known.home == other.known.home && known.nonce == other.known.nonce && index == other.index;
    }
    /// The protocol has dropped one message of this ring. Frees a closed ring with its last message.
    void let_go() noexcept
    {
        if (--users == 0 && parted)
            delete this;
    }
    /// Control word of slot number `seq`.
    [[nodiscard]] std::uint64_t* control(std::uint32_t seq, std::uint32_t slots) const noexcept
    {
        return reinterpret_cast<std::uint64_t*>(base + (std::size_t{(seq - 1) & (slots - 1)} + 1) * slot_size -
                                                sizeof(Control));
    }
};

// --- Local, Protocol, Port: what the two directions of an endpoint's rings share

/// Our endpoint, as its peers know it.
struct Local {
    vcq::Vcq& vcq;         ///< the endpoint posts from it
    vcq::Vcq& home;        ///< the domain's home VCQ, through which peers reach the area,
    Lock& home_lock;       ///< and its lock
    std::uint64_t nonce;   ///< of the address
    unsigned index;        ///< of the endpoint in the domain
    EndpointAddress known; ///< the address that peers know
};

/// The protocol above the rings. None of these is called for a packet in a ring: Inbound::poll hands those on.
class Protocol {
  public:
    /// Makes a channel for one more peer. Null: there are as many as there may be.
    [[nodiscard]] virtual Channel* make_channel() noexcept = 0;
    /// The channel has failed: requests to its peer end. `handler`: that of a packet that has never left, or null.
    virtual void channel_failed(Channel& channel, vcq::CompletionHandler* handler) noexcept = 0;
    /// Takes an anonymous packet; `anonymous` is a ring with that one slot. False: the packet stays.
    [[nodiscard]] virtual bool take_anonymous(Ring& anonymous) noexcept = 0;
    /// Called every few milliseconds.
    virtual void tick() noexcept = 0;

  protected:
    ~Protocol() = default;
};

struct Port {
    Port(const Local& self, Protocol& protocol) noexcept : self(self), protocol(protocol), bounces(self.vcq) {}

    Local self;
    Protocol& protocol;
    BouncePool bounces;
    Area area;
    bool open = false;     ///< false: notices that still come change nothing
    std::uint64_t now = 0; ///< milliseconds, as of the last slow round

    /// Rings a doorbell in the area at `at`, in strong order behind what it announces. If the TNI has no room, the peer
    /// finds out in one of its slow rounds.
    void ring_doorbell(utofu_vcq_id_t home, utofu_stadd_t at, Doorbell bell) noexcept;
    /// Posts the Get of `size` bytes of an inquiry that is not under way. Post::busy also when all bounce blocks are in
    /// use.
    template <class Of>
    [[nodiscard]] vcq::Post ask(Inquiry<Of>& inquiry, utofu_vcq_id_t home, utofu_stadd_t from,
                                std::size_t size) noexcept
    {
        inquiry.answer = bounces.alloc(size);
        if (inquiry.answer.data == nullptr)
            return vcq::Post::busy;
        inquiry.under_way = true; // the notice may come within the post
        const vcq::Post post =
            self.vcq.get(home, inquiry.answer.stadd, from, size, {.when = vcq::When::delivered, .handler = &inquiry});
        if (post != vcq::Post::done)
            end(inquiry);
        return post;
    }
    template <class Of>
    void end(Inquiry<Of>& inquiry) noexcept
    {
        inquiry.under_way = false;
        bounces.release(inquiry.answer);
        inquiry.answer = {};
    }
};

/// Does the header of an area, as a Get brought it, belong to the endpoint with that nonce?
[[nodiscard]] bool same_process(const Bounce& answer, std::uint64_t nonce) noexcept;

// --- Channels: the channels of an endpoint, and the lookup of a channel by address

/// What the address vector says of an address: where a channel has to lead.
struct Destination {
    std::uint64_t address; ///< the address itself; all bits set: none
    const Peer& peer;
    std::uint64_t place; ///< in the address vector
    unsigned context;    ///< receive context (fi_rx_addr)
};

/// Channels by place of the address vector and receive context (fi_rx_addr), in pages that are allocated at first use.
class ChannelTable {
  public:
    static constexpr std::size_t page_size = 1024; ///< places
    static constexpr std::size_t most_places = std::size_t{1} << 32;

    /// The contexts of a peer are numbered below 2^`context_bits`; `context_bits` is at most 8.
    explicit ChannelTable(int context_bits) noexcept : context_bits_(context_bits) {}

    /// The channel entered for a place and a context, or null. A context out of bounds shares the entry of another one,
    /// so the caller checks that the channel is the right one.
    [[nodiscard]] Channel* find(std::uint64_t place, unsigned context) const noexcept
    {
        const std::size_t page = page_of(place, context);
        return page < count_ && pages_[page] != nullptr ? pages_[page][place % page_size] : nullptr;
    }
    /// False: no memory, nothing has changed.
    [[nodiscard]] bool enter(std::uint64_t place, unsigned context, Channel& channel) noexcept
    {
        const std::size_t page = page_of(place, context);
        if (place >= most_places || (page >= count_ && !grow(page + 1)))
            return false;
        if (pages_[page] == nullptr)
            pages_[page].reset(new (std::nothrow) Channel*[page_size]());
        if (pages_[page] == nullptr)
            return false;
        pages_[page][place % page_size] = &channel;
        return true;
    }
    void remove(std::uint64_t place, unsigned context) noexcept
    {
        if (find(place, context) != nullptr)
            pages_[page_of(place, context)][place % page_size] = nullptr;
    }
    /// Removes all entries of a channel.
    void remove(const Channel& channel) noexcept
    {
        for (std::size_t page = 0; page < count_; page++)
            if (pages_[page] != nullptr)
                std::replace(&pages_[page][0], &pages_[page][page_size], const_cast<Channel*>(&channel),
                             static_cast<Channel*>(nullptr));
    }

  private:
    using Page = std::unique_ptr<Channel*[]>;
    [[nodiscard]] std::size_t page_of(std::uint64_t place, unsigned context) const noexcept
    {
        return (place / page_size << context_bits_) + (context & ((1u << context_bits_) - 1));
    }
    [[nodiscard, gnu::noinline]] bool grow(std::size_t least) noexcept
    {
        const std::size_t count = std::max(least, 2 * count_);
        std::unique_ptr<Page[]> more(new (std::nothrow) Page[count]);
        if (more == nullptr)
            return false;
        std::move(pages_.get(), pages_.get() + count_, more.get());
        pages_ = std::move(more);
        count_ = count;
        return true;
    }

    int context_bits_;
    std::size_t count_ = 0;
    std::unique_ptr<Page[]> pages_;
};

class Channels {
  public:
    explicit Channels(int context_bits) noexcept : by_address_(context_bits) {}
    /// The channel that an earlier find() or enter() of this address gave, if the address still leads there. Null: call
    /// find().
    [[nodiscard, gnu::always_inline]] Channel* recent(std::uint64_t address) const noexcept
    {
        const Found& found = recent_.at(address);
        if (found.address != address || found.generation != found.peer->generation) [[unlikely]]
            return nullptr;
        return found.channel;
    }
    /// The channel entered for this destination, or null.
    [[nodiscard]] Channel* find(const Destination& destination) noexcept
    {
        Channel* const found = by_address_.find(destination.place, destination.context);
        if (found == nullptr || !found->is_to(destination.peer, destination.peer.index + destination.context))
            [[unlikely]]
            return nullptr;
        note(destination, *found);
        return found;
    }
    /// The channel to this endpoint, whatever address it was entered for, or null.
    [[nodiscard]] Channel* to(const Peer& peer, unsigned index) const noexcept
    {
        const auto found =
            std::find_if(all_.begin(), all_.end(), [&](const Channel* ch) { return ch->is_to(peer, index); });
        return found != all_.end() ? *found : nullptr;
    }
    /// Makes room for one more channel. False: no memory.
    [[nodiscard]] bool reserve() noexcept { return all_.reserve(all_.size() + 1); }
    void add(Channel& channel) noexcept { all_.push_reserved(&channel); }
    /// Lets the destination lead to the channel from now on. False: no memory.
    [[nodiscard]] bool enter(const Destination& destination, Channel& channel) noexcept
    {
        if (!by_address_.enter(destination.place, destination.context, channel))
            return false;
        note(destination, channel);
        return true;
    }
    /// Removes the channel from all lookups.
    void unlink(Channel& channel) noexcept
    {
        recent_.forget_if([&](const Found& found) { return found.channel == &channel; });
        if (channel.aliased)
            by_address_.remove(channel);
        else
            by_address_.remove(channel.place, channel.context);
        channel.aliased = false;
    }
    [[nodiscard]] std::size_t size() const noexcept { return all_.size(); }
    [[nodiscard]] Channel& operator[](std::size_t number) const noexcept { return *all_[number]; }
    [[nodiscard]] Channel* const* begin() const noexcept { return all_.begin(); }
    [[nodiscard]] Channel* const* end() const noexcept { return all_.end(); }

  private:
    static constexpr Peer nobody{};
    /// Where an address led, as long as the place of the address vector is what it was.
    struct Found {
        std::uint64_t address = FI_ADDR_NOTAVAIL;
        std::uint32_t generation = ~0u; // not the generation of an unset peer
        const Peer* peer = &nobody;
        Channel* channel = nullptr;
    };
    void note(const Destination& destination, Channel& channel) noexcept
    {
        recent_.note({destination.address, destination.peer.generation, &destination.peer, &channel});
    }

    Recent<Found> recent_;
    ChannelTable by_address_;
    Array<Channel*> all_;
};

} // namespace tofu::proto
