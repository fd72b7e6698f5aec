// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See av_set.h.
#include "coll/av_set.h"

#include <algorithm>

#include <rdma/fi_errno.h>

#include "core/log.h"

namespace tofu::coll {

/// All collectives are supported, so a choice among them saves nothing.
constexpr std::uint64_t choices = FI_BARRIER_SET | FI_BROADCAST_SET | FI_ALLTOALL_SET | FI_ALLREDUCE_SET |
                                  FI_ALLGATHER_SET | FI_REDUCE_SCATTER_SET | FI_REDUCE_SET | FI_SCATTER_SET |
                                  FI_GATHER_SET;

static fi_ops set_fid_ops = object_ops({.close = close_object<AvSet>});
static fi_ops_av_set set_ops = {
    .size = sizeof(fi_ops_av_set),
    .set_union = bind_member<&AvSet::unite>,
    .intersect = bind_member<&AvSet::intersect>,
    .diff = bind_member<&AvSet::subtract>,
    .insert = bind_member<&AvSet::insert>,
    .remove = bind_member<&AvSet::remove>,
    .addr = bind_member<&AvSet::get_address>,
};

AvSet::AvSet(Peers& peers) noexcept : Object(&peers, FI_CLASS_AV_SET)
{
    fid.ops = &set_fid_ops;
    ops = &set_ops;
}

/// The initial members: all addresses of the vector, the valid ones of a range, or none.
int AvSet::set_up(const fi_av_set_attr* wish) noexcept
{
    if (wish == nullptr)
        return -FI_EINVAL;
    const fi_av_set_attr& attr = *wish;
    if ((attr.flags & ~(choices | FI_UNIVERSE)) != 0)
        return -FI_EBADFLAGS;
    if (attr.comm_key_size != 0) {
        TOFU_WARN(FI_LOG_AV,
                  "address vector set: communication keys are not supported: create the group by fi_join_collective\n");
        return -FI_EOPNOTSUPP;
    }
    fi_addr_t first = attr.start_addr;
    fi_addr_t last = attr.end_addr;
    std::uint64_t stride = attr.stride;
    if ((attr.flags & FI_UNIVERSE) != 0)
        first = 0, last = FI_ADDR_NOTAVAIL - 1, stride = 1;
    else if (first == FI_ADDR_NOTAVAIL && last == FI_ADDR_NOTAVAIL)
        return members_.reserve(std::min<std::size_t>(attr.count, peers().size())) ? 0 : -FI_ENOMEM;
    else if (first == FI_ADDR_NOTAVAIL || last == FI_ADDR_NOTAVAIL || first > last || (stride == 0 && first != last))
        return -FI_EINVAL;
    const std::size_t end = peers().size();
    for (fi_addr_t at = first; at <= last && at < end; at += stride) {
        if (peers().find(at) != nullptr && !add(at))
            return -FI_ENOMEM;
        if (stride == 0 || at + stride < at)
            break;
    }
    if (attr.count != 0 && members_.size() > attr.count) {
        TOFU_WARN(FI_LOG_AV, "address vector set: more addresses than fi_av_set_attr.count: raise the count\n");
        return -FI_EINVAL;
    }
    return 0;
}

/// Appends a member. False: no memory.
bool AvSet::add(fi_addr_t address) noexcept
{
    return allocates([&] {
        present_.resize(std::max<std::size_t>(present_.size(), address + 1));
        members_.push_back(address);
        present_[address] = true;
    });
}

const AvSet* AvSet::compatible(const fid_av_set* other) const noexcept
{
    const bool ours = other != nullptr && is_ours(&other->fid, FI_CLASS_AV_SET);
    const auto* const set = ours ? static_cast<const AvSet*>(other) : nullptr;
    return set != nullptr && &set->peers() == &peers() ? set : nullptr;
}

int AvSet::unite(const fid_av_set* other) noexcept
{
    const AvSet* const from = compatible(other);
    if (from == nullptr)
        return -FI_EINVAL;
    if (from == this)
        return 0;
    const std::size_t before = members_.size();
    for (const fi_addr_t address : from->members_)
        if (!has(address) && !add(address)) {
            for (; members_.size() > before; members_.pop_back())
                present_[members_.back()] = false;
            return -FI_ENOMEM;
        }
    return 0;
}

/// Keeps the members that the other set also has (`common`), or those that it has not.
int AvSet::keep(const fid_av_set* other, bool common) noexcept
{
    const AvSet* const with = compatible(other);
    if (with == nullptr)
        return -FI_EINVAL;
    std::erase_if(members_, [&](fi_addr_t address) { return with->has(address) != common; }); // their order stays
    // After that, because `other` may be this set.
    present_.assign(present_.size(), false);
    for (const fi_addr_t address : members_)
        present_[address] = true;
    return 0;
}

int AvSet::get_address(fi_addr_t* to) const noexcept
{
    if (to == nullptr)
        return -FI_EINVAL;
    *to = address();
    return 0;
}

int AvSet::insert(fi_addr_t address) noexcept
{
    if (peers().find(address) == nullptr || peers().index_of(address) != address || has(address))
        return -FI_EINVAL;
    return add(address) ? 0 : -FI_ENOMEM;
}

int AvSet::remove(fi_addr_t address) noexcept
{
    if (!has(address))
        return -FI_EINVAL;
    present_[address] = false;
    (void)members_.erase(address);
    return 0;
}

} // namespace tofu::coll
