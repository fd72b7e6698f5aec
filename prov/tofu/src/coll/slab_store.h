// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The memory of a domain that the members of its groups give to their neighbours, which write there unconditionally. It
// lies under reserved STags of the target VCQ, those of endpoint numbers, so that a late write meets no successor's
// memory (docs/wire-protocol.md, "Writes that outlive their endpoint"). All calls are made under the target lock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <utofu.h>

#include "core/containers.h"
#include "mem/bounce_pool.h"

namespace tofu {
class DomainBase;
}

namespace tofu::coll {

/// Cells in a row; a member has one for each lane.
struct Slab {
    std::byte* base = nullptr;
    utofu_stadd_t stadd = 0; ///< of `base`, at the target VCQ
    unsigned cells = 0;
    explicit operator bool() const noexcept { return base != nullptr; }
};

/// Arenas of cells, each with an endpoint number. An arena has at least as many cells as all before it, so few numbers
/// serve many groups.
class SlabStore {
  public:
    static constexpr std::size_t cell_size = 256 + 4 * 4096;
    /// In front of the cells: the header of a receive area that is no endpoint's. A sender that remembers a closed
    /// endpoint with the arena's number reads it.
    static constexpr std::size_t head_size = 256;
    explicit SlabStore(DomainBase& domain) noexcept : domain_(domain) {}
    /// Cells that are zero. 0 or -FI_E* (-FI_ENOSPC: all numbers are in use).
    [[nodiscard]] int alloc(unsigned cells, Slab& slab) noexcept;
    /// `quiet`: no peer writes there any more. Else the cells are not used again, nor is their arena's number before
    /// others.
    void release(const Slab& slab, bool quiet) noexcept;
    /// Deregisters all memory. Called before the target VCQ is closed.
    void close() noexcept;

  private:
    enum class Cell : std::uint8_t { free, used, lost };
    struct Arena {
        OwnMemory memory;
        utofu_stadd_t stadd = 0;
        unsigned number = 0;
        Array<Cell> cells;
        /// The first of so many free ones in a row, or the end.
        [[nodiscard]] auto find(unsigned wanted) noexcept
        {
            return std::search_n(cells.begin(), cells.end(), wanted, Cell::free);
        }
        [[nodiscard]] bool has_only_free() noexcept
        {
            return find(static_cast<unsigned>(cells.size())) == cells.begin();
        }
    };
    [[nodiscard]] int make(unsigned cells) noexcept;
    [[nodiscard]] int open(Arena& arena, unsigned cells) noexcept;
    void drop(Arena& arena) noexcept;

    DomainBase& domain_;
    Array<Arena> arenas_;
};

} // namespace tofu::coll
