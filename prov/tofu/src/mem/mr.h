// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A region of memory that peers may reach (fi_mr). The application holds it; api/mr_calls.cc makes and closes it, and the
// domain's RegionTable (mr_table.h) lists it. tx/keys.h tells how peers reach it by its key. Calls nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fi_domain.h>

#include "core/object.h"
#include "cq/counter.h"
#include "utofu/vcq.h"

namespace tofu {

/// What counts the accesses of peers to a region.
struct EventTarget {
    Held<Counter> write_counter;
    Held<Counter> read_counter;
    unsigned endpoint = 0;    ///< number of the one endpoint that counts them ...
    std::uint64_t serial = 0; ///< ... and its serial (mem/event_counters.h); 0: all that count everything do
    [[nodiscard]] bool empty() const noexcept
    {
        return write_counter == nullptr && read_counter == nullptr && serial == 0;
    }
};

/// One region of memory (fi_mr). Registered with the domain's home VCQ, or an annex of it, where peers may reach it
/// (FI_REMOTE_READ, FI_REMOTE_WRITE), read-only unless they may write.
class MemoryRegion final : public Object<MemoryRegion, fid_mr, DomainBase> {
  public:
    MemoryRegion(Counted& domain, fi_ops& calls) noexcept : Object(&domain, FI_CLASS_MR)
    {
        fid.ops = &calls;
        mem_desc = this; // only compared (mem/descs.h)
    }
    [[nodiscard]] bool covers(const void* address, std::size_t length) const noexcept
    {
        auto offset = reinterpret_cast<std::uintptr_t>(address) - base_;
        return offset <= length_ && length <= length_ - offset;
    }
    [[nodiscard]] std::uintptr_t base() const noexcept { return base_; }
    [[nodiscard]] std::size_t length() const noexcept { return length_; }

  private:
    friend class RegionTable;
    std::uintptr_t base_ = 0;
    std::size_t length_ = 0;
    utofu_stadd_t stadd_ = 0; ///< with the VCQ number home_; meaningless unless reachable_
    unsigned home_ = 0;       ///< 0: the home VCQ, else an annex (overflow_vcq.h)
    std::uint8_t before_ = 0; ///< bytes before the region that are registered with it, and
    std::uint8_t behind_ = 0; ///< behind it (RegionTable::register_alone)
    std::uint64_t access_ = 0;
    bool reachable_ = false;
    bool published_ = false; ///< has an entry in the directory
    EventTarget target_;
};

} // namespace tofu
