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

/// The owner has left or died: the ring is free for the next one.
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

/// The first packet of a ring comes behind the visits of its sender. False: some of them stay.
[[gnu::noinline]] bool Inbound::begin(Ring& ring) noexcept
{
    take_visits();
    if (is_refused(peer_key(ring.home, ring.nonce, ring.index)))
        return false;
    ring.begun = true;
    if (!ring.asked)
        ring.status = ReturnStatus::open;
    return true;
}

/// False: it stays, there is no room for the answer.
[[gnu::noinline]] bool Inbound::take_bye(Ring& ring, std::uint64_t control) noexcept
{
    const auto c = std::bit_cast<Control>(control);
    if (c.flags != 0 || c.length > bye_for_now) {
        bad_packet(ring, "unreadable");
        return true;
    }
    if (c.length == bye_for_now && !answer_bye(ring))
        return false;
    close_ring(ring);
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
    const Grant grant{static_cast<std::uint32_t>(geometry_.ring(ring.number) / slot_size), geometry_.ring_slots};
    const ReturnBlock block{ring.begun ? ring.next_seq - 1 : grant.word(), static_cast<std::uint32_t>(ring.status),
                            ring.serial};
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

void Inbound::catch_up() noexcept
{
    if (!refused_.empty())
        take_visits();
    if (!reports_due_)
        return;
    reports_due_ = false;
    for (const Poll& poll : polls_) {
        Ring& ring = *rings_[poll.ring];
        if (ring.report_due || ring.next_seq - 1 - ring.reported >= geometry_.report_after())
            report(ring);
    }
}

} // namespace tofu::proto
