// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The receiving side of an endpoint's rings (Inbound): hands the packets in the rings of its area to the protocol, in
// order, and gives their slots back to the senders when the protocol has taken them. Nothing read from the area is
// trusted. And the rings of an endpoint in both directions, from open to close (Rings). Under the endpoint's lock.
//
//   msg/ring_lease.h  which senders have a ring;  msg/anon_slots.h  packets of senders that have none
//   msg/tx_ring.h  the sending side
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/limits.h"
#include "msg/anon_slots.h"
#include "msg/channel.h"
#include "msg/ring_lease.h"
#include "msg/tx_ring.h"

namespace tofu::proto {

// --- Inbound

class Inbound {
  public:
    explicit Inbound(Port& port) noexcept : grants(port), arrivals(*this, port), port_(port) {}
    Inbound(const Inbound&) = delete;
    Inbound& operator=(const Inbound&) = delete;
    /// 0 or -FI_ENOMEM.
    [[nodiscard]] int open(const Geometry& geometry) noexcept;

    Grants grants;
    Arrivals arrivals;

    /// Takes a bounded number of packets out of the rings. Up, the protocol's class that derives from this one, has
    ///   std::uint32_t take_short(Ring&, const std::uint64_t* end, std::uint64_t control): takes the packet with this
    ///     control word, which is at `end`, if that can be done at once. The number of its slots; 0: nothing has
    ///     happened.
    ///   bool take(Ring&, std::uint32_t& slots): takes any other packet; `slots` is 1 and may be raised. False: it
    ///     stays, there is no room for it.
    ///   void take_packets(std::size_t from): calls take_arrived().
    template <class Up>
    void poll() noexcept;
    /// Finds the place of the first ring that has a packet, which poll() or take_arrived() takes. False: there is none.
    [[nodiscard, gnu::always_inline]] bool first_arrived(std::size_t& ring) const noexcept;
    /// poll() of all rings from this place on, where there are few.
    template <class Up>
    void take_arrived(std::size_t from) noexcept;
    [[nodiscard]] bool has_many_rings() const noexcept { return grants.polls().size() > all_rings; }
    /// The slot of the packet with this sequence number.
    [[nodiscard]] const std::byte* slot(const Ring& ring, std::uint32_t seq) const noexcept
    {
        return ring.base + std::size_t{(seq - 1) & (geometry().ring_slots - 1)} * slot_size;
    }
    /// Overwrites the ends of payload slots. They will be polled as control words later, so no sequence number may
    /// stand there.
    void blank(const Ring& ring, std::uint32_t slots) noexcept;
    /// Logs the first packet that makes no sense, and no later ones.
    void bad_packet(const Ring& ring, const char* what) noexcept;
    [[nodiscard]] const Geometry& geometry() const noexcept { return geometry_; }
    /// Notifies the simulator's clock that a poll has seen a packet; null without a simulator.
    [[nodiscard]] auto seen() const noexcept { return seen_; }

    // --- from Rings
    [[nodiscard]] bool behind() const noexcept { return grants.reports_due() || arrivals.any_refused(); }
    /// Repeats reports that found no room in the queue of the TNI, and anonymous packets for which the protocol had no
    /// room.
    void catch_up() noexcept;

  protected:
    ~Inbound() = default;

  private:
    using Poll = Grants::Poll;
    static constexpr unsigned batch = 16;        ///< packets taken from one ring in a round
    static constexpr std::size_t all_rings = 16; ///< rings polled in a round

    template <class Up>
    void poll_in_turn() noexcept;
    template <class Up>
    [[nodiscard]] unsigned drain(Poll& poll) noexcept;
    template <class Up>
    [[nodiscard]] unsigned empty(Poll& first, std::uint64_t control) noexcept;
    template <class Up>
    [[nodiscard]] std::uint32_t take_otherwise(Ring& ring, std::uint64_t control) noexcept;
    [[nodiscard]] bool take_bye(Ring& ring, std::uint64_t control) noexcept;
    [[nodiscard]] bool begin(Ring& ring) noexcept;

