// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The bytes of a transfer of a collective, by their place in one of the member's buffers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tofu::schedule {

/// The member's buffers: those of the call, and one of the collective's own.
enum class Buffer : std::uint8_t { in, out, own };

/// What a member does with data that arrives.
enum class Take : std::uint8_t {
    copy,
    left, ///< mine = mine op theirs
    right ///< mine = theirs op mine
};

/// For a receive: no send of its round reads the memory that it writes.
inline constexpr unsigned no_send = 0xff;

/// Pieces of an array of blocks, read as one stream of bytes.
struct Blocks {
    Buffer buffer = Buffer::out;
    std::size_t offset = 0; ///< of the piece of block 0 in the buffer
    std::size_t stride = 0; ///< of blocks
    std::size_t piece = 0;  ///< bytes of each
    unsigned first = 0;     ///< block
    unsigned count = 1;     ///< of blocks
    unsigned ring = 1;      ///< blocks are counted modulo this
    int bit = -1;           ///< >= 0: only blocks with this bit set in their number, from the lowest on
    bool downwards = false; ///< blocks are counted downwards from the first

    [[nodiscard]] constexpr std::size_t bytes() const noexcept { return piece * count; }

    /// visit(offset, done, take) for each contiguous part of `size` bytes from byte `at` of the stream on: its place
    /// behind `offset`, its distance from `at`, its length.
    template <class Visit>
    constexpr void each(std::size_t at, std::size_t size, Visit&& visit) const noexcept
    {
        for (std::size_t done = 0; done < size;) {
            const std::size_t inside = at % piece;
            const std::size_t take = std::min(size - done, piece - inside);
            visit(block(static_cast<unsigned>(at / piece)) * stride + inside, done, take);
            done += take;
            at += take;
        }
    }

  private:
    [[nodiscard]] constexpr std::size_t block(unsigned i) const noexcept
    {
        if (bit >= 0) {
            const unsigned low = i & ((1u << bit) - 1);
            return std::size_t{i - low} * 2 + (std::size_t{1} << bit) + low;
        }
        return (std::size_t{first} + (downwards ? ring - i % ring : i)) % ring;
    }
};

inline constexpr Blocks nothing{};

constexpr Blocks flat(Buffer buffer, std::size_t offset, std::size_t bytes) noexcept
{
    return {.buffer = buffer, .offset = offset, .piece = bytes};
}

} // namespace tofu::schedule
