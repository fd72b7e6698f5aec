// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The rounds of progress, and the short way of a message that stands in its ring and asks for no answer: into the
// single buffer of its receive and into the completion queue, or, without a receive, to the kept messages. All other
// messages go the long way (receiver.cc, delivery.cc). Called by the endpoint's progress; calls rings, match, cq and
// cntr.
#include <bit>

#include "core/limits.h"
#include "core/log.h"
#include "cq/counter.h"
#include "msg/message_engine.h"

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

/// Copies the payload into the receive's buffer and reports it: one entry, one count. `polled`: a poll has found it.
template <bool polled>
[[gnu::always_inline]] inline void Delivery::finish_short(RecvRequest& r, const Short& m, fi_addr_t source) noexcept
{
    void* const buffer = r.buffers()->iov_base;
    if (m.length == 8)
        std::memcpy(buffer, m.payload, 8);
    else if (m.length != 0)
        std::memcpy(buffer, m.payload, m.length);
    if (rx.binding.reports(r.flags)) [[likely]] {
        CompletionQueue& cq = *rx.binding.cq;
        const std::uint64_t flags = kind_of(m.tagged) | (m.has_data ? FI_REMOTE_CQ_DATA : 0);
        const Completion entry{r.context, flags, m.length, buffer, m.data, m.tag, source};
        polled ? cq.hand_over(entry) : cq.write(entry);
    }
    if (Counter* counter = rx.counters.recv)
        counter->count();
    TOFU_PROBE(match, r.context);
}

[[gnu::always_inline]] inline bool Delivery::deliver_short(Ring& in, const Short& m) noexcept
{
    fi_addr_t source = FI_ADDR_NOTAVAIL;
    if (wants_source_) {
        source = source_of(in);
        if (reports_unknown_sources_ && source == FI_ADDR_NOTAVAIL) [[unlikely]]
            return false;
    }
    Matcher& matcher = queue_.matcher(m.tagged);
    Posted** const at = matcher.match_few(in.key, m.tag);
    if (at == nullptr) [[unlikely]]
        return deliver_otherwise(in, {m.tagged, m.has_data, m.is_long, m.length, m.tag, m.data, m.payload}, source);
    auto& receive = static_cast<RecvRequest&>(**at);
    if (!m.fits(receive)) [[unlikely]]
        return false;
    finish_short<true>(receive, m, source);
    matcher.drop_few(at);
    queue_.free_single(receive);
    return true;
}

/// deliver_short() where many receives are posted, or none that takes the message.
[[gnu::noinline]] bool Delivery::deliver_otherwise(Ring& in, const Short& m, fi_addr_t source) noexcept
{
    if (RecvRequest* const r = queue_.get_entry(m.tagged, in.key, m.tag); r != nullptr) {
        if (!m.fits(*r))
            return false;
        finish_short<true>(*r, m, source);
        queue_.withdraw(*r);
        queue_.free_single(*r);
        return true;
    }
    if (m.is_long || queue_.owner() != nullptr)
        return false;
    Message kept{{.in = &in, .type = Type::eager}, m.tagged, m.has_data, m.tag, m.data, m.length, m.payload};
    return keep(kept, nullptr);
}

namespace {
/// The bits of a control word that say whether a packet is an eager message, with or without tag and data.
constexpr std::uint64_t shape = std::bit_cast<std::uint64_t>(
    Control{0xff, static_cast<std::uint8_t>(~(flag_tag | flag_data)), 0, 0});
constexpr std::uint64_t shape_of(Type type) noexcept
{
    return std::bit_cast<std::uint64_t>(Control{static_cast<std::uint8_t>(type), 0, 0, 0});
}
} // namespace

