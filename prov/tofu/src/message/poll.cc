// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The rounds of progress, and the short way of a message that stands in its ring and asks for no answer: into the
// single buffer of its receive and into the completion queue, or, without a receive, to the kept messages. All other
// messages go the long way (receiver.cc, delivery.cc). Called by the endpoint's progress; calls rings, match, cq and
// cntr.
#include <bit>

#include "message/messenger.h"
#include "provider/limits.h"
#include "provider/probe.h"
#include "queue/cntr.h"

namespace tofu::proto {

namespace {
constexpr std::size_t prefetched = 512; ///< bytes of a long payload, at most
}

/// A message on the short way.
struct Delivery::Short {
    bool tagged;
    bool has_data;
    bool is_long;
    std::size_t length;
    std::uint64_t tag;
    std::uint64_t data;
    const std::byte* payload;
    /// Does the receive have one buffer, and end with this message?
    [[nodiscard]] bool fits(const RecvRequest& r) const noexcept { return !r.multi && r.count == 1 && length <= r.length; }
};

/// Copies the payload into the receive's buffer and reports it: one entry, one count.
[[gnu::always_inline]] inline void Delivery::finish_short(RecvRequest& r, const Short& m, fi_addr_t source) noexcept
{
    void* const buffer = r.buffers()->iov_base;
    if (m.length != 0)
        std::memcpy(buffer, m.payload, m.length);
    if (rx.binding.reports(r.flags)) [[likely]]
        rx.binding.cq->write({.context = r.context,
                              .flags = kind_of(m.tagged) | (m.has_data ? FI_REMOTE_CQ_DATA : 0),
                              .length = m.length,
                              .buffer = buffer,
                              .data = m.data,
                              .tag = m.tag,
                              .source = source});
    if (Counter* counter = rx.counters.recv)
        counter->count();
    TOFU_PROBE(match, r.context);
}

[[gnu::always_inline]] inline bool Delivery::deliver_short(Ring& in, const Short& m) noexcept
{
    const fi_addr_t source = wants_source_ ? source_of(in) : FI_ADDR_NOTAVAIL;
    if (wants_strangers_ && source == FI_ADDR_NOTAVAIL) [[unlikely]]
        return false;
    RecvRequest* const r = queue_.get_entry(m.tagged, in.key, m.tag);
    if (r == nullptr) {
        if (m.is_long || queue_.owner() != nullptr) [[unlikely]]
            return false;
        Message kept{{.in = &in, .type = Type::eager}, m.tagged, m.has_data, m.tag, m.data, m.length, m.payload};
        return keep(kept, nullptr);
    }
    if (!m.fits(*r)) [[unlikely]]
        return false;
    finish_short(*r, m, source);
    queue_.withdraw(*r);
    queue_.free_entry(*r);
    return true;
}

/// Takes one message all the way. Every decision rests on `control`, which was read once.
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
            __builtin_prefetch(payload + at); // comes while we look for the receive
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
    if (!delivery_.deliver_short(in, {tagged, has_data, is_long, c.length, tag, data, payload}))
        return false;
    if (is_long) [[unlikely]]
        blank(in, slots = where.total);
    return true;
}

/// Keeps a message that came before its receive, if the short way can.
bool Delivery::start(RecvRequest& r, Unexpected& kept) noexcept
{
    const Kept of_it = Message::kept_of(kept);
    const fi_addr_t source = wants_source_ ? source_of(*of_it.in) : FI_ADDR_NOTAVAIL;
    const Short m{kept.tagged, kept.has_data, false, kept.length, kept.tag, kept.data, Message::payload_of(kept)};
    if (of_it.type == Type::rts || of_it.ack || !m.fits(r) || queue_.owner() != nullptr ||
        (wants_strangers_ && source == FI_ADDR_NOTAVAIL)) [[unlikely]]
        return give_kept(r, kept);
    finish_short(r, m, source);
    queue_.free_entry(r);
    return true;
}

// --- rounds of progress

void Delivery::progress(bool everywhere) noexcept
{
    if (!everywhere) {
        tx_.progress();
        return;
    }
    receiver_.arrivals.take();
    receiver_.poll<Receiver>();
}

void Messenger::progress() noexcept
{
    constexpr std::uint32_t rounds_per_look = 64; // at the clock
    if (rings_.behind() || receiver_.behind()) [[unlikely]]
        rings_.catch_up();
    receiver_.poll<Receiver>();
    if (SendRequests& requests = sender_.requests(); requests.awaits_any())
        requests.poll();
    if (Fetches& fetches = delivery().fetches(); fetches.waits()) [[unlikely]]
        fetches.resume();
    if (++rounds_ % rounds_per_look == 0) [[unlikely]]
        rings_.slow_round();
}

} // namespace tofu::proto
