// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One communication instruction, as the engine executes it and as utofu_prepare_* writes it to memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

namespace tofu::sim {

enum class Op : uint8_t {
    put = 1,
    put_piggyback = 2,
    get = 3,
    armw4 = 4,
    armw8 = 5,
    cswap4 = 6,
    cswap8 = 7,
    nop = 8,
};

inline constexpr size_t max_piggyback = 32;
inline constexpr size_t max_transfer = (size_t{1} << 24) - 1;
inline constexpr size_t max_mtu_bytes = 1920;
inline constexpr size_t max_gap_units = 255;

struct Descriptor {
    Op op = Op::nop;
    uint8_t edata = 0;
    uint8_t armw_op = 0; ///< enum utofu_armw_op
    uint8_t sps = 0;     ///< session progress step
    uint32_t flags = 0;  ///< UTOFU_ONESIDED_FLAG_* without SPS and PATH
    uint8_t path = 0;    ///< path ID of the flags, 0: that of the VCQ ID
    uint8_t gap = 0;
    uint16_t mtu = 0; ///< 0: the largest
    uint32_t length = 0;
    uint64_t rmt_vcq_id = 0;
    uint64_t rmt_stadd = 0;
    uint64_t lcl_stadd = 0;           ///< put, get
    uint64_t operand = 0;             ///< armw; new value of cswap
    uint64_t compare = 0;             ///< cswap: old value
    uint64_t data[max_piggyback / 8]; ///< piggyback, as it lies in memory; first `length` bytes are set
};

/// The form in memory: 32 or 64 bytes (tni/descriptor.cc), as large as on real systems.
inline constexpr size_t small_descriptor_bytes = 32;
inline constexpr size_t large_descriptor_bytes = 64;

/// Writes to `memory` (64 bytes of room, aligned to 8); returns the bytes used.
[[nodiscard]] size_t encode_descriptor(const Descriptor& descriptor, void* memory) noexcept;

/// Reads the first descriptor of `bytes` bytes and returns how many it took. Nothing if they hold none: memory of
/// the caller's is not trusted.
[[nodiscard]] std::optional<size_t> decode_descriptor(const void* memory, size_t bytes,
                                                      Descriptor& descriptor) noexcept;

/// The word of a prepared ARMW or CSWAP.
struct PreparedWord {
    uint64_t rmt_stadd;
    uint64_t operand;
    uint64_t compare;
};

/// Reads the descriptor at `memory`, an ARMW of the operation `op`. False: it differs from the one at `first` in more
/// than its word.
[[nodiscard]] inline bool decode_word(const std::byte* first, Op op, const std::byte* memory,
                                      PreparedWord& word) noexcept
{
    uint64_t like[2], words[4], compare = 0;
    std::memcpy(like, first, sizeof like);
    std::memcpy(words, memory, sizeof words);
    if (op == Op::cswap8)
        std::memcpy(&compare, memory + sizeof words, sizeof compare);
    word = op == Op::cswap4 ? PreparedWord{words[2], words[3] & 0xffffffff, words[3] >> 32}
                            : PreparedWord{words[2], words[3], compare};
    return words[0] == like[0] && words[1] == like[1];
}

} // namespace tofu::sim
