// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Packets out of the rings of our area, except for the short way (poll.cc). Nothing read from the area is trusted. See
// receiver.h.
#include "msg/receiver.h"

#include <algorithm>

#include "core/limits.h"
#include "cq/cq.h"

namespace tofu::proto {

Receiver::Receiver(TxContext& tx, RxContext& rx, Port& port) noexcept
    : Inbound(port), tx_(tx), rx_(rx), eager_gets_(port), delivery_(tx, rx, port, *this)
{
}

Receiver::~Receiver()
{
    for (const Fence& fence : fences_)
        fence.in->let_go();
}

/// Takes one packet. False: the packet stays, there is no room for what it brings.
bool Receiver::take(Ring& in, std::uint32_t& slots) noexcept
{
    Packet packet;
    if (!decode(slot(in, in.next_seq), packet)) [[unlikely]] {
        bad_packet(in, "unreadable");
        return true;
    }
    switch (packet.type) {
    case Type::eager:
    case Type::long_eager:
    case Type::rts:
    case Type::eager_by_get: return take_message(in, packet, slots);
    case Type::write_data: take_write_data(in, packet); return true;
    case Type::fence: return take_fence(in, packet);
    case Type::bye: // decode() lets none of these through
    case Type::none: break;
    }
    return true;
}

namespace {
/// Reads the body of an RTS or of an eager-by-get message. False: its segments make no sense.
bool read_rts(const Packet& packet, Message& m) noexcept
{
    Rts rts;
    std::memcpy(&rts, packet.body, sizeof rts);
    m.vcq = rts.vcq;
    m.segment_count = static_cast<std::uint8_t>(packet.control.length);
    m.length = 0;
    m.payload = nullptr;
    std::memcpy(m.segments, packet.body + sizeof rts, m.segment_count * sizeof(Segment));
    for (unsigned i = 0; i < m.segment_count; i++) {
        if (m.segments[i].length == 0 || m.segments[i].length > limits::max_msg_size)
            return false;
        m.length += m.segments[i].length;
    }
    return m.length <= limits::max_msg_size;
}
} // namespace

bool Receiver::take_message(Ring& in, const Packet& packet, std::uint32_t& slots) noexcept
{
    const std::uint8_t flags = packet.control.flags;
    const auto has = [flags](std::uint8_t flag) { return (flags & flag) != 0; };
    Message m{{&in, packet.ack, packet.type, has(flag_ack), has(flag_match), 0}, has(flag_tag), has(flag_data),
              packet.tag, packet.data, packet.control.length, packet.body};
    if (packet.type == Type::long_eager) {
        const Geometry& g = geometry();
        if (m.length == 0 || m.length > g.eager_limit()) {
            bad_packet(in, "of impossible length");
            return true;
        }
        const LongSlots where = long_slots(in.next_seq, packet.control.length, g.ring_slots);
        m.payload = in.base + std::size_t{where.first} * slot_size;
        slots = where.total;
    } else if (packet.type != Type::eager) {
        const bool by_get = packet.type == Type::eager_by_get;
        if (!read_rts(packet, m) || (by_get && (in.number != no_place || m.length > max_eager))) {
            bad_packet(in, "of impossible segments");
            return true;
        }
        if (by_get)
            return take_eager_by_get(m);
    }
    if (!delivery_.deliver(m)) {
        slots = 1;
        return false;
    }
    if (slots != 1)
        blank(in, slots);
    return true;
}

/// An eager-by-get message of an anonymous packet: once its payload is here, it is an eager message.
bool Receiver::take_eager_by_get(Message& m) noexcept
{
    EagerPayload payload{m.in->known.home, m.in->area, m.fin, m.vcq, m.segment_count, m.length, {}};
    std::copy_n(m.segments, m.segment_count, payload.segments);
    switch (eager_gets_.look(payload, arrivals.offers(), m.payload)) {
    case EagerGets::Stage::getting:
    case EagerGets::Stage::asking: return false;
    case EagerGets::Stage::lost: return true;
    case EagerGets::Stage::here: break;
    }
    m.type = Type::eager;
    if (!delivery_.deliver(m))
        return false;
    eager_gets_.release(payload);
    return true;
}

void Receiver::take_write_data(Ring& in, const Packet& packet) noexcept
{
    std::uint64_t length;
    std::memcpy(&length, packet.body, sizeof length);
    Completion entry{.flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, .length = length, .data = packet.data};
    if (CompletionQueue* cq = rx_.binding.cq)
        delivery_.report(*cq, entry, in);
}

/// Takes a fence: all packets before it have been taken.
bool Receiver::take_fence(Ring& in, const Packet& packet) noexcept
{
    if ((packet.control.flags & flag_match) == 0)
        return put_completion(tx_.vcq(), in.known.home, in.area, packet.ack, 0);
    Fence* const end = fences_.begin() + fences_.size(); // a sender waits for one fence at a time
    if (Fence* const old = std::find_if(fences_.begin(), end, [&](const Fence& f) { return f.in->same_sender(in); });
        old != end) {
        old->ack = packet.ack;
    } else {
        if (!fences_.push({&in, packet.ack}))
            return false;
        in.users++;
    }
    answer_fences();
    return true;
}

void Receiver::answer_fences() noexcept
{
    std::size_t left = 0;
    for (const Fence& fence : fences_)
        if (delivery_.holds(*fence.in) ||
            !put_completion(tx_.vcq(), fence.in->known.home, fence.in->area, fence.ack, 0))
            fences_[left++] = fence;
        else
            fence.in->let_go();
    while (fences_.size() > left)
        fences_.pop_back();
}

} // namespace tofu::proto
