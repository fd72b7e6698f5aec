// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One communication instruction, as the engine executes it and as utofu_prepare_* writes it to memory.
//
// Four words, or eight for piggyback and cswap8:
//   0: op 7-0, armw op 11-8, SPS 15-12, edata 23-16, length 47-24, flags and path 63-48 (pack_flags)
//   1: VCQ ID; in its zero bits: MTU 14-4, gap 22-15
//   2: remote STADD
//   3: local STADD, operand, or data of piggyback8 (length <= 8 of a piggyback)
//   4-7: data of a longer piggyback; compare value of cswap8 (word 4)
#include "tni/descriptor.h"

#include <utofu.h>

#include <cstring>

namespace tofu::sim {
namespace {

constexpr uint64_t vcq_id_spare = 0x007ffff0; ///< where MTU and gap go
constexpr uint32_t flag_mask = UTOFU_ONESIDED_FLAG_STRONG_ORDER | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE |
                               UTOFU_ONESIDED_FLAG_PADDING | UTOFU_ONESIDED_FLAG_CACHE_INJECTION |
                               UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;

/// Bits 0, 2, 3, 5, 14, 15 are flags; the path goes to the free bits 9-12. DELAY_START has no meaning here.
uint64_t pack_flags(const Descriptor& d) noexcept
{
    return (d.flags & flag_mask) | uint64_t{d.path & 0xfu} << 9;
}

bool is_large(const Descriptor& d) noexcept
{
    return d.op == Op::cswap8 || (d.op == Op::put_piggyback && d.length > 8);
}

bool known_armw_op(unsigned op) noexcept
{
    return op >= UTOFU_ARMW_OP_SWAP && op <= UTOFU_ARMW_OP_OR;
}

bool is_sound(const Descriptor& d) noexcept
{
    switch (d.op) {
    case Op::put:
    case Op::get: return d.mtu <= max_mtu_bytes;
    case Op::put_piggyback: return d.length <= max_piggyback;
    case Op::armw4: return known_armw_op(d.armw_op) && d.rmt_stadd % 4 == 0;
    case Op::armw8: return known_armw_op(d.armw_op) && d.rmt_stadd % 8 == 0;
    case Op::cswap4: return d.rmt_stadd % 4 == 0;
    case Op::cswap8: return d.rmt_stadd % 8 == 0;
    case Op::nop: return true;
    }
    return false;
}

} // namespace

size_t encode_descriptor(const Descriptor& d, void* memory) noexcept
{
    uint64_t words[8] = {};
    words[0] = static_cast<uint64_t>(d.op) | uint64_t{d.armw_op} << 8 | uint64_t{d.sps & 0xfu} << 12 |
               uint64_t{d.edata} << 16 | uint64_t{d.length} << 24 | pack_flags(d) << 48;
    words[1] = (d.rmt_vcq_id & ~vcq_id_spare) | uint64_t{d.mtu} << 4 | uint64_t{d.gap} << 15;
    words[2] = d.rmt_stadd;
    words[3] = d.lcl_stadd;
    if (d.op == Op::cswap4) {
        words[3] = (d.operand & 0xffffffff) | d.compare << 32;
    } else if (d.op == Op::cswap8 || d.op == Op::armw4 || d.op == Op::armw8) {
        words[3] = d.operand;
        words[4] = d.compare;
    } else if (d.op == Op::put_piggyback) {
        std::memcpy(d.length > 8 ? &words[4] : &words[3], d.data, d.length);
    }
    const size_t bytes = is_large(d) ? large_descriptor_bytes : small_descriptor_bytes;
    std::memcpy(memory, words, bytes);
    return bytes;
}

std::optional<size_t> decode_descriptor(const void* memory, size_t bytes, Descriptor& d) noexcept
{
    uint64_t words[8] = {};
    if (bytes < small_descriptor_bytes)
        return std::nullopt;
    std::memcpy(words, memory, small_descriptor_bytes);
    d.op = static_cast<Op>(words[0] & 0xff);
    d.armw_op = words[0] >> 8 & 0xf;
    d.sps = words[0] >> 12 & 0xf;
    d.edata = static_cast<uint8_t>(words[0] >> 16);
    d.length = static_cast<uint32_t>(words[0] >> 24 & 0xffffff);
    const uint64_t packed = words[0] >> 48;
    d.flags = static_cast<uint32_t>(packed) & flag_mask;
    d.path = packed >> 9 & 0xf;
    d.mtu = static_cast<uint16_t>(words[1] >> 4 & 0x7ff);
    d.gap = static_cast<uint8_t>(words[1] >> 15);
    d.rmt_vcq_id = words[1] & ~vcq_id_spare;
    d.rmt_stadd = words[2];
    d.lcl_stadd = words[3];
    d.operand = words[3];
    d.compare = 0;
    if (!is_sound(d) || (d.path & 6) == 6 || (packed & ~uint64_t{flag_mask | 0xf << 9}) != 0)
        return std::nullopt;
    const size_t used = is_large(d) ? large_descriptor_bytes : small_descriptor_bytes;
    if (bytes < used)
        return std::nullopt;
    std::memcpy(words, memory, used);
    if (d.op == Op::cswap4) {
        d.operand = words[3] & 0xffffffff;
        d.compare = words[3] >> 32;
    } else if (d.op == Op::cswap8) {
        d.compare = words[4];
    } else if (d.op == Op::put_piggyback) {
        std::memcpy(d.data, d.length > 8 ? &words[4] : &words[3], d.length);
    }
    return used;
}

} // namespace tofu::sim