    Port& port_;
    int (*seen_)(const void* address, std::size_t size) = nullptr; ///< see seen()
    Geometry geometry_{};
    std::uint32_t report_after_ = 0; ///< Geometry::report_after()
    std::size_t next_poll_ = 0;
    std::size_t hot_ = 0;
    bool bad_packets_ = false; ///< one has been logged
};

// --- Inbound: inline part

/// Prefetches the other cache lines of the next slot of the first ring: when a longer packet is there, its lines come
/// at the same time and not one after the other. An unwritten line is in the cache already and costs
/// nothing.
inline bool Inbound::first_arrived(std::size_t& ring) const noexcept
{
    const Array<Poll>& polls = grants.polls();
    if (polls.empty())
        return false;
    for (std::size_t before = processor_line; before < slot_size; before += processor_line)
        __builtin_prefetch(reinterpret_cast<const std::byte*>(polls[0].word) - before);
    for (const Poll& poll : polls)
        if (poll.arrived(poll.read())) [[unlikely]] {
            ring = static_cast<std::size_t>(&poll - polls.begin());
            return true;
        }
    return false;
}

template <class Up>
[[gnu::always_inline]] inline void Inbound::take_arrived(std::size_t from) noexcept
{
    Array<Poll>& polls = grants.polls();
    std::size_t at = from;
    do { // a ring that moves into a closed one's place waits a round
        Poll& poll = polls[at];
        const std::uint64_t control = poll.read();
        if (poll.arrived(control))
            (void)empty<Up>(poll, control);
    } while (++at < polls.size());
}

template <class Up>
inline void Inbound::poll() noexcept
{
    if (has_many_rings()) [[unlikely]]
        poll_in_turn<Up>();
    else if (std::size_t ring; first_arrived(ring))
        static_cast<Up&>(*this).take_packets(ring);
}

/// Of many rings looks at the one that last had a packet, then at some of the others.
template <class Up>
[[gnu::noinline]] void Inbound::poll_in_turn() noexcept
{
    Array<Poll>& polls = grants.polls();
    if (hot_ < polls.size() && drain<Up>(polls[hot_]) != 0)
        return;
    for (std::size_t look = 0; look < all_rings && !polls.empty(); look++) {
        if (next_poll_ >= polls.size())
            next_poll_ = 0;
        const std::size_t at = next_poll_++;
        if (at != hot_ && drain<Up>(polls[at]) != 0)
            hot_ = at;
    }
}

/// Takes packets out of one ring and returns how many. The ring may be closed by that.
template <class Up>
[[gnu::noinline]] unsigned Inbound::drain(Poll& poll) noexcept
{
    const std::uint64_t control = poll.read();
    if (!poll.arrived(control)) [[likely]]
        return 0;
    return empty<Up>(poll, control);
}

/// Takes packets of a ring as long as there are some. `control`: the control word of the first.
template <class Up>
[[gnu::always_inline]] inline unsigned Inbound::empty(Poll& first, std::uint64_t control) noexcept
{
    Up& up = static_cast<Up&>(*this);
    Poll* poll = &first;
    Ring& ring = grants[first];
    for (unsigned taken = 0; taken < batch; taken++) {
        if (seen_ != nullptr) [[unlikely]]
            (void)seen_(ring.control(ring.next_seq, geometry_.ring_slots), sizeof control);
        std::uint32_t slots = up.take_short(ring, poll->word, control);
        if (slots == 0) [[unlikely]] {
            slots = take_otherwise<Up>(ring, control);
            if (slots == 0)
                return taken;
            if (ring.place == no_place) // the packet was a BYE
                return taken + 1;
            poll = &grants.polls()[ring.place];
        }
        ring.next_seq += slots;
        if (ring.next_seq - ring.reported > report_after_) [[unlikely]]
            grants.report(ring);
        poll->seq = ring.next_seq;
        poll->word = ring.control(ring.next_seq, geometry_.ring_slots);
        control = poll->read();
        if (!poll->arrived(control))
            return taken + 1;
    }
    return batch;
}

/// Takes a packet that take_short() has left. 0: it stays; else the number of its slots.
template <class Up>
[[gnu::noinline]] std::uint32_t Inbound::take_otherwise(Ring& ring, std::uint64_t control) noexcept
{
    if (!ring.begun && !begin(ring))
        return 0;
    std::uint32_t slots = 1;
    const bool bye = std::bit_cast<Control>(control).type == static_cast<std::uint8_t>(Type::bye);
    return (bye ? take_bye(ring, control) : static_cast<Up&>(*this).take(ring, slots)) ? slots : 0;
}

// --- Rings: of one endpoint: ordered packets from live peers, and room to send to them. Knows nothing of tags, sends
// and receives: the protocol above (Protocol, Inbound::poll) gives packets their meaning. Under the endpoint's lock,
// but for open() and close_area().

class Rings {
  public:
    /// `in` is made later, over `port`.
    Rings(const Local& self, Protocol& protocol, int context_bits, Inbound& in) noexcept
        : port(self, protocol), out(port, context_bits), in(in)
    {
    }
    Rings(const Rings&) = delete;
    Rings& operator=(const Rings&) = delete;
    ~Rings();

    /// Opens the area, with so many rings for peers and slots for anonymous packets. 0 or -FI_E*. Takes the home lock.
    [[nodiscard]] int open(std::size_t ring_count, std::size_t ring_slots, std::size_t anon_slot_count) noexcept;
    /// Releases the rings at peers, revokes those of peers and grants none any more. The caller makes progress and
    /// calls again. True: no peer can write to the area any more.
    [[nodiscard]] bool stop_writers() noexcept;
    /// Says BYE to all peers; nothing is posted afterwards.
    void say_byes() noexcept;
    /// Closes the area, which peers then cannot reach any more. Called after say_byes() and the last notice. Takes the
    /// home lock. False: a peer that is stopped may write to the area's STADDs later, so its number is not settled.
    [[nodiscard]] bool close_area() noexcept;

    /// Does something wait for catch_up()? Asked in every round of progress, together with Inbound::behind().
    [[nodiscard, gnu::always_inline]] bool behind() const noexcept { return out.deferred() || doorbell_rang(); }
    /// Has a peer rung a doorbell?
    [[nodiscard, gnu::always_inline]] bool doorbell_rang() const noexcept
    {
        // relaxed: catch_up() reads it again
        return port.area.doorbells().load(std::memory_order_relaxed) != 0;
    }
    /// Answers doorbells, and repeats packets and reports that found no room in the queue of the TNI.
    void catch_up() noexcept;
    /// Does what is due every few milliseconds. Called in every 64th round or so.
    void slow_round() noexcept;
    /// An unsignaled communication to this home VCQ has failed: finds out whether the peer is gone.
    void peer_failed(utofu_vcq_id_t home) noexcept;

    Port port;
    Outbound out;
    Inbound& in;

  private:
    std::uint64_t last_tick_ = 0;
    std::uint64_t last_watch_ = 0;
    std::uint64_t last_stop_ = 0; ///< milliseconds: when stop_writers() last asked peers
    bool writers_gone_ = false;   ///< as stop_writers() has found
};

} // namespace tofu::proto
