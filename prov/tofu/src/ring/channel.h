// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The two ends of a ring: Channel, by which we send to a peer; Ring, in which a peer sends to us. Data of Outbound and
// Inbound; calls nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <rdma/fi_errno.h>

#include "address/peers.h"
#include "area/wire.h"
#include "local/bounce.h"
#include "vcq/vcq.h"

namespace tofu::proto {

class Grants;
class Outbound;

/// A question to a peer's memory that is under way: one at a time of each kind.
template <class Of>
struct Inquiry : vcq::Waiter {
    Of* of = nullptr;
    Bounce answer{}; ///< what a Get brings
    bool under_way = false;
};

enum class ChannelState : std::uint8_t {
    idle,     ///< packets are visits: -> open: a ring was granted; -> reading, -> pausing: the gate is not the one meant
    reading,  ///< the peer's header is on its way and will tell why: -> failed
    pausing,  ///< no area yet at the peer: -> idle, a little later; -> failed, much later
    open,     ///< we have a ring: -> leaving: BYE was said; -> failed: a post failed
    leaving,  ///< -> idle: the peer has taken the BYE and writes nothing of this ring any more; -> failed
    failed    ///< for good: this process of the peer is gone
};

/// A peer that we send to, and our ring in its area while we have one. Its number is that of its return block. At
/// any time a pair of endpoints has one ring in each direction at most: that alone keeps their messages in order.
struct Channel {
    Outbound* owner = nullptr;
    Peer peer{};
    utofu_stadd_t ring = 0;
    std::uint32_t next_seq = 1; ///< of the next slot
    std::uint32_t consumed = 0; ///< slots the peer has taken out, as far as we know (low 32 bits)
    std::uint32_t slots = 0;
    ChannelState state = ChannelState::idle;
    bool leave = false;         ///< BYE is to be said: the peer, or another peer of ours, needs the room
    bool met = false;           ///< its area has been there; before, that it is not says nothing
    bool aliased = false;       ///< several places of the address vector lead here
    std::uint16_t number = 0;
    std::uint16_t serial = 0;   ///< under which a ring was asked for last
    int err = 0;                ///< of failed: FI_E*
    int prov_errno = 0;
    std::uint32_t outstanding = 0; ///< what the protocol waits for: the peer is watched, the channel stays its own
    std::uint32_t starved = 0;  ///< refusals for want of credit since the last probe
    std::uint32_t seen_seq = 0; ///< next_seq when room was last looked for: unchanged, it is idle
    /// Two places in what was sent that the protocol has noted. One that is next_seq, nothing sent since, stays so when
    /// the ring changes.
    std::uint32_t mark[2] = {1, 1};
    std::uint64_t place = 0;    ///< of the address vector that leads here,
    unsigned context = 0;       ///< and the receive context
    utofu_stadd_t area = 0;

    /// How a packet goes without a ring (visits.cc). `under_way`: the gate is asked for a slot, or it or the header read.
    struct Visit : Inquiry<Channel> {
        utofu_stadd_t slot = 0;  ///< ours, for one packet; 0: none
        std::uint32_t seq = 0;   ///< of what is put there
        bool reads = false;      ///< the gate is read
        bool full = false;       ///< it had no slot: it is read before it is asked again
        bool lingers = false;    ///< the slot was there when channels were looked at last
        bool asks = false;       ///< the packet that is made asks for a ring
        bool asked = false;      ///< one has; the answer is still to come
        std::uint32_t pause = 0; ///< rounds without reading a gate that was full,
        std::uint32_t rounds = 0;///< and those that are left
        std::uint32_t count = 0; ///< packets since a ring was last asked for,
        std::uint32_t enough = 0;///< and how many there are to be before the next time; 0: the least
        std::uint64_t pause_until = 0; ///< milliseconds: of a peer without an area,
        std::uint64_t first_try = 0;   ///< since when it has been asked for; 0: it has not

