// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Keeps moves of pages and copies through the kernel into them apart.
//
// A copy through the kernel pins pages before it writes them. Were they moved in between, what it writes would be
// lost, and could not be written again either: the owner may have seen it before the move, and cleared it since. So
// the poster announces its copy and then looks for a move; the owner announces its move and then looks for copies. At
// least one of them sees the other: the poster then lets the owner write; the owner waits a moment, or does not move.
#pragma once

#include "memory/layout.h"

#include <cstddef>

namespace tofu::sim {

/// A copy to [there, there + bytes) of the owner of `area`, for as long as the object lives.
class AnnouncedCopy {
  public:
    AnnouncedCopy(ServiceArea& area, uint64_t there, size_t bytes) noexcept;
    ~AnnouncedCopy() { take_back(); }
    AnnouncedCopy(const AnnouncedCopy&) = delete;
    AnnouncedCopy& operator=(const AnnouncedCopy&) = delete;
    /// False: these pages are being moved, or too many others copy.
    [[nodiscard]] bool may_begin() const noexcept { return slot_ != nullptr; }

  private:
    void take_back() noexcept;
    CopySlot* slot_ = nullptr;
    uint64_t state_ = 0; ///< of the slot, as we left it
};

/// Of all moves that answer one request. The owner holds its registry lock meanwhile.
inline constexpr int looks_for_copies = 150; ///< about 10 ms, and more where CPUs are wanted: pauses come out longer

/// A move of pages in [start, end) of our own, of which there is one at a time.
class AnnouncedMove {
  public:
    /// *tries: looks left.
    AnnouncedMove(ServiceArea& area, uint64_t start, uint64_t end, int* tries) noexcept;
    ~AnnouncedMove() { area_.move_end.store_release(0); }
    AnnouncedMove(const AnnouncedMove&) = delete;
    AnnouncedMove& operator=(const AnnouncedMove&) = delete;
    /// False: a copy to these pages does not end.
    [[nodiscard]] bool may_begin() const noexcept { return may_begin_; }

  private:
    ServiceArea& area_;
    bool may_begin_ = true;
};

} // namespace tofu::sim
