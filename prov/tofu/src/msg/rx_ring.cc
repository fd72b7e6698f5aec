// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See rx_ring.h.
#include "msg/rx_ring.h"

#include <cstring>
#include <new>
#include <utility>

#include <rdma/fi_errno.h>

#include "core/log.h"
#include "core/system.h"

namespace tofu::proto {

// --- RxRings: leases: how rings go to the peers that send much, and channels to the peers that are sent to, so that
// the number of neither is limited. docs/wire-protocol.md numbers the cases of both sides, L1 to L16 ("Ring leases").

constexpr unsigned revoked_at_once = 8; // rings revoked per call of revoke_some()

/// Does the end of a probe show that the sender is dead?
static bool is_dead(const RxRing& ring, vcq::Notice notice) noexcept
{
    // A different nonce: another endpoint has the VCQ ID and the number. No such area: the endpoint was closed.
    return notice.code == UTOFU_ERR_MRQ_PEER || notice.code == UTOFU_ERR_MRQ_RMT_STADD ||
           notice.code == never_notified ||
           (notice.code == UTOFU_SUCCESS && !same_process(ring.life.answer, ring.known.nonce));
}

void RxRings::close(RxRing& ring) noexcept
{
    if (ring.place != no_place) {
        polls_[ring.place] = polls_.back();
        rings_[polls_[ring.place].ring]->place = ring.place;
        polls_.pop_back();
        ring.place = no_place;
    }
    if (ring.dead) {
        ring.dead = false;
        dead_--;
    }
    if (ring.life.under_way) { // on_life() calls us again
        ring.state = RingState::closing;
        return;
    }
    if (ring.users != 0) {
        ring.state = RingState::closed;
        (void)rings_[ring.number].release();
        return;
    }
    retired_ = std::move(rings_[ring.number]); // our callers still look at `ring`
}

void RxRings::close_dead() noexcept
{
    for (std::size_t i = polls_.size(); dead_ != 0 && i-- > 0;)
        if (RxRing& ring = *rings_[polls_[i].ring]; ring.dead && !polls_[i].arrived(polls_[i].read()))
            close(ring);
}

// --- granting and revoking rings

bool RxRings::grant_or_deny(const Envelope& who, utofu_stadd_t area) noexcept
{
    for (const RingPoll& poll : polls_) // L15
        if (RxRing& old = *rings_[poll.ring];
            old.known.target_vcq == who.target_vcq && old.known.nonce == who.nonce && old.index == who.index)
            set_dead(old);
    const utofu_stadd_t credits = area + credit_offset(who.credit_index);
    unsigned number = 0;
    while (number < own_.area.open_rings() && rings_[number] != nullptr)
        number++;
    const bool is_free = !closing_ && (number < own_.area.open_rings() || own_.area.grow());
    std::unique_ptr<RxRing> ring(is_free ? new (std::nothrow) RxRing : nullptr);
    if (ring == nullptr) {
        denied_some_ = true;
        return reply(who.target_vcq, area, credits, {0, LeaseStatus::denied, who.serial});
    }
    ring->owner = this;
    ring->base = own_.area.ring(number);
    ring->number = number;
    ring->index = who.index;
    ring->known = known_address(who);
    ring->key = peer_key(who.target_vcq, who.nonce, who.identity);
    ring->serial = who.serial;
    ring->area = area;
    ring->credits = credits;
    ring->reported = seq_base(own_.nonce);
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
void RxRings::revoke_some() noexcept
{
    if (!std::exchange(denied_some_, false))
        return;
    const std::size_t n = polls_.size();
    unsigned asked = 0, probed = 0;
    for (std::size_t i = 0; i < n && asked < revoked_at_once; i++) {
        RxRing& ring = *rings_[polls_[revoke_hand_++ % n].ring];
        if (ring.revoked) {
            if (probed++ < revoked_at_once)
                start_probe(ring); // perhaps the sender does not answer because it is dead
            continue;
        }
        if (ring.seen_seq != ring.next_seq) {
            ring.seen_seq = ring.next_seq;
            continue;
        }
        revoke(ring);
        asked++;
    }
}

/// Asks the sender to release the ring.
void RxRings::revoke(RxRing& ring) noexcept
{
    ring.revoked = true;
    ring.status = LeaseStatus::revoked;
    report(ring);
}

void RxRings::revoke_all() noexcept
{
    closing_ = true;
    for (const RingPoll& poll : polls_) {
        RxRing& ring = *rings_[poll.ring];
        start_probe(ring); // its sender may have closed or died
        if (!ring.revoked)
            revoke(ring);
    }
}

/// Puts the answer that a sender waits for into its credit block. False: no room in the queue of the TNI.
bool RxRings::reply(utofu_vcq_id_t target_vcq, utofu_stadd_t area, utofu_stadd_t credits,
                    const CreditBlock& block) noexcept
{
    if (own_.vcq.put_inline(target_vcq, &block, credits, sizeof block, {.strong_order = true}) == vcq::Post::busy)
        return false;
    own_.ring_doorbell(target_vcq, area, Doorbell::status);
    return true;
}

// --- reports

void RxRings::report(RxRing& ring) noexcept
{
    const Grant grant = grant_of(geometry_, own_.index, ring.number);
    const CreditBlock block{ring.state == RingState::begun ? ring.next_seq - 1 : grant.word(), ring.status,
                            ring.serial};
    // In strong order: an earlier report that arrived later would overwrite this one.
    const vcq::Post post =
        own_.vcq.put_inline(ring.known.target_vcq, &block, ring.credits, sizeof block, {.strong_order = true});
    if (ring.status != LeaseStatus::open) [[unlikely]]
        own_.ring_doorbell(ring.known.target_vcq, ring.area, Doorbell::status);
    if (post == vcq::Post::done) [[likely]]
        ring.reported = ring.next_seq - 1;
    ring.report_due = post == vcq::Post::busy;
    if (ring.report_due) [[unlikely]] {
        reports_due_ = true;
        own_.vcq.set_busy();
    }
}

// --- the watch

void RxRings::watch() noexcept
{
    if (polls_.empty())
        return;
    next_watched_ = (next_watched_ + 1) % polls_.size();
    start_probe(*rings_[polls_[next_watched_].ring]);
}

void RxRings::peer_failed(utofu_vcq_id_t target_vcq) noexcept
{
    for (std::size_t i = polls_.size(); i-- > 0;)
        if (RxRing& ring = *rings_[polls_[i].ring]; ring.known.target_vcq == target_vcq)
            start_probe(ring);
}

void RxRings::start_probe(RxRing& ring) noexcept
{
    if (!ring.life.under_way &&
        own_.read_peer(ring.life, ring.known.target_vcq, ring.area, sizeof(AreaHeader)) == vcq::Post::error)
        set_dead(ring);
}

void RxRings::on_life(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept
{
    RxRing& ring = *static_cast<PeerRead<RxRing>*>(handler)->of;
    RxRings& self = *ring.owner;
    const bool dead = self.own_.open && ring.state != RingState::closing && is_dead(ring, notice);
    self.own_.end(ring.life);
    if (!self.own_.open)
        return;
    if (ring.state == RingState::closing)
        self.close(ring);
    else if (dead)
        self.set_dead(ring);
}

// --- AnonSlots

bool AnonSlots::open(std::byte* slots, std::uint32_t count, std::uint64_t* slot_counter, std::uint64_t nonce) noexcept
{
    slots_ = slots;
    slot_counter_ = slot_counter;
    nonce_ = nonce;
    count_ = end_ = count;
    seq_ = anon_seq(slot_counter_word(nonce, 0, 0));
    is_out_.reset(new (std::nothrow) bool[count]());
    return is_out_ != nullptr && out_.reserve(count);
}

void AnonSlots::note_handed_out() noexcept
{
    // acquire: a packet that is looked for after this load is in a slot that was handed out before it
    const std::uint64_t word = std::atomic_ref<std::uint64_t>(*slot_counter_).load(std::memory_order_acquire);
    for (const std::uint32_t now = std::min(slot_counter_next(word), end_); next_ < now; next_++) {
        is_out_[next_] = true;
        out_.push_reserved({static_cast<std::uint16_t>(next_), false});
    }
}

/// Offers the next run of free slots after the last one, if there is any.
void AnonSlots::offer() noexcept
{
    const bool* const all = is_out_.get();
    std::uint32_t first = static_cast<std::uint32_t>(std::find(all + end_, all + count_, false) - all);
    if (first == count_)
        first = static_cast<std::uint32_t>(std::find(all, all + count_, false) - all);
    if (first == count_)
        return;
    next_ = first;
    end_ = static_cast<std::uint32_t>(std::find(all + first, all + count_, true) - all);
    // An atomic instruction, because peers' ARMWs may hit the word (guide 2.2.5). release: after the slots were
    // cleared
    (void)std::atomic_ref<std::uint64_t>(*slot_counter_)
        .exchange(slot_counter_word(nonce_, next_, end_), std::memory_order_acq_rel);
}

// --- Arrivals

bool AnonReceiver::open(const Geometry& geometry) noexcept
{
    return anon_slots_.open(own_.area.anon_slots(), geometry.anon_slot_count, own_.area.slot_counter(), own_.nonce);
}

void AnonReceiver::accept_all() noexcept
{
    refused_.clear();
    refuse_all_ = false;
    passes_++;
    anon_slots_.accept_arrived([this](std::byte* end) { return accept_one(end); });
}

/// Takes the packet in the slot that ends at `end`. False: the packet stays, and so do later ones of the same sender.
bool AnonReceiver::accept_one(std::byte* end) noexcept
{
    if (in_.seen() != nullptr) [[unlikely]]
        (void)in_.seen()(end - sizeof(Control), sizeof(Control));
    Control control;
    std::memcpy(&control, end - sizeof control, sizeof control);
    if (control.type == Type::none)
        return true; // an empty packet: the sender had no use for the slot
    Envelope envelope;
    alignas(8) std::byte packet[slot_size]; // a copy, which the sender cannot change any more
    const bool good = read_anonymous(end, own_.nonce, envelope, packet);
    const std::uint64_t key = peer_key(envelope.target_vcq, envelope.nonce, envelope.index);
    if (good && refuses(key))
        return false;
    if (anonymous_ == nullptr)
        anonymous_.reset(new (std::nothrow) RxRing);
    if (anonymous_ == nullptr || !accept_one(envelope, good ? packet : nullptr, end)) {
        refuse_all_ |= !refused_.push(key);
        own_.vcq.set_busy();
        return false;
    }
    if (anonymous_->users != 0) {
        anonymous_->state = RingState::closed; // the last of its messages frees it
        (void)anonymous_.release();
    }
    return true;
}

/// Hands a packet to the protocol as the only one of a ring. `packet` is null where the slot holds none that makes
/// sense.
bool AnonReceiver::accept_one(const Envelope& who, const std::byte* packet, std::byte* end) noexcept
{
    RxRing& anonymous = *anonymous_;
    anonymous.base = const_cast<std::byte*>(packet);
    anonymous.next_seq = anon_seq(slot_counter_word(own_.nonce, 0, 0));
    anonymous.number = anonymous.place = no_place;
    anonymous.state = RingState::begun;
    anonymous.index = who.index;
    anonymous.known = known_address(who);
    anonymous.generation = ~0u; // the last packet may have had another sender
    anonymous.key = peer_key(who.target_vcq, who.nonce, who.identity);
    if (packet == nullptr || own_.vcq.query_stadd(who.target_vcq, endpoint_stag(who.index), anonymous.area) != 0) {
        in_.bad_packet(anonymous, "with invalid fields");
        return true;
    }
    if (who.credit_index != no_credit_block) {
        if (!in_.grant_or_deny(who, anonymous.area))
            return false;
        std::memcpy(end - credit_index_before_end, &no_credit_block,
                    sizeof no_credit_block); // so that it asks only once
    }
    return own_.protocol.accept_anonymous(anonymous);
}

// --- RxRings: packets

int RxRings::open(const Geometry& geometry) noexcept
{
    geometry_ = geometry;
    report_after_ = geometry.report_after();
    seen_ = own_.vcq.backend().functions().seen;
    rings_.reset(new (std::nothrow) std::unique_ptr<RxRing>[geometry.ring_count]);
    return rings_ != nullptr && polls_.reserve(geometry.ring_count) ? 0 : -FI_ENOMEM;
}

/// Takes all anonymous packets before the first packet of a ring, since its sender made them earlier. False: some could
/// not be taken.
[[gnu::noinline]] bool RxRings::begin(RxRing& ring) noexcept
{
    anon_receiver.accept_all();
    if (anon_receiver.refuses(peer_key(ring.known.target_vcq, ring.known.nonce, ring.index)))
        return false;
    ring.state = RingState::begun;
    if (!ring.revoked)
        ring.status = LeaseStatus::open;
    return true;
}

/// False: the packet stays in the ring, because the TNI has no room for the answer.
[[gnu::noinline]] bool RxRings::accept_release(RxRing& ring, std::uint64_t control) noexcept
{
    const auto c = std::bit_cast<Control>(control);
    if (c.flags != 0 || c.length > static_cast<std::uint16_t>(Release::of_ring)) {
        bad_packet(ring, "unreadable");
        return true;
    }
    if (c.length == static_cast<std::uint16_t>(Release::of_ring) &&
        !reply(ring.known.target_vcq, ring.area, ring.credits, {ring.next_seq, LeaseStatus::closed, ring.serial}))
        return false;
    close(ring);
    return true;
}

[[gnu::noinline]] void RxRings::bad_packet(const RxRing& ring, const char* what) noexcept
{
    if (!std::exchange(bad_packets_, true))
        TOFU_WARN(FI_LOG_EP_DATA,
                  "endpoint %u: dropped a packet %s in ring %u of peer 0x%llx: use the same release of the provider on "
                  "all nodes; further errors are not logged\n",
                  own_.index, what, ring.number, static_cast<unsigned long long>(ring.known.target_vcq));
}

void RxRings::blank(const RxRing& ring, std::uint32_t slots) noexcept
{
    const std::uint32_t ring_slots = geometry_.ring_slots;
    for (std::uint32_t n = 1; n < slots; n++)
        std::atomic_ref<std::uint64_t>(*ring.control(ring.next_seq + n, ring_slots))
            .store(std::uint64_t{ring.next_seq} << 32, std::memory_order_relaxed);
}

void RxRings::catch_up() noexcept
{
    if (anon_receiver.any_refused())
        anon_receiver.accept_all();
    if (!std::exchange(reports_due_, false))
        return;
    for (const RingPoll& poll : polls_) {
        RxRing& ring = *rings_[poll.ring];
        if (ring.report_due || ring.next_seq - 1 - ring.reported >= report_after_)
            report(ring);
    }
}

// --- RingSet: opening and closing, and what rounds of progress do only now and then

constexpr std::size_t credit_blocks_per_tick = 64; // credit blocks polled without a doorbell, which may be missing
constexpr std::uint64_t tick_ms = 4;
constexpr std::uint64_t watch_ms = 100;
constexpr unsigned watched_at_once = 64;

int RingSet::open(std::size_t ring_count, std::size_t ring_slots, std::size_t anon_slot_count) noexcept
{
    const LocalEndpoint& self = own;
    const utofu_onesided_caps& caps = self.target_vcq.backend().caps();
    if (caps.max_piggyback_size < inline_limit || caps.max_putget_size < slot_size ||
        caps.cache_line_size > slot_size || // a slot's neighbours would be padding (vcq::whole_line)
        caps.num_reserved_stags <= endpoint_stag(self.index)) {
        TOFU_WARN(FI_LOG_EP_CTRL,
                  "endpoint %u: messages need a piggyback of 32 bytes, cache lines of at most 256 bytes and reserved "
                  "STag %u: use another uTofu library (FI_TOFU_BACKEND)\n",
                  self.index, endpoint_stag(self.index));
        return -FI_ENOSYS;
    }
    const Geometry geometry{static_cast<std::uint32_t>(ring_count), static_cast<std::uint32_t>(ring_slots),
                            static_cast<std::uint32_t>(anon_slot_count)};
    if (!geometry.valid())
        return -FI_EINVAL;
    if (int ret = in.open(geometry); ret != 0)
        return ret;
    own.now = milliseconds();
    if (int ret = own.area.open(self.target_vcq, self.target_lock, self.nonce, self.index, geometry); ret != 0)
        return ret;
    if (!in.anon_receiver.open(geometry))
        return -FI_ENOMEM;
    own.open = true;
    return 0;
}

bool RingSet::stop_writers() noexcept
{
    if (!own.open)
        return writers_gone_ = true;
    const std::uint64_t now = milliseconds();
    out.leave_all();
    out.poll_credit_blocks(out.channels.size());
    if (now != last_stop_) {
        last_stop_ = now;
        out.watch(watched_at_once);
        in.revoke_all();
    }
    return writers_gone_ = out.writers_gone() && in.writers_gone();
}

void RingSet::release_all() noexcept
{
    if (own.open)
        out.release_all();
    own.open = false;
}

bool RingSet::close_area() noexcept
{
    if (!own.area.is_open())
        return true;
    own.area.hide();
    // From here on the slot counter hands out no slot.
    const std::size_t unfilled = in.anon_receiver.unfilled();
    own.vcq.statistics().count(Stat::anonymous_lost, unfilled);
    own.area.close();
    return writers_gone_ && unfilled == 0;
}

void RingSet::catch_up() noexcept
{
    // seq_cst: pairs with the peer's Put of the doorbell; whatever a peer announces from now on rings it again
    const std::uint64_t doorbells = own.area.doorbells().exchange(0, std::memory_order_seq_cst);
    if (rung(doorbells, Doorbell::status))
        out.poll_credit_blocks(out.channels.size());
    if (rung(doorbells, Doorbell::anonymous))
        in.anon_receiver.accept_all();
    out.flush_all();
    in.catch_up();
}

void RingSet::slow_round() noexcept
{
    own.now = milliseconds();
    if (own.now - last_tick_ < tick_ms)
        return;
    last_tick_ = own.now;
    in.close_dead();
    own.protocol.tick();
    in.anon_receiver.accept_all();
    out.poll_credit_blocks(credit_blocks_per_tick);
    in.revoke_some();
    if (own.now - last_watch_ < watch_ms)
        return;
    last_watch_ = own.now;
    out.watch(watched_at_once);
    in.watch();
}

void RingSet::peer_failed(utofu_vcq_id_t target_vcq) noexcept
{
    if (!own.open || target_vcq == 0)
        return;
    out.peer_failed(target_vcq);
    in.peer_failed(target_vcq);
}

} // namespace tofu::proto
