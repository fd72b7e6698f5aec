// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See local_buffer.h.
#include "mem/local_buffer.h"

#include <rdma/fi_errno.h>

#include "core/log.h"
#include "mem/mr.h"
#include "mem/reg_cache.h"

namespace tofu {

/// Open MPI 4.1 has a null buffer where MPI_BOTTOM is sent with a type of absolute addresses, and waits for ever for
/// the operation that is refused: the line is all that its user sees.
int refuse_null() noexcept
{
    TOFU_WARN(FI_LOG_EP_DATA, "a buffer has a length but a null address: pass the address of the data\n");
    return -FI_EINVAL;
}

// A buffer without a region is registered for one transfer, after which nothing can be stale, or the registration
// cache keeps it. For a buffer inside a region the whole region is registered, until it is closed, which RegionTable
// reports by forget(). That is done for max_kept regions at a time: those of a program with tens of thousands would use
// up the steering tags of the VCQ. Buffers in the others are registered as if they lay in none.

LocalMemory::LocalMemory(vcq::Vcq& vcq, const Descs* descs) noexcept : vcq_(vcq), descs_(descs) {}

LocalMemory::~LocalMemory()
{
    for (const Kept& kept : kept_)
        vcq_.dereg(kept.stadd);
    // Of transfers that end without a word with their endpoint; the VCQ may be others' and live on.
    for (const Transient& transient : transient_)
        if (transient.next_free == in_use)
            vcq_.dereg(transient.stadd);
}

int LocalMemory::acquire(const void* address, std::size_t length, bool read_only, LocalRef& ref, void* desc) noexcept
{
    if (desc != nullptr && descs_ != nullptr) {
        ref.cache_slot = 0;
        if (int ret = acquire_region(desc, address, length, read_only, ref.stadd); ret != -FI_ENOSPC)
            return ret;
    }
    if (!cache_asked_for_) [[unlikely]] {
        cache_asked_for_ = true;
        cache_ = RegistrationCache::make(vcq_);
    }
    if (cache_ != nullptr) {
        const std::uint64_t kept = cache_->counts().kept;
        const unsigned number =
            cache_->acquire(reinterpret_cast<std::uintptr_t>(address), length, read_only, ref.stadd);
        if (number == RegistrationCache::busy) {
            vcq_.statistics().count(Stat::again_stag);
            return -FI_EAGAIN;
        }
        if (number != RegistrationCache::none) {
            ref.cache_slot = cached | number;
            vcq_.statistics().count(cache_->counts().kept == kept ? Stat::cache_hit : Stat::registration);
            return 0;
        }
    }
    if (first_free_ == 0 && !transient_.reserve(transient_.size() + 2))
        return -FI_ENOMEM;
    utofu_stadd_t stadd = 0;
    int ret = vcq_.reg(address, length, read_only, stadd);
    if (ret == -FI_ENOSPC && cache_ != nullptr && cache_->trim())
        ret = vcq_.reg(address, length, read_only, stadd);
    vcq_.statistics().count(ret == -FI_ENOSPC ? Stat::again_stag : Stat::registration);
    if (ret != 0)
        return ret == -FI_ENOSPC ? -FI_EAGAIN : ret;
    std::uint32_t slot = first_free_;
    if (slot != 0) {
        first_free_ = transient_[slot].next_free;
    } else {
        if (transient_.empty())
            transient_.push_reserved({});
        slot = static_cast<std::uint32_t>(transient_.size());
        transient_.push_reserved({});
    }
    transient_[slot] = {stadd, in_use};
    ref = {stadd, slot};
    return 0;
}

int LocalMemory::acquire_region(const void* desc, const void* address, std::size_t length, bool read_only,
                                utofu_stadd_t& stadd) noexcept
{
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    if (find_kept(desc, at, length, read_only, stadd))
        return 0;
    const MemoryRegion* const region = descs_->find(desc);
    if (region == nullptr || !region->covers(address, length))
        return -FI_ENOSPC;
    may_keep_ = kept_.size() < max_kept && kept_.reserve(kept_.size() + 1);
    if (!may_keep_)
        return -FI_ENOSPC;
    utofu_stadd_t base = 0;
    const int ret = vcq_.reg(reinterpret_cast<const void*>(region->base()), region->length(), read_only, base);
    may_keep_ = ret == 0;
    if (ret != 0)
        return ret;
    kept_.push_reserved({desc, region->base(), region->length(), base, read_only});
    stadd = base + (at - region->base());
    return 0;
}

void LocalMemory::release(const LocalRef& ref) noexcept
{
    if (ref.cache_slot == 0)
        return;
    if (ref.cache_slot & cached) {
        cache_->release(ref.cache_slot & ~cached);
        return;
    }
    vcq_.dereg(transient_[ref.cache_slot].stadd);
    transient_[ref.cache_slot].next_free = first_free_;
    first_free_ = ref.cache_slot;
}

void LocalMemory::forget(const MemoryRegion& region) noexcept
{
    for (std::size_t i = 0; i < kept_.size();) {
        if (kept_[i].desc != region.mem_desc) {
            i++;
            continue;
        }
        vcq_.dereg(kept_[i].stadd);
        kept_[i] = kept_.back();
        kept_.pop_back();
        may_keep_ = true;
    }
    if (linked_ != nullptr)
        linked_->forget(region);
}

} // namespace tofu
