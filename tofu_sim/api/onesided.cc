// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Guide 3.7.1: functions that start one-sided communication. The hot path.
#include "api/build.h"
#include "tni/engine.h"
#include "tni/execute.h"
#include "tni/gather.h"

using namespace tofu::sim;

namespace {

/// `build` fills the descriptor and returns a code.
template <typename Build>
[[gnu::always_inline]] inline int start(utofu_vcq_hdl_t vcq_hdl, void* cbdata, Build&& build) noexcept
{
    Vcq* const vcq = find_vcq(vcq_hdl);
    if (vcq == nullptr) [[unlikely]]
        return fail(UTOFU_ERR_INVALID_VCQ_HDL);
    Descriptor d;
    if (const int rc = build(d); rc != UTOFU_SUCCESS) [[unlikely]]
        return fail(rc);
    const VcqGuard guard(*vcq);
    if (!toq_takes(*vcq, 1)) [[unlikely]]
        return UTOFU_ERR_BUSY;
    const int rc = post_inline(*vcq, d, cbdata);
    return rc == UTOFU_SUCCESS ? rc : fail(rc);
}

/// Does the ARMW or CSWAP belong to a row? See tni/gather.h.
[[nodiscard]] constexpr bool may_wait(unsigned long flags) noexcept
{
    constexpr unsigned long other_notices = notice_remote | notice_tcq;
    return (flags & (other_notices | UTOFU_ONESIDED_FLAG_DELAY_START)) == UTOFU_ONESIDED_FLAG_DELAY_START;
}

template <Op op>
[[gnu::always_inline]] inline int build_word(Descriptor& d, utofu_vcq_id_t rmt_vcq_id, WhatOf<op> what,
                                             WordOf<op> operand, utofu_stadd_t rmt_stadd, uint64_t edata,
                                             unsigned long flags) noexcept
{
    if constexpr (is_cswap<op>)
        return build_cswap(d, op, sizeof operand, rmt_vcq_id, what, operand, rmt_stadd, edata, flags);
    else
        return build_armw(d, op, sizeof operand, rmt_vcq_id, what, operand, rmt_stadd, edata, flags);
}

template <Op op>
[[gnu::noinline]] int start_row(Vcq& vcq, utofu_vcq_id_t rmt_vcq_id, WhatOf<op> what, WordOf<op> operand,
                                utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long flags) noexcept
{
    Descriptor d;
    if (const int rc = build_word<op>(d, rmt_vcq_id, what, operand, rmt_stadd, edata, flags); rc != UTOFU_SUCCESS)
        return fail(rc);
    const VcqGuard guard(vcq);
    if (!toq_takes(vcq, 1))
        return UTOFU_ERR_BUSY;
    if (gather_first(vcq, d, flags))
        return UTOFU_SUCCESS;
    const int posted = post(vcq, d, nullptr);
    return posted == UTOFU_SUCCESS ? posted : fail(posted);
}

/// One that may wait for others. Out of line: its own few registers are all that it saves.
template <Op op>
[[gnu::noinline]] int add_to_row(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, WhatOf<op> what,
                                 WordOf<op> operand, utofu_stadd_t rmt_stadd, uint64_t edata,
                                 unsigned long flags) noexcept
{
    Vcq* const vcq = find_vcq(vcq_hdl);
    if (vcq == nullptr) [[unlikely]]
        return fail(UTOFU_ERR_INVALID_VCQ_HDL);
    if (gather_next<op>(*vcq, rmt_vcq_id, what, operand, rmt_stadd, edata, flags)) [[likely]]
        return UTOFU_SUCCESS;
    return start_row<op>(*vcq, rmt_vcq_id, what, operand, rmt_stadd, edata, flags);
}

template <Op op>
[[gnu::noinline]] int start_one(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, WhatOf<op> what, WordOf<op> operand,
                                utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long flags, void* cbdata) noexcept
{
    return start(vcq_hdl, cbdata,
                 [&](Descriptor& d) { return build_word<op>(d, rmt_vcq_id, what, operand, rmt_stadd, edata, flags); });
}

/// Two ways, each out of line, so that neither saves the registers of the other.
template <Op op>
[[gnu::always_inline]] inline int start_word(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, WhatOf<op> what,
                                             WordOf<op> operand, utofu_stadd_t rmt_stadd, uint64_t edata,
                                             unsigned long flags, void* cbdata) noexcept
{
    return may_wait(flags) ? add_to_row<op>(vcq_hdl, rmt_vcq_id, what, operand, rmt_stadd, edata, flags)
                           : start_one<op>(vcq_hdl, rmt_vcq_id, what, operand, rmt_stadd, edata, flags, cbdata);
}

/// Several descriptors at equal distances: all are posted or, when the TOQ has no room for all, none.
template <typename Build>
int start_blocks(utofu_vcq_hdl_t vcq_hdl, void* cbdata, size_t stride, size_t num_blocks, Build&& build) noexcept
{
    Vcq* const vcq = find_vcq(vcq_hdl);
    if (vcq == nullptr)
        return fail(UTOFU_ERR_INVALID_VCQ_HDL);
    Descriptor d;
    if (const int rc = build(d); rc != UTOFU_SUCCESS)
        return fail(rc);
    if (num_blocks == 0 || num_blocks > toq_entries)
        return fail(UTOFU_ERR_INVALID_NUMBER);
    const VcqGuard guard(*vcq);
    if (!toq_takes(*vcq, num_blocks))
        return UTOFU_ERR_BUSY;
    for (size_t block = 0; block < num_blocks; block++) {
        if (const int rc = post(*vcq, d, cbdata); rc != UTOFU_SUCCESS)
            return fail(rc); // an invalid VCQ ID: the first one already
        next_block(d, stride);
    }
    return UTOFU_SUCCESS;
}

} // namespace

