// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Rings of our area: they come and go, their slots go back. See inbound.h.
#include "ring/inbound.h"

#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include <rdma/fi_errno.h>

#include "provider/log.h"

namespace tofu::proto {

int Inbound::open(const Geometry& geometry) noexcept
{
    geometry_ = geometry;
    seen_ = port_.self.vcq.backend().functions().seen;
    rings_.reset(new (std::nothrow) std::unique_ptr<Ring>[geometry.ring_count]);
    return rings_ != nullptr ? 0 : -FI_ENOMEM;
}

// --- rings come and go

void Inbound::scan_claims() noexcept
{
    for (unsigned number = 0; number < geometry_.ring_count; number++)
        // relaxed: open_ring() reads it again
        if (rings_[number] == nullptr && port_.area.claim(number).load(std::memory_order_relaxed) != 0)
            open_ring(number);
}

/// Somebody claimed this ring: from now on it is polled.
void Inbound::open_ring(unsigned number) noexcept
{
    // acquire: pairs with the claimant's CSWAP
    const std::uint64_t home = port_.area.claim(number).load(std::memory_order_acquire);
    if (home == 0)
        return;
    std::unique_ptr<Ring> ring = port_.protocol.make_ring();
    if (ring == nullptr || !polls_.reserve(polls_.size() + 1))
        return; // one of the next rounds tries again
    ring->owner = this;
    ring->base = port_.area.ring(number);
    ring->number = number;
    ring->home = home;
    ring->reported = seq_base(port_.self.nonce);
    ring->next_seq = ring->reported + 1;
    ring->life.notify = on_life;
    ring->life.of = ring.get();
    ring->place = static_cast<std::uint32_t>(polls_.size());
    polls_.push_reserved({ring->control(ring->next_seq, geometry_.ring_slots), ring->next_seq, number});
    rings_[number] = std::move(ring);
}

/// The claimant has left or died: the ring is free for the next one.
void Inbound::close_ring(Ring& ring) noexcept
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
    if (ring.life.under_way) { // its notice will come back here
        ring.closing = true;
        return;
    }
    const std::uint32_t slots = geometry_.ring_slots;
    for (std::uint32_t seq = 1; seq <= slots; seq++) // the next claimant starts again
        std::atomic_ref<std::uint64_t>(*ring.control(seq, slots)).store(0, std::memory_order_relaxed);
    // release: pairs with the next claimant's CSWAP
    port_.area.claim(ring.number).store(0, std::memory_order_release);
    port_.area.set_hint(ring.number + 1);
    if (ring.users != 0) {
        ring.parted = true;
        (void)rings_[ring.number].release();
        return;
    }
    retired_ = std::move(rings_[ring.number]); // `ring` is still looked at by our callers
}

void Inbound::close_gone() noexcept
{
    for (std::size_t i = polls_.size(); gone_ != 0 && i-- > 0;)
        if (Ring& ring = *rings_[polls_[i].ring]; ring.gone && !arrived(read(polls_[i]), polls_[i]))
            close_ring(ring);
}

// --- packets of ours

/// HELLO, BYE, and whatever comes before HELLO. False: it stays, there is no room for the answer.
[[gnu::noinline]] bool Inbound::take_own(Ring& ring, std::uint64_t control) noexcept
{
    const auto c = std::bit_cast<Control>(control);
    const bool hello = c.type == static_cast<std::uint8_t>(Type::hello);
    if (hello == ring.greeted) {
        bad_packet(ring, hello ? "out of place" : "before its HELLO");
        return true;
    }
    if (c.flags != 0 || c.length > (hello ? 0 : bye_for_now)) {
        bad_packet(ring, "unreadable");
        return true;
    }
    if (hello)
        return take_hello(ring);
    if (c.length == bye_for_now && !answer_bye(ring))
        return false;
    close_ring(ring);
    return true;
}

