// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * putofu.h: the profiling names of the functions of utofu.h, and a list of these functions.
 *
 * Like PMPI for MPI, a uTofu library has a strong putofu_NAME() for every function, and a weak alias
 * utofu_NAME(). A tool defines utofu_NAME() itself and calls putofu_NAME() inside. Meaning,
 * ownership, thread safety and errors are the same for both names. The names are not in the guide.
 * They are not in utofu.h, since some programs declare them themselves.
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