/// Takes one message all the way; its control word is at `end`. Every decision rests on `control`, which was read once.
[[gnu::always_inline]] inline std::uint32_t Receiver::take_short(Ring& in, const std::uint64_t* end,
                                                                 std::uint64_t control) noexcept
{
    if (!in.begun) [[unlikely]]
        return 0;
    const auto c = std::bit_cast<Control>(control);
    if ((control & shape) != shape_of(Type::eager)) [[unlikely]]
        return (control & shape) == shape_of(Type::long_eager) ? take_long(in, end, c) : 0;
    const std::byte* const slot = reinterpret_cast<const std::byte*>(end + 1) - slot_size;
    const bool has_data = (c.flags & flag_data) != 0;
    const bool tagged = (c.flags & flag_tag) != 0;
    const std::uint64_t data = has_data ? *--end : 0;
    const std::uint64_t tag = tagged ? *--end : 0;
    const std::byte* const payload_end = reinterpret_cast<const std::byte*>(end);
    const std::size_t size = (std::size_t{c.length} + 7) & ~std::size_t{7};
    if (size > static_cast<std::size_t>(payload_end - slot)) [[unlikely]]
        return 0;
    const std::byte* const payload = payload_end - size;
    const bool taken = tagged ? delivery_.deliver_short(in, {true, has_data, false, c.length, tag, data, payload})
                              : delivery_.deliver_short(in, {false, has_data, false, c.length, 0, data, payload});
    return taken ? 1 : 0;
}

/// As take_short(), for a message whose payload stands in the slots behind.
[[gnu::noinline]] std::uint32_t Receiver::take_long(Ring& in, const std::uint64_t* end, const Control& c) noexcept
{
    const Geometry& g = geometry();
    if (c.length == 0 || c.length > g.eager_limit()) [[unlikely]]
        return 0;
    const LongSlots where = long_slots(in.next_seq, c.length, g.ring_slots);
    const std::byte* const payload = in.base + std::size_t{where.first} * slot_size;
    for (std::size_t at = 0; at < c.length && at < prefetched; at += processor_line)
        __builtin_prefetch(payload + at); // comes while we look for the receive
    const bool has_data = (c.flags & flag_data) != 0;
    const bool tagged = (c.flags & flag_tag) != 0;
    const std::uint64_t data = has_data ? *--end : 0;
    const std::uint64_t tag = tagged ? *--end : 0;
    if (!delivery_.deliver_short(in, {tagged, has_data, true, c.length, tag, data, payload}))
        return 0;
    blank(in, where.total);
    return where.total;
}

/// Keeps a message that came before its receive, if the short way can.
bool Delivery::start(RecvRequest& r, Unexpected& kept) noexcept
{
    const Kept of_it = Message::kept_of(kept);
    const fi_addr_t source = wants_source_ ? source_of(*of_it.in) : FI_ADDR_NOTAVAIL;
    const Short m{kept.tagged, kept.has_data, false, kept.length, kept.tag, kept.data, Message::payload_of(kept)};
    if (of_it.type == Type::rts || of_it.ack || !m.fits(r) || queue_.owner() != nullptr ||
        (reports_unknown_sources_ && source == FI_ADDR_NOTAVAIL)) [[unlikely]]
        return give_kept(r, kept);
    finish_short<false>(r, m, source);
    queue_.free_entry(r);
    return true;
}

void Receiver::take_packets(std::size_t ring) noexcept
{
    take_arrived<Receiver>(ring);
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
    if (rings_.behind() || receiver_.behind()) [[unlikely]]
        rings_.catch_up();
    receiver_.poll<Receiver>();
    if (SendRequests& requests = sender_.requests(); requests.awaits_any())
        requests.poll();
    if (Fetches& fetches = delivery().fetches(); fetches.waits()) [[unlikely]]
        fetches.resume();
}

void Messenger::progress_fully() noexcept
{
    constexpr std::uint32_t rounds_per_look = 4; // at the clock; readers look 16 times as often (ProgressSet)
    progress();
    if (++rounds_ % rounds_per_look == 0)
        rings_.slow_round();
}

} // namespace tofu::proto