extern "C" {

int putofu_put(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd,
               size_t length, uint64_t edata, unsigned long int flags, void* cbdata)
{
    return start(vcq_hdl, cbdata, [&](Descriptor& d) {
        return build_transfer(d, Op::put, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags);
    });
}

int putofu_put_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd,
                   size_t length, uint64_t edata, unsigned long int flags, size_t mtu, size_t gap, void* cbdata)
{
    return start(vcq_hdl, cbdata, [&](Descriptor& d) {
        return build_transfer(d, Op::put, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, mtu, gap);
    });
}

int putofu_put_stride(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                      utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                      unsigned long int flags, void* cbdata)
{
    return start_blocks(vcq_hdl, cbdata, stride, num_blocks, [&](Descriptor& d) {
        return build_transfer(d, Op::put, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags);
    });
}

int putofu_put_stride_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                          utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                          unsigned long int flags, size_t mtu, size_t gap, void* cbdata)
{
    return start_blocks(vcq_hdl, cbdata, stride, num_blocks, [&](Descriptor& d) {
        return build_transfer(d, Op::put, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, mtu, gap);
    });
}

int putofu_put_piggyback(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, void* lcl_data, utofu_stadd_t rmt_stadd,
                         size_t length, uint64_t edata, unsigned long int flags, void* cbdata)
{
    return start(vcq_hdl, cbdata, [&](Descriptor& d) {
        return build_piggyback(d, rmt_vcq_id, lcl_data, max_piggyback, rmt_stadd, length, edata, flags);
    });
}

int putofu_put_piggyback8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t lcl_data,
                          utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, void* cbdata)
{
    return start(vcq_hdl, cbdata, [&](Descriptor& d) {
        return build_piggyback(d, rmt_vcq_id, &lcl_data, sizeof lcl_data, rmt_stadd, length, edata, flags);
    });
}

int putofu_get(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd,
               size_t length, uint64_t edata, unsigned long int flags, void* cbdata)
{
    return start(vcq_hdl, cbdata, [&](Descriptor& d) {
        return build_transfer(d, Op::get, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags);
    });
}

int putofu_get_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd,
                   size_t length, uint64_t edata, unsigned long int flags, size_t mtu, size_t gap, void* cbdata)
{
    return start(vcq_hdl, cbdata, [&](Descriptor& d) {
        return build_transfer(d, Op::get, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, mtu, gap);
    });
}

int putofu_get_stride(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                      utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                      unsigned long int flags, void* cbdata)
{
    return start_blocks(vcq_hdl, cbdata, stride, num_blocks, [&](Descriptor& d) {
        return build_transfer(d, Op::get, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags);
    });
}

int putofu_get_stride_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                          utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                          unsigned long int flags, size_t mtu, size_t gap, void* cbdata)
{
    return start_blocks(vcq_hdl, cbdata, stride, num_blocks, [&](Descriptor& d) {
        return build_transfer(d, Op::get, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, mtu, gap);
    });
}

int putofu_armw4(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum utofu_armw_op armw_op, uint32_t op_value,
                 utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* cbdata)
{
    return start_word<Op::armw4>(vcq_hdl, rmt_vcq_id, bits_of(armw_op), op_value, rmt_stadd, edata, flags, cbdata);
}

int putofu_armw8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum utofu_armw_op armw_op, uint64_t op_value,
                 utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* cbdata)
{
    return start_word<Op::armw8>(vcq_hdl, rmt_vcq_id, bits_of(armw_op), op_value, rmt_stadd, edata, flags, cbdata);
}

int putofu_cswap4(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint32_t old_value, uint32_t new_value,
                  utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* cbdata)
{
    return start_word<Op::cswap4>(vcq_hdl, rmt_vcq_id, old_value, new_value, rmt_stadd, edata, flags, cbdata);
}

int putofu_cswap8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t old_value, uint64_t new_value,
                  utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* cbdata)
{
    return start_word<Op::cswap8>(vcq_hdl, rmt_vcq_id, old_value, new_value, rmt_stadd, edata, flags, cbdata);
}

int putofu_nop(utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, void* cbdata)
{
    return start(vcq_hdl, cbdata, [&](Descriptor& d) { return build_nop(d, flags); });
}

} // extern "C"

TOFU_SIM_ALIAS(put);
TOFU_SIM_ALIAS(put_gap);
TOFU_SIM_ALIAS(put_stride);
TOFU_SIM_ALIAS(put_stride_gap);
TOFU_SIM_ALIAS(put_piggyback);
TOFU_SIM_ALIAS(put_piggyback8);
TOFU_SIM_ALIAS(get);
TOFU_SIM_ALIAS(get_gap);
TOFU_SIM_ALIAS(get_stride);
TOFU_SIM_ALIAS(get_stride_gap);
TOFU_SIM_ALIAS(armw4);
TOFU_SIM_ALIAS(armw8);
TOFU_SIM_ALIAS(cswap4);
TOFU_SIM_ALIAS(cswap8);
TOFU_SIM_ALIAS(nop);
