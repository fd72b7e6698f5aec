// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Copies of messages that were reported as sent and that their receivers fetch. Their blocks are registered with the
// home VCQ of the domain, so that they can outlive their endpoint (estate.h). Made by the sender with its first copy;
// calls mem/bounce_pool.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "core/lock.h"
#include "mem/bounce_pool.h"
#include "msg/rx_area.h"
#include "tx/operation.h"

namespace tofu::proto {

/// A copy, and who fetches it.
struct Copy {
    Bounce block{};
    std::size_t size = 0;    ///< of the message
    bool live = false;
    std::uint32_t fin = 0;   ///< the completion word that its receiver writes,
    std::uint32_t seq = 0;   ///< and the operation that it belongs to
    utofu_vcq_id_t home = 0; ///< the receiver's home VCQ,
    utofu_stadd_t area = 0;  ///< its area,
    std::uint64_t nonce = 0; ///< and the nonce of its domain
};

class Copies {
  public:
    /// Messages of up to so many bytes are copied for the receiver to fetch, so that the sender need not wait for the
    /// fetch: the copy takes a microsecond, two switches between processes take several. Longer copies, or more of
    /// them, would push each other out of the processor's cache.
    static constexpr std::size_t longest = 16384;

    /// The destructor takes the home lock.
    Copies(vcq::Vcq& home, Lock& home_lock) noexcept
        : short_(home, {BouncePool::small_size, shortest_ones}, {BouncePool::large_size, short_ones}, &home_lock),
          long_(home, {}, {longest, long_ones}, &home_lock)
    {
    }
    /// Null: none is free now.
    [[nodiscard]] Copy* alloc(std::size_t size) noexcept
    {
        const Bounce block = pool_for(size).alloc(size);
        if (block.data == nullptr)
            return nullptr;
        Copy* const copy = pool_.alloc();
        if (copy == nullptr) {
            pool_for(size).release(block);
            return nullptr;
        }
        *copy = {.block = block, .size = size, .live = true};
        return copy;
    }
    void release(Copy& copy) noexcept
    {
        copy.live = false;
        pool_for(copy.size).release(copy.block);
        pool_.release(&copy);
    }
    [[nodiscard]] std::size_t in_use() const noexcept { return pool_.in_use(); }
    /// Calls `visit` for each copy that is in use; `visit` may release() it.
    template <class Visit>
    void each(Visit&& visit) noexcept
    {
        pool_.each([&](Copy& copy) {
            if (copy.live)
                visit(copy);
        });
    }

    // --- of an endpoint that is closed (estate.h)
    std::unique_ptr<Copies> next;
    std::optional<Area> area; ///< with the completion words
    unsigned number = 0;      ///< of the endpoint

  private:
    [[nodiscard]] BouncePool& pool_for(std::size_t size) noexcept
    {
        return size <= BouncePool::large_size ? short_ : long_;
    }
    static constexpr unsigned shortest_ones = 192, short_ones = 24, long_ones = 16;

    BouncePool short_;
    BouncePool long_;
    Pool<Copy> pool_{shortest_ones + short_ones + long_ones};
};

} // namespace tofu::proto
