// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The application's receives: posting, peeking, claiming, cancelling, and what was kept for them. See
// receive_queue.h. Calls the matcher, and the messenger through which a message came.
#include "match/receive_queue.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "endpoint/endpoint.h"
#include "match/iov.h"
#include "message/messenger.h"
#include "provider/param.h"
#include "queue/cntr.h"

namespace tofu::proto {

std::size_t RecvRequest::take(std::size_t want, iovec* into, std::uint8_t& into_count) noexcept
{
    std::size_t skip = used;
    std::size_t left = want;
    into_count = 0;
    for (unsigned i = 0; i < count && left != 0; i++) {
        const iovec& iov = buffers()[i].iov;
        if (skip >= iov.iov_len) {
            skip -= iov.iov_len;
            continue;
        }
        const std::size_t n = std::min(iov.iov_len - skip, left);
        into[into_count++] = {static_cast<std::byte*>(iov.iov_base) + skip, n};
        skip = 0;
        left -= n;
    }
    used += want - left;
    return want - left;
}

namespace {
/// A multi-receive that has room for more after this message.
bool lives_on(const RecvRequest& r, const Message& m) noexcept
{
    const std::size_t left = r.length - r.used;
    return r.multi && m.length < left && left - m.length >= r.min_left;
}
} // namespace

ReceiveQueue::ReceiveQueue(bool directed, const std::size_t& min_multi_recv) noexcept
    : directed_(directed), min_multi_recv_(min_multi_recv), kept_limit_(param_size("unexpected_bytes", SIZE_MAX))
{
}

int ReceiveQueue::join(Messenger& messenger) noexcept
{
    if (!members_.push(&messenger))
        return -FI_ENOMEM;
    av_ = &members_[0]->ep_.av();
    return 0;
}

void ReceiveQueue::leave(Messenger& messenger) noexcept
{
    members_.erase(&messenger);
    av_ = !members_.empty() ? &members_[0]->ep_.av() : nullptr;
    last_source_ = FI_ADDR_UNSPEC;
    for (Matcher* m : {&tagged_, &plain_})
        for (Arrived* a = m->first(); a != nullptr;) {
            auto& kept = *static_cast<Unexpected*>(a);
            a = a->next;
            if (kept.in->owner == &messenger)
                forget(kept);
        }
    for (Claim** link = &claims_; *link != nullptr;) {
        Unexpected& kept = *(*link)->message;
        if (kept.in->owner != &messenger) {
            link = &(*link)->next;
            continue;
        }
        end(link);
        forget(kept);
    }
}

int ReceiveQueue::find_source(fi_addr_t source, std::uint64_t& key) noexcept
{
    if (av_ == nullptr)
        return -FI_EINVAL;
    const std::uint32_t generation = av_->generation(); // before the look: what changes meanwhile shows later
    const Peer* peer = av_->find(source);
    if (peer == nullptr)
        return -FI_EINVAL;
    key = peer_key(peer->home, peer->nonce, peer->index);
    last_source_ = source;
    last_key_ = key;
    last_generation_ = generation;
    return 0;
}

ssize_t ReceiveQueue::recv_slowly(RecvCall call, void* buffer, std::size_t length, void* desc) noexcept
{
    const iovec iov{buffer, length};
    call.iov = &iov;
    call.desc = &desc;
    call.count = 1;
    return recv(call);
}

ssize_t ReceiveQueue::recv(const RecvCall& call) noexcept
{
    if (call.flags & (FI_PEEK | FI_CLAIM)) [[unlikely]]
        return (call.flags & FI_PEEK) ? peek(call) : claim(call);
    std::uint64_t key;
    if (int ret = source_key(call.source, key); ret != 0) [[unlikely]]
        return ret;
    RecvRequest* r = make_receive(call, key);
    if (r == nullptr)
        return -FI_ENOMEM;
    Matcher& matching = matcher(call.tagged);
    if (matching.first() != nullptr) {
        while (Arrived* a = matching.find(key, r->tag, r->ignore)) {
            auto& kept = *static_cast<Unexpected*>(a);
            Message m = kept.unpack();
            r->held = lives_on(*r, m); // otherwise `r` is gone when it has the message
            const bool more = r->held;
            if (!m.in->owner->give(*r, m)) {
                r->held = false;
                if (r->used != 0)
                    break; // a multi-receive that got something: it waits like any other
                release(*r);
                return -FI_EAGAIN;
            }
            forget(kept);
            if (!more)
                return 0;
        }
        r->held = false;
    }
    matching.post(*r);
    r->posted = true;
    return 0;
}

RecvRequest* ReceiveQueue::make_receive(const RecvCall& call, std::uint64_t key) noexcept
{
    void* const memory = pool_.alloc(RecvRequest::size_with(call.count));
    if (memory == nullptr)
        return nullptr;
    auto* const r = ::new (memory) RecvRequest;
    fill(*r, call, key);
    r->multi = (call.flags & FI_MULTI_RECV) != 0 && !call.tagged;
    r->min_left = r->multi ? min_multi_recv_ : 0;
    r->count = static_cast<std::uint8_t>(call.count);
    for (std::size_t i = 0; i < call.count; i++)
        ::new (r->buffers() + i) RecvRequest::Buffer{call.iov[i], call.desc != nullptr ? call.desc[i] : nullptr};
    (void)total_length(call.iov, call.count, r->length); // checked by the entry
    return r;
}

Unexpected* ReceiveQueue::make_room(const Message& m) noexcept
{
    const std::size_t size = Unexpected::size_for(m);
    if (size > kept_limit_ - kept_bytes_)
        return nullptr;
    void* const memory = pool_.alloc(size);
    if (memory == nullptr)
        return nullptr;
    auto* const kept = ::new (memory) Unexpected;
    kept->pack(m);
    kept_bytes_ += size;
    return kept;
}

void ReceiveQueue::keep(Unexpected& kept) noexcept
{
    kept.in->held++;
    matcher(kept.tagged).keep(kept);
}

bool ReceiveQueue::holds(const Inbound& in) const noexcept
{
    for (const Matcher* m : {&tagged_, &plain_})
        for (const Arrived* a = m->first(); a != nullptr; a = a->next)
            if (a->source == in.key && static_cast<const Unexpected*>(a)->in->owner == in.owner)
                return true;
    return false;
}

void ReceiveQueue::give_up(Unexpected& kept) noexcept
{
    kept_bytes_ -= kept.size();
    pool_.release(&kept, kept.size());
}

/// A kept message has found its place: its memory goes back.
void ReceiveQueue::forget(Unexpected& kept) noexcept
{
    if (!kept.claimed)
        matcher(kept.tagged).drop(kept);
    Inbound& in = *kept.in;
    give_up(kept);
    in.owner->let_go(in);
}

/// Takes a claim off the list.
void ReceiveQueue::end(Claim** link) noexcept
{
    Claim* const claim = *link;
    *link = claim->next;
    pool_.release(claim, sizeof *claim);
}

/// Who peeks in a loop finds the last answer in the queue and polls nothing else: new rings are looked for here.
void ReceiveQueue::look_around() noexcept
{
    for (Messenger* member : members_) {
        member->scan_claims();
        member->poll_rings();
    }
}

/// FI_PEEK: is there such a message? Its answer is an entry: success, or the error FI_ENOMSG (fi_tagged(3)).
ssize_t ReceiveQueue::peek(const RecvCall& call) noexcept
{
    std::uint64_t key;
    if (int ret = source_key(call.source, key); ret != 0)
        return ret;
    for (Messenger* member : members_)
        member->ep_.progress_locked();
    Arrived* a = matcher(call.tagged).find(key, call.tag, call.ignore);
    if (a == nullptr) {
        look_around();
        a = matcher(call.tagged).find(key, call.tag, call.ignore);
    }
    if (a == nullptr) {
        CompletionQueue* cq = !members_.empty() ? members_[0]->ep_.rx().cq : nullptr;
        if (cq != nullptr)
            cq->write_error({.context = call.context,
                             .flags = FI_RECV | (call.tagged ? FI_TAGGED : FI_MSG),
                             .tag = call.tag},
                            FI_ENOMSG, 0);
        return 0;
    }
    auto& kept = *static_cast<Unexpected*>(a);
    if (call.flags & FI_DISCARD) {
        if (!discard(kept, call))
            return -FI_EAGAIN;
        return 0;
    }
    if (call.flags & FI_CLAIM) {
        void* const memory = pool_.alloc(sizeof(Claim));
        if (memory == nullptr)
            return -FI_ENOMEM;
        claims_ = ::new (memory) Claim{call.context, &kept, claims_};
        matcher(call.tagged).drop(kept);
        kept.claimed = true;
    }
    kept.in->owner->report_peek(call, kept.unpack());
    return 0;
}

/// FI_CLAIM after FI_PEEK | FI_CLAIM with the same context: receives or discards what was claimed.
ssize_t ReceiveQueue::claim(const RecvCall& call) noexcept
{
    Claim** link = &claims_;
    while (*link != nullptr && (*link)->context != call.context)
        link = &(*link)->next;
    if (*link == nullptr)
        return -FI_EINVAL;
    Unexpected& kept = *(*link)->message;
    if (call.flags & FI_DISCARD) {
        if (!discard(kept, call))
            return -FI_EAGAIN;
        end(link);
        return 0;
    }
    RecvCall plain = call;
    plain.flags &= ~(FI_MULTI_RECV | FI_CLAIM);
    RecvRequest* r = make_receive(plain, any_source);
    if (r == nullptr)
        return -FI_ENOMEM;
    Message m = kept.unpack();
    if (!m.in->owner->give(*r, m)) {
        release(*r);
        return -FI_EAGAIN;
    }
    end(link);
    forget(kept);
    return 0;
}

/// Throws a message away; its sender is told as if it had been received, and `call` that there was one.
bool ReceiveQueue::discard(Unexpected& kept, const RecvCall& call) noexcept
{
    const Message m = kept.unpack();
    Messenger& via = *m.in->owner;
    if (m.type == Type::rts) {
        Fetch* f = via.make_fetch(m);
        if (f == nullptr)
            return false;
        via.start(*f); // nothing to fetch: FIN
    } else if (m.ack && !via.acknowledge(*m.in, m.fin)) {
        return false;
    }
    via.report_peek(call, m);
    forget(kept);
    return true;
}

ssize_t ReceiveQueue::cancel(void* context) noexcept
{
    auto wanted = [context](const Posted& p) {
        return static_cast<const RecvRequest&>(p).context == context;
    };
    Posted* p = tagged_.find_posted(wanted);
    if (p == nullptr)
        p = plain_.find_posted(wanted);
    if (p == nullptr)
        return -FI_ENOENT;
    auto& r = *static_cast<RecvRequest*>(p);
    withdraw(r);
    if (!members_.empty()) {
        Endpoint& ep = members_[0]->ep_;
        if (CompletionQueue* cq = ep.rx().cq)
            cq->write_error({.context = context,
                             .flags = FI_RECV | (r.tagged ? FI_TAGGED : FI_MSG),
                             .tag = r.tag},
                            FI_ECANCELED, 0);
        if (Counter* counter = ep.counters().recv)
            counter->count_error();
    }
    if (r.users == 0)
        release(r);
    return 0;
}

} // namespace tofu::proto
