// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Packets to a peer at which we have no ring: a slot is asked for at the gate, the packet is put there with who sends it.
// Who comes often asks for a ring with one of them. The cases are numbered in visitors.h. Part of Outbound; calls vcq.
#include <algorithm>
#include <cstring>

#include "provider/error.h"
#include "provider/log.h"
#include "provider/probe.h"
#include "ring/outbound.h"

namespace tofu::proto {

namespace {
constexpr std::uint32_t least_visits = 4, most_visits = 64; // before a ring is asked for, and again
constexpr std::uint32_t most_unanswered = 64;               // visits behind one that asks
constexpr std::uint32_t longest_pause = 64;                 // rounds between two looks at a gate that is full
constexpr unsigned most_held = return_count / 4 * 3;        // rings: the other channels are for those who come now and then
constexpr unsigned absent_pause_ms = 1;
constexpr std::uint64_t absent_limit_ms = 10000; // a peer that has an address enables its endpoint soon
} // namespace

[[gnu::noinline]] int Outbound::approach(Channel& ch) noexcept
{
    Channel::Visit& v = ch.visit;
    if (v.asked || ch.state == ChannelState::leaving)
        check_return(ch);
    if (ch.state == ChannelState::pausing && port_.now >= v.pause_until)
        ch.state = ChannelState::idle;
    if (ch.state == ChannelState::idle) {
        if (int ret = visit(ch); ret != -FI_EAGAIN)
            return ret;
    } else if (ch.state == ChannelState::reading && !v.under_way) {
        read_heading(ch);
    }
    if (ch.state == ChannelState::open)
        return 0;
    if (ch.state == ChannelState::failed)
        return -ch.err;
    port_.self.vcq.statistics().count(Stat::again_contact);
    return -FI_EAGAIN;
}

/// Asks the gate for a slot, or reads it. 0: there is one by now.
int Outbound::visit(Channel& ch) noexcept
{
    Channel::Visit& v = ch.visit;
    if (v.slot != 0)
        return 0;
    if (v.under_way)
        return -FI_EAGAIN;
    if (v.asked && v.count >= most_unanswered) {
        ch.starved++;
        return -FI_EAGAIN; // it takes nothing
    }
    if (v.full && v.rounds != 0) {
        v.rounds--;
        return -FI_EAGAIN;
    }
    if (ch.area == 0 && port_.self.vcq.query_stadd(ch.peer.home, endpoint_stag(ch.peer.index), ch.area) != 0) {
        fail(ch, FI_EADDRNOTAVAIL, 0);
        return -ch.err;
    }
    v.reads = v.full;
    vcq::Post post;
    if (v.reads) {
        post = port_.ask(v, ch.peer.home, ch.area + gate_offset, sizeof(std::uint64_t));
    } else {
        v.under_way = true; // the notice may come within the post
        asking_++;
        post = port_.self.vcq.armw(8, ch.peer.home, UTOFU_ARMW_OP_ADD, gate_step, ch.area + gate_offset,
                                   {.when = vcq::When::delivered, .strong_order = true, .waiter = &v});
        if (post != vcq::Post::done) {
            v.under_way = false;
            asking_--;
        }
    }
    if (post != vcq::Post::done)
        return post_failed(ch, post);
    return v.slot != 0 ? 0 : -FI_EAGAIN;
}

void Outbound::on_visit(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept
{
    Channel& ch = *static_cast<Inquiry<Channel>*>(waiter)->of;
    Outbound& out = *ch.owner;
    Channel::Visit& v = ch.visit;
    std::uint64_t word = notice.value;
    AreaHeader header{};
    if (v.reads) {
        std::memcpy(&word, v.answer.data, sizeof word);
        std::memcpy(&header, v.answer.data, sizeof header); // a block holds more than that
        out.port_.end(v);
    } else {
        v.under_way = false;
        out.asking_--;
    }
    if (!out.port_.open || ch.state == ChannelState::failed)
        return;
    if (notice.code != UTOFU_SUCCESS)
        out.on_absence(ch, notice.code);
    else if (ch.state == ChannelState::reading)
        out.on_heading(ch, header);
    else
        out.on_gate(ch, word);
}

/// No such area: the peer's endpoint is not enabled yet, or it is no more.
void Outbound::on_absence(Channel& ch, int code) noexcept
{
    Channel::Visit& v = ch.visit;
    if (v.first_try == 0)
        v.first_try = port_.now;
    if (code != UTOFU_ERR_MRQ_RMT_STADD || port_.now - v.first_try >= absent_limit_ms) {
        fail(ch, fi_error_of(code), code);
    } else if (ch.state == ChannelState::idle || ch.state == ChannelState::reading) {
        ch.state = ChannelState::pausing;
        v.pause_until = port_.now + absent_pause_ms;
    }
}

void Outbound::on_gate(Channel& ch, std::uint64_t word) noexcept
{
    Channel::Visit& v = ch.visit;
    const std::uint32_t next = gate_next(word);
    const bool some = next < gate_end(word);
    const utofu_stadd_t slot = ch.area + visits_offset + std::uint64_t{next} * slot_size;
    if (!gate_is_of(word, ch.peer.nonce)) {
        if (!v.reads && some && gate_speaks(word))
            (void)put_empty(ch, slot, visit_seq(word)); // another process has the VCQ ID, and gave us a slot of its own
        if (ch.state == ChannelState::idle)
            read_heading(ch);
        return;
    }
    v.first_try = 0;
    if (v.reads || !some) {
        v.full = !some;
        v.pause = v.full ? std::clamp(2 * v.pause, 1u, longest_pause) : 0;
        v.rounds = v.pause;
        return;
    }
    v.slot = slot;
    v.seq = visit_seq(word);
    v.lingers = false;
    if (ch.state == ChannelState::open || ch.state == ChannelState::leaving)
        dismiss(ch);
}

/// Why is the gate another one? Without room for the Get it is tried again.
void Outbound::read_heading(Channel& ch) noexcept
{
    ch.state = ChannelState::reading;
    ch.visit.reads = true;
    if (port_.ask(ch.visit, ch.peer.home, ch.area, sizeof(AreaHeader)) == vcq::Post::error)
        (void)post_failed(ch, vcq::Post::error);
}

void Outbound::on_heading(Channel& ch, const AreaHeader& header) noexcept
{
    switch (read_header(header, ch.peer.nonce, ch.peer.index)) {
    case Heading::other_version:
        TOFU_WARN(FI_LOG_EP_CTRL,
                  "endpoint %u: peer 0x%llx speaks version %u of the wire protocol, this is %u: use the "
                  "same release of the provider on all nodes\n",
                  port_.self.index, static_cast<unsigned long long>(ch.peer.home), header.version,
                  wire_version);
        fail(ch, FI_ECONNREFUSED, 0);
        return;
    case Heading::other_process: fail(ch, FI_EHOSTDOWN, UTOFU_ERR_MRQ_PEER); return;
    case Heading::usable:
        TOFU_WARN(FI_LOG_EP_CTRL, "endpoint %u: the gate of peer 0x%llx is not what it can be: its memory is damaged\n",
                  port_.self.index, static_cast<unsigned long long>(ch.peer.home));
        fail(ch, FI_EIO, 0);
        return;
    }
}

// --- the packet

Envelope Outbound::envelope(Channel& ch) noexcept
{
    const bool asks = wants_ring(ch);
    if (asks) // before the packet leaves: the answer comes there
        port_.area.status(ch.number).store(0, std::memory_order_release);
    ch.visit.asks = asks;
    return {port_.self.home.id(), port_.self.nonce, ch.peer.nonce, wire_version,
            static_cast<std::uint8_t>(port_.self.index), static_cast<std::uint8_t>(port_.self.identity),
            asks ? ch.number : no_return, static_cast<std::uint16_t>(ch.serial + 1)};
}

bool Outbound::wants_ring(Channel& ch) noexcept
{
    Channel::Visit& v = ch.visit;
    if (v.asked || v.count < std::max(v.enough, least_visits))
        return false;
    if (held_ < most_held)
        return true;
    give_up_rings();
    ask_later(ch);
    return false;
}

[[gnu::noinline]] void Outbound::visited(Channel& ch) noexcept
{
    Channel::Visit& v = ch.visit;
    v.slot = 0;
    v.count++;
    if (v.asks) {
        v.asks = false;
        v.asked = true;
        v.count = 0;
        ch.serial++;
        held_++;
    }
    port_.self.vcq.statistics().count(Stat::send_visit);
    port_.ring_doorbell(ch.peer.home, ch.area, Doorbell::visit);
}

/// There was no ring: twice as many visits before the next time.
void Outbound::ask_later(Channel& ch) noexcept
{
    ch.visit.enough = std::clamp(2 * ch.visit.enough, 2 * least_visits, most_visits);
    ch.visit.count = 0;
}

/// The slot is of no use. Without room in the queue of the TNI it is kept, and given back some time later.
void Outbound::dismiss(Channel& ch) noexcept
{
    if (ch.visit.slot != 0 && put_empty(ch, ch.visit.slot, ch.visit.seq) != vcq::Post::busy)
        ch.visit.slot = 0;
}

vcq::Post Outbound::put_empty(Channel& ch, utofu_stadd_t slot, std::uint32_t seq) noexcept
{
    const Control none{static_cast<std::uint8_t>(Type::none), 0, 0, seq};
    return port_.self.vcq.put_inline(ch.peer.home, &none, slot + slot_size - sizeof none, sizeof none,
                                     {.strong_order = true, .cache = vcq::whole_line});
}

// --- the answer

/// The ring is ours, if it can be one. What was sent before is behind us: it is taken before the ring's first packet.
void Outbound::on_grant(Channel& ch, const Grant& grant) noexcept
{
    if (grant.slots == 0) {
        TOFU_WARN(FI_LOG_EP_CTRL, "endpoint %u: peer 0x%llx grants a ring which cannot be: use the same release of the "
                                  "provider on all nodes\n",
                  port_.self.index, static_cast<unsigned long long>(ch.peer.home));
        fail(ch, FI_EIO, 0);
        return;
    }
    ch.visit.asked = false;
    ch.visit.count = ch.visit.enough = 0;
    ch.leave = false;
    ch.starved = 0;
    ch.ring = ch.area + std::uint64_t{grant.first} * slot_size;
    ch.slots = grant.slots;
    ch.consumed = seq_base(ch.peer.nonce);
    for (std::uint32_t& mark : ch.mark)
        mark = ch.consumed + 1 - (mark != ch.next_seq);
    ch.next_seq = ch.consumed + 1;
    ch.state = ChannelState::open;
    port_.self.vcq.statistics().count(Stat::ring_claimed);
    TOFU_PROBE(claim, ch.peer.home, grant.first);
    dismiss(ch);
}

} // namespace tofu::proto
