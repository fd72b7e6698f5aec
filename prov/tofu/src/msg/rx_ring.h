// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The receiving side of an endpoint's rings. A ring of our area (RxRing); packets of senders that have no ring here
// (AnonSlots, Arrivals). Which senders have a ring, and the packets in rings, which go to the protocol in order, and
// whose slots go back to the senders when the protocol has taken them (RxRings). Nothing read from the area is trusted.
// And the rings of an endpoint in both directions, from open to close (RingSet). Under the endpoint's lock.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/containers.h"
#include "msg/rx_area.h"
#include "msg/tx_ring.h"
#include "msg/wire.h"

namespace tofu::proto {

// --- RxRing

class RxRings;

inline constexpr std::uint32_t no_place = ~std::uint32_t{0};

enum class RingState : std::uint8_t {
    granted, ///< -> begun: its first packet was taken, and before that all anonymous packets of its sender
    begun,   ///< -> closed, closing: the sender has released it, or is dead and its packets have been taken
    closing, ///< -> closed: its probe has ended
    closed   ///< the last of its users frees the object
};

/// A ring of our area, from its grant to its release. It also describes the sender, for as long as the protocol has
/// messages of that sender.
struct RxRing {
    RxRings* owner = nullptr;
    std::byte* base = nullptr;
    std::uint32_t next_seq = 1;
    std::uint32_t reported = 0; ///< consumed slots that were reported to the sender
    std::uint32_t seen_seq = 0; ///< next_seq when rings were last revoked; if unchanged, this one is idle
    std::uint32_t number = 0;
    std::uint32_t place = 0; ///< index in the list of rings that are polled
    std::uint32_t users = 0; ///< messages from this ring that the protocol still has
    RingState state = RingState::granted;
    bool dead = false;                         ///< the sender is: close the ring when its packets have been taken
    bool revoked = false;                      ///< the sender was asked to release the ring
    bool report_due = false;                   ///< a report found no room in the queue of the TNI
    std::uint8_t index = 0;                    ///< of the sending endpoint
    std::uint16_t serial = 0;                  ///< of the sender's request for this ring
    LeaseStatus status = LeaseStatus::granted; ///< goes out with each report
    EndpointAddress known{};                   ///< the sender's address, as peers know it
    std::uint64_t key = 0;                     ///< peer_key of the sender
    fi_addr_t address = FI_ADDR_NOTAVAIL;      ///< for the protocol: the sender in the address vector,
    std::uint32_t generation = ~0u;            ///< as of this generation of it
    utofu_stadd_t area = 0;                    ///< the sender's
    utofu_stadd_t credits = 0;                 ///< the sender's credit block
    PeerRead<RxRing> life{};

    /// Do both come from the same endpoint? `key` is not enough: the transmit contexts of a scalable endpoint share it.
    [[nodiscard]] bool same_sender(const RxRing& other) const noexcept
    {
        return known.target_vcq == other.known.target_vcq && known.nonce == other.known.nonce && index == other.index;
    }
    /// The protocol has dropped one message of this ring. Frees a closed ring with its last message.
    void unref() noexcept
    {
        if (--users == 0 && state == RingState::closed)
            delete this;
    }
    /// Control word of slot number `seq`.
    [[nodiscard]] std::uint64_t* control(std::uint32_t seq, std::uint32_t slots) const noexcept
    {
        return reinterpret_cast<std::uint64_t*>(base + (std::size_t{(seq - 1) & (slots - 1)} + 1) * slot_size -
                                                sizeof(Control));
    }
};

// --- AnonSlots: the slots of senders that have no ring here. A sender takes a slot at the slot counter by an ARMW ADD
// and fills it by one Put. The receiver does not know the sender of an unfilled slot: it stays with its sender until
// then, however long that takes, and blocks no other packet. The receiver offers a run of free slots at a time: the ADD
// hands out one after the other, in an order that the receiver knows. A slot goes on offer again only after the
// receiver has taken what it was handed out for. docs/wire-protocol.md numbers the cases, A1 to A13 ("Anonymous
// packets").

class AnonSlots {
  public:
    /// `count` slots at `slots`, all on offer in the word at `slot_counter`. False: no memory.
    [[nodiscard]] bool open(std::byte* slots, std::uint32_t count, std::uint64_t* slot_counter,
                            std::uint64_t nonce) noexcept;
    /// Looks at all slots that are out. Calls accept(end of the slot) for each that holds a packet; true: it was
    /// accepted.
    template <class Accept>
    void accept_arrived(Accept&& accept) noexcept
    {
        note_handed_out();
        // acquire: pairs with the sender's Put, whose last 8 bytes are written last
        for (std::size_t i = out_.size(); i-- > 0;)
            out_[i].there = control(out_[i].slot).load(std::memory_order_acquire) >> 32 == seq_;
        std::size_t left = 0;
        for (const Out& out : out_) {
            if (!out.there || !accept(slots_ + (std::size_t{out.slot} + 1) * slot_size)) {
                out_[left++] = out;
                continue;
            }
            control(out.slot).store(0, std::memory_order_relaxed);
            is_out_[out.slot] = false;
        }
        while (out_.size() > left)
            out_.pop_back();
        if (next_ == end_)
            offer();
    }
    /// The number of slots that have been handed out and hold no packet yet.
    [[nodiscard]] std::size_t unfilled() noexcept
    {
        note_handed_out();
        return static_cast<std::size_t>(std::count_if(out_.begin(), out_.begin() + out_.size(), [this](const Out& out) {
            return control(out.slot).load(std::memory_order_acquire) >> 32 != seq_;
        }));
    }

