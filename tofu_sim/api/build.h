// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// From the parameters of a start or preparation function to a checked descriptor (guide 3.7.1, 3.7.2).
#pragma once

#include "api/exports.h"
#include "tni/descriptor.h"
#include "tni/vcq.h"

#include <cstring>

namespace tofu::sim {

/// Bit 1 is what real implementations use inside; programs pass it, and it means nothing here.
inline constexpr unsigned long onesided_flags =
    UTOFU_ONESIDED_FLAG_STRONG_ORDER | 2ul | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_PADDING |
    UTOFU_ONESIDED_FLAG_CACHE_INJECTION | UTOFU_ONESIDED_FLAG_DELAY_START | UTOFU_ONESIDED_FLAG_TCQ_NOTICE |
    UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_SPS(0xf) | UTOFU_ONESIDED_FLAG_PATH(0xf);

/// What all instructions but NOP have in common.
[[nodiscard]] inline int build_common(Descriptor& d, Op op, uint64_t rmt_vcq_id, uint64_t rmt_stadd, uint64_t edata,
                                      unsigned long flags) noexcept
{
    if ((flags & ~onesided_flags) != 0) [[unlikely]]
        return UTOFU_ERR_INVALID_FLAGS;
    if ((flags & UTOFU_ONESIDED_FLAG_PATH(6)) == UTOFU_ONESIDED_FLAG_PATH(6)) [[unlikely]]
        return UTOFU_ERR_INVALID_PATH_ID; // B = 3
    if (edata > 0xff) [[unlikely]]
        return UTOFU_ERR_INVALID_EDATA;
    d.op = op;
    d.edata = static_cast<uint8_t>(edata);
    d.flags = static_cast<uint32_t>(flags & 0xffff);
    d.sps = static_cast<uint8_t>(flags >> 24 & 0xf);
    d.path = static_cast<uint8_t>(flags >> 28 & 0xf);
    d.rmt_vcq_id = rmt_vcq_id;
    d.rmt_stadd = rmt_stadd;
    return UTOFU_SUCCESS;
}

/// Put and Get.
[[nodiscard]] inline int build_transfer(Descriptor& d, Op op, uint64_t rmt_vcq_id, uint64_t lcl_stadd,
                                        uint64_t rmt_stadd, size_t length, uint64_t edata, unsigned long flags) noexcept
{
    if (length > max_transfer) [[unlikely]]
        return UTOFU_ERR_INVALID_SIZE;
    d.lcl_stadd = lcl_stadd;
    d.length = static_cast<uint32_t>(length);
    return build_common(d, op, rmt_vcq_id, rmt_stadd, edata, flags);
}

/// MTU and transmission gap (guide 2.2.9). 0 as MTU is taken as the largest.
[[nodiscard]] inline int build_gap(Descriptor& d, size_t mtu, size_t gap) noexcept
{
    if (mtu > max_mtu_bytes) [[unlikely]]
        return UTOFU_ERR_INVALID_SIZE;
    if (gap > max_gap_units) [[unlikely]]
        return UTOFU_ERR_INVALID_NUMBER;
    d.mtu = static_cast<uint16_t>(mtu);
    d.gap = static_cast<uint8_t>(gap);
    return UTOFU_SUCCESS;
}

[[nodiscard]] inline int build_transfer(Descriptor& d, Op op, uint64_t rmt_vcq_id, uint64_t lcl_stadd,
                                        uint64_t rmt_stadd, size_t length, uint64_t edata, unsigned long flags,
                                        size_t mtu, size_t gap) noexcept
{
    const int rc = build_gap(d, mtu, gap);
    return rc != UTOFU_SUCCESS ? rc : build_transfer(d, op, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags);
}

[[nodiscard]] inline int build_piggyback(Descriptor& d, uint64_t rmt_vcq_id, const void* data, size_t max_length,
                                         uint64_t rmt_stadd, size_t length, uint64_t edata,
                                         unsigned long flags) noexcept
{
    if (length > max_length) [[unlikely]]
        return UTOFU_ERR_INVALID_SIZE;
    if (data == nullptr && length != 0) [[unlikely]]
        return UTOFU_ERR_INVALID_POINTER;
    d.length = static_cast<uint32_t>(length);
    // Word by word, as programs write what they post: a wider load would have to wait for their stores. And each word
    // by itself, so that the descriptor need not lie in memory (tni/execute.h).
    if (length == 8) [[likely]] {
        std::memcpy(&d.data[0], data, 8);
    } else if (length != 0) {
        const auto* from = static_cast<const std::byte*>(data);
        std::byte copy[max_piggyback];
        if (length % 8 != 0) {
            std::memset(copy, 0, sizeof copy);
            std::memcpy(copy, data, length);
            from = copy;
        }
        std::memcpy(&d.data[0], from, 8);
        if (length > 8)
            std::memcpy(&d.data[1], from + 8, 8);
        if (length > 16)
            std::memcpy(&d.data[2], from + 16, 8);
        if (length > 24)
            std::memcpy(&d.data[3], from + 24, 8);
    }
    return build_common(d, Op::put_piggyback, rmt_vcq_id, rmt_stadd, edata, flags);
}

[[nodiscard]] inline int build_armw(Descriptor& d, Op op, unsigned size, uint64_t rmt_vcq_id, int armw_op,
                                    uint64_t operand, uint64_t rmt_stadd, uint64_t edata, unsigned long flags) noexcept
{
    if (armw_op < UTOFU_ARMW_OP_SWAP || armw_op > UTOFU_ARMW_OP_OR) [[unlikely]]
        return UTOFU_ERR_INVALID_OP;
    if (rmt_stadd % size != 0) [[unlikely]]
        return UTOFU_ERR_INVALID_STADD;
    d.armw_op = static_cast<uint8_t>(armw_op);
    d.operand = operand;
    return build_common(d, op, rmt_vcq_id, rmt_stadd, edata, flags);
}

[[nodiscard]] inline int build_cswap(Descriptor& d, Op op, unsigned size, uint64_t rmt_vcq_id, uint64_t old_value,
                                     uint64_t new_value, uint64_t rmt_stadd, uint64_t edata,
                                     unsigned long flags) noexcept
{
    if (rmt_stadd % size != 0) [[unlikely]]
        return UTOFU_ERR_INVALID_STADD;
    d.compare = old_value;
    d.operand = new_value;
    return build_common(d, op, rmt_vcq_id, rmt_stadd, edata, flags);
}

[[nodiscard]] inline int build_nop(Descriptor& d, unsigned long flags) noexcept
{
    return build_common(d, Op::nop, 0, 0, 0, flags);
}

/// The n-th block of a stride: STADDs move on together.
inline void next_block(Descriptor& d, size_t stride) noexcept
{
    d.lcl_stadd += stride;
    d.rmt_stadd += stride;
}

} // namespace tofu::sim
