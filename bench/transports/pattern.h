// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What all transports do alike, so that only the transport differs: buffers, windows.
#pragma once

#include "transport.h"

#include <sys/mman.h>

namespace tofu::bench {

inline constexpr std::size_t window = 64; ///< operations under way

/// Slots of a window: as many as fit into half a buffer, few where they are large.
constexpr std::size_t slots_of(std::size_t size)
{
    if (size == 0)
        return window;
    std::size_t fit = buffer_bytes / 2 / size;
    std::size_t most = size >= 65536 ? 16 : window;
    return fit < most ? fit : most;
}

/// Pieces of memory that a sample of write_once touches.
constexpr std::size_t once_pieces(std::size_t size)
{
    return (std::size_t{4} << 20) / size;
}

/// Private pages with something in them; null: no memory.
inline std::byte* map_bytes(std::size_t bytes)
{
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}
/// Sides beyond the first pair take part with few and small transfers only.
constexpr std::size_t bytes_of_side(int side)
{
    return side < 2 ? buffer_bytes : buffer_bytes / 16;
}
inline std::byte* map_buffer(int side)
{
    return map_bytes(bytes_of_side(side));
}

} // namespace tofu::bench
