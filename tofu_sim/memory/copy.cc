// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: copying as a network interface would: each byte stored once, small aligned words in one store.
// Called by: memory/access, tni/. Calls: nothing.
//
// Every store is a word of the destination, or of a line, aligned, ascending; loads may be unaligned. In copy_small they
// come one after the other for other cores too, loads and stores, for who polls the destination and who writes the source
// (guide 6.1.3.1): x86 does so by itself, and vectors need no more than a compiler that leaves them in their places. In
// copy_body they come in any order.
#include "memory/copy.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <unistd.h>
#endif

namespace tofu::sim {
namespace {

// Measured (bench/memory): vectors win below, the string instruction beyond.
constexpr size_t string_from = 1024;

#if defined(__x86_64__)

// Who fills many buffers in turn, more than the last cache level holds, finds none of them there when he comes back: a
// store would fetch each line from memory only to overwrite it. Stores past the cache take two thirds of the time then,
// and who reads the bytes afterwards pays what was saved, no more. Which buffers come back, and after how many bytes, is
// remembered for those of this thread that were filled last; a buffer that is met for the first time is for the cache.
constexpr size_t past_cache_from = size_t{256} << 10;
const uint64_t out_of_cache = [] {
    const long bytes = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
    return uint64_t(bytes > 0 ? bytes : 32 << 20) / 4; // sources are there, too, and other processes
}();
struct Filled {
    uintptr_t buffer = 0;
    uint64_t before = 0; // bytes that this thread had filled by then
};
thread_local Filled filled[64];
thread_local uint64_t filled_bytes = 0;

bool is_out_of_cache(const std::byte* to, size_t length) noexcept
{
    const uintptr_t buffer = reinterpret_cast<uintptr_t>(to);
    Filled& last = filled[(buffer >> 12) * 0x9e3779b97f4a7c15u >> 58];
    const bool out = last.buffer == buffer && filled_bytes - last.before >= out_of_cache;
    last = {buffer, filled_bytes};
    filled_bytes += length;
    return out;
}

// Whole lines, which begin at `to`.
TOFU_SIM_AS_DEVICE void copy_past_cache(std::byte* to, const std::byte* from, size_t length) noexcept
{
    for (; length != 0; length -= 64, to += 64, from += 64) {
        const auto* const four = reinterpret_cast<const __m128i*>(from);
        const __m128i a = _mm_loadu_si128(four), b = _mm_loadu_si128(four + 1);
        const __m128i c = _mm_loadu_si128(four + 2), d = _mm_loadu_si128(four + 3);
        auto* const line = reinterpret_cast<__m128i*>(to);
        _mm_stream_si128(line, a);
        _mm_stream_si128(line + 1, b);
        _mm_stream_si128(line + 2, c);
        _mm_stream_si128(line + 3, d);
    }
    _mm_sfence();
}

// A cache line in one store, or what of it is to be written: a reader that polls the last line then takes it away
// from us once, and not between two stores into it, which costs another transfer.
const bool has_line_stores = [] {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512bw") != 0;
}();
constexpr size_t lines_from = 32; // bytes; fewer are two stores anyway

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
    if (length >= past_cache_from && is_out_of_cache(to, length)) {
        const size_t head = -reinterpret_cast<uintptr_t>(to) & 63, lines = (length - head) & ~size_t{63};
        copy_small(to, from, head);
        copy_past_cache(to + head, from + head, lines);
        copy_small(to + head + lines, from + head + lines, length - head - lines);
        return;
    }
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
        _mm_store_si128(reinterpret_cast<__m128i*>(to),
                        _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    }
#endif
    // A destination that align_to_words could not align is shorter than a word from here on.
    while (length >= 8)
        step<uint64_t>(to, from, length);
    if ((reinterpret_cast<uintptr_t>(to) & 3) == 0) {
        copy_tail(to, from, length);
    } else {
        while (length != 0)
            step<uint8_t>(to, from, length);
    }
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
