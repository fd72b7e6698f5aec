// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See order.h.
#include "tx/order.h"

namespace tofu {

bool VcqOrder::pass_peer(utofu_vcq_id_t home, utofu_vcq_id_t vcq, bool reads, std::uint64_t region) noexcept
{
    const bool from_the_first = reads_ordered_ || regions_ordered_;
    auto found = ways_->find(home);
    if (found == ways_->end()) {
        if (vcq == home && !from_the_first) // as all before
            return true;
        if (!ways_.ready())
            return false;
        found = ways_->emplace(home, Way{{&on_fence}, from_the_first ? 0 : home, 0, false, true}).first;
    }
    Way& way = found->second;
    if (way.fenced)
        return false;
    const bool behind_write = reads && reads_ordered_ && way.wrote;
    last_ = &way;
    last_home_ = reads_ordered_ ? 0 : home;
    if (way.vcq == vcq && way.region == region && !behind_write) [[likely]] {
        way.wrote |= !reads;
        return true;
    }
    if (way.vcq != 0) {
        const vcq::Post post = vcq_.fence(way.vcq, way);
        way.fenced = post == vcq::Post::done;
        if (post != vcq::Post::error)
            return false;
    }
    way.vcq = vcq;
    way.region = region;
    way.wrote = !reads;
    return true;
}

/// Also where it failed: what can't be reached has nothing that could be overtaken.
void VcqOrder::on_fence(vcq::Waiter* waiter, const vcq::Notice&) noexcept
{
    Way& way = *static_cast<Way*>(waiter);
    way.fenced = false;
    way.vcq = 0;
}

} // namespace tofu
