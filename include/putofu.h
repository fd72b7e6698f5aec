// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * putofu.h: the profiling twins of utofu.h, and the list of its functions.
 * Used by: tools that wrap uTofu, tofu_sim/api (defines both names), tests of the interface.
 * May call: utofu.h.
 *
 * As MPI has PMPI, a uTofu library has a strong putofu_NAME() for every function, with a weak
 * utofu_NAME() over it: a tool defines utofu_NAME() itself and calls putofu_NAME() inside. Meaning,
 * ownership, thread safety and errors of a twin are those of the function it doubles. Not in the
 * guide. Apart from utofu.h, so that a program that declares a twin itself meets no second one.
 */
#ifndef PUTOFU_H_
#define PUTOFU_H_

#include "utofu.h"

/** Applies X(NAME) to the NAME of each function utofu_NAME(), in the order of the guide. */
#define UTOFU_FOR_EACH_FUNCTION(X)                                                                                     \
    X(get_onesided_tnis)                                                                                               \
    X(get_barrier_tnis)                                                                                                \
    X(query_onesided_caps)                                                                                             \
    X(query_barrier_caps)                                                                                              \
    X(create_vcq)                                                                                                      \
    X(create_vcq_with_cmp_id)                                                                                          \
    X(free_vcq)                                                                                                        \
    X(query_vcq_id)                                                                                                    \
    X(construct_vcq_id)                                                                                                \
    X(set_vcq_id_path)                                                                                                 \
    X(query_vcq_info)                                                                                                  \
    X(alloc_vbg)                                                                                                       \
    X(free_vbg)                                                                                                        \
    X(set_vbg)                                                                                                         \
    X(query_vbg_info)                                                                                                  \
    X(get_path_id)                                                                                                     \
    X(get_path_coords)                                                                                                 \
    X(reg_mem)                                                                                                         \
    X(reg_mem_with_stag)                                                                                               \
    X(query_stadd)                                                                                                     \
    X(dereg_mem)                                                                                                       \
    X(put)                                                                                                             \
    X(put_gap)                                                                                                         \
    X(put_stride)                                                                                                      \
    X(put_stride_gap)                                                                                                  \
    X(put_piggyback)                                                                                                   \
    X(put_piggyback8)                                                                                                  \
    X(get)                                                                                                             \
    X(get_gap)                                                                                                         \
    X(get_stride)                                                                                                      \
    X(get_stride_gap)                                                                                                  \
    X(armw4)                                                                                                           \
    X(armw8)                                                                                                           \
    X(cswap4)                                                                                                          \
    X(cswap8)                                                                                                          \
    X(nop)                                                                                                             \
    X(prepare_put)                                                                                                     \
    X(prepare_put_gap)                                                                                                 \
    X(prepare_put_stride)                                                                                              \
    X(prepare_put_stride_gap)                                                                                          \
    X(prepare_put_piggyback)                                                                                           \
    X(prepare_put_piggyback8)                                                                                          \
    X(prepare_get)                                                                                                     \
    X(prepare_get_gap)                                                                                                 \
    X(prepare_get_stride)                                                                                              \
    X(prepare_get_stride_gap)                                                                                          \
    X(prepare_armw4)                                                                                                   \
    X(prepare_armw8)                                                                                                   \
    X(prepare_cswap4)                                                                                                  \
    X(prepare_cswap8)                                                                                                  \
    X(prepare_nop)                                                                                                     \
    X(post_toq)                                                                                                        \
    X(poll_tcq)                                                                                                        \
    X(poll_mrq)                                                                                                        \
    X(query_num_unread_tcq)                                                                                            \
    X(query_num_unread_mrq)                                                                                            \
    X(barrier)                                                                                                         \
    X(reduce_uint64)                                                                                                   \
    X(reduce_double)                                                                                                   \
    X(poll_barrier)                                                                                                    \
    X(poll_reduce_uint64)                                                                                              \
    X(poll_reduce_double)                                                                                              \
    X(query_tofu_version)                                                                                              \
    X(query_utofu_version)                                                                                             \
    X(query_my_coords)                                                                                                 \
    X(get_last_error)

#if defined(__cplusplus) && __cplusplus >= 201103L
#define PUTOFU_DECLARE_(name) extern decltype(utofu_##name) putofu_##name;
#else
#define PUTOFU_DECLARE_(name) extern __typeof__(utofu_##name) putofu_##name;
#endif

#ifdef __cplusplus
extern "C" {
#endif

UTOFU_FOR_EACH_FUNCTION(PUTOFU_DECLARE_)

#ifdef __cplusplus
}
#endif

#undef PUTOFU_DECLARE_

#endif