  private:
    struct Out {
        std::uint16_t slot = 0;
        bool there = false;
    };
    [[nodiscard]] std::atomic_ref<std::uint64_t> control(std::uint32_t slot) const noexcept
    {
        return std::atomic_ref<std::uint64_t>(
            *reinterpret_cast<std::uint64_t*>(slots_ + (std::size_t{slot} + 1) * slot_size - sizeof(Control)));
    }
    void note_handed_out() noexcept;
    void offer() noexcept;

    std::byte* slots_ = nullptr;
    std::uint64_t* slot_counter_ = nullptr;
    std::uint64_t nonce_ = 0;
    std::uint32_t seq_ = 0;
    std::uint32_t count_ = 0;
    std::uint32_t next_ = 0; ///< slots on offer that are not known to be out: from here
    std::uint32_t end_ = 0;  ///< to here
    Array<Out> out_;         ///< slots that are out, in the order in which they were handed out; has room for all
    std::unique_ptr<bool[]> is_out_;
};

// --- Arrivals

/// The packets of anonymous senders. Each is read once, checked, and handed on in the order of its sender. A packet
/// that the protocol has no room for stays in its slot.
class AnonReceiver {
  public:
    AnonReceiver(RxRings& in, RingContext& own) noexcept : in_(in), own_(own) {}
    /// Called once there is an area. False: no memory.
    [[nodiscard]] bool open(const Geometry& geometry) noexcept;
    /// Takes all packets that are there and that the protocol has room for.
    void accept_all() noexcept;
    /// True if packets of the sender with that peer_key() have to stay. It names the sending endpoint, whatever address
    /// peers know it by.
    [[nodiscard]] bool refuses(std::uint64_t key) const noexcept
    {
        return refuse_all_ || std::find(refused_.begin(), refused_.end(), key) != refused_.end();
    }
    /// True if packets of any sender have to stay.
    [[nodiscard]] bool any_refused() const noexcept { return !refused_.empty(); }
    /// The number of slots that were handed out and have not been filled. Called while there is an area.
    [[nodiscard]] std::size_t unfilled() noexcept { return anon_slots_.unfilled(); }
    /// Number of calls of accept_all().
    [[nodiscard]] std::uint32_t passes() const noexcept { return passes_; }

  private:
    [[nodiscard]] bool accept_one(std::byte* end) noexcept;
    [[nodiscard]] bool accept_one(const Envelope& who, const std::byte* packet, std::byte* end) noexcept;

    RxRings& in_;
    RingContext& own_;
    AnonSlots anon_slots_;
    std::unique_ptr<RxRing> anonymous_; ///< the ring as which a packet is handed on
    Array<std::uint64_t> refused_;      ///< senders of packets that stay
    bool refuse_all_ = false;           ///< there was no memory to note one of them
    std::uint32_t passes_ = 0;
};

// --- RxRings

/// The place where the next packet of a ring will appear.
struct RingPoll {
    std::uint64_t* word; ///< control word of the next slot
    std::uint32_t seq;
    std::uint32_t ring; ///< its number
    /// acquire: pairs with the sender's Put, whose last 8 bytes are written last
    [[nodiscard]] std::uint64_t read() const noexcept
    {
        return std::atomic_ref<std::uint64_t>(*word).load(std::memory_order_acquire);
    }
    [[nodiscard]] bool arrived(std::uint64_t control) const noexcept
    {
        return static_cast<std::uint32_t>(control >> 32) == seq;
    }
};

class RxRings {
  public:
    explicit RxRings(RingContext& own) noexcept : anon_receiver(*this, own), own_(own) {}
    RxRings(const RxRings&) = delete;
    RxRings& operator=(const RxRings&) = delete;
    /// 0 or -FI_ENOMEM.
    [[nodiscard]] int open(const Geometry& geometry) noexcept;

