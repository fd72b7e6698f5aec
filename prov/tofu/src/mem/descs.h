// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The open regions of a domain by their local descriptors (fi_mr_desc). Filled in by the region table; read by
// LocalMemory, since a desc of the application may be anything: that of another domain, of a closed region, or no desc.
// Calls nothing.
#pragma once

#include <map>
#include <mutex>

#include "core/containers.h"
#include "mem/mr.h"

namespace tofu {

/// Any thread. A region that find() has returned stays as long as the lock of a LocalMemory that RegionTable knows is
/// held: a region that is closed is removed here first, and then forgotten by each LocalMemory under its lock.
class Descs {
  public:
    /// False: no memory.
    [[nodiscard]] bool add(const MemoryRegion& region) noexcept
    {
        std::lock_guard guard(mutex_);
        if (!regions_.ready())
            return false;
        regions_->emplace(region.mem_desc, &region);
        return true;
    }
    void remove(const MemoryRegion& region) noexcept
    {
        std::lock_guard guard(mutex_);
        regions_->erase(region.mem_desc);
    }
    /// The open region of the domain that has this desc, or null. The desc is compared, never followed.
    [[nodiscard]] const MemoryRegion* find(const void* desc) const noexcept
    {
        std::lock_guard guard(mutex_);
        const auto found = regions_->find(desc);
        return found != regions_->end() ? found->second : nullptr;
    }

  private:
    mutable std::mutex mutex_;
    SpareNodeMap<std::map, const void*, const MemoryRegion*> regions_;
};

} // namespace tofu
