// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Arrival times of bytes without a notice, in the segment of their process, written by the process that puts them.
//
// A table without chains: the line of 64 bytes that holds the last byte of a transfer selects an entry, and a
// later transfer overwrites it. A lookup that finds another transfer's entry returns nothing; the model then misses one
// arrival.
#pragma once

#include "clock/figures.h"
#include "job/layout.h"

#include <algorithm>
#include <cstdint>

namespace tofu::sim {

class Arrivals {
  public:
    /// Called before the bytes are written, since their reader may look at once. `noticed`: they have a notice as well,
    /// for which the program waits.
    void note(uint64_t address, uint64_t length, Picoseconds when, bool noticed) noexcept
    {
        const uint64_t line = (address + length - (length != 0 ? 1 : 0)) / line_bytes;
        place(line).store_release(tag(line) | (when + unit - 1) / unit);
        uint64_t last = last_.load_relaxed();
        while (!noticed && last < when && !last_.compare_exchange(last, when)) {
        }
    }
    /// Of what lies in these bytes, the last; 0: nothing that is known.
    [[nodiscard]] Picoseconds when(uint64_t address, uint64_t length) const noexcept
    {
        const uint64_t first = address / line_bytes;
        const uint64_t end = (address + (length != 0 ? length - 1 : 0)) / line_bytes + 1;
        Picoseconds latest = 0;
        for (uint64_t line = end - first > most_lines ? end - most_lines : first; line < end; line++) {
            const uint64_t entry = places_[index(line)].load_acquire(); // partner: note
            if (entry != 0 && (entry & ~time_mask) == tag(line))
                latest = std::max(latest, (entry & time_mask) * unit);
        }
        return latest;
    }
    /// Of all bytes without a notice.
    [[nodiscard]] Picoseconds last() const noexcept { return last_.load_acquire(); }

  private:
    static constexpr uint64_t line_bytes = 64;
    static constexpr uint64_t most_lines = 64;
    static constexpr unsigned place_bits = 16;
    static constexpr uint64_t unit = 256; ///< of the times, so that one word holds it all: 2^48 of them are 20 hours
    static constexpr uint64_t time_mask = (uint64_t{1} << 48) - 1;

    [[nodiscard]] static uint64_t mix(uint64_t line) noexcept { return line * 0x9e3779b97f4a7c15u; }
    [[nodiscard]] static uint64_t index(uint64_t line) noexcept { return mix(line) >> (64 - place_bits); }
    [[nodiscard]] static uint64_t tag(uint64_t line) noexcept { return mix(line) << 48; }
    [[nodiscard]] SharedWord<uint64_t>& place(uint64_t line) noexcept { return places_[index(line)]; }

    alignas(apart) SharedWord<uint64_t> last_;
    alignas(apart) SharedWord<uint64_t> places_[1u << place_bits];
};
static_assert(sizeof(Arrivals) <= clock_area_bytes);

/// `base` is the start of a mapped segment.
[[nodiscard]] inline Arrivals& segment_arrivals(std::byte* base) noexcept
{
    return *reinterpret_cast<Arrivals*>(base + segment_clock_offset);
}

} // namespace tofu::sim
