// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_mr: memory that peers may reach, and the keys they reach it by. Called by the application; by rma and
// atomic (RemoteKey); by all who need a local buffer registered (LocalMemory). Calls vcq.
//
// Remote addressing is one addition: STADD of the target = bias + remote address, where bias comes from the
// key. A key of ours (FI_MR_PROV_KEY) *is* the bias: STADD minus base address with FI_MR_VIRT_ADDR, the STADD
// itself with offsets. A key of the user is looked up in the directory of the peer's regions by one-sided
// Get, and remembered together with its generation.
#pragma once

#include <atomic>
#include <cstdint>

#include <rdma/fi_domain.h>

#include "vcq/vcq.h"

namespace tofu {

class Counter;
class Domain;
class Endpoint;
struct Peer;

class MemoryRegion final : public fid_mr {
  public:
    static MemoryRegion& of(fid_mr* m) noexcept { return *static_cast<MemoryRegion*>(m); }
    /// The region behind a `desc` of the application (fi_mr_desc), or null for a null desc.
    static MemoryRegion* of_desc(void* desc) noexcept { return static_cast<MemoryRegion*>(desc); }

    [[nodiscard]] bool covers(const void* address, std::size_t length) const noexcept
    {
        auto offset = reinterpret_cast<std::uintptr_t>(address) - base_;
        return offset <= length_ && length <= length_ - offset;
    }
    /// STADD with the home VCQ of an address inside the region.
    [[nodiscard]] utofu_stadd_t home_stadd(const void* address) const noexcept
    {
        return stadd_ + (reinterpret_cast<std::uintptr_t>(address) - base_);
    }

  private:
    friend class RegionTable;
    Domain* domain_ = nullptr;
    std::uintptr_t base_ = 0;
    std::size_t length_ = 0;
    utofu_stadd_t stadd_ = 0;
    std::uint64_t access_ = 0;
    Counter* counter_ = nullptr;
};

/// A local buffer as the posting VCQ knows it. Give it back with LocalMemory::release when the
/// communication is over.
struct LocalRef {
    utofu_stadd_t stadd = 0;
    std::uint32_t cache_slot = 0; ///< of LocalMemory; 0: nothing to give back
};

/// Registrations of local buffers with one VCQ, under that VCQ's owner's lock.
class LocalMemory {
  public:
    explicit LocalMemory(vcq::Vcq& vcq) noexcept : vcq_(vcq) {}
    ~LocalMemory();
    /// Registers [address, address + length) with the VCQ, or finds it registered. 0 or -FI_E* (-FI_EAGAIN: no
    /// STADD left until others are released).
    [[nodiscard]] int acquire(const void* address, std::size_t length, bool read_only,
                              LocalRef& ref) noexcept;
    void release(const LocalRef& ref) noexcept;

  private:
    vcq::Vcq& vcq_;
};

} // namespace tofu
