// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The rounds of progress: which control words are looked at; and the short way of a message that stands in the ring,
// asks for no answer and finds a receive of one buffer: from the ring into the buffer and into the queue. All else goes
// the long way (receive.cc). Part of the messenger; called by the endpoint's progress; calls the matcher, cq and cntr.
#include "message/messenger.h"

#include <bit>

#include "endpoint/endpoint.h"
#include "queue/cntr.h"

namespace tofu::proto {

namespace {
constexpr unsigned batch = 16;        // packets of one ring in a round
constexpr std::size_t all_rings = 16; // up to so many rings are looked at in every round
constexpr std::uint32_t rounds_per_look = 64; // rounds of progress between looks at the clock
constexpr std::size_t line = 64;      // what a processor fetches at once

std::uint32_t number_in(std::uint64_t control) noexcept
{
    return static_cast<std::uint32_t>(control >> 32);
}
} // namespace

void Messenger::progress() noexcept
{
    // relaxed: catch_up() reads it again
    if (deferred_ != 0 || reports_due_ || wished_ ||
        area_.bells().load(std::memory_order_relaxed) != 0) [[unlikely]]
        catch_up();
    poll_rings();
    if (!congested_.empty()) [[unlikely]]
        work_off();
    if (!waiting_fin_.empty())
        poll_fins();
    if (waiting_fetches_ != nullptr) [[unlikely]]
        resume_fetches();
    if (++rounds_ % rounds_per_look == 0) [[unlikely]]
        slow_round();
}

void Messenger::poll_rings() noexcept
{
    if (polls_.size() == 1) [[likely]]
        (void)drain(polls_[0]);
    else if (!polls_.empty())
        poll_in_turn();
}

/// The ring that had something last, then the others in turn.
void Messenger::poll_in_turn() noexcept
{
    const std::size_t n = polls_.size();
    if (hot_ < n && drain(polls_[hot_]) != 0 && n > all_rings)
        return;
    std::size_t look = n < all_rings ? n : all_rings;
    for (; look > 0 && !polls_.empty(); look--) {
        if (next_poll_ >= polls_.size())
            next_poll_ = 0;
        const std::size_t at = next_poll_++;
        if (at != hot_ && drain(polls_[at]) != 0)
            hot_ = at;
    }
}

/// Takes packets out of one ring; returns how many. May remove the ring from polls_.
///
/// The slot's other lines are asked for as well: once a longer packet is there, all of its lines come at the same time,
/// instead of one round of the caches after the other. A line that nobody wrote is here already and costs nothing.
inline unsigned Messenger::drain(const Poll& poll) noexcept
{
    for (std::size_t before = line; before < slot_size; before += line)
        __builtin_prefetch(reinterpret_cast<const std::byte*>(poll.word) - before);
    // acquire: pairs with the sender's Put, whose last 8 bytes are written last
    const std::uint64_t control =
        std::atomic_ref<std::uint64_t>(*poll.word).load(std::memory_order_acquire);
    if (number_in(control) != poll.seq) [[likely]]
        return 0;
    return empty(*inbound_[poll.ring], control);
}

/// Takes packets as long as there are some. `control` is that of the first.
[[gnu::noinline]] unsigned Messenger::empty(Inbound& in, std::uint64_t control) noexcept
{
    const Geometry& geometry = area_.geometry();
    for (unsigned taken = 0; taken < batch; taken++) {
        std::uint32_t slots = 1;
        if (!take_short(in, control, slots)) {
            if (!take(in, slots))
                return taken;
            if (in.place == no_place) // it said BYE
                return taken + 1;
        }
        in.next_seq += slots;
        if (in.next_seq - 1 - in.reported >= geometry.report_after()) [[unlikely]]
            report(in);
        Poll& poll = polls_[in.place];
        poll.seq = in.next_seq;
        poll.word = in.control(in.next_seq, geometry.ring_slots);
        // acquire: as in drain()
        control = std::atomic_ref<std::uint64_t>(*poll.word).load(std::memory_order_acquire);
        if (number_in(control) != poll.seq)
            return taken + 1;
    }
    return batch;
}

/// One message, all the way. False: nothing has happened, the long way is to look. All that decides is in `control`,
/// which was read once.
[[gnu::always_inline]] inline bool Messenger::take_short(Inbound& in, std::uint64_t control,
                                                         std::uint32_t& slots) noexcept
{
    const auto c = std::bit_cast<Control>(control);
    const bool is_long = c.type == static_cast<std::uint8_t>(Type::long_eager);
    if ((c.type != static_cast<std::uint8_t>(Type::eager) && !is_long) ||
        (c.flags & ~(flag_tag | flag_data)) != 0 || !in.greeted) [[unlikely]]
        return false;
    const Geometry& geometry = area_.geometry();
    const auto* const end =
        reinterpret_cast<const std::byte*>(in.control(in.next_seq, geometry.ring_slots) + 1);
    const std::byte* payload;
    LongSlots where{0, 0, 1};
    if (is_long) [[unlikely]] {
        if (c.length == 0 || c.length > geometry.eager_limit()) [[unlikely]]
            return false;
        where = long_slots(in.next_seq, c.length, geometry.ring_slots);
        payload = in.base + std::size_t{where.first} * slot_size;
        for (std::size_t at = 0; at < c.length && at < 8 * line; at += line)
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
    RecvRequest* const r = queue_.get_entry(tagged, in.key, tag);
    if (r == nullptr || r->multi || r->count != 1 || c.length > r->length) [[unlikely]]
        return false;
    void* const buffer = r->buffers()->iov.iov_base;
    if (c.length != 0)
        std::memcpy(buffer, payload, c.length);
    if (is_long) [[unlikely]]
        blank(in, slots = where.total);
    const Binding& rx = ep_.rx();
    if (rx.reports(r->flags)) [[likely]]
        rx.cq->write({.context = r->context,
                      .flags = FI_RECV | (tagged ? FI_TAGGED : FI_MSG) |
                               (has_data ? FI_REMOTE_CQ_DATA : 0),
                      .length = c.length,
                      .buffer = buffer,
                      .data = data,
                      .tag = tag,
                      .source = wants_source_ ? source_of(in) : FI_ADDR_NOTAVAIL});
    if (Counter* counter = ep_.rx_context().counters.recv)
        counter->count();
    queue_.withdraw(*r);
    queue_.free_entry(*r);
    return true;
}

} // namespace tofu::proto
