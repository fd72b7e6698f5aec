// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See match_queue.h.
#include "msg/match_queue.h"

#include "core/params.h"
#include "cq/counter.h"
#include "cq/cq.h"
#include "mem/local_buffer.h"
#include "msg/receive_queue.h"

namespace tofu::proto {

void* RecvRequest::place() noexcept
{
    void* at = nullptr;
    visit_bytes(buffers(), count, used, 1, [&](std::byte* bytes, std::size_t) { at = bytes; });
    return at;
}

std::size_t RecvRequest::consume(std::size_t want, iovec* into, std::uint8_t& into_count) noexcept
{
    const std::size_t before = used;
    into_count = 0;
    visit_bytes(buffers(), count, before, want, [&](std::byte* bytes, std::size_t n) {
        into[into_count++] = {bytes, n};
        used += n;
    });
    return used - before;
}

void RecvRequest::report_cancelled(const RxContext& rx) const noexcept
{
    if (CompletionQueue* cq = rx.queue_of(flags))
        cq->write_error(
            {{.context = context, .flags = recv_entry_flags(tagged) | (multi ? FI_MULTI_RECV : 0), .tag = tag},
             FI_ECANCELED});
    if (Counter* counter = rx.counter_of(flags))
        counter->count_error();
}

int SourceKeys::lookup(fi_addr_t source, std::uint64_t& key) noexcept
{
    if (members_.empty())
        return -FI_EINVAL;
    const Peers& peers = members_[0]->peers;
    const std::uint32_t generation = peers.generation(); // before the lookup: a change during it is noticed later
    const Peer* peer = peers.find(source);
    if (peer == nullptr)
        return -FI_EINVAL;
    key = peer_key(peer->target_vcq, peer->nonce, peer->index);
    recent_.note({source, generation, key});
    return 0;
}

MatchQueue::MatchQueue() noexcept : kept_limit_(param_size("unexpected_bytes", SIZE_MAX)) {}

void MatchQueue::leave(SrxPeer& peer) noexcept
{
    members_.erase(&peer);
    if (owner_ != nullptr)
        owner_->leave(peer);
    visit_kept([&](Unexpected& kept) {
        if (kept.peer == &peer)
            forget(kept);
    });
}

void MatchQueue::end_cancelled(RecvRequest& receive, const RxContext& last) noexcept
{
    const RxContext* const first = context();
    receive.report_cancelled(first != nullptr ? *first : last);
    free_entry(receive);
}

Unexpected* MatchQueue::alloc_entry(std::size_t body_size) noexcept
{
    const std::size_t size = sizeof(Unexpected) + body_size;
    if (size > kept_limit_ - kept_bytes_)
        return nullptr;
    void* const memory = pool_.alloc(size);
    if (memory == nullptr)
        return nullptr;
    auto* const made = ::new (memory) Unexpected;
    made->body_size = static_cast<std::uint32_t>(body_size);
    kept_bytes_ += size;
    return made;
}

void MatchQueue::free_entry(Unexpected& message) noexcept
{
    kept_bytes_ -= message.size();
    pool_.release(&message, message.size());
}

void MatchQueue::forget(Unexpected& kept) noexcept
{
    if (kept.owned != nullptr) [[unlikely]]
        owner_->abandon(kept);
    if (!kept.claimed)
        matcher(kept.tagged).drop(kept);
    kept.peer->forgotten(kept);
    free_entry(kept);
}

} // namespace tofu::proto
