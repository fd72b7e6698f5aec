// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Copying as a network interface would: each byte stored once, small aligned words in one store.
//
// memcpy is not suitable: it stores some bytes twice (overlapping vectors), and a reader that has seen a flag and
// cleared it would see it again.
#pragma once

#include "memory/memory.h"

#include <cstring>

// What a network interface does to memory is ordered by messages that ThreadSanitizer does not see.
#define TOFU_SIM_AS_DEVICE __attribute__((no_sanitize("thread")))

namespace tofu::sim {

inline constexpr size_t order_line_bytes = 256; ///< guide, table 6.4: cache_line_size

// `source` and `destination` do not overlap, or are equal. Returns after a point from which a store-release
// makes all bytes visible.
TOFU_SIM_AS_DEVICE void copy_large(std::byte* destination, const std::byte* source, size_t length,
                                   CopyOrder order) noexcept;
TOFU_SIM_AS_DEVICE void copy_small(std::byte* destination, const std::byte* source, size_t length) noexcept;

/// Fetches the cache line at `address`, which need not be mapped, from the processors that have it.
inline void prefetch_to_write(const std::byte* address) noexcept
{
#if defined(__x86_64__)
    // The builtin asks for a shared line unless the compiler may use 3DNow!. No operation on processors without it.
    asm volatile("prefetchw %0" : : "m"(*address));
#else
    __builtin_prefetch(address, 1);
#endif
}

TOFU_SIM_AS_DEVICE inline void copy_bytes(void* destination, const void* source, size_t length,
                                          CopyOrder order) noexcept
{
    std::byte* to = static_cast<std::byte*>(destination);
    const std::byte* from = static_cast<const std::byte*>(source);
    if (length == 8 && (reinterpret_cast<uintptr_t>(to) & 7) == 0) {
        uint64_t word;
        std::memcpy(&word, from, sizeof word);
        __atomic_thread_fence(__ATOMIC_ACQUIRE); // as in copy_small; no instruction on x86
        // Release: partner is a reader polling this word.
        __atomic_store_n(reinterpret_cast<uint64_t*>(to), word, __ATOMIC_RELEASE);
    } else if (length <= order_line_bytes) {
        copy_small(to, from, length);
    } else {
        copy_large(to, from, length, order);
    }
}

} // namespace tofu::sim
