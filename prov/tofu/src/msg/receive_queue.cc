// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See receive_queue.h.
#include "msg/receive_queue.h"

#include <algorithm>

#include "cq/cq.h"
#include "mem/local_buffer.h"
#include "tx/ep_handle.h"

namespace tofu::proto {

namespace {
/// The entry for an FI_PEEK that found a message.
void report(const RecvCall& call, const Unexpected& m) noexcept
{
    if (CompletionQueue* cq = m.peer->rx.binding.cq)
        cq->write({.context = call.context,
                   .flags = kind_of(m.tagged) | (m.has_data ? FI_REMOTE_CQ_DATA : 0),
                   .length = m.length,
                   .data = m.data,
                   .tag = m.tag,
                   .source = m.peer->source_of(m)});
}
} // namespace

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

ssize_t ReceiveQueue::recv_specially(RecvCall call, void* buffer, std::size_t length, void* desc) noexcept
{
    if ((call.flags & FI_TRIGGER) != 0)
        return for_later;
    if ((call.flags & no_buffer_flags) == 0 && is_nowhere(buffer, length))
        return refuse_nowhere();
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
    if (int ret = sources_.find(call.source, key); ret != 0) [[unlikely]]
        return ret;
    RecvRequest* const r = make_receive(call, key);
    return r != nullptr ? take_kept(*r) : -FI_ENOMEM;
}

/// Gives a receive the message that came before it, or posts it. A multi-receive is posted in any case, and is behind
/// as long as it has not got all messages that came before it.
ssize_t ReceiveQueue::take_kept(RecvRequest& r) noexcept
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
    Arrived* const a = matcher(r.tagged).find(r.source, r.tag, r.ignore);
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
        Arrived* const a = matcher(r.tagged).find(r.source, r.tag, r.ignore);
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

/// FI_PEEK: is there such a message? Its answer is an entry: success, or the error FI_ENOMSG (fi_tagged(3)).
ssize_t ReceiveQueue::peek(const RecvCall& call) noexcept
{
    std::uint64_t key;
    if (int ret = sources_.find(call.source, key); ret != 0)
        return ret;
    Arrived* a = nullptr;
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
            cq->write_error({{.context = call.context, .flags = kind_of(call.tagged), .tag = call.tag}, FI_ENOMSG});
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

/// FI_CLAIM after FI_PEEK | FI_CLAIM with the same context: receives or discards the claimed message.
ssize_t ReceiveQueue::claim(const RecvCall& call) noexcept
{
    const Claim* const found =
        std::find_if(claims_.begin(), claims_.end(), [&](const Claim& c) { return c.context == call.context; });
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
