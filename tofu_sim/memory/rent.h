// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// When the memory of a peer, which is reached by copy through the kernel, is to be moved to where it can be mapped.
//
// The rule for what can be rented or bought: rent until the rent paid is the price, then buy. Go by copy until the
// copies have cost as much more than a mapping would have as a move costs. Whatever comes after that, no more than
// twice the cost of the better choice has been paid; nothing is known of what comes. Where a move has to be asked for
// once more, be it that the owner has mapped new memory there or that it could not move it, it is after twice as much:
// memory that cannot be moved is not requested all the time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tofu::sim {

class Rent {
  public:
    /// The cost of a copy of `bytes` bytes above that of a mapping, and the cost of a move, in nanoseconds, as measured
    /// (docs/memory-model.md, "Moves").
    [[nodiscard]] static constexpr uint64_t copy(uint64_t bytes) noexcept { return 450 + bytes / 25; }
    [[nodiscard]] static constexpr uint64_t move(uint64_t bytes) noexcept { return 50'000 + bytes * 4 / 5; }
    static constexpr uint32_t most_doublings = 8;

    /// Before a copy of `bytes` bytes. True: request a move.
    [[nodiscard]] constexpr bool pay(size_t bytes) noexcept
    {
        paid_ += copy(bytes);
        if (paid_ < move(bytes) << std::min(moves_, most_doublings))
            return false;
        paid_ = 0;
        ++moves_;
        return true;
    }
    [[nodiscard]] constexpr uint64_t paid() const noexcept { return paid_; } ///< since the last move that was asked for

  private:
    uint64_t paid_ = 0;
    uint32_t moves_ = 0; ///< asked for
};

} // namespace tofu::sim
