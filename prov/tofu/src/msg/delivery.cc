// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See delivery.h.
#include "msg/delivery.h"

#include <mutex>
#include <utility>

#include <rdma/fi_errno.h>

#include "core/log.h"
#include "cq/counter.h"
#include "mem/local_buffer.h"
#include "msg/srx_owner.h"

namespace tofu::proto {

Delivery::Delivery(TxContext& tx, const RxContext& rx, Port& port, Receiver& receiver) noexcept
    : SrxPeer(rx, tx.peers()), tx_(tx), receiver_(receiver),
      wants_source_((tx.plan().caps & (FI_SOURCE | FI_SOURCE_ERR)) != 0 || (rx.shared != nullptr && rx.shared->owner() != nullptr)),
      reports_unknown_sources_((tx.plan().caps & FI_SOURCE_ERR) != 0),
      queue_(rx.shared != nullptr
                 ? *rx.shared
                 : own_queue_.emplace((tx.plan().caps & FI_DIRECTED_RECV) != 0, rx.min_multi_recv)),
      fetches_(tx, port, *this), hold_up_{{[](Deferred& item) noexcept {
          auto& held = static_cast<HoldUp&>(item);
          held.waiting = false;
          (void)held.owner->queue_.catch_up();
      }}, this}
{
}

Delivery::~Delivery()
{
    if (own_queue_)
        queue_.leave(*this);
}

int Delivery::join_queue() noexcept
{
    std::lock_guard guard(tx_.lock());
    return queue_.join(*this);
}

void Delivery::cancel_fetches() noexcept
{
    if (!own_queue_) // that is destroyed with us, and its receives are discarded
        fetches_.cancel();
}

void Delivery::part_from_queue() noexcept
{
    if (!own_queue_)
        queue_.leave(*this);
}

ssize_t Delivery::cancel(void* context) noexcept
{
    return own_queue_ ? own_queue_->cancel(context) : -FI_ENOENT;
}

void Delivery::find_source(Ring& in) noexcept
{
    const std::uint32_t generation = tx_.peers().generation();
    in.address = tx_.peers().lookup(in.known.home, in.known.nonce, in.known.index);
    in.generation = generation;
}

void Delivery::report(CompletionQueue& cq, Completion& entry, Ring& in) noexcept
{
    if (wants_source_)
        entry.source = source_of(in);
    if (reports_unknown_sources_ && entry.source == FI_ADDR_NOTAVAIL)
        cq.write_error(CqEntry::of_unknown_source(entry, in.known));
    else
        cq.write(entry);
}

// --- finding the receive

bool Delivery::deliver(Message& m) noexcept
{
    RecvRequest* r = queue_.get_entry(m.tagged, m.in->key, m.tag);
    if (r != nullptr && r->behind) [[unlikely]] {
        if (!queue_.catch_up())
            return false;
        r = queue_.get_entry(m.tagged, m.in->key, m.tag); // the other one may be full
    }
    if (r != nullptr) [[likely]]
        return give(*r, m);
    if (SrxOwner* const owner = queue_.owner(); owner != nullptr) [[unlikely]]
        return ask(*owner, m);
    return keep(m, nullptr);
}

/// deliver() where another provider owns the receives.
bool Delivery::ask(SrxOwner& owner, Message& m) noexcept
{
    if (tx_.reports().closing)
        return false; // an owner that closes us may have closed its receives already
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
bool Delivery::give(RecvRequest& r, const Message& m) noexcept
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
    if (m.ack && !put_completion(tx_.vcq(), m.in->known.home, m.in->area, m.fin, 0))
        return false;
    iovec into[max_segments];
    std::uint8_t count = 0;
    void* const place = r.place();
    const std::size_t length = r.take(m.length, into, count);
    scatter(into, count, m.payload, length);
    r.users++;
    if (r.posted && r.exhausted())
        queue_.withdraw(r);
    received(r, m, place, length, 0, 0);
    return true;
}

void Delivery::received(RecvRequest& r, const Message& m, void* buffer, std::size_t length, int err,
                         int prov_errno) noexcept
{
    r.users--;
    const bool over = !r.posted && r.users == 0;
    Completion entry{.context = r.context,
                     .flags = kind_of(r.tagged) |
                              (m.has_data ? FI_REMOTE_CQ_DATA : 0) |
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
            report(*cq, entry, *m.in);
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
bool Delivery::keep(Message& m, RecvRequest* owned) noexcept
{
    Unexpected* const kept = queue_.alloc_entry(m.kept_size());
    if (kept == nullptr) [[unlikely]]
        return false;
    if (m.type != Type::rts && m.ack && !m.at_match) {
        // Delivered: the message is here, and the application can have it (fi_cq(3), FI_DELIVERY_COMPLETE).
        if (!put_completion(tx_.vcq(), m.in->known.home, m.in->area, m.fin, 0)) {
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

// --- kept messages, when the receive queue asks for them

/// Gives a message that was kept to its receive. A multi-receive that found no room for it tries again in a later
/// round.
bool Delivery::give_kept(RecvRequest& r, Unexpected& kept) noexcept
{
    if (give(r, Message::unpack(kept)))
        return true;
    if (r.behind && !std::exchange(hold_up_.waiting, true))
        fetches_.put_off(hold_up_);
    return false;
}

bool Delivery::discard(Unexpected& kept) noexcept { return discard(Message::unpack(kept)); }

bool Delivery::discard(const Message& m) noexcept
{
    if (m.type != Type::rts)
        return !m.ack || put_completion(tx_.vcq(), m.in->known.home, m.in->area, m.fin, 0);
    Fetch* const f = fetches_.make(m);
    if (f != nullptr)
        fetches_.start(*f); // has nothing to fetch, so it only writes the completion word
    return f != nullptr;
}

void Delivery::forgotten(Unexpected& kept) noexcept
{
    Message::kept_of(kept).in->let_go();
}

fi_addr_t Delivery::source_of(const Unexpected& kept) noexcept
{
    return wants_source_ ? source_of(*Message::kept_of(kept).in) : FI_ADDR_NOTAVAIL;
}

} // namespace tofu::proto
