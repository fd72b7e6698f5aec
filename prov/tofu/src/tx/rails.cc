// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See rails.h.
#include "tx/rails.h"

#include <algorithm>
#include <new>
#include <utility>

#include "core/params.h"
#include "cq/domain_base.h"

namespace tofu {

/// Adds a way. False: no TNI is unused, or there is no CQ or no memory; it is not tried again.
bool Branches::grow() noexcept
{
    may_grow_ = count_ < std::min(param_size("tnis", most), most);
    if (!may_grow_)
        return false;
    Place& place = ways_[count_];
    std::unique_ptr<vcq::Vcq> branch(new (std::nothrow) vcq::Vcq);
    may_grow_ = branch != nullptr && domain_->vcqs().open_spare(*branch) == 0;
    if (may_grow_)
        place.memory.reset(new (std::nothrow) LocalMemory(*branch));
    may_grow_ = place.memory != nullptr;
    if (!may_grow_)
        return false;
    place.branch = std::move(branch);
    own_->put_beside(*place.branch);
    ways_[0].memory->put_beside(*place.memory);
    own_->statistics().count(Stat::rail);
    count_++;
    return true;
}

Branches::Way Branches::take(By by, utofu_vcq_id_t peer, std::size_t length) noexcept
{
    if (domain_ == nullptr || length < least_length)
        return 0;
    const auto load = [&](std::size_t way) -> Load& { return ways_[way].load[static_cast<unsigned>(by)]; };
    // Best is a way that has transfers with this peer; next an idle one whose last peer was this one, since
    // registrations may be left there; next an idle one; last the one with the fewest transfers.
    const auto rank = [&](std::size_t way) {
        const Load& l = load(way);
        return l.transfers == 0 ? (l.peer == peer ? 1u : 2u) : l.peer == peer ? 0u : 2u + l.transfers;
    };
    std::size_t best = 0;
    for (std::size_t way = 1; way < count_; way++)
        if (rank(way) < rank(best))
            best = way;
    if (rank(best) > 2 && may_grow_ && grow())
        best = count_ - 1;
    Load& chosen = load(best);
    chosen.transfers++;
    chosen.peer = peer;
    const auto way = static_cast<Way>(own + best);
    if (way != own) {
        own_->statistics().count(Stat::by_rail);
        if (by == By::us)
            own_->want_beside();
    }
    return way;
}

void Branches::give(By by, Way way) noexcept
{
    if (way == 0)
        return;
    ways_[way - own].load[static_cast<unsigned>(by)].transfers--;
    if (way != own && by == By::us)
        own_->leave_beside();
}

void Branches::drop_memory() noexcept
{
    for (Place& place : ways_)
        place.memory.reset();
    domain_ = nullptr;
}

} // namespace tofu
