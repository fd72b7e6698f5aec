// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See under_way.h.
#include "utofu/under_way.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

namespace tofu::vcq {

void CompletionTable::reset() noexcept
{
    first_free_ = 0;
    free_count_ = 0;
    for (unsigned n = size; --n != 0;)
        release(static_cast<std::uint8_t>(n));
}

bool CompletionTable::all_quiet() const noexcept
{
    return std::all_of(std::begin(entries_), std::end(entries_), [](const Entry& entry) { return entry.is_quiet(); });
}

bool CompletionTable::grow_older() noexcept
{
    const bool used_up = free_count_ == 0;
    bool some = false;
    for (unsigned n = 1; n < size; n++) {
        Entry& entry = entries_[n];
        const bool given_up = entry.handler == &given_up_handler;
        if (entry.is_free() || (entry.is_quiet() && !given_up))
            continue;
        if (entry.age < lost_age)
            entry.age++;
        if (entry.age < lost_age)
            continue;
        if (!given_up)
            some = true;
        else if (used_up)
            release(static_cast<std::uint8_t>(n));
    }
    return some;
}

bool CompletionTable::give_up(int code, bool for_good, std::uint16_t least_age) noexcept
{
    bool some = false;
    for (unsigned n = 1; n < size; n++) {
        Entry& entry = entries_[n];
        CompletionHandler* const handler = entry.handler;
        if (entry.is_free() || handler == &given_up_handler || (entry.is_quiet() && !for_good) || entry.age < least_age)
            continue;
        some = true;
        const bool is_endless = entry.expected == endless;
        entry.expected = static_cast<std::uint16_t>(entry.expected - std::exchange(entry.open, false));
        const unsigned missing = is_endless ? 1 : entry.expected;
        entry.handler = &given_up_handler;
        if (for_good)
            release(static_cast<std::uint8_t>(n));
        for (unsigned i = 0; i < missing; i++)
            handler->notify(handler, Notice{code, 0});
    }
    return some;
}

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
