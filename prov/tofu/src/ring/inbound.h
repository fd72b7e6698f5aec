// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What an endpoint receives: the rings of its area, from their grant to their BYE, and the packets of visitors. Packets go to the protocol in their
// order; slots go back when it has taken them. Nothing read from the area is trusted. Under the endpoint's lock; calls
// vcq.
//
//   inbound.cc  rings come and go, reports;  turnover.cc  rings are asked back;  life.cc  the watch
//   visitors.cc  packets of those who have no ring
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "provider/array.h"
#include "ring/channel.h"
#include "ring/port.h"
#include "ring/visitors.h"

namespace tofu::proto {

class Inbound {
  public:
    explicit Inbound(Port& port) noexcept : port_(port) {}
    Inbound(const Inbound&) = delete;
    Inbound& operator=(const Inbound&) = delete;
    /// 0 or -FI_ENOMEM.
    [[nodiscard]] int open(const Geometry& geometry) noexcept;
    /// Behind that, when there is an area. False: no memory.
    [[nodiscard]] bool open_visitors() noexcept;

    /// Takes packets out of rings, a bounded number. Up, the protocol's class that derives from this one, has
    ///   bool take_short(Ring&, std::uint64_t control, std::uint32_t& slots): the packet with this control word, if
    ///     that can be done at once; `slots` is 1 and may be made more. False: nothing has happened.
    ///   bool take(Ring&, std::uint32_t& slots): the same for all others; false: the packet stays, there is no room.
    template <class Up>
    void poll() noexcept;
    /// A slot of the ring, by the number of its use.
    [[nodiscard]] const std::byte* slot(const Ring& ring, std::uint32_t seq) const noexcept
    {
        return ring.base + std::size_t{(seq - 1) & (geometry().ring_slots - 1)} * slot_size;
    }
    /// The ends of payload slots will be polled as control words later: no seq may stand there.
    void blank(const Ring& ring, std::uint32_t slots) noexcept;
    /// One line for the first packet that can't be.
    void bad_packet(const Ring& ring, const char* what) noexcept;
    [[nodiscard]] const Geometry& geometry() const noexcept { return geometry_; }
    /// The protocol has one thing less of the ring's. It is remembered no longer than these.
    static void let_go(Ring& ring) noexcept
    {
        if (--ring.users == 0 && ring.parted)
            delete &ring;
    }
    template <class Visit>
    void each(Visit&& visit) noexcept
    {
        for (const Poll& poll : polls_)
            visit(*rings_[poll.ring]);
    }
    /// Packets of visitors.
    void take_visits() noexcept;

    // --- from Rings
    [[nodiscard]] bool behind() const noexcept { return reports_due_ || !refused_.empty(); }
    /// Reports that found no room in the queue of the TNI, visits that the protocol had none for.
    void catch_up() noexcept;
    /// Rings whose senders died and whose packets have all been taken.
    void close_gone() noexcept;
    /// Some rings, if there were none for somebody.
    void ask_back() noexcept;
    /// Asks one sender after the other for a sign of life.
    void watch() noexcept;
    void peer_failed(utofu_vcq_id_t home) noexcept;

  protected:
    ~Inbound() = default;
    /// How often the visits have been offered to the protocol.
    [[nodiscard]] std::uint32_t offers() const noexcept { return offers_; }

  private:
    struct Poll {
        std::uint64_t* word; ///< control word of the slot expected next
        std::uint32_t seq;
        std::uint32_t ring;
    };
    static constexpr unsigned batch = 16;        ///< packets of one ring in a round
    static constexpr std::size_t all_rings = 16; ///< up to so many rings are looked at in every round
    static constexpr std::size_t line = 64;      ///< what a processor fetches at once

