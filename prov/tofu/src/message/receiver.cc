// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What comes out of the rings of our area but for the short way, and which receive it belongs to. Nothing read from the
// area is trusted. Part of the receiver; calls vcq (FIN words) and completion queues.
#include "message/receiver.h"

#include <algorithm>
#include <mutex>

#include <rdma/fi_errno.h>

#include "local/iov.h"
#include "match/srx_owner.h"
#include "provider/limits.h"
#include "provider/probe.h"
#include "queue/cntr.h"

namespace tofu::proto {

Receiver::Receiver(TxContext& tx, RxContext& rx, Port& port) noexcept
    : Inbound(port), SrxPeer(rx, tx.peers()), tx_(tx), rx_(rx),
      wants_source_((tx.plan().caps & FI_SOURCE) != 0 || (rx.shared != nullptr && rx.shared->owner() != nullptr)),
      wants_strangers_((tx.plan().caps & FI_SOURCE_ERR) != 0), far_(port),
      queue_(rx.shared != nullptr
                 ? *rx.shared
                 : own_queue_.emplace((tx.plan().caps & FI_DIRECTED_RECV) != 0, rx.min_multi_recv)),
      fetches_(tx, port, *this)
{
}

Receiver::~Receiver()
{
    for (const Fence& fence : fences_)
        fence.in->let_go();
    if (own_queue_)
        queue_.leave(*this);
}

int Receiver::join_queue() noexcept
{
    std::lock_guard guard(tx_.lock());
    return queue_.join(*this);
}

void Receiver::part_from_queue() noexcept
{
    if (own_queue_)
        return; // which goes with us
    fetches_.cancel();
    queue_.leave(*this);
}

ssize_t Receiver::cancel(void* context) noexcept
{
    return own_queue_ ? own_queue_->cancel(context) : -FI_ENOENT;
}

/// One packet. False: it stays, there is no room for what it brings.
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
    case Type::far_eager: return take_message(in, packet, slots);
    case Type::write_data: take_write_data(in, packet); return true;
    case Type::fence: return take_fence(in, packet);
    case Type::bye: // none that decode() lets through
    case Type::none: break;
    }
    return true;
}

namespace {
/// The body of an RTS or of a far eager message. False: its segments can't be.
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
    Message m{{&in, packet.ack, packet.type, has(flag_ack), has(flag_match), 0}, has(flag_tag), has(flag_data), false,
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
        const bool far = packet.type == Type::far_eager;
        if (!read_rts(packet, m) || (far && (in.number != no_place || m.length > max_eager))) {
            bad_packet(in, "of impossible segments");
            return true;
        }
        if (far)
            return take_far(m);
    }
    if (!deliver(m)) {
        slots = 1;
        return false;
    }
    if (slots != 1)
        blank(in, slots);
    return true;
}

/// Of a visit: with its payload the message is an eager one.
bool Receiver::take_far(Message& m) noexcept
{
    FarPayload payload{m.in->known.home, m.in->area, m.fin, m.vcq, m.segment_count, m.length, {}};
    std::copy_n(m.segments, m.segment_count, payload.segments);
    switch (far_.look(payload, arrivals.offers(), m.payload)) {
    case FarPayloads::Stage::getting:
    case FarPayloads::Stage::asking: return false;
    case FarPayloads::Stage::lost: return true;
    case FarPayloads::Stage::here: break;
    }
    m.type = Type::eager;
    if (!deliver(m))
        return false;
    far_.release(payload);
    return true;
}

void Receiver::take_write_data(Ring& in, const Packet& packet) noexcept
{
    std::uint64_t length;
    std::memcpy(&length, packet.body, sizeof length);
    Completion entry{.flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, .length = length, .data = packet.data};
    if (CompletionQueue* cq = rx_.binding.cq)
        report(*cq, entry, in);
}