        static constexpr std::uint32_t least = 4, most = 64; ///< packets before a ring is asked for, and again
        /// There was no ring: twice as many before the next time.
        void ask_later() noexcept
        {
            enough = std::clamp(2 * enough, 2 * least, most);
            count = 0;
        }
    } visit{};
    Inquiry<Channel> life{}; ///< is the peer alive?
    /// A packet that found no room in the queue of the TNI and may not be left behind.
    struct Deferred {
        std::uint8_t size = 0; ///< 0: there is none
        std::uint32_t seq = 0;
        vcq::Waiter* waiter = nullptr;
        alignas(8) std::byte image[32];
    } deferred{};

    /// Of the next packet, in a ring or a visitor's slot: its sequence number, how much of its slot the envelope takes,
    /// and where the slot ends.
    [[nodiscard]] std::uint32_t seq() const noexcept { return state == ChannelState::open ? next_seq : visit.seq; }
    [[nodiscard]] std::size_t envelope_size() const noexcept
    {
        return state == ChannelState::open ? 0 : sizeof(Envelope);
    }
    [[nodiscard]] utofu_stadd_t slot_end() const noexcept
    {
        return (state == ChannelState::open ? slot(next_seq) : visit.slot) + slot_size;
    }
    /// Why nothing can be sent: -FI_EAGAIN, or the error of a channel that has failed.
    [[nodiscard]] int refusal() const noexcept { return state == ChannelState::failed ? -err : -FI_EAGAIN; }
    /// Where that says -FI_EAGAIN: one or two round trips, which it may be worth waiting for.
    [[nodiscard]] bool soon() const noexcept { return visit.under_way || state == ChannelState::leaving; }
    [[nodiscard]] bool is_to(const Peer& other, unsigned index) const noexcept
    {
        return peer.home == other.home && peer.nonce == other.nonce && peer.index == index;
    }
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

/// A ring of our area, from its grant to its BYE; and who sends, as long as there are messages of his.
struct Ring {
    Grants* owner = nullptr;
    std::byte* base = nullptr;
    std::uint32_t next_seq = 1;
    std::uint32_t reported = 0; ///< slots taken out that the sender knows of
    std::uint32_t seen_seq = 0; ///< next_seq when rings were last asked back: unchanged, it is idle
    std::uint32_t number = 0;
    std::uint32_t place = 0;    ///< in the list that is polled
    std::uint32_t users = 0;    ///< messages of it that the protocol still has
    bool begun = false;         ///< its first packet has been taken, and all visits of its sender before that
    bool gone = false;          ///< the sender is no more: to be closed when its packets have been taken
    bool closing = false;       ///< to be closed when its probe has ended
    bool parted = false;        ///< closed: it goes with the last of its users
    bool asked = false;         ///< the sender was asked to give the ring back
    bool report_due = false;    ///< a report found no room in the queue of the TNI
    std::uint8_t index = 0;     ///< of the sending endpoint
    std::uint16_t serial = 0;
    ReturnStatus status = ReturnStatus::granted; ///< what reports say
    EndpointAddress known{};    ///< what the sender is known by
    std::uint64_t key = 0;      ///< who sends, as peer_key tells it
    fi_addr_t address = FI_ADDR_NOTAVAIL; ///< for the protocol: as the address vector had it
    std::uint32_t generation = ~0u;       ///< then
    utofu_stadd_t area = 0;     ///< of the sender
    utofu_stadd_t returns = 0;  ///< its return block
    Inquiry<Ring> life{};

    /// The protocol has one message less of it. It is remembered no longer than these.
    void let_go() noexcept
    {
        if (--users == 0 && parted)
            delete this;
    }
    /// Control word of slot number `seq`.
    [[nodiscard]] std::uint64_t* control(std::uint32_t seq, std::uint32_t slots) const noexcept
    {
        return reinterpret_cast<std::uint64_t*>(
            base + (std::size_t{(seq - 1) & (slots - 1)} + 1) * slot_size - sizeof(Control));
    }
};

} // namespace tofu::proto
