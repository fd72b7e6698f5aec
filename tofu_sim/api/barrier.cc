// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: guide 3.4 and 3.8: virtual barrier gates.
// Called by: programs. Calls: nothing yet: every function answers that gates are not supported.
#include "api/exports.h"

using namespace tofu::sim;

extern "C" {

int putofu_alloc_vbg(utofu_tni_id_t, size_t, unsigned long int, utofu_vbg_id_t*)
{
    return fail(UTOFU_ERR_NOT_SUPPORTED);
}

int putofu_free_vbg(utofu_vbg_id_t*, size_t)
{
    return fail(UTOFU_ERR_NOT_SUPPORTED);
}

int putofu_set_vbg(struct utofu_vbg_setting*, size_t)
{
    return fail(UTOFU_ERR_NOT_SUPPORTED);
}

int putofu_query_vbg_info(utofu_vbg_id_t, uint8_t*, utofu_tni_id_t*, utofu_bg_id_t*, uint16_t*)
{
    return fail(UTOFU_ERR_NOT_SUPPORTED);
}

int putofu_barrier(utofu_vbg_id_t, unsigned long int)
{
    return fail(UTOFU_ERR_NOT_SUPPORTED);
}

int putofu_reduce_uint64(utofu_vbg_id_t, enum utofu_reduce_op, uint64_t*, size_t, unsigned long int)
{
    return fail(UTOFU_ERR_NOT_SUPPORTED);
}

int putofu_reduce_double(utofu_vbg_id_t, enum utofu_reduce_op, double*, size_t, unsigned long int)
{
    return fail(UTOFU_ERR_NOT_SUPPORTED);
}

int putofu_poll_barrier(utofu_vbg_id_t, unsigned long int)
{
    return fail(UTOFU_ERR_NOT_SUPPORTED);
}

int putofu_poll_reduce_uint64(utofu_vbg_id_t, unsigned long int, uint64_t*)
{
    return fail(UTOFU_ERR_NOT_SUPPORTED);
}

int putofu_poll_reduce_double(utofu_vbg_id_t, unsigned long int, double*)
{
    return fail(UTOFU_ERR_NOT_SUPPORTED);
}

} // extern "C"

TOFU_SIM_ALIAS(alloc_vbg);
TOFU_SIM_ALIAS(free_vbg);
TOFU_SIM_ALIAS(set_vbg);
TOFU_SIM_ALIAS(query_vbg_info);
TOFU_SIM_ALIAS(barrier);
TOFU_SIM_ALIAS(reduce_uint64);
TOFU_SIM_ALIAS(reduce_double);
TOFU_SIM_ALIAS(poll_barrier);
TOFU_SIM_ALIAS(poll_reduce_uint64);
TOFU_SIM_ALIAS(poll_reduce_double);