/// All before it has been taken.
bool Receiver::take_fence(Ring& in, const Packet& packet) noexcept
{
    if ((packet.control.flags & flag_match) == 0)
        return put_fin(tx_.vcq(), in.known.home, in.area, packet.ack, 0);
    Fence* const end = fences_.begin() + fences_.size(); // a sender waits for one at a time
    if (Fence* const old = std::find_if(fences_.begin(), end, [&](const Fence& f) { return f.in->key == in.key; });
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
        if (queue_.holds(*this, fence.in->key) ||
            !put_fin(tx_.vcq(), fence.in->known.home, fence.in->area, fence.ack, 0))
            fences_[left++] = fence;
        else
            fence.in->let_go();
    while (fences_.size() > left)
        fences_.pop_back();
}

fi_addr_t Receiver::source_of(Ring& in) noexcept
{
    const std::uint32_t generation = tx_.peers().generation();
    if (in.generation != generation) [[unlikely]] {
        in.address = tx_.peers().lookup(in.known.home, in.known.nonce, in.known.index);
        in.generation = generation;
    }
    return in.address;
}

void Receiver::report(CompletionQueue& cq, Completion& entry, Ring& in) noexcept
{
    if (wants_source_)
        entry.source = source_of(in);
    if (wants_strangers_ && entry.source == FI_ADDR_NOTAVAIL)
        cq.write_error(CqEntry::from_stranger(entry, in.known));
    else
        cq.write(entry);
}

// --- whose it is

/// Gives a message to a receive or keeps it. False: there is no room, nothing has happened.
bool Receiver::deliver(Message& m) noexcept
{
    if (RecvRequest* r = queue_.get_entry(m.tagged, m.in->key, m.tag)) [[likely]]
        return give(*r, m);
    if (SrxOwner* const owner = queue_.owner(); owner != nullptr) [[unlikely]]
        return ask(*owner, m);
    return keep(m, nullptr);
}

/// The same where the receives are another provider's.
bool Receiver::ask(SrxOwner& owner, Message& m) noexcept
{
    if (tx_.reports().closing)
        return false; // as it closes us it may have closed its own
    RecvRequest* r = nullptr;
    switch (owner.ask(*this, {m.tagged, m.has_data, source_of(*m.in), m.length, m.tag, m.data}, r)) {
    case SrxOwner::Answer::receive:
        if (give(*r, m))
            return true;
        owner.hold(*r, m.in->key, m.tag);
        return false;
    case SrxOwner::Answer::none:
        if (keep(m, r))
            return true;
        owner.done(*r, nullptr);
        return false;
    case SrxOwner::Answer::refused: return discard(m);
    case SrxOwner::Answer::later: break;
    }
    return false;
}

/// Hands a message to a posted receive.
bool Receiver::give(RecvRequest& r, const Message& m) noexcept
{
    TOFU_PROBE(match, r.context);
    if (m.type == Type::rts) {
        Fetch* f = fetches_.make(m);
        if (f == nullptr)
            return false;
        f->receive = &r;
        f->length = r.take(m.length, f->into, f->into_count);
        for (unsigned i = 0; i < f->into_count; i++)
            f->desc[i] = r.buffers()[i].desc;
        f->to_fetch = f->length;
        r.users++;
        if (r.posted && r.exhausted())
            queue_.withdraw(r);
        fetches_.start(*f);
        return true;
    }
    if (m.ack && !put_fin(tx_.vcq(), m.in->known.home, m.in->area, m.fin, 0))
        return false;
    iovec into[max_segments];
    std::uint8_t count = 0;
    const std::size_t length = r.take(m.length, into, count);
    scatter(into, count, m.payload, length);
    r.users++;
    if (r.posted && r.exhausted())
        queue_.withdraw(r);
    received(r, m, count != 0 ? into[0].iov_base : nullptr, length, 0, 0);
    return true;
}

void Receiver::received(RecvRequest& r, const Message& m, void* buffer, std::size_t length, int err,
                         int prov_errno) noexcept
{
    r.users--;
    const bool over = !r.posted && !r.held && r.users == 0;
    Completion entry{.context = r.context,
                     .flags = kind_of(r.tagged) |
                              (m.has_data ? FI_REMOTE_CQ_DATA : 0) |
                              (r.multi && over ? FI_MULTI_RECV : 0),
                     .length = length,
                     .buffer = buffer,
                     .data = m.data,
                     .tag = m.tag};
    std::size_t overflow = 0;
    if (err == 0 && length < m.length) {
        err = FI_ETRUNC;
        overflow = m.length - length;
    }
    CompletionQueue* cq = rx_.queue_of(r.flags);
    Counter* counter = rx_.counter_of(r.flags);
    if (err != 0) [[unlikely]] {
        if (wants_source_)
            entry.source = source_of(*m.in);
        if (cq != nullptr)
            cq->write_error({entry, err, prov_errno, overflow});
        if (counter != nullptr)
            counter->count_error();
    } else {
        if (cq != nullptr && (rx_.reports(r.flags) || (entry.flags & FI_MULTI_RECV)))
            report(*cq, entry, *m.in);
        if (counter != nullptr)
            counter->count();
    }
    if (!over)
        return;
    if (SrxOwner* const owner = queue_.owner(); owner != nullptr) [[unlikely]]
        owner->done(r, cq);
    else
        queue_.free_entry(r);
}

/// Keeps a message until somebody wants it; `owned`: whom another provider is to tell of that.
bool Receiver::keep(Message& m, RecvRequest* owned) noexcept
{
    Unexpected* const kept = queue_.alloc_entry(m.kept_size());
    if (kept == nullptr) [[unlikely]]
        return false;
    if (m.type != Type::rts && m.ack && !m.at_match) {
        // Delivered: it is here, and the application can have it (fi_cq(3), FI_DELIVERY_COMPLETE).
        if (!put_fin(tx_.vcq(), m.in->known.home, m.in->area, m.fin, 0)) {
            queue_.free_entry(*kept);
            return false;
        }
        m.ack = false;
    }
    m.pack(*kept);
    kept->peer = this;
    m.in->users++;
    queue_.queue_entry(*kept);
    if (owned != nullptr && !queue_.owner()->note(*kept, *owned)) [[unlikely]]
        return true;
    tx_.vcq().statistics().count(Stat::unexpected);
    tx_.vcq().statistics().count(Stat::unexpected_bytes, m.length);
    return true;
}

// --- what was kept, as the receive queue calls for it

void Message::pack(Unexpected& to) const noexcept
{
    to.source = in->key;
    to.tag = tag;
    to.tagged = tagged;
    to.has_data = has_data;
    to.data = data;
    to.length = length;
    std::memcpy(to.body(), static_cast<const Kept*>(this), sizeof(Kept));
    std::byte* const rest = to.body() + sizeof(Kept);
    if (type == Type::rts) {
        std::memcpy(rest, &vcq, sizeof vcq);
        std::memcpy(rest + sizeof vcq, segments, segment_count * sizeof(Segment));
    } else if (length != 0) {
        std::memcpy(rest, payload, length);
    }
}

Message Message::unpack(const Unexpected& from) noexcept
{
    const std::byte* const rest = payload_of(from);
    const Kept of_it = kept_of(from); // made in its place, it would cover what lies in its tail (GCC 12)
    Message m{of_it, from.tagged, from.has_data, true, from.tag, from.data, from.length, rest};
    if (m.type == Type::rts) {
        std::memcpy(&m.vcq, rest, sizeof m.vcq);
        std::memcpy(m.segments, rest + sizeof m.vcq, m.segment_count * sizeof(Segment));
    }
    return m;
}

bool Receiver::discard(Unexpected& kept) noexcept { return discard(Message::unpack(kept)); }

bool Receiver::discard(const Message& m) noexcept
{
    if (m.type != Type::rts)
        return !m.ack || put_fin(tx_.vcq(), m.in->known.home, m.in->area, m.fin, 0);
    Fetch* const f = fetches_.make(m);
    if (f != nullptr)
        fetches_.start(*f); // nothing to fetch: FIN
    return f != nullptr;
}

void Receiver::forgotten(Unexpected& kept) noexcept
{
    Message::kept_of(kept).in->let_go();
}

fi_addr_t Receiver::source_of(const Unexpected& kept) noexcept
{
    return wants_source_ ? source_of(*Message::kept_of(kept).in) : FI_ADDR_NOTAVAIL;
}

} // namespace tofu::proto
