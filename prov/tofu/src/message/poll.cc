// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The rounds of progress, with all that they go through for a message that stands in its ring, asks for no answer and
// finds a receive of one buffer: from the ring into the buffer and into the queue. All else goes the long way
// (receive.cc). Called by the endpoint's progress; calls rings, match, cq and cntr.
#include <bit>

#include "message/messenger.h"
#include "provider/limits.h"
#include "provider/probe.h"
#include "queue/cntr.h"

namespace tofu::proto {

namespace {
constexpr std::size_t prefetched = 512; ///< bytes of a long payload, at most
}

/// One message, all the way. All that decides is in `control`, which was read once.
[[gnu::always_inline]] inline bool Receiver::take_short(Ring& in, std::uint64_t control,
                                                        std::uint32_t& slots) noexcept
{
    const auto c = std::bit_cast<Control>(control);
    const bool is_long = c.type == static_cast<std::uint8_t>(Type::long_eager);
    if ((c.type != static_cast<std::uint8_t>(Type::eager) && !is_long) ||
        (c.flags & ~(flag_tag | flag_data)) != 0 || !in.begun) [[unlikely]]
        return false;
    const Geometry& g = geometry();
    const auto* const end =
        reinterpret_cast<const std::byte*>(in.control(in.next_seq, g.ring_slots) + 1);
    const std::byte* payload;
    LongSlots where{0, 0, 1};
    if (is_long) [[unlikely]] {
        if (c.length == 0 || c.length > g.eager_limit()) [[unlikely]]
            return false;
        where = long_slots(in.next_seq, c.length, g.ring_slots);
        payload = in.base + std::size_t{where.first} * slot_size;
        for (std::size_t at = 0; at < c.length && at < prefetched; at += processor_line)
            __builtin_prefetch(payload + at); // on its way while we look whose it is
    } else {
        const std::size_t size = overhead(c.flags) + ((std::size_t{c.length} + 7) & ~std::size_t{7});
        if (size > slot_size) [[unlikely]]
            return false;
        payload = end - size;
    }
    const auto* field = reinterpret_cast<const std::uint64_t*>(end) - 1;
    const bool has_data = (c.flags & flag_data) != 0;
    const bool tagged = (c.flags & flag_tag) != 0;
    const std::uint64_t data = has_data ? *--field : 0;
    const std::uint64_t tag = tagged ? *--field : 0;
    const fi_addr_t source = wants_source_ ? source_of(in) : FI_ADDR_NOTAVAIL;
    if (wants_strangers_ && source == FI_ADDR_NOTAVAIL) [[unlikely]]
        return false;
    RecvRequest* const r = queue_.get_entry(tagged, in.key, tag);
    if (r == nullptr || r->multi || r->count != 1 || c.length > r->length) [[unlikely]]
        return false;
    void* const buffer = r->buffers()->iov_base;
    if (c.length != 0)
        std::memcpy(buffer, payload, c.length);
    if (is_long) [[unlikely]]
        blank(in, slots = where.total);
    const Binding& rx = rx_.binding;
    if (rx.reports(r->flags)) [[likely]]
        rx.cq->write({.context = r->context,
                      .flags = FI_RECV | (tagged ? FI_TAGGED : FI_MSG) |
                               (has_data ? FI_REMOTE_CQ_DATA : 0),
                      .length = c.length,
                      .buffer = buffer,
                      .data = data,
                      .tag = tag,
                      .source = source});
    if (Counter* counter = rx_.counters.recv)
        counter->count();
    TOFU_PROBE(match, r->context);
    queue_.withdraw(*r);
    queue_.free_entry(*r);
    return true;
}

void Receiver::progress(bool everywhere) noexcept
{
    if (!everywhere) {
        tx_.progress();
        return;
    }
    arrivals.take();
    poll<Receiver>();
}

void Messenger::progress() noexcept
{
    constexpr std::uint32_t rounds_per_look = 64; // at the clock
    if (rings_.behind() || receiver_.behind()) [[unlikely]]
        rings_.catch_up();
    receiver_.poll<Receiver>();
    if (SendRequests& requests = sender_.requests(); requests.awaits_any())
        requests.poll();
    if (Fetches& fetches = receiver_.fetches(); fetches.waits()) [[unlikely]]
        fetches.resume();
    if (++rounds_ % rounds_per_look == 0) [[unlikely]]
        rings_.slow_round();
}

} // namespace tofu::proto
