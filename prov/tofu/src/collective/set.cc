// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See set.h.
#include "collective/set.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <new>

#include <rdma/fi_errno.h>

#include "fid/refusal.h"
#include "provider/log.h"

namespace tofu::coll {

namespace {

/// All collectives are offered, so that a choice among them saves nothing.
constexpr std::uint64_t choices = FI_BARRIER_SET | FI_BROADCAST_SET | FI_ALLTOALL_SET | FI_ALLREDUCE_SET |
                                  FI_ALLGATHER_SET | FI_REDUCE_SCATTER_SET | FI_REDUCE_SET | FI_SCATTER_SET |
                                  FI_GATHER_SET;

int close_set(struct fid* fid) noexcept { return AvSet::of(reinterpret_cast<fid_av_set*>(fid)).close(); }
int set_union(fid_av_set* to, const fid_av_set* from) noexcept
{
    return from == nullptr ? -FI_EINVAL : AvSet::of(to).unite(AvSet::of(from));
}
int set_intersect(fid_av_set* to, const fid_av_set* from) noexcept
{
    return from == nullptr ? -FI_EINVAL : AvSet::of(to).keep(AvSet::of(from), true);
}
int set_diff(fid_av_set* to, const fid_av_set* from) noexcept
{
    return from == nullptr ? -FI_EINVAL : AvSet::of(to).keep(AvSet::of(from), false);
}
int set_insert(fid_av_set* set, fi_addr_t address) noexcept { return AvSet::of(set).insert(address); }
int set_remove(fid_av_set* set, fi_addr_t address) noexcept { return AvSet::of(set).remove(address); }
int set_addr(fid_av_set* set, fi_addr_t* address) noexcept
{
    if (address == nullptr)
        return -FI_EINVAL;
    *address = AvSet::of(set).address();
    return 0;
}

fi_ops fid_ops = object_ops({.close = close_set});
fi_ops_av_set set_ops = {
    .size = sizeof(fi_ops_av_set),
    .set_union = set_union,
    .intersect = set_intersect,
    .diff = set_diff,
    .insert = set_insert,
    .remove = set_remove,
    .addr = set_addr,
};

} // namespace

int AvSet::open(fid_av* av, fi_av_set_attr* attr, fid_av_set** set, void* context) noexcept
{
    if (attr == nullptr || set == nullptr)
        return -FI_EINVAL;
    if ((attr->flags & ~(choices | FI_UNIVERSE)) != 0)
        return -FI_EBADFLAGS;
    if (attr->comm_key_size != 0) {
        TOFU_WARN(FI_LOG_AV, "address vector set: there are no communication keys here: let fi_join_collective make "
                             "the group\n");
        return -FI_EOPNOTSUPP;
    }
    Peers& peers = Peers::of(av);
    auto* made = new (std::nothrow) AvSet(peers);
    if (made == nullptr)
        return -FI_ENOMEM;
    if (int ret = made->fill(*attr); ret != 0) {
        delete made;
        return ret;
    }
    made->fid.fclass = FI_CLASS_AV_SET;
    made->fid.context = context;
    made->fid.ops = &fid_ops;
    made->ops = &set_ops;
    peers.hold();
    *set = made;
    return 0;
}

int AvSet::close() noexcept
{
    peers_.release();
    delete this;
    return 0;
}

/// The initial members: all, those of a range that are there, or none.
int AvSet::fill(const fi_av_set_attr& attr) noexcept
{
    fi_addr_t first = attr.start_addr;
    fi_addr_t last = attr.end_addr;
    std::uint64_t stride = attr.stride;
    if ((attr.flags & FI_UNIVERSE) != 0)
        first = 0, last = FI_ADDR_NOTAVAIL - 1, stride = 1;
    else if (first == FI_ADDR_NOTAVAIL && last == FI_ADDR_NOTAVAIL)
        return members_.reserve(std::min<std::size_t>(attr.count, peers_.size())) ? 0 : -FI_ENOMEM;
    else if (first == FI_ADDR_NOTAVAIL || last == FI_ADDR_NOTAVAIL || first > last || (stride == 0 && first != last))
        return -FI_EINVAL;
    const std::size_t end = peers_.size();
    for (fi_addr_t at = first; at <= last && at < end; at += stride) {
        if (peers_.find(at) != nullptr && !add(at))
            return -FI_ENOMEM;
        if (stride == 0 || at + stride < at)
            break;
    }
    if (attr.count != 0 && members_.size() > attr.count) {
        TOFU_WARN(FI_LOG_AV, "address vector set: more addresses than the count allows: raise fi_av_set_attr.count\n");
        return -FI_EINVAL;
    }
    return 0;
}

bool AvSet::has(fi_addr_t address) const noexcept
{
    return address / 64 < present_.size() && (present_[address / 64] >> address % 64 & 1) != 0;
}

void AvSet::mark(fi_addr_t address, bool present) noexcept
{
    const std::uint64_t bit = std::uint64_t{1} << address % 64;
    present_[address / 64] = present ? present_[address / 64] | bit : present_[address / 64] & ~bit;
}

/// At the end. False: no memory.
bool AvSet::add(fi_addr_t address) noexcept
{
    while (present_.size() <= address / 64)
        if (!present_.push(0))
            return false;
    if (!members_.push(address))
        return false;
    mark(address, true);
    return true;
}

/// Groups have the top bit (Engine::address_of), addresses of memory have not.
fi_addr_t AvSet::address() const noexcept { return std::bit_cast<std::uintptr_t>(this); }

int AvSet::unite(const AvSet& other) noexcept
{
    if (&other.peers_ != &peers_)
        return -FI_EINVAL;
    if (&other == this)
        return 0;
    const std::size_t before = members_.size();
    for (const fi_addr_t address : other.members_)
        if (!has(address) && !add(address)) {
            for (; members_.size() > before; members_.pop_back())
                mark(members_.back(), false);
            return -FI_ENOMEM;
        }
    return 0;
}

int AvSet::keep(const AvSet& other, bool common) noexcept
{
    if (&other.peers_ != &peers_)
        return -FI_EINVAL;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < members_.size(); i++)
        if (other.has(members_[i]) == common)
            members_[kept++] = members_[i]; // their order stays
    // Behind the loop, for the other may be this one.
    for (auto& word : present_)
        word = 0;
    while (members_.size() > kept)
        members_.pop_back();
    for (const fi_addr_t address : members_)
        mark(address, true);
    return 0;
}

int AvSet::insert(fi_addr_t address) noexcept
{
    if (peers_.find(address) == nullptr || peers_.place_of(address) != address || has(address))
        return -FI_EINVAL;
    return add(address) ? 0 : -FI_ENOMEM;
}

int AvSet::remove(fi_addr_t address) noexcept
{
    if (!has(address))
        return -FI_EINVAL;
    mark(address, false);
    (void)members_.erase(address);
    return 0;
}

} // namespace tofu::coll