    AnonReceiver anon_receiver;

    // --- packets
    /// Takes a bounded number of packets out of the rings. Up, the protocol's class that derives from this one, has
    ///   std::uint32_t accept_fast(RxRing&, const std::uint64_t* end, std::uint64_t control): takes the packet with
    ///   this
    ///     control word, which is at `end`, if that can be done at once. The number of its slots; 0: nothing has
    ///     happened.
    ///   bool accept(RxRing&, std::uint32_t& slots): takes any other packet; `slots` is 1 and may be raised. False: it
    ///     stays, there is no room for it.
    ///   void accept_packets(RingPoll& first): calls accept_arrived().
    template <class Up>
    void poll() noexcept;
    /// Finds the first ring that has a packet, which poll() or accept_arrived() takes. Null: there is none.
    [[nodiscard, gnu::always_inline]] RingPoll* first_arrived() noexcept;
    /// poll() of all rings from this one on, where there are few.
    template <class Up>
    void accept_arrived(RingPoll& first) noexcept;
    [[nodiscard]] bool has_many_rings() const noexcept { return polls_.size() > all_rings; }
    /// The slot of the packet with this sequence number.
    [[nodiscard]] const std::byte* slot(const RxRing& ring, std::uint32_t seq) const noexcept
    {
        return ring.base + std::size_t{(seq - 1) & (geometry().ring_slots - 1)} * slot_size;
    }
    /// Overwrites the ends of payload slots. They will be polled as control words later, so no sequence number may
    /// stand there.
    void blank(const RxRing& ring, std::uint32_t slots) noexcept;
    /// Logs the first packet that makes no sense, and no later ones.
    void bad_packet(const RxRing& ring, const char* what) noexcept;
    [[nodiscard]] const Geometry& geometry() const noexcept { return geometry_; }
    /// Notifies the simulator's clock that a poll has seen a packet; null without a simulator.
    [[nodiscard]] auto seen() const noexcept { return seen_; }

    // --- leases
    /// The rings that senders have.
    [[nodiscard]] const Array<RingPoll>& polls() const noexcept { return polls_; }
    [[nodiscard]] RxRing& operator[](const RingPoll& poll) noexcept { return *rings_[poll.ring]; }
    /// Answers an anonymous sender that asks for a ring. False: no room in the queue of the TNI.
    [[nodiscard]] bool grant_or_deny(const Envelope& who, utofu_stadd_t area) noexcept;
    /// Reports the number of consumed slots to the sender. If the TNI has no room, catch_up() retries.
    void report(RxRing& ring) noexcept;
    /// Frees a ring whose sender has left or died.
    void close(RxRing& ring) noexcept;

    // --- from RingSet
    [[nodiscard]] bool behind() const noexcept { return reports_due_ || anon_receiver.any_refused(); }
    /// Repeats reports that found no room in the queue of the TNI, and anonymous packets for which the protocol had no
    /// room.
    void catch_up() noexcept;
    /// Frees the rings whose senders have died and whose packets have all been taken.
    void close_dead() noexcept;
    /// Revokes some rings, if one had to be denied.
    void revoke_some() noexcept;
    /// Revokes all rings and grants none from now on: the endpoint closes.
    void revoke_all() noexcept;
    /// True if no sender can write into a ring any more: each has released its ring or is dead.
    [[nodiscard]] bool writers_gone() const noexcept { return polls_.size() == dead_; }
    /// Probes whether senders are alive, one per call.
    void watch() noexcept;
    /// Probes the senders with this target VCQ, to which a post has failed.
    void peer_failed(utofu_vcq_id_t target_vcq) noexcept;

  protected:
    ~RxRings() = default;

  private:
    static constexpr unsigned batch = 16;        ///< packets taken from one ring in a round
    static constexpr std::size_t all_rings = 16; ///< rings polled in a round

