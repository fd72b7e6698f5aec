// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See rx_ring.h.
#include "msg/rx_ring.h"

#include <bit>
#include <cstring>
#include <utility>

#include "core/log.h"

namespace tofu::proto {

int Inbound::open(const Geometry& geometry) noexcept
{
    geometry_ = geometry;
    seen_ = port_.self.vcq.backend().functions().seen;
    return grants.open(geometry);
}

/// Takes all anonymous packets before the first packet of a ring, since its sender made them earlier. False: some could
/// not be taken.
[[gnu::noinline]] bool Inbound::begin(Ring& ring) noexcept
{
    arrivals.take();
    if (arrivals.refuses(peer_key(ring.known.home, ring.known.nonce, ring.index)))
        return false;
    ring.begun = true;
    if (!ring.asked)
        ring.status = LeaseStatus::open;
    return true;
}

/// False: the packet stays in the ring, because the TNI has no room for the answer.
[[gnu::noinline]] bool Inbound::take_bye(Ring& ring, std::uint64_t control) noexcept
{
    const auto c = std::bit_cast<Control>(control);
    if (c.flags != 0 || c.length > bye_for_now) {
        bad_packet(ring, "unreadable");
        return true;
    }
    if (c.length == bye_for_now && !grants.answer_bye(ring))
        return false;
    grants.close(ring);
    return true;
}

[[gnu::noinline]] void Inbound::bad_packet(const Ring& ring, const char* what) noexcept
{
    if (!std::exchange(bad_packets_, true))
        TOFU_WARN(FI_LOG_EP_DATA,
                  "endpoint %u: dropped a packet %s in ring %u of peer 0x%llx: use the same release of the provider on "
                  "all nodes; what follows is dropped in silence\n",
                  port_.self.index, what, ring.number, static_cast<unsigned long long>(ring.known.home));
}

void Inbound::blank(const Ring& ring, std::uint32_t slots) noexcept
{
    const std::uint32_t ring_slots = geometry_.ring_slots;
    for (std::uint32_t n = 1; n < slots; n++)
        std::atomic_ref<std::uint64_t>(*ring.control(ring.next_seq + n, ring_slots))
            .store(std::uint64_t{ring.next_seq} << 32, std::memory_order_relaxed);
}

void Inbound::catch_up() noexcept
{
    if (arrivals.any_refused())
        arrivals.take();
    if (grants.reports_due())
        grants.report_late();
}

} // namespace tofu::proto
