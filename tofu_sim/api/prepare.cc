// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Guide 3.7.2 and 3.7.3: descriptors written to the caller's memory, and posting them.
#include "api/build.h"
#include "tni/engine.h"
#include "tni/gather.h"
#include "tni/remote.h"
#include "tni/session.h"

using namespace tofu::sim;

namespace {

int check_target(utofu_vcq_hdl_t vcq_hdl, const void* desc, const size_t* desc_size) noexcept
{
    if (find_vcq(vcq_hdl) == nullptr)
        return UTOFU_ERR_INVALID_VCQ_HDL;
    if (desc == nullptr || desc_size == nullptr || reinterpret_cast<uintptr_t>(desc) % 8 != 0)
        return UTOFU_ERR_INVALID_POINTER;
    return UTOFU_SUCCESS;
}

template <typename Build>
int prepare_blocks(utofu_vcq_hdl_t vcq_hdl, void* desc, size_t* desc_size, size_t stride, size_t num_blocks,
                   Build&& build) noexcept
{
    if (const int rc = check_target(vcq_hdl, desc, desc_size); rc != UTOFU_SUCCESS)
        return fail(rc);
    Descriptor d;
    if (const int rc = build(d); rc != UTOFU_SUCCESS)
        return fail(rc);
    if (d.op != Op::nop && !is_possible_vcq_id(d.rmt_vcq_id, Process::self().topology()))
        return fail(UTOFU_ERR_INVALID_VCQ_ID);
    if (num_blocks == 0 || num_blocks > toq_entries)
        return fail(UTOFU_ERR_INVALID_NUMBER);
    size_t used = 0;
    for (size_t block = 0; block < num_blocks; block++) {
        used += encode_descriptor(d, static_cast<std::byte*>(desc) + used);
        next_block(d, stride);
    }
    *desc_size = used;
    return UTOFU_SUCCESS;
}

template <typename Build>
int prepare(utofu_vcq_hdl_t vcq_hdl, void* desc, size_t* desc_size, Build&& build) noexcept
{
    return prepare_blocks(vcq_hdl, desc, desc_size, 0, 1, build);
}

/// How many descriptors, all of them sound, or 0.
size_t count_descriptors(const std::byte* desc, size_t desc_size) noexcept
{
    size_t count = 0;
    Descriptor d;
    while (desc_size != 0) {
        const auto used = decode_descriptor(desc, desc_size, d);
        if (!used || (d.op != Op::nop && !is_possible_vcq_id(d.rmt_vcq_id, Process::self().topology())))
            return 0;
        desc += *used;
        desc_size -= *used;
        count++;
    }
    return count;
}

/// All are posted, or none: what may refuse one of them is asked before the first one takes effect. A caller that gets
/// BUSY posts all of them again (guide 3.7.3.1).
int accept_all(const Vcq& vcq, const std::byte* desc, size_t desc_size) noexcept
{
    const bool session = (vcq.special & Vcq::session) != 0;
    Descriptor d;
    while (desc_size != 0) {
        const auto used = decode_descriptor(desc, desc_size, d);
        if (!used)
            return UTOFU_ERR_INVALID_DESC;
        if (session && !takes_session(d))
            return UTOFU_ERR_NOT_SUPPORTED;
        Remote* remote = nullptr; // found again by its post
        const RemoteStatus status = d.op == Op::nop ? RemoteStatus::found : find_remote(d.rmt_vcq_id, remote);
        if (status > RemoteStatus::no_owner)
            return refusal_of(status);
        desc += *used;
        desc_size -= *used;
    }
    return UTOFU_SUCCESS;
}

} // namespace

extern "C" {

int putofu_prepare_put(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                       utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, void* desc,
                       size_t* desc_size)
{
    return prepare(vcq_hdl, desc, desc_size, [&](Descriptor& d) {
        return build_transfer(d, Op::put, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags);
    });
}

int putofu_prepare_put_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                           utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, size_t mtu,
                           size_t gap, void* desc, size_t* desc_size)
{
    return prepare(vcq_hdl, desc, desc_size, [&](Descriptor& d) {
        return build_transfer(d, Op::put, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, mtu, gap);
    });
}

int putofu_prepare_put_stride(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                              utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                              unsigned long int flags, void* desc, size_t* desc_size)
{
    return prepare_blocks(vcq_hdl, desc, desc_size, stride, num_blocks, [&](Descriptor& d) {
        return build_transfer(d, Op::put, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags);
    });
}

int putofu_prepare_put_stride_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                                  utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks,
                                  uint64_t edata, unsigned long int flags, size_t mtu, size_t gap, void* desc,
                                  size_t* desc_size)
{
    return prepare_blocks(vcq_hdl, desc, desc_size, stride, num_blocks, [&](Descriptor& d) {
        return build_transfer(d, Op::put, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, mtu, gap);
    });
}

int putofu_prepare_put_piggyback(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, void* lcl_data,
                                 utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags,
                                 void* desc, size_t* desc_size)
{
    return prepare(vcq_hdl, desc, desc_size, [&](Descriptor& d) {
        return build_piggyback(d, rmt_vcq_id, lcl_data, max_piggyback, rmt_stadd, length, edata, flags);
    });
}

int putofu_prepare_put_piggyback8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t lcl_data,
                                  utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags,
                                  void* desc, size_t* desc_size)
{
    return prepare(vcq_hdl, desc, desc_size, [&](Descriptor& d) {
        return build_piggyback(d, rmt_vcq_id, &lcl_data, sizeof lcl_data, rmt_stadd, length, edata, flags);
    });
}