    template <class Up>
    void poll_in_turn() noexcept;
    template <class Up>
    [[nodiscard]] bool drain(RingPoll& poll) noexcept;
    template <class Up>
    [[nodiscard]] bool consume(RingPoll& first, std::uint64_t control) noexcept;
    template <class Up>
    [[nodiscard]] std::uint32_t accept_otherwise(RxRing& ring, std::uint64_t control) noexcept;
    [[nodiscard]] bool accept_release(RxRing& ring, std::uint64_t control) noexcept;
    [[nodiscard]] bool begin(RxRing& ring) noexcept;

    [[nodiscard]] bool reply(utofu_vcq_id_t target_vcq, utofu_stadd_t area, utofu_stadd_t credits,
                             const CreditBlock& block) noexcept;
    void revoke(RxRing& ring) noexcept;
    void start_probe(RxRing& ring) noexcept;
    /// Marks the ring's sender as dead. The packets that it has sent are still taken.
    void set_dead(RxRing& ring) noexcept { dead_ += !std::exchange(ring.dead, true); }
    static void on_life(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept;

    RingContext& own_;
    int (*seen_)(const void* address, std::size_t size) = nullptr; ///< see seen()
    Geometry geometry_{};
    std::uint32_t report_after_ = 0;                   ///< Geometry::report_after()
    std::unique_ptr<std::unique_ptr<RxRing>[]> rings_; ///< by number
    Array<RingPoll> polls_;                            ///< has room for all rings
    std::size_t next_poll_ = 0;
    std::size_t last_active_ = 0;
    std::size_t revoke_hand_ = 0; ///< index of the ring that revoke_some() looks at next
    std::size_t next_watched_ = 0;
    unsigned dead_ = 0; ///< rings whose senders are dead
    bool reports_due_ = false;
    bool denied_some_ = false;        ///< a ring had to be denied
    bool closing_ = false;            ///< revoke_all() was called
    bool bad_packets_ = false;        ///< one has been logged
    std::unique_ptr<RxRing> retired_; ///< the ring closed last, which callers use until its last packet is handled
};

// --- RxRings: inline part

/// Prefetches the other cache lines of the next slot of the first ring: when a longer packet is there, its lines come
/// at the same time and not one after the other. An unwritten line is in the cache already and costs
/// nothing.
inline RingPoll* RxRings::first_arrived() noexcept
{
    Array<RingPoll>& polls = polls_;
    if (polls.empty())
        return nullptr;
    for (std::size_t before = processor_line; before < slot_size; before += processor_line)
        __builtin_prefetch(reinterpret_cast<const std::byte*>(polls[0].word) - before);
    for (RingPoll& poll : polls)
        if (poll.arrived(poll.read())) [[unlikely]]
            return &poll;
    return nullptr;
}

/// No ring's place moves meanwhile: open() has made room for all. A ring that takes a closed one's place waits a round.
template <class Up>
[[gnu::always_inline]] inline void RxRings::accept_arrived(RingPoll& first) noexcept
{
    RingPoll* poll = &first;
    do {
        const std::uint64_t control = poll->read();
        if (poll->arrived(control))
            (void)consume<Up>(*poll, control);
    } while (++poll < std::to_address(polls_.end()));
}

template <class Up>
inline void RxRings::poll() noexcept
{
    if (has_many_rings()) [[unlikely]]
        poll_in_turn<Up>();
    else if (RingPoll* const first = first_arrived(); first != nullptr)
        static_cast<Up&>(*this).accept_packets(*first);
}

/// Of many rings looks at the one that last had a packet, then at some of the others.
template <class Up>
[[gnu::noinline]] void RxRings::poll_in_turn() noexcept
{
    Array<RingPoll>& polls = polls_;
    if (last_active_ < polls.size() && drain<Up>(polls[last_active_]))
        return;
    for (std::size_t look = 0; look < all_rings && !polls.empty(); look++) {
        if (next_poll_ >= polls.size())
            next_poll_ = 0;
        const std::size_t at = next_poll_++;
        if (at != last_active_ && drain<Up>(polls[at]))
            last_active_ = at;
    }
}

/// Takes packets out of one ring. False: it took none. The ring may be closed by that.
template <class Up>
[[gnu::noinline]] bool RxRings::drain(RingPoll& poll) noexcept
{
    const std::uint64_t control = poll.read();
    return poll.arrived(control) && consume<Up>(poll, control);
}

/// Takes packets of a ring as long as there are some. `control`: the control word of the first. False: it stays.
template <class Up>
[[gnu::always_inline]] inline bool RxRings::consume(RingPoll& first, std::uint64_t control) noexcept
{
    Up& up = static_cast<Up&>(*this);
    RingPoll* poll = &first;
    RxRing& ring = *rings_[first.ring];
    for (unsigned left = batch; left != 0; left--) {
        if (seen_ != nullptr) [[unlikely]]
            (void)seen_(ring.control(ring.next_seq, geometry_.ring_slots), sizeof control);
        std::uint32_t slots = up.accept_fast(ring, poll->word, control);
        if (slots == 0) [[unlikely]] {
            slots = accept_otherwise<Up>(ring, control);
            if (slots == 0)
                return left != batch;
            if (ring.place == no_place) // the packet was a release
                return true;
            poll = &polls_[ring.place];
        }
        ring.next_seq += slots;
        if (ring.next_seq - ring.reported > report_after_) [[unlikely]]
            report(ring);
        poll->seq = ring.next_seq;
        poll->word = ring.control(ring.next_seq, geometry_.ring_slots);
        control = poll->read();
        if (!poll->arrived(control))
            break;
    }
    return true;
}

/// Takes a packet that accept_fast() has left. 0: it stays; else the number of its slots.
template <class Up>
[[gnu::noinline]] std::uint32_t RxRings::accept_otherwise(RxRing& ring, std::uint64_t control) noexcept
{
    if (ring.state == RingState::granted && !begin(ring))
        return 0;
    std::uint32_t slots = 1;
    const bool release = std::bit_cast<Control>(control).type == Type::release;
    return (release ? accept_release(ring, control) : static_cast<Up&>(*this).accept(ring, slots)) ? slots : 0;
}

// --- RingSet: of one endpoint: ordered packets from live peers, and room to send to them. Knows nothing of tags, sends
// and receives: the protocol above (Protocol, RxRings::poll) gives packets their meaning. Under the endpoint's lock,
// but for open() and close_area().

class RingSet {
  public:
    /// `in` is made later, over `own`.
    RingSet(const LocalEndpoint& self, Protocol& protocol, RxRings& in) noexcept : own(self, protocol), out(own), in(in)
    {
    }
    RingSet(const RingSet&) = delete;
    RingSet& operator=(const RingSet&) = delete;
    ~RingSet() { own.open = false; }

