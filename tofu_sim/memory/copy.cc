// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Copying as a network interface would: each byte stored once, small aligned words in one store.
//
// Every store is a word of the destination, or of a line, aligned, ascending; loads may be unaligned. In copy_small
// they come one after the other for other cores too, loads and stores, for readers that poll the destination and
// writers of the source (guide 6.1.3.1): x86 does so by itself, and vectors need no more than a compiler that leaves
// them in their places. In copy_body they come in any order.
#include "memory/copy.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tofu::sim {
namespace {

#if defined(__x86_64__)
/// Measured (bench/memory_bench): vectors win below, the string instruction from there on.
constexpr size_t string_from = 1024;

/// A cache line in one store, or what of it is to be written: a reader that polls the last line then takes it away
/// from us once, and not between two stores into it, which costs another transfer.
const bool has_line_stores = [] {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512bw") != 0;
}();
constexpr size_t lines_from = 32; ///< bytes; fewer are two stores anyway

[[gnu::target("avx512f,avx512bw")]] TOFU_SIM_AS_DEVICE void store_part_of_line(std::byte* to, const std::byte* from,
                                                                               size_t length) noexcept
{
    const __mmask64 bytes = ~uint64_t{0} >> (64 - length); // 1 to 64; what is masked out is not touched
    _mm512_mask_storeu_epi8(to, bytes, _mm512_maskz_loadu_epi8(bytes, from));
}

[[gnu::target("avx512f,avx512bw")]] TOFU_SIM_AS_DEVICE void copy_by_lines(std::byte* to, const std::byte* from,
                                                                          size_t length) noexcept
{
    const size_t head = -reinterpret_cast<uintptr_t>(to) & 63;
    if (head != 0) {
        const size_t part = head < length ? head : length;
        store_part_of_line(to, from, part);
        to += part;
        from += part;
        length -= part;
    }
    for (; length >= 64; length -= 64, to += 64, from += 64) {
        __atomic_signal_fence(__ATOMIC_RELEASE);
        _mm512_store_si512(to, _mm512_loadu_si512(from));
    }
    __atomic_signal_fence(__ATOMIC_RELEASE);
    if (length != 0)
        store_part_of_line(to, from, length);
}

#endif

template <typename Word, int order = __ATOMIC_RELEASE>
TOFU_SIM_AS_DEVICE inline void step(std::byte*& to, const std::byte*& from, size_t& length) noexcept
{
    Word word;
    std::memcpy(&word, from, sizeof word);
    if constexpr (order != __ATOMIC_RELAXED)
        __atomic_thread_fence(__ATOMIC_ACQUIRE); // before the next load (partner: a writer of the source)
    __atomic_store_n(reinterpret_cast<Word*>(to), word, order); // partner: a reader polling this word
    to += sizeof(Word);
    from += sizeof(Word);
    length -= sizeof(Word);
}

// At most 7 bytes, so that what follows is aligned to 8.
TOFU_SIM_AS_DEVICE inline void align_to_words(std::byte*& to, const std::byte*& from, size_t& length) noexcept
{
    const auto at = [&] { return reinterpret_cast<uintptr_t>(to); };
    if ((at() & 1) != 0 && length >= 1)
        step<uint8_t>(to, from, length);
    if ((at() & 2) != 0 && length >= 2)
        step<uint16_t>(to, from, length);
    if ((at() & 4) != 0 && length >= 4)
        step<uint32_t>(to, from, length);
}

TOFU_SIM_AS_DEVICE inline void copy_tail(std::byte* to, const std::byte* from, size_t length) noexcept
{
    if (length >= 4)
        step<uint32_t>(to, from, length);
    if (length >= 2)
        step<uint16_t>(to, from, length);
    if (length >= 1)
        step<uint8_t>(to, from, length);
}

TOFU_SIM_AS_DEVICE void copy_body(std::byte* to, const std::byte* from, size_t length) noexcept
{
#if defined(__x86_64__)
    if (length >= string_from) {
        asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(length) : : "memory");
        _mm_sfence(); // string stores may become visible in any order among themselves
        return;
    }
#else
    align_to_words(to, from, length);
    while (length >= 8)
        step<uint64_t, __ATOMIC_RELAXED>(to, from, length);
#endif
    copy_small(to, from, length);
}

} // namespace

TOFU_SIM_AS_DEVICE void copy_small(std::byte* to, const std::byte* from, size_t length) noexcept
{
#if defined(__x86_64__)
    if (length >= lines_from && has_line_stores) {
        copy_by_lines(to, from, length);
        return;
    }
#endif
    align_to_words(to, from, length);
#if defined(__x86_64__)
    if (length >= 16 && (reinterpret_cast<uintptr_t>(to) & 8) != 0)
        step<uint64_t>(to, from, length);
    for (; length >= 16; length -= 16, to += 16, from += 16) {
        __atomic_signal_fence(__ATOMIC_RELEASE);
        _mm_store_si128(reinterpret_cast<__m128i*>(to), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    }
#endif
    // A destination that align_to_words could not align is shorter than a word from here on.
    while (length >= 8)
        step<uint64_t>(to, from, length);
    if ((reinterpret_cast<uintptr_t>(to) & 3) == 0)
        copy_tail(to, from, length);
    else
        while (length != 0)
            step<uint8_t>(to, from, length);
}

TOFU_SIM_AS_DEVICE void copy_large(std::byte* to, const std::byte* from, size_t length, CopyOrder order) noexcept
{
    if (order == CopyOrder::last_line) {
        const uintptr_t end = reinterpret_cast<uintptr_t>(to) + length;
        const size_t last = ((end - 1) & (order_line_bytes - 1)) + 1; // bytes in the last line
        if (last < length) {
            copy_body(to, from, length - last);
            to += length - last;
            from += length - last;
            length = last;
            // The last line after all others, written and read (guide 6.1.3.1; partners: a reader polling it, a writer
            // of the source).
            __atomic_thread_fence(__ATOMIC_ACQ_REL);
        }
        copy_small(to, from, length);
        return;
    }
    copy_body(to, from, length);
}

} // namespace tofu::sim
