// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See rails.h.
#include "tx/rails.h"

#include <algorithm>
#include <new>
#include <utility>

#include "core/params.h"
#include "cq/domain_base.h"

namespace tofu {

/// Adds a rail. False: no TNI is unused, or there is no CQ or no memory; it is not tried again.
bool Rails::grow() noexcept
{
    may_grow_ = count_ < std::min(param_size("tnis", most), most);
    if (!may_grow_)
        return false;
    Rail& rail = rails_[count_];
    std::unique_ptr<vcq::Vcq> vcq(new (std::nothrow) vcq::Vcq);
    may_grow_ = vcq != nullptr && domain_->vcqs().open_spare(*vcq) == 0;
    if (may_grow_)
        rail.memory.reset(new (std::nothrow) LocalMemory(*vcq));
    may_grow_ = rail.memory != nullptr;
    if (!may_grow_)
        return false;
    rail.vcq = std::move(vcq);
    own_->put_beside(*rail.vcq);
    rails_[0].memory->put_beside(*rail.memory);
    own_->statistics().count(Stat::rail);
    count_++;
    return true;
}

Rails::Index Rails::take(By by, utofu_vcq_id_t peer, std::size_t length) noexcept
{
    if (domain_ == nullptr || length < least_length)
        return 0;
    const auto load = [&](std::size_t rail) -> Load& { return rails_[rail].load[static_cast<unsigned>(by)]; };
    // Best is a rail that has transfers with this peer; next an idle one whose last peer was this one, since
    // registrations may be left there; next an idle one; last the one with the fewest transfers.
    const auto rank = [&](std::size_t rail) {
        const Load& l = load(rail);
        return l.transfers == 0 ? (l.peer == peer ? 1u : 2u) : l.peer == peer ? 0u : 2u + l.transfers;
    };
    std::size_t best = 0;
    for (std::size_t rail = 1; rail < count_; rail++)
        if (rank(rail) < rank(best))
            best = rail;
    if (rank(best) > 2 && may_grow_ && grow())
        best = count_ - 1;
    Load& chosen = load(best);
    chosen.transfers++;
    chosen.peer = peer;
    const auto rail = static_cast<Index>(own + best);
    if (rail != own) {
        own_->statistics().count(Stat::by_rail);
        if (by == By::us)
            own_->want_beside();
    }
    return rail;
}

void Rails::give(By by, Index rail) noexcept
{
    if (rail == 0)
        return;
    rails_[rail - own].load[static_cast<unsigned>(by)].transfers--;
    if (rail != own && by == By::us)
        own_->leave_beside();
}

void Rails::drop_memory() noexcept
{
    for (Rail& rail : rails_)
        rail.memory.reset();
    domain_ = nullptr;
}

} // namespace tofu