    /// Opens the area, with so many rings for peers and slots for anonymous packets. 0 or -FI_E*. Takes the target
    /// lock.
    [[nodiscard]] int open(std::size_t ring_count, std::size_t ring_slots, std::size_t anon_slot_count) noexcept;
    /// Releases the rings at peers, revokes those of peers and grants none any more. The caller makes progress and
    /// calls again. True: no peer can write to the area any more.
    [[nodiscard]] bool stop_writers() noexcept;
    /// Releases all rings; nothing is posted afterwards.
    void release_all() noexcept;
    /// Closes the area, which peers then cannot reach any more. Called after release_all() and the last notice. Takes
    /// the target lock. False: a peer that is stopped may write to the area's STADDs later, so its number is not
    /// settled.
    [[nodiscard]] bool close_area() noexcept;

    /// Does something wait for catch_up()? Asked in every round of progress, together with RxRings::behind().
    [[nodiscard, gnu::always_inline]] bool behind() const noexcept { return out.deferred() || doorbell_rang(); }
    /// Has a peer rung a doorbell?
    [[nodiscard, gnu::always_inline]] bool doorbell_rang() const noexcept
    {
        // relaxed: catch_up() reads it again
        return own.area.doorbells().load(std::memory_order_relaxed) != 0;
    }
    /// Answers doorbells, and repeats packets and reports that found no room in the queue of the TNI.
    void catch_up() noexcept;
    /// Does what is due every few milliseconds. Called in every 64th round or so.
    void slow_round() noexcept;
    /// An unsignaled communication to this target VCQ has failed: finds out whether the peer is gone.
    void peer_failed(utofu_vcq_id_t target_vcq) noexcept;

    RingContext own;
    TxRings out;
    RxRings& in;

  private:
    std::uint64_t last_tick_ = 0;
    std::uint64_t last_watch_ = 0;
    std::uint64_t last_stop_ = 0; ///< milliseconds: when stop_writers() last asked peers
    bool writers_gone_ = false;   ///< as stop_writers() has found
};

} // namespace tofu::proto