int putofu_prepare_get(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                       utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, void* desc,
                       size_t* desc_size)
{
    return prepare(vcq_hdl, desc, desc_size, [&](Descriptor& d) {
        return build_transfer(d, Op::get, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags);
    });
}

int putofu_prepare_get_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                           utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, size_t mtu,
                           size_t gap, void* desc, size_t* desc_size)
{
    return prepare(vcq_hdl, desc, desc_size, [&](Descriptor& d) {
        return build_transfer(d, Op::get, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, mtu, gap);
    });
}

int putofu_prepare_get_stride(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                              utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                              unsigned long int flags, void* desc, size_t* desc_size)
{
    return prepare_blocks(vcq_hdl, desc, desc_size, stride, num_blocks, [&](Descriptor& d) {
        return build_transfer(d, Op::get, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags);
    });
}

int putofu_prepare_get_stride_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                                  utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks,
                                  uint64_t edata, unsigned long int flags, size_t mtu, size_t gap, void* desc,
                                  size_t* desc_size)
{
    return prepare_blocks(vcq_hdl, desc, desc_size, stride, num_blocks, [&](Descriptor& d) {
        return build_transfer(d, Op::get, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, mtu, gap);
    });
}

int putofu_prepare_armw4(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum utofu_armw_op armw_op,
                         uint32_t op_value, utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags,
                         void* desc, size_t* desc_size)
{
    return prepare(vcq_hdl, desc, desc_size, [&](Descriptor& d) {
        return build_armw(d, Op::armw4, 4, rmt_vcq_id, bits_of(armw_op), op_value, rmt_stadd, edata, flags);
    });
}

int putofu_prepare_armw8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum utofu_armw_op armw_op,
                         uint64_t op_value, utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags,
                         void* desc, size_t* desc_size)
{
    return prepare(vcq_hdl, desc, desc_size, [&](Descriptor& d) {
        return build_armw(d, Op::armw8, 8, rmt_vcq_id, bits_of(armw_op), op_value, rmt_stadd, edata, flags);
    });
}

int putofu_prepare_cswap4(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint32_t old_value, uint32_t new_value,
                          utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* desc,
                          size_t* desc_size)
{
    return prepare(vcq_hdl, desc, desc_size, [&](Descriptor& d) {
        return build_cswap(d, Op::cswap4, 4, rmt_vcq_id, old_value, new_value, rmt_stadd, edata, flags);
    });
}

int putofu_prepare_cswap8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t old_value, uint64_t new_value,
                          utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* desc,
                          size_t* desc_size)
{
    return prepare(vcq_hdl, desc, desc_size, [&](Descriptor& d) {
        return build_cswap(d, Op::cswap8, 8, rmt_vcq_id, old_value, new_value, rmt_stadd, edata, flags);
    });
}

int putofu_prepare_nop(utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, void* desc, size_t* desc_size)
{
    return prepare(vcq_hdl, desc, desc_size, [&](Descriptor& d) { return build_nop(d, flags); });
}

int putofu_post_toq(utofu_vcq_hdl_t vcq_hdl, void* desc, size_t desc_size, void* cbdata)
{
    Vcq* const vcq = find_vcq(vcq_hdl);
    if (vcq == nullptr)
        return fail(UTOFU_ERR_INVALID_VCQ_HDL);
    const VcqGuard guard(*vcq);
    if (desc_size == 0) {
        start_pending(*vcq);
        return UTOFU_SUCCESS;
    }
    if (desc == nullptr || reinterpret_cast<uintptr_t>(desc) % 8 != 0)
        return fail(UTOFU_ERR_INVALID_POINTER);
    const auto* bytes = static_cast<const std::byte*>(desc);
    if (vcq->special == 0 && start_prepared(*vcq, bytes, desc_size))
        return UTOFU_SUCCESS;
    const size_t count = count_descriptors(bytes, desc_size);
    if (count == 0 || count > toq_entries)
        return fail(UTOFU_ERR_INVALID_DESC);
    if (!toq_takes(*vcq, count))
        return UTOFU_ERR_BUSY;
    if (const int rc = accept_all(*vcq, bytes, desc_size); rc != UTOFU_SUCCESS)
        return fail(rc);
    start_pending(*vcq);
    // The memory is the caller's: should another thread change it meanwhile, each descriptor is still checked.
    while (desc_size != 0) {
        Descriptor d;
        const auto used = decode_descriptor(bytes, desc_size, d);
        if (!used)
            return fail(UTOFU_ERR_INVALID_DESC);
        if (const int rc = post_accepted(*vcq, d, cbdata); rc != UTOFU_SUCCESS)
            return fail(rc);
        bytes += *used;
        desc_size -= *used;
    }
    return UTOFU_SUCCESS;
}

} // extern "C"

TOFU_SIM_ALIAS(prepare_put);
TOFU_SIM_ALIAS(prepare_put_gap);
TOFU_SIM_ALIAS(prepare_put_stride);
TOFU_SIM_ALIAS(prepare_put_stride_gap);
TOFU_SIM_ALIAS(prepare_put_piggyback);
TOFU_SIM_ALIAS(prepare_put_piggyback8);
TOFU_SIM_ALIAS(prepare_get);
TOFU_SIM_ALIAS(prepare_get_gap);
TOFU_SIM_ALIAS(prepare_get_stride);
TOFU_SIM_ALIAS(prepare_get_stride_gap);
TOFU_SIM_ALIAS(prepare_armw4);
TOFU_SIM_ALIAS(prepare_armw8);
TOFU_SIM_ALIAS(prepare_cswap4);
TOFU_SIM_ALIAS(prepare_cswap8);
TOFU_SIM_ALIAS(prepare_nop);
TOFU_SIM_ALIAS(post_toq);
