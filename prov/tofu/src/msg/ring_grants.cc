// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See ring_grants.h.
#include "msg/ring_grants.h"

#include <new>
#include <utility>

#include <rdma/fi_errno.h>

#include "core/log.h"

namespace tofu::proto {

namespace {
constexpr unsigned asked_at_once = 8; // rings asked back per call of ask_back()

/// Does the end of a probe show that the sender is dead?
bool shows_death(const Ring& ring, const vcq::Notice& notice) noexcept
{
    // A different nonce: another process has the VCQ ID. No such area: the endpoint was closed.
    return notice.code == UTOFU_ERR_MRQ_PEER || notice.code == UTOFU_ERR_MRQ_RMT_STADD || notice.code == never_told ||
           (notice.code == UTOFU_SUCCESS && !same_process(ring.life.answer, ring.known.nonce));
}

/// Puts the answer that a sender waits for into its credit block. False: no room in the queue of the TNI.
bool reply(Port& port, utofu_vcq_id_t home, utofu_stadd_t area, utofu_stadd_t credits, const CreditBlock& block) noexcept
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
        if (Ring& old = *rings_[poll.ring]; old.known.home == who.home && old.known.nonce == who.nonce && old.index == who.index)
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

void Grants::on_life(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept
{
    Ring& ring = *static_cast<Inquiry<Ring>*>(waiter)->of;
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

} // namespace tofu::proto
