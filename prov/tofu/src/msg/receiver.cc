// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See receiver.h.
#include "msg/receiver.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <utility>

#include <rdma/fi_errno.h>

#include "core/limits.h"
#include "core/log.h"
#include "core/params.h"
#include "cq/counter.h"
#include "cq/cq.h"
#include "cq/domain_base.h"
#include "mem/local_buffer.h"
#include "msg/message_engine.h"

namespace tofu::proto {

Receiver::Receiver(TxContext& tx, const RxContext& rx, RingContext& own) noexcept
    : RxRings(own), SrxPeer(rx, tx.peers()), tx_(tx),
      wants_source_((tx.config().caps & (FI_SOURCE | FI_SOURCE_ERR)) != 0 ||
                    (rx.shared != nullptr && rx.shared->owner() != nullptr)),
      reports_unknown_sources_((tx.config().caps & FI_SOURCE_ERR) != 0),
      queue_(rx.shared != nullptr ? *rx.shared
                                  : own_queue_.emplace((tx.config().caps & FI_DIRECTED_RECV) != 0, rx.min_multi_recv)),
      rendezvous_(tx, own, *this), eager_gets_(own), stall_{{[](RetryItem& item) noexcept {
                                                                auto& held = static_cast<MultiRecvStall&>(item);
                                                                held.waiting = false;
                                                                (void)held.owner->queue_.catch_up();
                                                            }},
                                                            this}
{
}

Receiver::~Receiver()
{
    for (const PendingFence& fence : fences_)
        fence.in->unref();
    if (own_queue_)
        queue_.leave(*this);
}

int Receiver::join_queue() noexcept
{
    std::lock_guard guard(tx_.lock());
    return queue_.join(*this);
}

void Receiver::cancel_rendezvous() noexcept
{
    if (!own_queue_) // that is destroyed with us, and its receives are discarded
        rendezvous_.cancel();
}

void Receiver::part_from_queue() noexcept
{
    if (!own_queue_)
        queue_.leave(*this);
}

void Receiver::find_source(RxRing& in) noexcept
{
    const std::uint32_t generation = tx_.peers().generation();
    in.address = tx_.peers().lookup(in.known.target_vcq, in.known.nonce, in.known.index);
    in.generation = generation;
}

void Receiver::report_success(CompletionQueue& cq, Completion& entry, RxRing& in) noexcept
{
    if (wants_source_)
        entry.source = source_of(in);
    if (reports_unknown_sources_ && entry.source == FI_ADDR_NOTAVAIL)
        cq.write_error(CqEntry::of_unknown_source(entry, in.known));
    else
        cq.write(entry);
}

// --- finding the receive

bool Receiver::deliver(Message& m) noexcept
{
    RecvRequest* r = queue_.get_entry(m.tagged, m.in->key, m.tag);
    if (r != nullptr && r->behind) [[unlikely]] {
        if (!queue_.catch_up())
            return false;
        r = queue_.get_entry(m.tagged, m.in->key, m.tag); // the other one may be full
    }
    if (r != nullptr) [[likely]]
        return deliver_to(*r, m);
    if (SrxOwner* const owner = queue_.owner(); owner != nullptr) [[unlikely]]
        return query_owner(*owner, m);
    return keep(m, nullptr);
}

/// deliver() where another provider owns the receives.
bool Receiver::query_owner(SrxOwner& owner, Message& m) noexcept
{
    if (tx_.reports().closing)
        return false; // an owner that closes us may have closed its receives already
    RecvRequest* r = nullptr;
    switch (owner.query_owner(*this, {m.tagged, m.has_data, source_of(*m.in), m.length, m.tag, m.data}, r)) {
    case SrxOwner::Answer::receive:
        if (deliver_to(*r, m))
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
bool Receiver::deliver_to(RecvRequest& r, const Message& m) noexcept
{
    TOFU_PROBE(match, r.context);
    if (m.type == Type::rts) {
        Fetch* f = rendezvous_.make(m);
        if (f == nullptr)
            return false;
        f->receive = &r;
        f->length = r.consume(m.length, f->into, f->into_count);
        for (unsigned i = 0; i < f->into_count; i++)
            f->desc[i] = r.buffers()[i].desc;
        f->to_fetch = f->length;
        r.users++;
        if (r.posted && r.exhausted())
            queue_.withdraw(r);
        rendezvous_.start(*f);
        return true;
    }
    if (m.ack && !put_completion(tx_.vcq(), m.in->known.target_vcq, m.in->area, m.completion, 0))
        return false;
    iovec into[max_segments];
    std::uint8_t count = 0;
    void* const place = r.place();
    const std::size_t length = r.consume(m.length, into, count);
    scatter(into, count, m.payload, length);
    r.users++;
    if (r.posted && r.exhausted())
        queue_.withdraw(r);
    received(r, m, place, length, 0, 0);
    return true;
}

void Receiver::received(RecvRequest& r, const Message& m, void* buffer, std::size_t length, int err,
                        int prov_errno) noexcept
{
    r.users--;
    const bool over = !r.posted && r.users == 0;
    Completion entry{.context = r.context,
                     .flags = recv_entry_flags(r.tagged) | (m.has_data ? FI_REMOTE_CQ_DATA : 0) |
                              (r.multi && over && !r.cancelled ? FI_MULTI_RECV : 0),
                     .length = length,
                     .buffer = buffer,
                     .data = m.data,
                     .tag = m.tag};
    std::size_t overflow = 0;
    if (err == 0 && length < m.length) {
        err = FI_ETRUNC;
        overflow = m.length - length;
    }
    CompletionQueue* cq = rx.queue_of(r.flags);
    Counter* counter = rx.counter_of(r.flags);
    if (err != 0) [[unlikely]] {
        if (wants_source_)
            entry.source = source_of(*m.in);
        if (cq != nullptr)
            cq->write_error({entry, err, prov_errno, overflow});
        if (counter != nullptr)
            counter->count_error();
    } else {
        if (cq != nullptr && (rx.reports(r.flags) || (entry.flags & FI_MULTI_RECV)))
            report_success(*cq, entry, *m.in);
        if (counter != nullptr)
            counter->count();
    }
    if (!over)
        return;
    if (SrxOwner* const owner = queue_.owner(); owner != nullptr) [[unlikely]]
        owner->done(r, cq);
    else if (r.cancelled) [[unlikely]]
        queue_.end_cancelled(r, rx);
    else
        queue_.free_entry(r);
}

/// Keeps a message until a receive takes it. `owned`: names it to another provider that owns the receives.
bool Receiver::keep(Message& m, RecvRequest* owned) noexcept
{
    Unexpected* const kept = queue_.alloc_entry(m.kept_size());
    if (kept == nullptr) [[unlikely]]
        return false;
    if (m.type != Type::rts && m.ack && !m.at_match) {
        // Delivered: the message has arrived and is available to the application (fi_cq(3), FI_DELIVERY_COMPLETE).
        if (!put_completion(tx_.vcq(), m.in->known.target_vcq, m.in->area, m.completion, 0)) {
            queue_.free_entry(*kept);
            return false;
        }
        m.ack = false;
    }
    m.pack(*kept);
    enqueue(*kept, *m.in);
    if (owned != nullptr)
        (void)queue_.owner()->note(*kept, *owned);
    return true;
}

void Receiver::enqueue(Unexpected& kept, RxRing& in) noexcept
{
    kept.peer = this;
    kept.source = in.key;
    in.users++;
    queue_.queue_entry(kept);
    auto& statistics = tx_.vcq().statistics();
    statistics.count(Stat::unexpected);
    statistics.count(Stat::unexpected_bytes, kept.length);
}

// --- kept messages, when the receive queue asks for them

/// Gives a message that was kept to its receive. A multi-receive that found no room for it tries again in a later
/// round.
bool Receiver::deliver_kept(RecvRequest& r, Unexpected& kept) noexcept
{
    if (deliver_to(r, Message::unpack(kept)))
        return true;
    if (r.behind && !std::exchange(stall_.waiting, true))
        rendezvous_.retry_later(stall_);
    return false;
}

bool Receiver::discard(const Message& m) noexcept
{
    if (m.type != Type::rts)
        return !m.ack || put_completion(tx_.vcq(), m.in->known.target_vcq, m.in->area, m.completion, 0);
    Fetch* const f = rendezvous_.make(m);
    if (f != nullptr)
        rendezvous_.start(*f); // has nothing to fetch, so it only writes the completion word
    return f != nullptr;
}

// --- Receiver: all packets that the fast path leaves. Nothing read from the area is trusted.

/// Takes one packet. False: the packet stays, there is no room for what it brings.
bool Receiver::accept(RxRing& in, std::uint32_t& slots) noexcept
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
    case Type::eager_by_get: return accept_message(in, packet, slots);
    case Type::write_data: accept_write_data(in, packet); return true;
    case Type::fence: return accept_fence(in, packet);
    case Type::release: // decode() lets none of these through
    case Type::none: break;
    }
    return true;
}

/// Reads the body of an RTS or of an eager-by-get message. False: its segments make no sense.
static bool read_rts(const Packet& packet, Message& m) noexcept
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

bool Receiver::accept_message(RxRing& in, const Packet& packet, std::uint32_t& slots) noexcept
{
    const std::uint8_t flags = packet.control.flags;
    const auto has = [flags](std::uint8_t flag) { return (flags & flag) != 0; };
    Message m{{&in, packet.ack, packet.type, has(flag_ack), has(flag_match), 0},
              has(flag_tag),
              has(flag_data),
              packet.tag,
              packet.data,
              packet.control.length,
              packet.body};
    if (packet.type == Type::long_eager) {
        const Geometry& g = geometry();
        if (m.length == 0 || m.length > g.eager_limit()) {
            bad_packet(in, "with an invalid length");
            return true;
        }
        const LongSlots where = long_slots(in.next_seq, packet.control.length, g.ring_slots);
        m.payload = in.base + std::size_t{where.first} * slot_size;
        slots = where.total;
    } else if (packet.type != Type::eager) {
        const bool by_get = packet.type == Type::eager_by_get;
        if (!read_rts(packet, m) || (by_get && (in.number != no_place || m.length > max_eager))) {
            bad_packet(in, "with invalid segments");
            return true;
        }
        if (by_get)
            return accept_eager_by_get(m);
    }
    if (!deliver(m)) {
        slots = 1;
        return false;
    }
    if (slots != 1)
        blank(in, slots);
    return true;
}

/// An eager-by-get message of an anonymous packet: once its payload has arrived, it is an eager message.
bool Receiver::accept_eager_by_get(Message& m) noexcept
{
    switch (eager_gets_.look(m, anon_receiver.passes())) {
    case EagerGets::Stage::getting:
    case EagerGets::Stage::asking: return false;
    case EagerGets::Stage::lost: return true;
    case EagerGets::Stage::here: break;
    }
    m.type = Type::eager;
    if (!deliver(m))
        return false;
    eager_gets_.release(m);
    return true;
}

void Receiver::accept_write_data(RxRing& in, const Packet& packet) noexcept
{
    std::uint64_t length;
    std::memcpy(&length, packet.body, sizeof length);
    Completion entry{.flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, .length = length, .data = packet.data};
    if (CompletionQueue* cq = rx.binding.cq)
        report_success(*cq, entry, in);
}

/// Takes a fence: all packets before it have been taken.
bool Receiver::accept_fence(RxRing& in, const Packet& packet) noexcept
{
    if ((packet.control.flags & flag_match) == 0)
        return put_completion(tx_.vcq(), in.known.target_vcq, in.area, packet.ack, 0);
    // A sender waits for one fence at a time.
    const auto of_sender = [&](const PendingFence& fence) { return fence.in->same_sender(in); };
    if (const auto old = std::find_if(fences_.begin(), fences_.end(), of_sender); old != fences_.end()) {
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
    for (const PendingFence& fence : fences_)
        if (queue_.holds(*this,
                         [&](const Unexpected& kept) { return Message::kept_of(kept).in->same_sender(*fence.in); }) ||
            !put_completion(tx_.vcq(), fence.in->known.target_vcq, fence.in->area, fence.ack, 0))
            fences_[left++] = fence;
        else
            fence.in->unref();
    while (fences_.size() > left)
        fences_.pop_back();
}

// --- The fast path of a message that stands in its ring and asks for no answer: into the single buffer of its receive
// and into the completion queue, or, without a receive, to the kept messages. All other messages go the slow path
// (Receiver::deliver).

constexpr std::size_t prefetched = 512; ///< bytes of a long payload, at most

/// A message on the fast path.
struct Receiver::FastMessage {
    bool tagged;
    bool has_data;
    bool is_long;
    std::size_t length;
    std::uint64_t tag;
    std::uint64_t data;
    const std::byte* payload;
    /// Does the receive have one buffer, and end with this message?
    [[nodiscard]] bool fits(const RecvRequest& r) const noexcept
    {
        return !r.multi && r.count == 1 && length <= r.length;
    }
};

/// Copies the payload into the receive's buffer and reports it: one entry, one count. `polled`: a poll has found it.
template <bool polled>
[[gnu::always_inline]] inline void Receiver::finish_fast(RecvRequest& r, const FastMessage& m,
                                                         fi_addr_t source) noexcept
{
    void* const buffer = r.buffers()->iov_base;
    if (m.length == 8)
        std::memcpy(buffer, m.payload, 8);
    else if (m.length != 0)
        std::memcpy(buffer, m.payload, m.length);
    const RxContext& to = rx;
    if (to.binding.reports(r.flags)) [[likely]] {
        CompletionQueue& cq = *to.binding.cq;
        const std::uint64_t flags = recv_entry_flags(m.tagged) | (m.has_data ? FI_REMOTE_CQ_DATA : 0);
        const Completion entry{r.context, flags, m.length, buffer, m.data, m.tag, source};
        polled ? cq.write_from_poll(entry) : cq.write(entry);
    }
    if (Counter* counter = to.counters.recv)
        counter->count();
    TOFU_PROBE(match, r.context);
}

[[gnu::always_inline]] inline bool Receiver::deliver_fast(RxRing& in, const FastMessage& m) noexcept
{
    fi_addr_t source = FI_ADDR_NOTAVAIL;
    if (wants_source_) {
        source = source_of(in);
        if (reports_unknown_sources_ && source == FI_ADDR_NOTAVAIL) [[unlikely]]
            return false;
    }
    ReceiveQueue& queue = queue_;
    Matcher& matcher = queue.matcher(m.tagged);
    Posted** const at = matcher.match_few(in.key, m.tag);
    if (at == nullptr) [[unlikely]]
        return deliver_otherwise(in, {m.tagged, m.has_data, m.is_long, m.length, m.tag, m.data, m.payload}, source);
    auto& receive = static_cast<RecvRequest&>(**at);
    if (!m.fits(receive)) [[unlikely]]
        return false;
    finish_fast<true>(receive, m, source);
    matcher.drop_few(at);
    queue.free_single(receive);
    return true;
}

/// deliver_fast() where many receives are posted, or none that takes the message.
[[gnu::noinline]] bool Receiver::deliver_otherwise(RxRing& in, const FastMessage& m, fi_addr_t source) noexcept
{
    if (RecvRequest* const r = queue_.get_entry(m.tagged, in.key, m.tag); r != nullptr) {
        if (!m.fits(*r))
            return false;
        finish_fast<true>(*r, m, source);
        queue_.withdraw(*r);
        queue_.free_single(*r);
        return true;
    }
    if (m.is_long || queue_.owner() != nullptr)
        return false;
    Unexpected* const kept = queue_.alloc_entry(sizeof(UnexpectedHeader) + m.length);
    if (kept == nullptr) [[unlikely]]
        return false;
    kept->tag = m.tag;
    kept->tagged = m.tagged;
    kept->has_data = m.has_data;
    kept->data = m.data;
    kept->length = m.length;
    ::new (kept->body()) UnexpectedHeader{.in = &in, .type = Type::eager};
    if (m.length != 0)
        std::memcpy(kept->body() + sizeof(UnexpectedHeader), m.payload, m.length);
    enqueue(*kept, in);
    return true;
}

/// The first two bytes of a control word: those of a packet of this type with these flags.
static constexpr std::uint16_t head_of(Type type, std::uint8_t flags) noexcept
{
    return static_cast<std::uint16_t>(static_cast<std::uint8_t>(type) | flags << 8);
}
static_assert(offsetof(Control, type) == 0 && offsetof(Control, flags) == 1);

/// Takes a message that stands in one slot; its control word, which said its length, is at `end`.
template <bool tagged, bool has_data>
[[gnu::always_inline]] inline std::uint32_t Receiver::accept_eager(RxRing& in, const std::uint64_t* end,
                                                                   std::size_t length) noexcept
{
    const std::byte* const slot = reinterpret_cast<const std::byte*>(end + 1) - slot_size;
    const std::uint64_t data = has_data ? *--end : 0;
    const std::uint64_t tag = tagged ? *--end : 0;
    const std::byte* const payload_end = reinterpret_cast<const std::byte*>(end);
    const std::size_t size = (length + 7) & ~std::size_t{7};
    if (size > static_cast<std::size_t>(payload_end - slot)) [[unlikely]]
        return 0;
    return deliver_fast(in, {tagged, has_data, false, length, tag, data, payload_end - size}) ? 1 : 0;
}

/// Takes one message all the way; its control word is at `end`. Every decision rests on `control`, which was read once.
[[gnu::always_inline]] inline std::uint32_t Receiver::accept_fast(RxRing& in, const std::uint64_t* end,
                                                                  std::uint64_t control) noexcept
{
    if (in.state != RingState::begun) [[unlikely]]
        return 0;
    const auto c = std::bit_cast<Control>(control);
    const auto head = static_cast<std::uint16_t>(control);
    if (head == head_of(Type::eager, flag_tag)) [[likely]]
        return accept_eager<true, false>(in, end, c.length);
    if (head == head_of(Type::eager, flag_tag | flag_data)) // of Open MPI
        return accept_eager<true, true>(in, end, c.length);
    if (head == head_of(Type::eager, 0))
        return accept_eager<false, false>(in, end, c.length);
    return accept_with_data_or_long(in, end, c);
}

[[gnu::noinline]] std::uint32_t Receiver::accept_with_data_or_long(RxRing& in, const std::uint64_t* end,
                                                                   const Control& c) noexcept
{
    if ((c.flags & ~(flag_tag | flag_data)) != 0)
        return 0;
    if (c.type == Type::long_eager)
        return accept_long(in, end, c);
    if (c.type != Type::eager) // and CQ data
        return 0;
    return (c.flags & flag_tag) != 0 ? accept_eager<true, true>(in, end, c.length)
                                     : accept_eager<false, true>(in, end, c.length);
}

/// As accept_fast(), for a message whose payload stands in the slots behind.
std::uint32_t Receiver::accept_long(RxRing& in, const std::uint64_t* end, const Control& c) noexcept
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
    if (!deliver_fast(in, {tagged, has_data, true, c.length, tag, data, payload}))
        return 0;
    blank(in, where.total);
    return where.total;
}

/// Gives a kept message to its receive: copies it at once if the fast path can, else as any other (deliver_kept).
bool Receiver::start(RecvRequest& r, Unexpected& kept) noexcept
{
    const UnexpectedHeader of_it = Message::kept_of(kept);
    const fi_addr_t source = wants_source_ ? source_of(*of_it.in) : FI_ADDR_NOTAVAIL;
    const FastMessage m{kept.tagged, kept.has_data, false, kept.length, kept.tag, kept.data, Message::payload_of(kept)};
    if (of_it.type == Type::rts || of_it.ack || !m.fits(r) || queue_.owner() != nullptr ||
        (reports_unknown_sources_ && source == FI_ADDR_NOTAVAIL)) [[unlikely]]
        return deliver_kept(r, kept);
    finish_fast<false>(r, m, source);
    queue_.free_entry(r);
    return true;
}

void Receiver::accept_packets(RingPoll& first) noexcept
{
    accept_arrived<Receiver>(first);
}

// --- MessageEngine (msg/message_engine.h): it is defined here, since the polls of the rings are inlined into its
// rounds

constexpr std::size_t anon_slot_count = 1024; // 256 KiB; peers without a ring that may send at a time

static LocalEndpoint local(TxContext& tx) noexcept
{
    DomainBase& domain = tx.domain();
    const auto& config = tx.config();
    return {tx.vcq(), domain.target_vcq(), domain.target_lock(), config.known.nonce, config.number, config.known};
}

MessageEngine::MessageEngine(TxContext& tx, RxContext& rx) noexcept
    : tx_(tx), rx_(rx), rings_(local(tx), *this, receiver_), sender_(tx, rings_), receiver_(tx, rx, rings_.own)
{
}

bool MessageEngine::hand_over_to(OrphanedCopies& orphaned_copies) noexcept
{
    std::unique_ptr<Copies> copies = sender_.requests().hand_over_copies();
    if (copies == nullptr)
        return false;
    orphaned_copies.adopt(std::move(copies), std::move(rings_.own.area), rings_.own.index);
    return true;
}

int MessageEngine::open() noexcept
{
    if (int ret = check_params(); ret != 0)
        return ret;
    // No peer sends to a transmit context, or CQ data to an RMA endpoint without a queue to report it to.
    const bool receives = rx_.is_open && ((tx_.config().caps & (FI_MSG | FI_TAGGED)) != 0 || rx_.binding.cq != nullptr);
    const std::size_t rings = receives ? param_size("rings", 256) : 1;
    if (!receiver_.queue().valid())
        return -FI_ENOMEM;
    const std::size_t anon_slots = receives ? anon_slot_count : 1;
    if (int ret = rings_.open(rings, param_size("ring_slots", 128), anon_slots); ret != 0)
        return ret;
    return receiver_.join_queue();
}

void Receiver::progress(bool everywhere) noexcept
{
    if (!everywhere) {
        tx_.progress();
        return;
    }
    anon_receiver.accept_all();
    poll<Receiver>();
}

void MessageEngine::progress() noexcept
{
    if (rings_.behind() || receiver_.behind()) [[unlikely]]
        rings_.catch_up();
    receiver_.poll<Receiver>();
    if (SendRequests& requests = sender_.requests(); requests.awaits_any())
        requests.poll();
    if (RendezvousReceiver& rendezvous = receiver_.rendezvous(); rendezvous.waits()) [[unlikely]]
        rendezvous.resume();
}

void MessageEngine::progress_fully() noexcept
{
    constexpr std::uint32_t rounds_per_look = 4; // at the clock; readers look 16 times as often (ProgressSet)
    progress();
    if (++rounds_ % rounds_per_look == 0)
        rings_.slow_round();
}

} // namespace tofu::proto
