// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Registered blocks that small transfers pass through: copying a few KiB is cheaper than registering the user's buffer,
// which is a system call on the hardware. Used by rma, atomic and messages under the context's lock; calls vcq, pages.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/containers.h"
#include "core/lock.h"
#include "mem/pages.h"
#include "utofu/vcq.h"

namespace tofu {

/// A block; `data` is null where there is none.
struct Bounce {
    std::byte* data = nullptr;
    utofu_stadd_t stadd = 0;
};

/// Blocks of two sizes. Whole slabs of them are allocated and registered when first needed, and freed with the
/// endpoint.
class BouncePool {
  public:
    static constexpr std::size_t small_size = 512;
    static constexpr std::size_t large_size = 8192;
    static constexpr unsigned blocks_of[2] = {256, 32};
    /// Blocks of one size, a slab.
    struct Kind {
        std::size_t size;
        unsigned blocks;
    };

    explicit BouncePool(vcq::Vcq& vcq) noexcept
        : BouncePool(vcq, {small_size, blocks_of[0]}, {large_size, blocks_of[1]})
    {
    }
    /// The smaller first. `lock`, if not null, is that of the VCQ's owner: a new slab is made while that is free, and
    /// the destructor takes it.
    BouncePool(vcq::Vcq& vcq, Kind small, Kind large, Lock* lock = nullptr) noexcept
        : vcq_(vcq), lock_(lock), kinds_{small, large}
    {
    }
    BouncePool(const BouncePool&) = delete;
    BouncePool& operator=(const BouncePool&) = delete;
    ~BouncePool();

    /// A block of at least `size` bytes, which is at most the size of a large one; without data when all are in use.
    [[nodiscard]] Bounce alloc(std::size_t size) noexcept;
    void release(const Bounce& block) noexcept;

  private:
    struct Slab {
        OwnMemory memory;
        utofu_stadd_t stadd = 0;
        Array<std::uint32_t> free;
    };
    [[nodiscard]] bool make(unsigned kind) noexcept;
    [[nodiscard]] bool register_slab(const OwnMemory& memory, utofu_stadd_t& stadd) noexcept;

    vcq::Vcq& vcq_;
    Lock* lock_;
    Kind kinds_[2];
    Slab slabs_[2];
};

} // namespace tofu