bool Inbound::take_hello(Ring& ring) noexcept
{
    Hello hello;
    std::memcpy(&hello, slot(ring, ring.next_seq) + slot_size - sizeof(Control) - sizeof hello, sizeof hello);
    take_visits(); // those of this sender were put before (visitors.h, case 10)
    if (is_refused(ring.home, hello))
        return false;
    utofu_stadd_t area = 0;
    if (hello.return_index >= return_count || hello.index >= max_endpoints ||
        port_.self.vcq.query_stadd(ring.home, endpoint_stag(hello.index), area) != 0) {
        bad_packet(ring, "HELLO that makes no sense");
        return true;
    }
    ring.area = area;
    ring.returns = area + return_offset(hello.return_index);
    ring.identity = hello.identity;
    ring.serial = hello.serial;
    ring.nonce = hello.nonce;
    if (hello.version != wire_version || hello.target_nonce != port_.self.nonce) {
        refuse(ring, hello.version != wire_version ? ReturnStatus::refused_version : ReturnStatus::refused_nonce);
        close_ring(ring);
        return true;
    }
    ring.key = peer_key(ring.home, ring.nonce, ring.identity);
    ring.greeted = true;
    return true;
}

[[gnu::noinline]] void Inbound::bad_packet(const Ring& ring, const char* what) noexcept
{
    if (!std::exchange(bad_packets_, true))
        TOFU_WARN(FI_LOG_EP_DATA,
                  "endpoint %u: dropped a packet %s in ring %u of peer 0x%llx: use the same release of the provider on "
                  "all nodes; what follows is dropped in silence\n",
                  port_.self.index, what, ring.number, static_cast<unsigned long long>(ring.home));
}

void Inbound::blank(const Ring& ring, std::uint32_t slots) noexcept
{
    const std::uint32_t ring_slots = geometry_.ring_slots;
    for (std::uint32_t n = 1; n < slots; n++)
        std::atomic_ref<std::uint64_t>(*ring.control(ring.next_seq + n, ring_slots))
            .store(std::uint64_t{ring.next_seq} << 32, std::memory_order_relaxed);
}

// --- reports

/// Tells the sender how far we are. When it can't be told now, the next slow round tries again.
void Inbound::report(Ring& ring) noexcept
{
    if (!ring.greeted) [[unlikely]]
        return; // it has not said where its return block is
    const ReturnBlock block{ring.next_seq - 1, static_cast<std::uint32_t>(ring.status), ring.serial};
    // In order: an earlier report that lands later would hide this one for good.
    const vcq::Post post =
        port_.self.vcq.put_inline(ring.home, &block, ring.returns, sizeof block, {.strong_order = true});
    if (ring.status != ReturnStatus::open) [[unlikely]]
        port_.ring_doorbell(ring.home, ring.area, Doorbell::status);
    if (post == vcq::Post::done) [[likely]]
        ring.reported = ring.next_seq - 1;
    ring.report_due = post == vcq::Post::busy;
    reports_due_ |= ring.report_due;
}

void Inbound::refuse(Ring& ring, ReturnStatus status) noexcept
{
    TOFU_WARN(FI_LOG_EP_CTRL, "endpoint %u: refused peer 0x%llx: %s\n", port_.self.index,
              static_cast<unsigned long long>(ring.home),
              status == ReturnStatus::refused_nonce
                  ? "it means a process that has ended: exchange addresses anew"
                  : "it speaks another wire protocol: use the same release of the provider on all nodes");
    const ReturnBlock block{0, static_cast<std::uint32_t>(status), ring.serial};
    (void)port_.self.vcq.put_inline(ring.home, &block, ring.returns, sizeof block, {});
}

void Inbound::catch_up() noexcept
{
    if (!refused_.empty())
        take_visits();
    if (!reports_due_)
        return;
    reports_due_ = false;
    for (const Poll& poll : polls_) {
        Ring& ring = *rings_[poll.ring];
        if (ring.greeted &&
            (ring.report_due || ring.next_seq - 1 - ring.reported >= geometry_.report_after()))
            report(ring);
    }
}

} // namespace tofu::proto
