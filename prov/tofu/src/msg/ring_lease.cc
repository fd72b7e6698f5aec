// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See ring_lease.h.
#include "msg/ring_lease.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <utility>

#include <rdma/fi_errno.h>

#include "core/log.h"
#include "msg/tx_ring.h"

namespace tofu::proto {

namespace {
constexpr unsigned asked_at_once = 8; // rings asked back per call of ask_back()

/// Does the end of a probe show that the sender is dead?
bool shows_death(const Ring& ring, const vcq::Notice& notice) noexcept
{
    // A different nonce: another endpoint has the VCQ ID and the number. No such area: the endpoint was closed.
    return notice.code == UTOFU_ERR_MRQ_PEER || notice.code == UTOFU_ERR_MRQ_RMT_STADD ||
           notice.code == never_notified ||
           (notice.code == UTOFU_SUCCESS && !same_process(ring.life.answer, ring.known.nonce));
}

/// Puts the answer that a sender waits for into its credit block. False: no room in the queue of the TNI.
bool reply(Port& port, utofu_vcq_id_t home, utofu_stadd_t area, utofu_stadd_t credits,
           const CreditBlock& block) noexcept
{
    if (port.self.vcq.put_inline(home, &block, credits, sizeof block, {.strong_order = true}) == vcq::Post::busy)
        return false;
    port.ring_doorbell(home, area, Doorbell::status);
    return true;
}
} // namespace

int Grants::open(const Geometry& geometry) noexcept
{
    geometry_ = geometry;
    rings_.reset(new (std::nothrow) std::unique_ptr<Ring>[geometry.ring_count]);
    return rings_ != nullptr ? 0 : -FI_ENOMEM;
}

void Grants::close(Ring& ring) noexcept
{
    if (ring.place != no_place) {
        polls_[ring.place] = polls_.back();
        rings_[polls_[ring.place].ring]->place = ring.place;
        polls_.pop_back();
        ring.place = no_place;
    }
    if (ring.gone) {
        ring.gone = false;
        gone_--;
    }
    if (ring.life.under_way) { // on_life() calls us again
        ring.closing = true;
        return;
    }
    if (ring.users != 0) {
        ring.parted = true;
        (void)rings_[ring.number].release();
        return;
    }
    retired_ = std::move(rings_[ring.number]); // our callers still look at `ring`
}

void Grants::close_gone() noexcept
{
    for (std::size_t i = polls_.size(); gone_ != 0 && i-- > 0;)
        if (Ring& ring = *rings_[polls_[i].ring]; ring.gone && !polls_[i].arrived(polls_[i].read()))
            close(ring);
}

// --- granting rings, and asking them back

bool Grants::answer(const Envelope& who, utofu_stadd_t area) noexcept
{
    for (const Poll& poll : polls_) // case 15
        if (Ring& old = *rings_[poll.ring];
            old.known.home == who.home && old.known.nonce == who.nonce && old.index == who.index)
            set_gone(old);
    const utofu_stadd_t credits = area + credit_offset(who.credit_index);
    unsigned number = 0;
    while (number < port_.area.open_rings() && rings_[number] != nullptr)
        number++;
    const bool is_free = !revoked_ && (number < port_.area.open_rings() || port_.area.grow());
    std::unique_ptr<Ring> ring(is_free ? new (std::nothrow) Ring : nullptr);
    if (ring == nullptr || !polls_.reserve(polls_.size() + 1)) {
        wanted_ = true;
        return reply(port_, who.home, area, credits, {0, static_cast<std::uint32_t>(LeaseStatus::denied), who.serial});
    }
    ring->owner = this;
    ring->base = port_.area.ring(number);
    ring->number = number;
    ring->index = who.index;
    ring->known = known_address(who);
    ring->key = peer_key(who.home, who.nonce, who.identity);
    ring->serial = who.serial;
    ring->area = area;
    ring->credits = credits;
    ring->reported = seq_base(port_.self.nonce);
    ring->next_seq = ring->reported + 1;
    ring->life.notify = on_life;
    ring->life.of = ring.get();
    for (std::uint32_t seq = 1; seq <= geometry_.ring_slots; seq++) // packets of the last owner
        std::atomic_ref<std::uint64_t>(*ring->control(seq, geometry_.ring_slots)).store(0, std::memory_order_relaxed);
    ring->place = static_cast<std::uint32_t>(polls_.size());
    polls_.push_reserved({ring->control(ring->next_seq, geometry_.ring_slots), ring->next_seq, number});
    rings_[number] = std::move(ring);
    report(*rings_[number]);
    return true;
}

/// If a ring had to be denied, asks back the rings of senders that have been silent since the last call.
void Grants::ask_back() noexcept
{
    if (!std::exchange(wanted_, false))
        return;
    const std::size_t n = polls_.size();
    unsigned asked = 0, probed = 0;
    for (std::size_t i = 0; i < n && asked < asked_at_once; i++) {
        Ring& ring = *rings_[polls_[ask_hand_++ % n].ring];
        if (ring.asked) {
            if (probed++ < asked_at_once)
                start_probe(ring); // perhaps the sender does not answer because it is dead
            continue;
        }
        if (ring.seen_seq != ring.next_seq) {
            ring.seen_seq = ring.next_seq;
            continue;
        }
        ring.asked = true;
        ring.status = LeaseStatus::give_back;
        report(ring);
        asked++;
    }
}

void Grants::revoke() noexcept
{
    revoked_ = true;
    for (const Poll& poll : polls_) {
        Ring& ring = *rings_[poll.ring];
        start_probe(ring); // its sender may have closed or died
        if (!std::exchange(ring.asked, true)) {
            ring.status = LeaseStatus::give_back;
            report(ring);
        }
    }
}

bool Grants::answer_bye(Ring& ring) noexcept
{
    return reply(port_, ring.known.home, ring.area, ring.credits,
                 {ring.next_seq, static_cast<std::uint32_t>(LeaseStatus::closed), ring.serial});
}

// --- reports

void Grants::report(Ring& ring) noexcept
{
    const Grant grant = grant_of(geometry_, port_.self.index, ring.number);
    const CreditBlock block{ring.begun ? ring.next_seq - 1 : grant.word(), static_cast<std::uint32_t>(ring.status),
                            ring.serial};
    // In strong order: an earlier report that arrived later would overwrite this one.
    const vcq::Post post =
        port_.self.vcq.put_inline(ring.known.home, &block, ring.credits, sizeof block, {.strong_order = true});
    if (ring.status != LeaseStatus::open) [[unlikely]]
        port_.ring_doorbell(ring.known.home, ring.area, Doorbell::status);
    if (post == vcq::Post::done) [[likely]]
        ring.reported = ring.next_seq - 1;
    ring.report_due = post == vcq::Post::busy;
    if (ring.report_due) [[unlikely]] {
        reports_due_ = true;
        port_.self.vcq.set_busy();
    }
}

void Grants::report_late() noexcept
{
    reports_due_ = false;
    for (const Poll& poll : polls_) {
        Ring& ring = *rings_[poll.ring];
        if (ring.report_due || ring.next_seq - 1 - ring.reported >= geometry_.report_after())
            report(ring);
    }
}

// --- the watch

void Grants::watch() noexcept
{
    if (polls_.empty())
        return;
    next_watched_ = (next_watched_ + 1) % polls_.size();
    start_probe(*rings_[polls_[next_watched_].ring]);
}

void Grants::peer_failed(utofu_vcq_id_t home) noexcept
{
    for (std::size_t i = polls_.size(); i-- > 0;)
        if (Ring& ring = *rings_[polls_[i].ring]; ring.known.home == home)
            start_probe(ring);
}

void Grants::start_probe(Ring& ring) noexcept
{
    if (!ring.life.under_way &&
        port_.ask(ring.life, ring.known.home, ring.area, sizeof(AreaHeader)) == vcq::Post::error)
        set_gone(ring);
}

/// Marks the ring's sender as dead. The packets that it has sent are still taken.
void Grants::set_gone(Ring& ring) noexcept
{
    gone_ += !std::exchange(ring.gone, true);
}

void Grants::on_life(vcq::CompletionHandler* handler, const vcq::Notice& notice) noexcept
{
    Ring& ring = *static_cast<Inquiry<Ring>*>(handler)->of;
    Grants& grants = *ring.owner;
    const bool gone = grants.port_.open && !ring.closing && shows_death(ring, notice);
    grants.port_.end(ring.life);
    if (!grants.port_.open)
        return;
    if (ring.closing)
        grants.close(ring);
    else if (gone)
        grants.set_gone(ring);
}

// --- RingLeases, and the cases of both sides: how rings go to the peers that send much, and channels to the peers that
// are sent to, so that the number of neither is limited
//
// S sends to R (Grants); the ring lies at R, and only R gives it away. S asks for one with an anonymous packet
// (msg/anon_slots.h) and is answered in its credit block: `granted` with the location of a ring, or `denied`. S has the
// ring from then on until R has taken S's BYE and has written `closed` there. Only S sends BYE, so no peer writes to a
// ring after its lease. Posts of one VCQ to one other in strong order arrive in order: S's packets before its BYE, R's
// reports before `closed`.
//
//  1. S dies before its request arrives: nothing has happened.
//  2. S dies after its request: R grants a ring, and finds out as in 4.
//  3. S sees the grant late (stopped, or it makes no calls): the ring stays S's. What it sends meanwhile are anonymous
//     packets.
//  4. S dies between grant and BYE: R's probe finds out. R takes what was sent, then frees the ring. What was half
//     written is no packet: its control word, written last, is not there.
//  5. S dies after its BYE: R takes it; the Put of `closed` fails without a consequence; the ring is free.
//  6. R revokes the ring (give_back): S sends BYE as soon as it sees that, in its progress or when it runs out
//     of credit. Packets of S until then are consumed normally. R does not depend on S: it revokes others as well. If S
//     has not used the ring yet, give_back repeats the grant, since S may not have seen it.
//  7. R revokes, and S sends BYE by itself at the same time: the request comes before `closed` in the same words, and
//     is ignored while S waits for `closed`.
//  8. S wants to send after BYE: it waits for `closed`, then its packets go anonymously. So a pair never has two rings,
//     and order holds across leases.
//  9. R dies or closes its endpoint before `closed`, or before its answer: S probes while it waits, and the channel
//     fails.
// 10. R's TNI has no room for `closed`: the BYE stays in the ring and is taken in a later round. Likewise for
//     `denied`: the anonymous packet stays. A grant is reported like a credit update, in a later round.
// 11. S uses the credit block for another peer: only without a request, or after `denied` or `closed`, or when R is
//     dead, so no late update of R can hide one of the other. Besides, every request has its own serial number.
// 12. S has no credit for its BYE: R has not finished with the ring either, and will report.
// 13. A hostile S keeps its ring, floods it or sends BYE in the middle: only its own ring suffers. It requests rings in
//     the names of many: R probes and frees each of these. R revokes at most a few rings every few milliseconds.
// 14. A hostile R writes any status: `closed` counts only after BYE, a grant only after a request, and if it
//     is invalid the channel fails. S writes to no other words than its own.
// 15. S, a transmit context, is closed before the answer, and another one of its scalable endpoint gets its number: the
//     grant meets another serial number there. S asks anew: a sender that asks has no ring, so R frees the ring in its
//     name, packets first. Successors of other kinds have another nonce, by which R's probe finds that S is gone.
// 16. Order: packets in the ring are behind S's anonymous packets. R takes all anonymous packets before it takes the
//     ring's first packet.

namespace {
constexpr unsigned given_up_at_once = 8;
constexpr unsigned leaving_at_once = 64;
constexpr unsigned most_held = credit_block_count / 4 * 3; // rings; other channels serve peers that are rarely sent to

/// True if the peer writes nothing more to the channel's credit block or to a completion word (case 11).
bool no_write_comes(const Channel& ch) noexcept
{
    if (ch.outstanding != 0)
        return false;
    switch (ch.state) {
    case ChannelState::idle:
    case ChannelState::pausing:
    case ChannelState::reading: return !ch.anonymous.asked;
    case ChannelState::failed: return ch.err == FI_EHOSTDOWN || (ch.ring == 0 && !ch.anonymous.asked);
    case ChannelState::open:
    case ChannelState::leaving: return false;
    }
    return false;
}

/// May the channel be given to another peer, since no peer and no notice can touch it any more? (Case 11.)
bool reusable(const Channel& ch) noexcept
{
    return no_write_comes(ch) && ch.state != ChannelState::reading && !ch.life.under_way && ch.deferred.size == 0 &&
           !ch.anonymous.under_way && ch.anonymous.slot == 0;
}

bool has_ring(const Channel& ch) noexcept
{
    return ch.state == ChannelState::open || ch.state == ChannelState::leaving;
}
} // namespace

// --- the sender

Envelope RingLeases::envelope(Channel& ch) noexcept
{
    const bool asks = wants(ch);
    if (asks) // before the packet leaves, since the answer overwrites it
        port_.area.status(ch.number).store(0, std::memory_order_release);
    ch.anonymous.asks = asks;
    return {port_.self.home.id(),
            port_.self.nonce,
            ch.peer.nonce,
            envelope_speaks(port_.self.known),
            port_.self.known.further,
            static_cast<std::uint8_t>(port_.self.index),
            port_.self.known.index,
            asks ? ch.number : no_credit_block,
            static_cast<std::uint16_t>(ch.serial + 1)};
}

bool RingLeases::wants(Channel& ch) noexcept
{
    Channel::Anonymous& v = ch.anonymous;
    if (v.asked || v.count < std::max(v.enough, v.least))
        return false;
    if (held_ < most_held)
        return true;
    give_up();
    v.ask_later();
    return false;
}

[[gnu::noinline]] void RingLeases::sent_anonymously(Channel& ch) noexcept
{
    Channel::Anonymous& v = ch.anonymous;
    v.slot = 0;
    v.count++;
    if (v.asks) {
        v.asks = false;
        v.asked = true;
        v.count = 0;
        ch.serial++;
        held_++;
    }
    port_.self.vcq.statistics().count(Stat::send_anonymous);
    port_.ring_doorbell(ch.peer.home, ch.area, Doorbell::anonymous);
}

/// Takes over a granted ring, if the grant makes sense. The peer takes our anonymous packets before the ring's first
/// packet (case 16).
void RingLeases::on_grant(Channel& ch, const Grant& grant) noexcept
{
    if (grant.slots == 0) {
        TOFU_WARN(
            FI_LOG_EP_CTRL,
            "endpoint %u: peer 0x%llx sent an invalid ring grant: use the same release of the provider on all nodes\n",
            port_.self.index, static_cast<unsigned long long>(ch.peer.home));
        ch.owner->fail(ch, FI_EIO, 0);
        return;
    }
    utofu_stadd_t part = ch.area;
    if (grant.is_further() && port_.self.vcq.query_stadd(ch.peer.home, further_stag(ch.peer.index), part) != 0) {
        ch.owner->fail(ch, FI_EADDRNOTAVAIL, 0);
        return;
    }
    ch.anonymous.asked = false;
    ch.anonymous.count = ch.anonymous.enough = 0;
    ch.leave = false;
    ch.starved = 0;
    ch.ring = part + grant.offset();
    ch.slots = grant.slots;
    ch.consumed = seq_base(ch.peer.nonce);
    for (std::uint32_t& mark : ch.mark)
        mark = ch.consumed + 1 - (mark != ch.next_seq);
    ch.next_seq = ch.consumed + 1;
    ch.state = ChannelState::open;
    port_.self.vcq.statistics().count(Stat::ring_granted);
    TOFU_PROBE(ring_grant, ch.peer.home, grant.first);
    anon_tx_.dismiss(ch);
}

void RingLeases::check(Channel& ch) noexcept
{
    // acquire: pairs with the peer's Put of the block; `consumed` was written with it
    const std::uint64_t word = port_.area.status(ch.number).load(std::memory_order_acquire);
    if (static_cast<std::uint32_t>(word >> 32) != ch.serial)
        return; // no answer yet
    const std::uint64_t consumed = port_.area.consumed(ch.number).load(std::memory_order_acquire);
    const auto status = static_cast<LeaseStatus>(static_cast<std::uint32_t>(word));
    if (ch.state == ChannelState::failed) {
        ch.anonymous.asked &= status == LeaseStatus::open; // after an answer the peer writes nothing more
        return;
    }
    if (ch.anonymous.asked) {
        if (status == LeaseStatus::denied) {
            ch.anonymous.asked = false;
            held_--;
            ch.anonymous.ask_later();
        } else if (status == LeaseStatus::granted || status == LeaseStatus::give_back) {
            on_grant(ch, read_grant(consumed, ch.peer.index));
        }
    } else if (consumed >> 32 == 0) { // no grant
        ch.consumed = believed(static_cast<std::uint32_t>(consumed), ch.next_seq - 1, ch.consumed);
    }
    if (status == LeaseStatus::give_back) {
        ch.leave |= ch.state == ChannelState::open;
    } else if (status == LeaseStatus::closed && ch.state == ChannelState::leaving) {
        ch.state = ChannelState::idle;
        ch.mark[0] = ch.next_seq; // the peer has taken all packets
        held_--;
    }
}

vcq::Post RingLeases::put_bye(Channel& ch, std::uint16_t kind) noexcept
{
    std::byte image[inline_limit];
    PacketWriter packet(image + sizeof image);
    packet.control(Type::bye, 0, kind, ch.next_seq);
    return ch.owner->put(ch, packet, nullptr);
}

bool RingLeases::say_bye(Channel& ch) noexcept
{
    if (ch.state != ChannelState::open || !ch.owner->flush(ch) || ch.free_slots() == 0)
        return false;
    if (const vcq::Post post = put_bye(ch, bye_for_now); post != vcq::Post::done) {
        (void)ch.owner->post_failed(ch, post);
        return false;
    }
    for (std::uint32_t& mark : ch.mark)
        mark += mark == ch.next_seq;
    ch.next_seq++;
    ch.leave = false;
    ch.state = ChannelState::leaving;
    port_.self.vcq.statistics().count(Stat::ring_returned);
    return true;
}

void RingLeases::poll_credit_blocks(std::size_t most) noexcept
{
    for (std::size_t i = 0; i < most && i < channels_.size(); i++) {
        Channel& ch = channels_[next_block_++ % channels_.size()];
        if (ch.anonymous.slot != 0 && std::exchange(ch.anonymous.lingers, true))
            anon_tx_.dismiss(ch);
        if (!has_ring(ch) && !ch.anonymous.asked)
            continue;
        check(ch);
        if (ch.leave)
            (void)say_bye(ch);
    }
}

void RingLeases::give_all_back() noexcept
{
    for (Channel* ch : channels_)
        ch->leave |= ch->state == ChannelState::open;
}

bool RingLeases::writers_gone() const noexcept
{
    return std::all_of(channels_.begin(), channels_.end(), [](const Channel* ch) { return no_write_comes(*ch); });
}

[[gnu::noinline]] Channel* RingLeases::reuse() noexcept
{
    const std::size_t n = channels_.size();
    for (std::size_t i = 0; i < n; i++) {
        Channel& ch = channels_[(hand_ + i) % n];
        if (ch.anonymous.asked || ch.state == ChannelState::leaving)
            check(ch);
        if (!reusable(ch))
            continue;
        hand_ = (hand_ + i + 1) % n;
        channels_.unlink(ch);
        ch.state = ChannelState::idle;
        ch.leave = ch.met = false;
        ch.err = ch.prov_errno = 0;
        ch.ring = ch.area = 0;
        ch.starved = 0;
        ch.anonymous.full = ch.anonymous.asked = false;
        ch.anonymous.count = ch.anonymous.enough = ch.anonymous.pause = ch.anonymous.rounds = 0;
        ch.anonymous.first_try = 0;
        ch.mark[0] = ch.mark[1] = ch.next_seq;
        return &ch;
    }
    give_up();
    return nullptr;
}

/// Gives some rings back (second chance): first those unused since the hand last passed. If all are in use,
/// the first ones.
void RingLeases::give_up() noexcept
{
    const std::size_t n = channels_.size();
    auto leaving = static_cast<unsigned>(std::count_if(channels_.begin(), channels_.end(), [](const Channel* ch) {
        return ch->state == ChannelState::leaving || ch->leave;
    }));
    for (std::size_t i = 0, found = 0; i < 2 * n && found < given_up_at_once && leaving < leaving_at_once; i++) {
        Channel& ch = channels_[hand_++ % n];
        if (ch.state != ChannelState::open || ch.outstanding != 0 || ch.leave)
            continue;
        if (i < n && ch.seen_seq != ch.next_seq) {
            ch.seen_seq = ch.next_seq;
            continue;
        }
        ch.leave = true;
        check(ch); // BYE needs a credit
        (void)say_bye(ch);
        found++;
        leaving++;
    }
}

void RingLeases::lost(Channel& ch) noexcept
{
    if (has_ring(ch))
        port_.self.vcq.statistics().count(Stat::ring_lost);
    held_ -= has_ring(ch) || ch.anonymous.asked;
}

} // namespace tofu::proto
