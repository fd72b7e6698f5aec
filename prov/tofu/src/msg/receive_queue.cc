// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See receive_queue.h.
#include "msg/receive_queue.h"

#include <algorithm>
#include <mutex>
#include <new>

#include <rdma/fi_errno.h>

#include "core/log.h"
#include "cq/cq.h"
#include "tx/ep_handle.h"

namespace tofu::proto {

/// The entry for an FI_PEEK that found a message.
static void report(const RecvCall& call, const Unexpected& m) noexcept
{
    if (CompletionQueue* cq = m.peer->rx.binding.cq)
        cq->write({.context = call.context,
                   .flags = recv_entry_flags(m.tagged) | (m.has_data ? FI_REMOTE_CQ_DATA : 0),
                   .length = m.length,
                   .data = m.data,
                   .tag = m.tag,
                   .source = m.peer->source_of(m)});
}

ReceiveQueue::ReceiveQueue(bool directed, const std::size_t& min_multi_recv) noexcept
    : min_multi_recv_(min_multi_recv), sources_(directed, members_)
{
}

void ReceiveQueue::leave(SrxPeer& peer) noexcept
{
    MatchQueue::leave(peer);
    sources_.forget();
    for (std::size_t i = claims_.size(); i-- > 0;)
        if (const Claim claim = claims_[i]; claim.message->peer == &peer) {
            claims_.erase(claim);
            forget(*claim.message);
        }
    (void)catch_up(); // the message that held up a receive may have left
}

ssize_t ReceiveQueue::recv_one(const RecvCall& call, void* buffer, std::size_t length, void* desc) noexcept
{
    if ((call.flags & FI_TRIGGER) != 0)
        return must_be_deferred;
    if ((call.flags & no_buffer_flags) == 0 && is_null(buffer, length))
        return refuse_null();
    if ((call.flags & special_flags) != 0) [[unlikely]] {
        const iovec iov{buffer, length};
        RecvCall with_segments = call;
        with_segments.iov = &iov;
        with_segments.desc = &desc;
        with_segments.count = 1;
        return recv(with_segments);
    }
    std::uint64_t key;
    if (int ret = sources_.find(call.source, key); ret != 0) [[unlikely]]
        return ret;
    void* const memory = pool_.alloc(RecvRequest::size_with(1));
    return memory != nullptr ? claim_kept(make_single(memory, call, key, {{buffer, length}, desc})) : -FI_ENOMEM;
}

ssize_t ReceiveQueue::recv(const RecvCall& call) noexcept
{
    if (call.flags & (FI_PEEK | FI_CLAIM)) [[unlikely]]
        return (call.flags & FI_PEEK) ? peek(call) : claim(call);
    std::uint64_t key;
    if (int ret = sources_.find(call.source, key); ret != 0) [[unlikely]]
        return ret;
    RecvRequest* const r = make_receive(call, key);
    return r != nullptr ? claim_kept(*r) : -FI_ENOMEM;
}

/// Gives a receive the message that came before it, or posts it. A multi-receive is posted in any case, and is behind
/// as long as it has not got all messages that came before it.
ssize_t ReceiveQueue::claim_kept(RecvRequest& r) noexcept
{
    if (!none_behind(r.tagged)) {
        free_entry(r);
        return -FI_EAGAIN;
    }
    if (r.multi) {
        post(r);
        r.behind = true;
        behind_ = &r;
        (void)catch_up();
        return 0;
    }
    UnexpectedLinks* const a = matcher(r.tagged).find(r.source, r.tag, r.ignore);
    if (a == nullptr) {
        post(r);
        return 0;
    }
    auto& kept = *static_cast<Unexpected*>(a);
    if (!kept.peer->start(r, kept)) {
        free_entry(r);
        return -FI_EAGAIN;
    }
    forget(kept);
    return 0;
}

bool ReceiveQueue::catch_up() noexcept
{
    while (behind_ != nullptr) {
        RecvRequest& r = *behind_;
        UnexpectedLinks* const a = matcher(r.tagged).find(r.source, r.tag, r.ignore);
        if (a == nullptr) {
            r.behind = false;
            behind_ = nullptr;
            break;
        }
        auto& kept = *static_cast<Unexpected*>(a);
        const bool last = !r.lives_on(kept.length);
        if (!kept.peer->start(r, kept))
            return false;
        if (last)
            behind_ = nullptr; // `r` may be gone
        forget(kept);
    }
    return true;
}

RecvRequest* ReceiveQueue::make_receive(const RecvCall& call, std::uint64_t key) noexcept
{
    void* const memory = pool_.alloc(RecvRequest::size_with(call.count));
    if (memory == nullptr)
        return nullptr;
    auto* const r = ::new (memory) RecvRequest;
    r->fill(call, key);
    r->multi = (call.flags & FI_MULTI_RECV) != 0 && !call.tagged;
    r->min_left = r->multi ? min_multi_recv_ : 0;
    r->count = static_cast<std::uint8_t>(call.count);
    for (std::size_t i = 0; i < call.count; i++)
        ::new (r->buffers() + i) RecvRequest::Buffer{call.iov[i], call.desc != nullptr ? call.desc[i] : nullptr};
    (void)total_length(call.iov, call.count, r->length); // the entry has checked it
    return r;
}

/// FI_PEEK: whether there is such a message. The result is an entry: success, or the error FI_ENOMSG (fi_tagged(3)).
ssize_t ReceiveQueue::peek(const RecvCall& call) noexcept
{
    std::uint64_t key;
    if (int ret = sources_.find(call.source, key); ret != 0)
        return ret;
    UnexpectedLinks* a = nullptr;
    // A program that peeks in a loop finds the last answer in its queue and so polls nothing else: look for new senders
    // here.
    for (bool everywhere : {false, true}) {
        for (SrxPeer* member : members_)
            member->progress(everywhere);
        if (!none_behind(call.tagged))
            return -FI_EAGAIN;
        a = matcher(call.tagged).find(key, call.tag, call.ignore);
        if (a != nullptr)
            break;
    }
    if (a == nullptr) {
        if (CompletionQueue* cq = !members_.empty() ? members_[0]->rx.binding.cq.get() : nullptr)
            cq->write_error(
                {{.context = call.context, .flags = recv_entry_flags(call.tagged), .tag = call.tag}, FI_ENOMSG});
        return 0;
    }
    auto& kept = *static_cast<Unexpected*>(a);
    if (call.flags & FI_DISCARD)
        return discard(kept, call) ? 0 : -FI_EAGAIN;
    if (call.flags & FI_CLAIM) {
        if (!claims_.push({call.context, &kept}))
            return -FI_ENOMEM;
        matcher(call.tagged).drop(kept);
        kept.claimed = true;
    }
    report(call, kept);
    return 0;
}

/// FI_CLAIM after FI_PEEK | FI_CLAIM of the same kind of call with the same context: receives or discards the claimed
/// message.
ssize_t ReceiveQueue::claim(const RecvCall& call) noexcept
{
    const auto found = std::find_if(claims_.begin(), claims_.end(), [&](const Claim& c) {
        return c.context == call.context && c.message->tagged == call.tagged;
    });
    if (found == claims_.end())
        return -FI_EINVAL;
    const Claim claim = *found;
    Unexpected& kept = *claim.message;
    if (call.flags & FI_DISCARD) {
        if (!discard(kept, call))
            return -FI_EAGAIN;
        claims_.erase(claim);
        return 0;
    }
    RecvCall plain = call;
    plain.flags &= ~(FI_MULTI_RECV | FI_CLAIM);
    RecvRequest* r = make_receive(plain, any_source);
    if (r == nullptr)
        return -FI_ENOMEM;
    if (!kept.peer->start(*r, kept)) {
        free_entry(*r);
        return -FI_EAGAIN;
    }
    claims_.erase(claim);
    forget(kept);
    return 0;
}

/// Discards a message, and reports to `call` that there was one.
bool ReceiveQueue::discard(Unexpected& kept, const RecvCall& call) noexcept
{
    if (!kept.peer->discard(kept))
        return false;
    report(call, kept);
    forget(kept);
    return true;
}

ssize_t ReceiveQueue::cancel(void* context) noexcept
{
    RecvRequest* const r = find_posted([context](const RecvRequest& posted) { return posted.context == context; });
    if (r == nullptr)
        return -FI_ENOENT;
    withdraw(*r);
    if (behind_ == r)
        behind_ = nullptr;
    r->cancelled = true;
    if (r->users != 0)
        return 0;
    if (const RxContext* const first = this->context(); first != nullptr)
        end_cancelled(*r, *first);
    else
        free_entry(*r);
    return 0;
}

} // namespace tofu::proto

