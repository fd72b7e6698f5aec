// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Packets without a ring: the slots of senders that have no ring here (AnonSlots), the path of their packets to the
// protocol (Arrivals), and our own packets to a peer at which we have no ring (AnonTx). A sender takes a slot at the
// slot counter by an ARMW ADD and fills it by one Put. The receiver does not know the sender of an unfilled slot: it
// stays with its sender until then, however long that takes, and blocks no other packet.
//
// S sends, R owns the slots. R offers a run of free slots at a time: the ADD hands out one after the other, in an order
// that R knows. A slot goes on offer again only after R has taken what it was handed out for.
//
//  1. S dies before its ADD: nothing has happened.
//  2. S dies between ADD and Put, or is stopped there for any time: the slot stays out. The others of the run, and
//     all other slots, go on. A slot of 256 bytes is lost by a death, until the endpoint is closed.
//  3. S goes on after minutes: no other sender has had its slot, so its Put overwrites nothing. It is consumed
//     normally.
//  4. S dies in its Put: the control word, written last, is not there. As 2.
//  5. S has no use for the slot (its ring came first, its operation was cancelled): it puts an empty packet there.
//  6. No slot is left: the ADD finds the end and hands out nothing. S does not add again before it has read that there
//     are new ones, so each sender goes beyond the end once for each run: 24 bits are enough for 16 million.
//  7. R offers a new run: only when the one before is handed out to its end, so no ADD can fall between two.
//  8. Order among anonymous packets of one S: each has its ADD behind the Put of the one before, and Puts arrive in
//     order (strong order, guide 6.1.3.1). R looks at the slots that are out from the youngest to the oldest, and then
//     takes what it has seen from the oldest on: what came before something seen was seen, too.
//  9. A packet without room stays; later ones of its sender stay with it (Arrivals::refuses), others go on.
// 10. Order with S's ring: its packets are put behind S's anonymous packets. R takes all anonymous packets before it
//     takes the first of them (Inbound::begin). S sends anonymously again only after `closed`, when R has taken all
//     from the ring.
// 11. S means an earlier process: check and version in the gate's word say so; S fills the slot that it has taken there
//     with an empty packet. Where 19 bits of a nonce are equal by chance, the envelope has the whole.
// 12. A hostile S takes all slots and fills none: R has no anonymous senders any more, but its rings continue. It fills
//     slots that it has not taken: a peer with write access can always do that.
// 13. An honest S does not take all slots either while R looks at none: from its fourth anonymous packet on it asks for
//     a ring, every 64 anonymous packets at least, and sends at most 64 before it has been answered.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/containers.h"
#include "msg/channel.h"
#include "msg/wire.h"

namespace tofu::proto {

class Inbound;

class AnonSlots {
  public:
    /// `count` slots at `slots`, all on offer in the word at `gate`. False: no memory.
    [[nodiscard]] bool open(std::byte* slots, std::uint32_t count, std::uint64_t* gate, std::uint64_t nonce) noexcept;
    /// Looks at all slots that are out. Calls take(end of the slot) for each that holds a packet; true: it was taken.
    template <class Take>
    void take_arrived(Take&& take) noexcept
    {
        note_handed_out();
        // acquire: pairs with the sender's Put, whose last 8 bytes are written last
        for (std::size_t i = out_.size(); i-- > 0;)
            out_[i].there = control(out_[i].slot).load(std::memory_order_acquire) >> 32 == seq_;
        std::size_t left = 0;
        for (const Out& out : out_) {
            if (!out.there || !take(slots_ + (std::size_t{out.slot} + 1) * slot_size)) {
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
    std::uint64_t* gate_ = nullptr;
    std::uint64_t nonce_ = 0;
    std::uint32_t seq_ = 0;
    std::uint32_t count_ = 0;
    std::uint32_t next_ = 0; ///< slots on offer that are not known to be out: from here
    std::uint32_t end_ = 0;  ///< to here
    Array<Out> out_;         ///< slots that are out, in the order in which they were handed out; has room for all
    std::unique_ptr<bool[]> is_out_;
};

/// The packets of anonymous senders. Each is read once, checked, and handed on in the order of its sender. A packet
/// that the protocol has no room for stays in its slot.
class Arrivals {
  public:
    Arrivals(Inbound& in, Port& port) noexcept : in_(in), port_(port) {}
    /// Called once there is an area. False: no memory.
    [[nodiscard]] bool open(const Geometry& geometry) noexcept;
    /// Takes all packets that are there and that the protocol has room for.
    void take() noexcept;
    /// True if packets of the sender with that peer_key() have to stay.
    [[nodiscard]] bool refuses(std::uint64_t key) const noexcept;
    /// True if packets of any sender have to stay.
    [[nodiscard]] bool any_refused() const noexcept { return !refused_.empty(); }
    /// The number of slots that were handed out and have not been filled. Called while there is an area.
    [[nodiscard]] std::size_t unfilled() noexcept { return anon_slots_.unfilled(); }
    /// Number of calls of take().
    [[nodiscard]] std::uint32_t offers() const noexcept { return offers_; }

  private:
    [[nodiscard]] bool take_one(std::byte* end) noexcept;
    [[nodiscard]] bool take_one(const Envelope& who, const std::byte* packet, std::byte* end) noexcept;

    Inbound& in_;
    Port& port_;
    AnonSlots anon_slots_;
    std::unique_ptr<Ring> anonymous_; ///< the ring as which a packet is handed on
    Array<std::uint64_t> refused_;    ///< senders of packets that stay
    bool refuse_all_ = false;         ///< there was no memory to note one of them
    std::uint32_t offers_ = 0;
};

// --- AnonTx: packets to a peer at which we have no ring. We ask the peer's gate for a slot for one packet, or find out
// why there is no gate.

class AnonTx {
  public:
    /// How long we wait for a peer to enable its endpoint. Tests set it lower.
    static inline std::uint64_t absent_limit_ms = 10000;

    explicit AnonTx(Port& port) noexcept : port_(port) {}
    /// Takes the next step towards a slot. 0: the channel has one; -FI_EAGAIN; or the error of a failed channel.
    [[nodiscard]] int step(Channel& ch) noexcept;
    /// Releases an unneeded slot by an empty packet. If the TNI has no room, a later call does it.
    void dismiss(Channel& ch) noexcept;
    /// True if some gate has been asked for a slot and has not answered.
    [[nodiscard]] bool asks() const noexcept { return asking_ != 0; }
    /// The notice of a channel's ARMW or Get (Channel::Anonymous).
    static void on_notice(vcq::CompletionHandler* handler, const vcq::Notice& notice) noexcept;

  private:
    void on_gate(Channel& ch, std::uint64_t word) noexcept;
    void on_absence(Channel& ch, int code) noexcept;
    void read_heading(Channel& ch) noexcept;
    void on_heading(Channel& ch, const AreaHeader& header) noexcept;
    [[nodiscard]] vcq::Post put_empty(Channel& ch, utofu_stadd_t slot, std::uint32_t seq) noexcept;

    Port& port_;
    unsigned asking_ = 0; ///< channels that wait for a slot
};

} // namespace tofu::proto
