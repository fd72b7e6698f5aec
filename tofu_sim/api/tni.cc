// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Guide 3.2: which TNIs there are and what they can do (tables 6.2 to 6.5).
#include "api/exports.h"

#include "job/process.h"
#include "tni/descriptor.h"

#include <cstdlib>

using namespace tofu::sim;

namespace {

/// TNIs with a CQ of this process; for barriers all of them, since gates are shared by the node.
int give_tnis(uint64_t share, utofu_tni_id_t** tni_ids, size_t* num_tnis) noexcept
{
    auto* const ids = static_cast<utofu_tni_id_t*>(std::calloc(tnis_per_node, sizeof(utofu_tni_id_t)));
    if (ids == nullptr)
        return fail(UTOFU_ERR_OUT_OF_MEMORY);
    size_t count = 0;
    for (unsigned tni = 0; tni < tnis_per_node; tni++)
        if ((share >> (tni * cqs_per_tni) & ((uint64_t{1} << cqs_per_tni) - 1)) != 0)
            ids[count++] = static_cast<utofu_tni_id_t>(tni);
    *num_tnis = count;
    *tni_ids = ids;
    return UTOFU_SUCCESS;
}

int query_tnis(bool barrier, utofu_tni_id_t** tni_ids, size_t* num_tnis) noexcept
{
    if (tni_ids == nullptr || num_tnis == nullptr)
        return fail(UTOFU_ERR_INVALID_POINTER);
    Process& self = Process::self();
    if (const int rc = self.enter(); rc != UTOFU_SUCCESS)
        return fail(rc);
    return give_tnis(barrier ? ~uint64_t{0} : self.job().placement().cq_share, tni_ids, num_tnis);
}

/// Handed out by pointer: one for all TNIs, which are alike.
utofu_onesided_caps onesided_caps = {
    .flags = UTOFU_ONESIDED_CAP_FLAG_SESSION_MODE | UTOFU_ONESIDED_CAP_FLAG_ARMW,
    .armw_ops = UTOFU_ONESIDED_CAP_ARMW_OP_CSWAP | UTOFU_ONESIDED_CAP_ARMW_OP_SWAP | UTOFU_ONESIDED_CAP_ARMW_OP_ADD |
                UTOFU_ONESIDED_CAP_ARMW_OP_XOR | UTOFU_ONESIDED_CAP_ARMW_OP_AND | UTOFU_ONESIDED_CAP_ARMW_OP_OR,
    .num_cmp_ids = vcqs_per_cq,
    .num_reserved_stags = 256,
    .cache_line_size = 256,
    .stag_address_alignment = 256,
    .max_toq_desc_size = large_descriptor_bytes,
    .max_putget_size = max_transfer,
    .max_piggyback_size = max_piggyback,
    .max_edata_size = 1,
    .max_mtu = max_mtu_bytes,
    .max_gap = max_gap_units,
};

utofu_barrier_caps barrier_caps = {
    .flags = 0,
    .reduce_ops = UTOFU_BARRIER_CAP_REDUCE_OP_BARRIER | UTOFU_BARRIER_CAP_REDUCE_OP_BAND |
                  UTOFU_BARRIER_CAP_REDUCE_OP_BOR | UTOFU_BARRIER_CAP_REDUCE_OP_BXOR | UTOFU_BARRIER_CAP_REDUCE_OP_MAX |
                  UTOFU_BARRIER_CAP_REDUCE_OP_MAXLOC | UTOFU_BARRIER_CAP_REDUCE_OP_SUM |
                  UTOFU_BARRIER_CAP_REDUCE_OP_BFPSUM,
    .max_uint64_reduction = 6,
    .max_double_reduction = 3,
};

template <typename Caps>
int query_caps(utofu_tni_id_t tni_id, Caps& caps, Caps** tni_caps) noexcept
{
    if (tni_caps == nullptr)
        return fail(UTOFU_ERR_INVALID_POINTER);
    if (tni_id >= tnis_per_node)
        return fail(UTOFU_ERR_INVALID_TNI_ID);
    *tni_caps = &caps;
    return UTOFU_SUCCESS;
}

} // namespace

extern "C" {

int putofu_get_onesided_tnis(utofu_tni_id_t** tni_ids, size_t* num_tnis)
{
    return query_tnis(false, tni_ids, num_tnis);
}

int putofu_get_barrier_tnis(utofu_tni_id_t** tni_ids, size_t* num_tnis)
{
    return query_tnis(true, tni_ids, num_tnis);
}

int putofu_query_onesided_caps(utofu_tni_id_t tni_id, struct utofu_onesided_caps** tni_caps)
{
    return query_caps(tni_id, onesided_caps, tni_caps);
}

int putofu_query_barrier_caps(utofu_tni_id_t tni_id, struct utofu_barrier_caps** tni_caps)
{
    return query_caps(tni_id, barrier_caps, tni_caps);
}

} // extern "C"

TOFU_SIM_ALIAS(get_onesided_tnis);
TOFU_SIM_ALIAS(get_barrier_tnis);
TOFU_SIM_ALIAS(query_onesided_caps);
TOFU_SIM_ALIAS(query_barrier_caps);