// --- SrxOwner: a receive of the owner becomes one of this queue when its message arrives. It is allocated before the
// number of its buffers is known, so it has room for the maximum. A message that the owner has noted waits in our queue
// as any other, and goes its ordinary way from there.

#if FI_MAJOR_VERSION >= 2 && __has_include(<rdma/providers/fi_peer.h>)
#include <rdma/providers/fi_peer.h>
static_assert(sizeof(fi_peer_rx_entry) - offsetof(fi_peer_rx_entry, srx) == sizeof(tofu::peer::EntryFields) &&
              offsetof(fi_peer_rx_entry, srx) == (FI_MINOR_VERSION < 3 ? 2 * sizeof(void*) : 0) &&
              offsetof(fi_peer_rx_entry, iov) - offsetof(fi_peer_rx_entry, srx) ==
                  offsetof(tofu::peer::EntryFields, iov));
static_assert(sizeof(fi_peer_match_attr) == sizeof(tofu::peer::Match) &&
              offsetof(fi_peer_match_attr, msg_size) == offsetof(tofu::peer::Match, size));
static_assert(sizeof(fid_peer_srx) == sizeof(tofu::peer::Srx) && sizeof(fid_peer_cq) == sizeof(tofu::peer::Cq) &&
              sizeof(fid_peer_cntr) == sizeof(tofu::peer::Cntr));
