// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What comes out of the rings of our area, of whatever kind, and which receive it belongs to. Nothing read from the
// area is trusted. Part of the messenger; called by poll.cc; calls vcq (reports, FIN words) and completion queues.
#include "message/messenger.h"

#include <utility>

#include <rdma/fi_errno.h>

#include "endpoint/endpoint.h"
#include "match/iov.h"
#include "provider/log.h"
#include "queue/cntr.h"
#include "queue/domain_base.h"

namespace tofu::proto {

/// One packet. False: it stays, there is no room for what it brings.
bool Messenger::take(Inbound& in, std::uint32_t& slots) noexcept
{
    const std::uint32_t ring_slots = area_.geometry().ring_slots;
    const std::byte* slot = in.base + std::size_t{(in.next_seq - 1) & (ring_slots - 1)} * slot_size;
    Packet packet;
    if (!decode(slot, packet)) [[unlikely]] {
        bad_packet(in, "unreadable");
        return true;
    }
    if (!in.greeted) [[unlikely]] {
        if (packet.type == Type::hello)
            return take_hello(in, packet);
        bad_packet(in, "before its HELLO");
        return true;
    }
    switch (packet.type) {
    case Type::eager:
    case Type::long_eager:
    case Type::rts: return take_message(in, packet, slots);
    case Type::write_data: take_write_data(in, packet); return true;
    case Type::fence: return take_fence(in, packet);
    case Type::bye:
        if (packet.control.length == bye_for_now && !farewell(in))
            return false;
        close_ring(in);
        return true;
    case Type::hello:
    case Type::none: break;
    }
    bad_packet(in, "out of place");
    return true;
}

[[gnu::noinline]] void Messenger::bad_packet(const Inbound& in, const char* what) noexcept
{
    if (!std::exchange(bad_packets_, true))
        TOFU_WARN(FI_LOG_EP_DATA,
                  "endpoint %u: dropped a packet %s in ring %u of peer 0x%llx: use the same release of the provider on "
                  "all nodes; what follows is dropped in silence\n",
                  ep_.index(), what, in.number, static_cast<unsigned long long>(in.home));
}

bool Messenger::take_message(Inbound& in, const Packet& packet, std::uint32_t& slots) noexcept
{
    Message m;
    m.type = packet.type;
    const std::uint8_t flags = packet.control.flags;
    m.tagged = (flags & flag_tag) != 0;
    m.has_data = (flags & flag_data) != 0;
    m.ack = (flags & flag_ack) != 0;
    m.at_match = (flags & flag_match) != 0;
    m.fin = packet.ack;
    m.tag = packet.tag;
    m.data = packet.data;
    m.length = packet.control.length;
    m.payload = packet.body;
    m.in = &in;
    if (packet.type == Type::long_eager) {
        const Geometry& g = area_.geometry();
        if (m.length == 0 || m.length > g.eager_limit()) {
            bad_packet(in, "of impossible length");
            return true;
        }
        const LongSlots where = long_slots(in.next_seq, packet.control.length, g.ring_slots);
        m.payload = in.base + std::size_t{where.first} * slot_size;
        slots = where.total;
    } else if (packet.type == Type::rts && !read_rts(in, packet, m)) {
        bad_packet(in, "of impossible segments");
        return true;
    }
    if (!deliver(m)) {
        slots = 1;
        return false;
    }
    if (slots != 1)
        blank(in, slots);
    return true;
}

/// The ends of payload slots will be polled as control words later: no seq may stand there.
void Messenger::blank(const Inbound& in, std::uint32_t slots) noexcept
{
    const std::uint32_t ring_slots = area_.geometry().ring_slots;
    for (std::uint32_t n = 1; n < slots; n++)
        std::atomic_ref<std::uint64_t>(*in.control(in.next_seq + n, ring_slots))
            .store(std::uint64_t{in.next_seq} << 32, std::memory_order_relaxed);
}

bool Messenger::read_rts(Inbound&, const Packet& packet, Message& m) const noexcept
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

void Messenger::take_write_data(Inbound& in, const Packet& packet) noexcept
{
    std::uint64_t length;
    std::memcpy(&length, packet.body, sizeof length);
    if (CompletionQueue* cq = ep_.rx().cq)
        cq->write({.flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA,
                   .length = length,
                   .data = packet.data,
                   .source = wants_source_ ? source_of(in) : FI_ADDR_NOTAVAIL});
}

/// All before it has been taken.
bool Messenger::take_fence(Inbound& in, const Packet& packet) noexcept
{
    if ((packet.control.flags & flag_match) == 0)
        return acknowledge(in, packet.ack);
    in.fence = packet.ack; // a sender waits for one at a time
    fences_due_ += !std::exchange(in.fence_due, true);
    answer_fences();
    return true;
}

/// Those whose senders have no message here that waits for its receive: also none that came later, which is safe.
void Messenger::answer_fences() noexcept
{
    for (const Poll& poll : polls_) {
        Inbound& in = *inbound_[poll.ring];
        if (in.fence_due && !queue_.holds(*this, in.key) && acknowledge(in, in.fence)) {
            in.fence_due = false;
            fences_due_--;
        }
    }
}

fi_addr_t Messenger::source_of(Inbound& in) noexcept
{
    const std::uint32_t generation = ep_.av().generation();
    if (in.source_generation != generation) [[unlikely]] {
        in.source = ep_.av().lookup(in.home, in.nonce, in.identity);
        in.source_generation = generation;
    }
    return in.source;
}

// --- rings come and go

/// Somebody claimed this ring: from now on it is polled.
void Messenger::open_ring(unsigned ring) noexcept
{
    if (inbound_[ring] != nullptr)
        return;
    // acquire: pairs with the claimant's CSWAP
    const std::uint64_t home = area_.claim(ring).load(std::memory_order_acquire);
    if (home == 0)
        return;
    auto in = std::unique_ptr<Inbound>(new (std::nothrow) Inbound);
    if (in == nullptr || !polls_.reserve(polls_.size() + 1))
        return; // one of the next rounds tries again
    in->owner = this;
    in->base = area_.ring(ring);
    in->number = ring;
    in->home = home;
    in->reported = seq_base(ep_.domain().nonce());
    in->next_seq = in->reported + 1;
    in->place = static_cast<std::uint32_t>(polls_.size());
    polls_.push_reserved({in->control(in->next_seq, area_.geometry().ring_slots), in->next_seq, ring});
    inbound_[ring] = std::move(in);
}

/// The claimant has left or died: the ring is free for the next one.
void Messenger::close_ring(Inbound& in) noexcept
{
    if (in.place != no_place) {
        polls_[in.place] = polls_.back();
        inbound_[polls_[in.place].ring]->place = in.place;
        polls_.pop_back();
        in.place = no_place;
    }
    if (in.gone) {
        in.gone = false;
        gone_--;
    }
    fences_due_ -= std::exchange(in.fence_due, false);
    if (in.probing) { // its notice will come back here
        in.closing = true;
        return;
    }
    const std::uint32_t slots = area_.geometry().ring_slots;
    for (std::uint32_t seq = 1; seq <= slots; seq++) // the next claimant starts again
        std::atomic_ref<std::uint64_t>(*in.control(seq, slots)).store(0, std::memory_order_relaxed);
    // release: pairs with the next claimant's CSWAP
    area_.claim(in.number).store(0, std::memory_order_release);
    area_.set_hint(in.number + 1);
    if (in.held != 0) {
        in.parted = true;
        (void)inbound_[in.number].release();
        return;
    }
    retired_ = std::move(inbound_[in.number]); // `in` is still looked at by our callers
}

bool Messenger::take_hello(Inbound& in, const Packet& packet) noexcept
{
    Hello hello;
    std::memcpy(&hello, packet.body, sizeof hello);
    utofu_stadd_t area = 0;
    if (hello.return_index >= return_count || hello.index >= max_endpoints ||
        vcq_.query_stadd(in.home, endpoint_stag(hello.index), area) != 0) {
        bad_packet(in, "HELLO that makes no sense");
        return true;
    }
    in.area = area;
    in.returns = area + return_offset(hello.return_index);
    in.index = hello.index;
    in.identity = hello.identity;
    in.serial = hello.serial;
    in.nonce = hello.nonce;
    if (hello.version != wire_version || hello.target_nonce != ep_.domain().nonce()) {
        refuse(in, hello.version != wire_version ? ReturnStatus::refused_version
                                                 : ReturnStatus::refused_nonce);
        close_ring(in);
        return true;
    }
    in.key = peer_key(in.home, in.nonce, in.identity);
    in.greeted = true;
    return true;
}

/// Tells the sender how far we are. When it can't be told now, the next slow round tries again.
void Messenger::report(Inbound& in) noexcept
{
    const ReturnBlock block{in.next_seq - 1, static_cast<std::uint32_t>(in.status), in.serial};
    // In order: an earlier report that lands later would hide this one for good.
    const vcq::Post post =
        vcq_.put_inline(in.home, &block, in.returns, sizeof block, {.strong_order = true});
    if (in.status != ReturnStatus::open) [[unlikely]]
        ring_bell(in.home, in.area, Bell::status);
    if (post == vcq::Post::done) [[likely]]
        in.reported = in.next_seq - 1;
    in.report_due = post == vcq::Post::busy;
    reports_due_ |= in.report_due;
}

void Messenger::refuse(Inbound& in, ReturnStatus status) noexcept
{
    TOFU_WARN(FI_LOG_EP_CTRL, "endpoint %u: refused peer 0x%llx: %s\n", ep_.index(),
              static_cast<unsigned long long>(in.home),
              status == ReturnStatus::refused_nonce
                  ? "it means a process that has ended: exchange addresses anew"
                  : "it speaks another wire protocol: use the same release of the provider on all nodes");
    const ReturnBlock block{0, static_cast<std::uint32_t>(status), in.serial};
    (void)vcq_.put_inline(in.home, &block, in.returns, sizeof block, {});
}

// --- whose it is

/// Gives a message to a receive or keeps it. False: there is no room, nothing has happened.
bool Messenger::deliver(Message& m) noexcept
{
    if (RecvRequest* r = queue_.get_entry(m.tagged, m.in->key, m.tag)) [[likely]]
        return give(*r, m);
    return keep(m);
}

/// Hands a message to a posted receive.
bool Messenger::give(RecvRequest& r, Message& m) noexcept
{
    if (m.type == Type::rts) {
        Fetch* f = make_fetch(m);
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
        start(*f);
        return true;
    }
    if (m.ack && !acknowledge(*m.in, m.fin))
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

/// The end of a message for its receive: one entry, one count.
void Messenger::received(RecvRequest& r, const Message& m, void* buffer, std::size_t length, int err,
                         int prov_errno) noexcept
{
    r.users--;
    const bool over = !r.posted && !r.held && r.users == 0;
    Completion entry{.context = r.context,
                     .flags = FI_RECV | (r.tagged ? FI_TAGGED : FI_MSG) |
                              (m.has_data ? FI_REMOTE_CQ_DATA : 0) |
                              (r.multi && over ? FI_MULTI_RECV : 0),
                     .length = length,
                     .buffer = buffer,
                     .data = m.data,
                     .tag = m.tag,
                     .source = wants_source_ ? source_of(*m.in) : FI_ADDR_NOTAVAIL};
    std::size_t overflow = 0;
    if (err == 0 && length < m.length) {
        err = FI_ETRUNC;
        overflow = m.length - length;
    }
    CompletionQueue* cq = ep_.rx().cq;
    Counter* counter = ep_.rx_context().counters.recv;
    if (err != 0) [[unlikely]] {
        if (cq != nullptr)
            cq->write_error(entry, err, prov_errno, overflow);
        if (counter != nullptr)
            counter->count_error();
    } else {
        if (cq != nullptr && (ep_.rx().reports(r.flags) || (entry.flags & FI_MULTI_RECV)))
            cq->write(entry);
        if (counter != nullptr)
            counter->count();
    }
    if (over)
        queue_.free_entry(r);
}

/// FIN for what asked for it. False: no room now.
bool Messenger::acknowledge(const Inbound& in, const Ack& fin) noexcept
{
    const FinWord word = fin_word(fin.seq, 0);
    const vcq::Post post = vcq_.put_inline(in.home, &word, in.area + fin_offset(fin.fin), sizeof word, {});
    return post != vcq::Post::busy;
}

/// Keeps a message until somebody wants it.
bool Messenger::keep(Message& m) noexcept
{
    Unexpected* const kept = queue_.alloc_entry(m.kept_size());
    if (kept == nullptr) [[unlikely]]
        return false;
    if (m.type != Type::rts && m.ack && !m.at_match) {
        // Delivered: it is here, and the application can have it (fi_cq(3), FI_DELIVERY_COMPLETE).
        if (!acknowledge(*m.in, m.fin)) {
            queue_.free_entry(*kept);
            return false;
        }
        m.ack = false;
    }
    m.pack(*kept);
    kept->peer = this;
    m.in->held++;
    queue_.queue_entry(*kept);
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
    const Kept kept{in, fin, type, ack, at_match, segment_count};
    std::memcpy(to.body(), &kept, sizeof kept);
    std::byte* const rest = to.body() + sizeof kept;
    if (type == Type::rts) {
        std::memcpy(rest, &vcq, sizeof vcq);
        std::memcpy(rest + sizeof vcq, segments, segment_count * sizeof(Segment));
    } else if (length != 0) {
        std::memcpy(rest, payload, length);
    }
}

Message Message::unpack(const Unexpected& from) noexcept
{
    Kept kept;
    std::memcpy(&kept, from.body(), sizeof kept);
    const std::byte* const rest = from.body() + sizeof kept;
    Message m;
    m.type = kept.type;
    m.tagged = from.tagged;
    m.has_data = from.has_data;
    m.ack = kept.ack;
    m.at_match = kept.at_match;
    m.kept = true;
    m.segment_count = kept.segment_count;
    m.fin = kept.fin;
    m.tag = from.tag;
    m.data = from.data;
    m.length = from.length;
    m.in = kept.in;
    if (m.type == Type::rts) {
        std::memcpy(&m.vcq, rest, sizeof m.vcq);
        std::memcpy(m.segments, rest + sizeof m.vcq, m.segment_count * sizeof(Segment));
    } else {
        m.payload = rest;
    }
    return m;
}

bool Messenger::start(RecvRequest& receive, Unexpected& kept) noexcept
{
    Message m = Message::unpack(kept);
    return give(receive, m);
}

bool Messenger::discard(Unexpected& kept) noexcept
{
    const Message m = Message::unpack(kept);
    if (m.type != Type::rts)
        return !m.ack || acknowledge(*m.in, m.fin);
    Fetch* const f = make_fetch(m);
    if (f != nullptr)
        start(*f); // nothing to fetch: FIN
    return f != nullptr;
}

void Messenger::forgotten(Unexpected& kept) noexcept
{
    let_go(*Message::unpack(kept).in);
}

fi_addr_t Messenger::source_of(const Unexpected& kept) noexcept
{
    return wants_source_ ? source_of(*Message::unpack(kept).in) : FI_ADDR_NOTAVAIL;
}

void Messenger::progress(bool everywhere) noexcept
{
    if (!everywhere) {
        ep_.progress_locked();
        return;
    }
    scan_claims();
    poll_rings();
}

/// A message has left us. A ring that is closed is remembered no longer than its messages.
void Messenger::let_go(Inbound& in) noexcept
{
    if (--in.held == 0 && in.parted)
        delete &in;
}

} // namespace tofu::proto
