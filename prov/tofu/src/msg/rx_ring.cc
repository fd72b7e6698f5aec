// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See rx_ring.h.
#include "msg/rx_ring.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include <rdma/fi_errno.h>

#include "core/log.h"
#include "core/system.h"

namespace tofu::proto {

int Inbound::open(const Geometry& geometry) noexcept
{
    geometry_ = geometry;
    report_after_ = geometry.report_after();
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
                  "all nodes; further errors are not logged\n",
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

// --- Rings: opening and closing, and what rounds of progress do only now and then

namespace {

constexpr std::size_t credit_blocks_per_tick = 64; // credit blocks polled without a doorbell, which may be missing
constexpr std::uint64_t tick_ms = 4;
constexpr std::uint64_t watch_ms = 100;
constexpr unsigned watched_at_once = 64;

} // namespace

Rings::~Rings()
{
    port.open = false;
}

int Rings::open(std::size_t ring_count, std::size_t ring_slots, std::size_t anon_slot_count) noexcept
{
    const Local& self = port.self;
    const utofu_onesided_caps& caps = self.home.backend().caps();
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
    port.now = milliseconds();
    if (int ret = port.area.open(self.home, self.home_lock, self.nonce, self.index, geometry); ret != 0)
        return ret;
    if (!in.arrivals.open(geometry))
        return -FI_ENOMEM;
    port.open = true;
    return 0;
}

bool Rings::stop_writers() noexcept
{
    if (!port.open)
        return writers_gone_ = true;
    const std::uint64_t now = milliseconds();
    out.leases.give_all_back();
    out.leases.poll_credit_blocks(out.channels.size());
    if (now != last_stop_) {
        last_stop_ = now;
        out.watch(watched_at_once);
        in.grants.revoke();
    }
    return writers_gone_ = out.leases.writers_gone() && in.grants.writers_gone();
}

void Rings::say_byes() noexcept
{
    if (port.open)
        out.say_byes();
    port.open = false;
}

bool Rings::close_area() noexcept
{
    if (!port.area.is_open())
        return true;
    port.area.hide();
    // From here on the gate hands out no slot.
    const std::size_t unfilled = in.arrivals.unfilled();
    port.self.vcq.statistics().count(Stat::anonymous_lost, unfilled);
    port.area.close();
    return writers_gone_ && unfilled == 0;
}

void Rings::catch_up() noexcept
{
    // seq_cst: pairs with the peer's Put of the doorbell; whatever a peer announces from now on rings it again
    const std::uint64_t doorbells = port.area.doorbells().exchange(0, std::memory_order_seq_cst);
    if (rung(doorbells, Doorbell::status))
        out.leases.poll_credit_blocks(out.channels.size());
    if (rung(doorbells, Doorbell::anonymous))
        in.arrivals.take();
    out.flush_all();
    in.catch_up();
}

void Rings::slow_round() noexcept
{
    port.now = milliseconds();
    if (port.now - last_tick_ < tick_ms)
        return;
    last_tick_ = port.now;
    in.grants.close_gone();
    port.protocol.tick();
    in.arrivals.take();
    out.leases.poll_credit_blocks(credit_blocks_per_tick);
    in.grants.ask_back();
    if (port.now - last_watch_ < watch_ms)
        return;
    last_watch_ = port.now;
    out.watch(watched_at_once);
    in.grants.watch();
}

void Rings::peer_failed(utofu_vcq_id_t home) noexcept
{
    if (!port.open || home == 0)
        return;
    out.peer_failed(home);
    in.grants.peer_failed(home);
}

bool same_process(const Bounce& answer, std::uint64_t nonce) noexcept
{
    AreaHeader header;
    std::memcpy(&header, answer.data, sizeof header);
    return header.magic == area_magic && header.nonce == nonce;
}

void Port::ring_doorbell(utofu_vcq_id_t home, utofu_stadd_t at, Doorbell bell) noexcept
{
    constexpr std::uint16_t rings = 1;
    static_assert(sizeof rings == doorbell_size);
    (void)self.vcq.put_inline(home, &rings, at + doorbell_offset(bell), sizeof rings, {.strong_order = true});
}

} // namespace tofu::proto