static_assert(sizeof(fi_ops_srx_owner) == sizeof(tofu::peer::SrxOwnerOps) &&
              offsetof(fi_ops_srx_owner, free_entry) == offsetof(tofu::peer::SrxOwnerOps, free_entry) &&
              sizeof(fi_ops_srx_peer) == sizeof(tofu::peer::SrxPeerOps));
#endif

namespace tofu::proto {

peer::SrxPeerOps SrxOwner::peer_ops = {sizeof(peer_ops), start, start, discard, discard};

/// Copies the owner's entry into our receive, without its descriptors: lnx passes those that another provider made of
/// the same memory.
void SrxOwner::fill(RecvRequest& r) noexcept
{
    const peer::EntryFields& entry = peer::fields_of(tail_of(r).entry);
    r.context = entry.context;
    r.flags = entry.flags & FI_COMPLETION;
    for (std::size_t i = 0; i < limits::iov_limit; i++)
        ::new (r.buffers() + i) RecvRequest::Buffer{i < entry.count ? entry.iov[i] : iovec{}, nullptr};
    r.count = limits::iov_limit;
    (void)total_length(entry.iov, std::min(entry.count, limits::iov_limit), r.length); // the owner has checked it
}

SrxOwner::Answer SrxOwner::query_owner(SrxPeer& peer, const Offer& offer, RecvRequest*& receive) noexcept
{
    void* const memory = queue_.pool().alloc(receive_size);
    if (memory == nullptr)
        return Answer::later;
    auto* const r = ::new (memory) RecvRequest;
    r->tagged = offer.tagged;
    peer::Match match{offer.source, offer.length, offer.tagged ? offer.tag : 0};
    peer::Entry* entry = nullptr;
    const int ret = (offer.tagged ? srx_.owner->get_tag : srx_.owner->get_msg)(&srx_, &match, &entry);
    if ((ret != 0 && ret != -FI_ENOENT) || entry == nullptr) {
        queue_.pool().release(memory, receive_size);
        return ret == -FI_ENOMEM || ret == -FI_EAGAIN ? Answer::later : Answer::refused;
    }
    ::new (&tail_of(*r)) Tail{entry, &peer, false};
    receive = r;
    if (ret == 0) {
        fill(*r);
        return Answer::receive;
    }
    peer::EntryFields& fields = peer::fields_of(entry);
    fields.size = offer.length;
    fields.data = offer.data;
    fields.flags |= offer.has_data ? FI_REMOTE_CQ_DATA : 0;
    return Answer::none;
}

void SrxOwner::hold(RecvRequest& r, std::uint64_t source, std::uint64_t tag) noexcept
{
    r.source = source;
    r.tag = tag;
    queue_.post(r);
}

bool SrxOwner::note(Unexpected& message, RecvRequest& r) noexcept
{
    peer::Entry* const entry = tail_of(r).entry;
    peer::fields_of(entry).of_peer = &message;
    message.owned = &r;
    if ((message.tagged ? srx_.owner->queue_tag : srx_.owner->queue_msg)(entry) == 0)
        return true;
    queue_.forget(message);
    srx_.owner->free_entry(entry);
    return false;
}

void SrxOwner::done(RecvRequest& r, CompletionQueue* reported_to) noexcept
{
    peer::Entry* const entry = tail_of(r).entry;
    queue_.pool().release(&r, receive_size);
    if (reported_to != nullptr)
        forward_entries(*reported_to); // "When the peer finishes processing the message and completes it on its own CQ"
    if (entry != nullptr)
        srx_.owner->free_entry(entry);
}

// --- what the owner calls

int SrxOwner::begin(peer::Entry* entry, bool wanted) noexcept
{
    auto* const message = static_cast<Unexpected*>(peer::fields_of(entry).of_peer);
    if (message == nullptr) {
        if (wanted)
            TOFU_WARN(FI_LOG_EP_DATA, "shared receives: the owner requests a message whose endpoint is closed: close "
                                      "the endpoint after its receives\n");
        return wanted ? -FI_ECANCELED : 0;
    }
    SrxOwner& self = *message->peer->rx.shared->owner();
    std::lock_guard guard(self.lock_);
    Tail& tail = tail_of(*message->owned);
    if (wanted)
        fill(*message->owned);
    else
        tail.entry = nullptr; // the owner frees it when we return
    tail.started = true;
    self.waiting_ += self.resume(*message) ? 0 : 1;
    return 0;
}

/// Moves a message on, into its receive or to be discarded. False: there is no room now.
bool SrxOwner::resume(Unexpected& message) noexcept
{
    RecvRequest& r = *message.owned;
    const bool wanted = tail_of(r).entry != nullptr;
    if (!(wanted ? message.peer->start(r, message) : message.peer->discard(message)))
        return false;
    if (!wanted)
        queue_.pool().release(&r, receive_size);
    message.owned = nullptr;
    queue_.forget(message);
    return true;
}

void SrxOwner::resume() noexcept
{
    if (waiting_ == 0)
        return;
    waiting_ = 0;
    queue_.visit_kept([this](Unexpected& message) {
        if (tail_of(*message.owned).started)
            waiting_ += resume(message) ? 0 : 1;
    });
}

fi_addr_t SrxOwner::source_of(peer::Entry* entry) noexcept
{
    auto* const message = static_cast<Unexpected*>(peer::fields_of(entry).of_peer);
    return message != nullptr ? message->peer->source_of(*message) : FI_ADDR_UNSPEC;
}

void SrxOwner::addresses_changed() noexcept
{
    std::lock_guard guard(lock_);
    srx_.owner->for_each_unknown(&srx_, source_of);
}

// --- the end

/// Ends a receive whose message is lost with its endpoint.
void SrxOwner::cancel(RecvRequest& r) noexcept
{
    const RxContext& rx = tail_of(r).peer->rx;
    r.report_cancelled(rx);
    done(r, rx.queue_of(r.flags));
}

void SrxOwner::abandon(Unexpected& message) noexcept
{
    RecvRequest& r = *message.owned;
    const Tail& tail = tail_of(r);
    if (tail.started) {
        waiting_--;
        if (tail.entry != nullptr)
            return cancel(r);
    }
    if (tail.entry != nullptr)
        peer::fields_of(tail.entry).of_peer = nullptr; // the owner keeps the entry, which leads nowhere now
    queue_.pool().release(&r, receive_size);
}

void SrxOwner::leave(const SrxPeer& peer) noexcept
{
    while (RecvRequest* const held = queue_.find_posted([&](RecvRequest& r) { return tail_of(r).peer == &peer; })) {
        queue_.withdraw(*held);
        cancel(*held);
    }
}

} // namespace tofu::proto
