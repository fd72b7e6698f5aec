// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Packets to a peer at which we have no ring: a slot is asked for at the gate, the packet is put there in an envelope
// that says whose it is. The cases are numbered in visitors.h. Part of Outbound; calls vcq.
#include <algorithm>
#include <cstring>
#include <utility>

#include "provider/error.h"
#include "ring/outbound.h"

namespace tofu::proto {

namespace {
constexpr std::uint32_t least_visits = 4, most_visits = 1024; // before a ring is tried for
constexpr std::uint32_t longest_pause = 64;                   // rounds between two looks at a gate that is full
} // namespace

int Outbound::approach(Channel& ch, bool may_visit) noexcept
{
    if (ch.state == ChannelState::leaving)
        check_return(ch);
    Channel::Visit& v = ch.visit;
    if (ch.state == ChannelState::open || ch.state == ChannelState::failed || ch.state == ChannelState::leaving)
        return contact(ch);
    if (v.slot != 0 && may_visit)
        return 0;
    ch.contact.needed = !may_visit || v.barred || v.full;
    if (ch.contact.needed || v.count >= std::max(v.enough, least_visits))
        if (const int ret = contact(ch); ret != -FI_EAGAIN)
            return ret;
    const int ret = may_visit && !v.barred ? visit(ch) : -FI_EAGAIN;
    if (ret == -FI_EAGAIN)
        port_.self.vcq.statistics().count(Stat::again_contact);
    return ret;
}

/// Asks the gate for a slot, or reads it. 0: there is one by now.
int Outbound::visit(Channel& ch) noexcept
{
    Channel::Visit& v = ch.visit;
    if (v.under_way)
        return -FI_EAGAIN;
    if (ch.area == 0 && port_.self.vcq.query_stadd(ch.peer.home, endpoint_stag(ch.peer.index), ch.area) != 0) {
        fail(ch, FI_EADDRNOTAVAIL, 0);
        return -ch.err;
    }
    if (v.full && v.rounds != 0) {
        v.rounds--;
        return -FI_EAGAIN;
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
    if (v.reads) {
        std::memcpy(&word, v.answer.data, sizeof word);
        out.port_.end(v);
    } else {
        v.under_way = false;
        out.asking_--;
    }
    if (!out.port_.open)
        return;
    if (notice.code != UTOFU_SUCCESS)
        v.barred = true;
    else
        out.on_gate(ch, word);
}

void Outbound::on_gate(Channel& ch, std::uint64_t word) noexcept
{
    Channel::Visit& v = ch.visit;
    const std::uint32_t next = gate_next(word);
    const bool some = next < gate_end(word);
    v.barred = !gate_is_of(word, ch.peer.nonce);
    const utofu_stadd_t slot = ch.area + visits_offset + std::uint64_t{next} * slot_size;
    if (v.barred && !v.reads && some && gate_speaks(word))
        (void)put_empty(ch, slot, visit_seq(word)); // another process has the VCQ ID, and gave us a slot of its own
    if (v.barred)
        return;
    if (v.reads || !some) {
        v.full = !some;
        v.pause = v.full ? std::clamp(2 * v.pause, 1u, longest_pause) : 0;
        v.rounds = v.pause;
        return;
    }
    v.slot = slot;
    v.seq = visit_seq(word);
    v.lingers = false;
    if (ch.state == ChannelState::open || ch.state == ChannelState::failed)
        dismiss(ch);
}

void Outbound::seal(const Channel& ch, std::byte* at) const noexcept
{
    if (ch.state == ChannelState::open)
        return;
    const Envelope envelope{port_.self.home.id(),
                            {port_.self.nonce, ch.peer.nonce, wire_version,
                             static_cast<std::uint8_t>(port_.self.index),
                             static_cast<std::uint8_t>(port_.self.identity), 0, 0},
                            {static_cast<std::uint8_t>(Type::visit), 0, 0, ch.visit.seq}};
    std::memcpy(at, &envelope, sizeof envelope);
}

[[gnu::noinline]] void Outbound::visited(Channel& ch) noexcept
{
    ch.visit.slot = 0;
    ch.visit.made = true;
    ch.visit.count++;
    port_.self.vcq.statistics().count(Stat::send_visit);
    port_.ring_doorbell(ch.peer.home, ch.area, Doorbell::visit);
}

/// There was no ring: twice as many visits before the next try.
void Outbound::try_later(Channel& ch) noexcept
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
                                     {.strong_order = true});
}

} // namespace tofu::proto