    /// acquire: pairs with the sender's Put, whose last 8 bytes are written last
    [[nodiscard]] static std::uint64_t read(const Poll& poll) noexcept
    {
        return std::atomic_ref<std::uint64_t>(*poll.word).load(std::memory_order_acquire);
    }
    [[nodiscard]] static bool arrived(std::uint64_t control, const Poll& poll) noexcept
    {
        return static_cast<std::uint32_t>(control >> 32) == poll.seq;
    }
    template <class Up>
    void poll_in_turn() noexcept;
    template <class Up>
    [[nodiscard]] unsigned drain(const Poll& poll) noexcept;
    template <class Up>
    [[nodiscard]] unsigned empty(Ring& ring, std::uint64_t control) noexcept;
    // inbound.cc
    [[nodiscard]] bool take_bye(Ring& ring, std::uint64_t control) noexcept;
    [[nodiscard]] bool begin(Ring& ring) noexcept;
    void close_ring(Ring& ring) noexcept;
    void report(Ring& ring) noexcept;
    // visitors.cc
    [[nodiscard]] bool take_visit(std::byte* end) noexcept;
    [[nodiscard]] bool take_visit(const Envelope& who, const std::byte* packet, std::byte* end) noexcept;
    [[nodiscard]] bool is_refused(std::uint64_t key) const noexcept;
    // turnover.cc
    [[nodiscard]] bool answer(const Envelope& who, utofu_stadd_t area) noexcept;
    [[nodiscard]] bool answer_bye(Ring& ring) noexcept;
    // life.cc
    void start_probe(Ring& ring) noexcept;
    void set_gone(Ring& ring) noexcept;
    [[nodiscard]] static bool shows_death(const Ring& ring, const vcq::Notice& notice) noexcept;
    static void on_life(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;

    Port& port_;
    int (*seen_)(const void* address, std::size_t size) = nullptr; ///< to the simulator's clock
    Geometry geometry_{};
    std::unique_ptr<std::unique_ptr<Ring>[]> rings_; ///< by number
    Array<Poll> polls_;
    std::size_t next_poll_ = 0;
    std::size_t hot_ = 0;
    unsigned gone_ = 0; ///< rings of senders that are no more
    bool reports_due_ = false;
    bool refuse_all_ = false;       ///< no memory for `refused_`
    bool ring_wanted_ = false;      ///< there was none for somebody
    std::uint32_t offers_ = 0;
    Visitors visitors_;
    std::unique_ptr<Ring> visitor_; ///< by which visits are handed on
    Array<std::uint64_t> refused_;  ///< senders of visits that stay where they are
    bool bad_packets_ = false;      ///< there was one
    std::size_t ask_hand_ = 0;      ///< where rings are asked back next
    std::size_t next_watched_ = 0;
    std::unique_ptr<Ring> retired_; ///< closed last; still looked at while its last packet is handled
};

// --- inline part

template <class Up>
inline void Inbound::poll() noexcept
{
    if (polls_.size() == 1) [[likely]]
        (void)drain<Up>(polls_[0]);
    else if (!polls_.empty())
        poll_in_turn<Up>();
}

/// The ring that had something last, then the others in turn.
template <class Up>
[[gnu::noinline]] void Inbound::poll_in_turn() noexcept
{
    const std::size_t n = polls_.size();
    if (hot_ < n && drain<Up>(polls_[hot_]) != 0 && n > all_rings)
        return;
    std::size_t look = n < all_rings ? n : all_rings;
    for (; look > 0 && !polls_.empty(); look--) {
        if (next_poll_ >= polls_.size())
            next_poll_ = 0;
        const std::size_t at = next_poll_++;
        if (at != hot_ && drain<Up>(polls_[at]) != 0)
            hot_ = at;
    }
}

/// Takes packets out of one ring; returns how many. May remove the ring from polls_.
///
/// The slot's other lines are asked for as well: once a longer packet is there, all of its lines come at the same time,
/// instead of one round of the caches after the other. A line that nobody wrote is here already and costs nothing.
template <class Up>
inline unsigned Inbound::drain(const Poll& poll) noexcept
{
    for (std::size_t before = line; before < slot_size; before += line)
        __builtin_prefetch(reinterpret_cast<const std::byte*>(poll.word) - before);
    const std::uint64_t control = read(poll);
    if (!arrived(control, poll)) [[likely]]
        return 0;
    return empty<Up>(*rings_[poll.ring], control);
}

/// Takes packets as long as there are some. `control` is that of the first.
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
            if (ring.place == no_place) // it said BYE
                return taken + 1;
        }
        ring.next_seq += slots;
        if (ring.next_seq - 1 - ring.reported >= geometry_.report_after()) [[unlikely]]
            report(ring);
        Poll& poll = polls_[ring.place];
        poll.seq = ring.next_seq;
        poll.word = ring.control(ring.next_seq, geometry_.ring_slots);
        control = read(poll);
        if (!arrived(control, poll))
            return taken + 1;
    }
    return batch;
}

} // namespace tofu::proto
