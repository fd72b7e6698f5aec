// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See unsignaled.h.
#include "utofu/unsignaled.h"

#include <algorithm>
#include <new>
#include <utility>

namespace tofu::vcq {

bool UnsignaledPeers::note_slowly(utofu_vcq_id_t peer) noexcept
{
    if (2 * (used_ + 1) > size_ && !grow())
        return false;
    Entry& entry = table_[find(peer)];
    if (entry.peer != peer) {
        entry.peer = peer;
        used_++;
    }
    entry.unsignaled = true;
    return true;
}

void UnsignaledPeers::fenced(utofu_vcq_id_t peer) noexcept
{
    if (!has(peer))
        return;
    table_[find(peer)].unsignaled = false;
    if (last_ == peer)
        last_ = none;
}

void UnsignaledPeers::clear() noexcept
{
    last_ = none;
    table_.reset();
    size_ = used_ = 0;
}

bool UnsignaledPeers::grow() noexcept
{
    const std::size_t size = std::max<std::size_t>(16, size_ * 2);
    std::unique_ptr<Entry[]> made(new (std::nothrow) Entry[size]);
    if (made == nullptr)
        return false;
    std::swap(made, table_);
    const std::size_t before = std::exchange(size_, size);
    for (std::size_t i = 0; i < before; i++)
        if (made[i].peer != none)
            table_[find(made[i].peer)] = made[i];
    return true;
}

} // namespace tofu::vcq
