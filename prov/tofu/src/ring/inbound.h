// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The receiving side of an endpoint: hands the packets in the rings of its area to the protocol, in order, and gives
// their slots back to the senders when the protocol has taken them. Nothing read from the area is trusted. Under the
// endpoint's lock; calls vcq.
//
//   grants.h  which senders have a ring;  visitors.h  packets of senders that have none
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "provider/limits.h"
#include "ring/channel.h"
#include "ring/grants.h"
#include "ring/port.h"
#include "ring/visitors.h"

namespace tofu::proto {

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
    ///   bool take_short(Ring&, std::uint64_t control, std::uint32_t& slots): takes the packet with this control word
    ///     if that can be done at once; `slots` is 1 and may be raised. False: nothing has happened.
    ///   bool take(Ring&, std::uint32_t& slots): takes any other packet. False: it stays, there is no room for it.
    template <class Up>
    void poll() noexcept;
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
    /// Tells the simulator's clock that a poll has seen a packet; null without a simulator.
    [[nodiscard]] auto seen() const noexcept { return seen_; }

    // --- from Rings
    [[nodiscard]] bool behind() const noexcept { return grants.reports_due() || arrivals.any_refused(); }
    /// Repeats reports that found no room in the queue of the TNI, and visits for which the protocol had no room.
    void catch_up() noexcept;

  protected:
    ~Inbound() = default;

  private:
    using Poll = Grants::Poll;
    static constexpr unsigned batch = 16;        ///< packets taken from one ring in a round
    static constexpr std::size_t all_rings = 16; ///< rings looked at in a round

    template <class Up>
    void poll_in_turn() noexcept;
    template <class Up>
    [[nodiscard]] unsigned drain(const Poll& poll) noexcept;
    template <class Up>
    [[nodiscard]] unsigned empty(Ring& ring, std::uint64_t control) noexcept;
    [[nodiscard]] bool take_bye(Ring& ring, std::uint64_t control) noexcept;
    [[nodiscard]] bool begin(Ring& ring) noexcept;

    Port& port_;
    int (*seen_)(const void* address, std::size_t size) = nullptr; ///< see seen()
    Geometry geometry_{};
    std::size_t next_poll_ = 0;
    std::size_t hot_ = 0;
    bool bad_packets_ = false; ///< one has been logged
};

// --- inline part

/// With one ring, prefetches the other cache lines of the next slot: when a longer packet is there, its lines come at
/// the same time and not one after the other. A line that nobody has written is in the cache already and costs nothing.
template <class Up>
inline void Inbound::poll() noexcept
{
    const Array<Poll>& polls = grants.polls();
    if (polls.size() == 1) [[likely]] {
        for (std::size_t before = processor_line; before < slot_size; before += processor_line)
            __builtin_prefetch(reinterpret_cast<const std::byte*>(polls[0].word) - before);
        (void)drain<Up>(polls[0]);
    } else if (!polls.empty()) {
        poll_in_turn<Up>();
    }
}

/// Looks at all rings; of many, at the one that last had a packet, then at some of the others.
template <class Up>
[[gnu::noinline]] void Inbound::poll_in_turn() noexcept
{
    const Array<Poll>& polls = grants.polls();
    if (polls.size() <= all_rings) {
        for (std::size_t at = 0; at < polls.size(); at++) // a ring that moves into a closed one's place waits a round
            (void)drain<Up>(polls[at]);
        return;
    }
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
inline unsigned Inbound::drain(const Poll& poll) noexcept
{
    const std::uint64_t control = poll.read();
    if (!poll.arrived(control)) [[likely]]
        return 0;
    return empty<Up>(grants[poll], control);
}

/// Takes packets as long as there are some. `control`: the control word of the first.
template <class Up>
[[gnu::noinline]] unsigned Inbound::empty(Ring& ring, std::uint64_t control) noexcept
{
    Up& up = static_cast<Up&>(*this);
    for (unsigned taken = 0; taken < batch; taken++) {
        std::uint32_t slots = 1;
        if (seen_ != nullptr) [[unlikely]]
            (void)seen_(ring.control(ring.next_seq, geometry_.ring_slots), sizeof control);
        if (!up.take_short(ring, control, slots)) {
            if (!ring.begun && !begin(ring))
                return taken;
            const bool bye = std::bit_cast<Control>(control).type == static_cast<std::uint8_t>(Type::bye);
            if (!(bye ? take_bye(ring, control) : up.take(ring, slots)))
                return taken;
            if (ring.place == no_place) // the packet was a BYE
                return taken + 1;
        }
        ring.next_seq += slots;
        if (ring.next_seq - 1 - ring.reported >= geometry_.report_after()) [[unlikely]]
            grants.report(ring);
        Poll& poll = grants.polls()[ring.place];
        poll.seq = ring.next_seq;
        poll.word = ring.control(ring.next_seq, geometry_.ring_slots);
        control = poll.read();
        if (!poll.arrived(control))
            return taken + 1;
    }
    return batch;
}

} // namespace tofu::proto
