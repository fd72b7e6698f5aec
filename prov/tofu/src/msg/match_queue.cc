// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See match_queue.h.
#include "msg/match_queue.h"

#include <rdma/fi_errno.h>

#include "core/params.h"
#include "msg/srx_owner.h"

namespace tofu::proto {

MatchQueue::MatchQueue() noexcept : kept_limit_(param_size("unexpected_bytes", SIZE_MAX)) {}

int MatchQueue::join(SrxPeer& peer) noexcept
{
    return members_.push(&peer) ? 0 : -FI_ENOMEM;
}

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
        owner_->forsake(kept);
    if (!kept.claimed)
        matcher(kept.tagged).drop(kept);
    kept.peer->forgotten(kept);
    free_entry(kept);
}

} // namespace tofu::proto
