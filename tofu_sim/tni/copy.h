// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: the stores of a put or get, in an order that a polling CPU may rely on (guide 2.2.10, 6.1.3.1).
// Called by: tni/engine, memory/. Calls: nothing.
//
// Bytes are written from low to high addresses, in aligned words, and the last piece last: who polls the
// last byte of a transfer, or of a line of one up to `ordered_limit`, sees all that is below. A word of 2, 4
// or 8 bytes that is aligned in the destination is written at once.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tofu::sim {

// Above it, only the last line is kept behind the rest: bandwidth matters more.
inline constexpr size_t ordered_limit = size_t{64} << 10;
inline constexpr size_t tofu_line = 256;

template <typename Word>
inline void store_piece(std::byte*& to, const std::byte*& from, size_t& left) noexcept
{
    Word word;
    std::memcpy(&word, from, sizeof word);
    __atomic_store_n(reinterpret_cast<Word*>(to), word, __ATOMIC_RELAXED);
    to += sizeof word;
    from += sizeof word;
    left -= sizeof word;
}

// Release order between pieces: free on x86, where stores are seen in program order.
inline void store_order() noexcept
{
    std::atomic_thread_fence(std::memory_order_release);
}

inline void copy_ascending(std::byte* to, const std::byte* from, size_t left) noexcept
{
    const auto misaligned = [&](size_t size) {
        return (reinterpret_cast<uintptr_t>(to) & size) != 0 && left >= size;
    };
    if (misaligned(1)) {
        store_piece<uint8_t>(to, from, left);
    }
    if (misaligned(2)) {
        store_piece<uint16_t>(to, from, left);
    }
    if (misaligned(4)) {
        store_piece<uint32_t>(to, from, left);
    }
#if defined(__SSE2__)
    // 16 bytes at once: on CPUs with AVX an aligned one is seen whole.
    if (left >= 32 && (reinterpret_cast<uintptr_t>(to) & 8) != 0) {
        store_piece<uint64_t>(to, from, left);
    }
    while (left >= 16 && (reinterpret_cast<uintptr_t>(to) & 15) == 0) {
        const __m128i wide = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
        _mm_store_si128(reinterpret_cast<__m128i*>(to), wide);
        std::atomic_signal_fence(std::memory_order_release);
        to += 16;
        from += 16;
        left -= 16;
    }
#endif
    while (left >= 8) {
        store_order();
        store_piece<uint64_t>(to, from, left);
    }
    store_order();
    if ((left & 4) != 0) {
        store_piece<uint32_t>(to, from, left);
        store_order();
    }
    if ((left & 2) != 0) {
        store_piece<uint16_t>(to, from, left);
        store_order();
    }
    if ((left & 1) != 0) {
        store_piece<uint8_t>(to, from, left);
    }
}

inline void copy_ordered(std::byte* to, const std::byte* from, size_t size) noexcept
{
    if (size > ordered_limit) [[unlikely]] {
        const size_t end_offset = (reinterpret_cast<uintptr_t>(to) + size - 1) & (tofu_line - 1);
        const size_t body = size - 1 - end_offset;
        std::memcpy(to, from, body);
        store_order();
        to += body;
        from += body;
        size -= body;
    }
    copy_ascending(to, from, size);
}

} // namespace tofu::sim
