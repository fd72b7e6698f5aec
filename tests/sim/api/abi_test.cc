// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The binary interface of uTofu: numbers (abi.h), the type of every function, C next to C++.
// Run by make check; most of it is checked when it is compiled.
// May call: include/utofu.h, include/putofu.h; no function of uTofu is called.
#include "abi.h"

#include <cstddef>
#include <cstdio>
#include <putofu.h>
#include <tofu_sim.h>
#include <type_traits>

extern "C" unsigned utofu_abi_functions_seen_by_c(void);

namespace {

// Written as the guide's "Format" paragraphs have them, parameters in the guide's order. C linkage
// is part of a function's type for the standard, not for the compilers we support.
template <typename Expected, typename Actual>
constexpr bool has_type = std::is_same_v<Expected, Actual>;

[[maybe_unused]] void check_function_types()
{
    static_assert(has_type<int(utofu_tni_id_t**, size_t*), decltype(utofu_get_onesided_tnis)>);
    static_assert(has_type<int(utofu_tni_id_t**, size_t*), decltype(utofu_get_barrier_tnis)>);
    static_assert(has_type<int(utofu_tni_id_t, utofu_onesided_caps**), decltype(utofu_query_onesided_caps)>);
    static_assert(has_type<int(utofu_tni_id_t, utofu_barrier_caps**), decltype(utofu_query_barrier_caps)>);
    static_assert(has_type<int(utofu_tni_id_t, unsigned long, utofu_vcq_hdl_t*), decltype(utofu_create_vcq)>);
    static_assert(has_type<int(utofu_tni_id_t, utofu_cmp_id_t, unsigned long, utofu_vcq_hdl_t*),
                           decltype(utofu_create_vcq_with_cmp_id)>);
    static_assert(has_type<int(utofu_vcq_hdl_t), decltype(utofu_free_vcq)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t*), decltype(utofu_query_vcq_id)>);
    static_assert(has_type<int(uint8_t*, utofu_tni_id_t, utofu_cq_id_t, utofu_cmp_id_t, utofu_vcq_id_t*),
                           decltype(utofu_construct_vcq_id)>);
    static_assert(has_type<int(utofu_vcq_id_t*, uint8_t*), decltype(utofu_set_vcq_id_path)>);
    static_assert(has_type<int(utofu_vcq_id_t, uint8_t*, utofu_tni_id_t*, utofu_cq_id_t*, uint16_t*),
                           decltype(utofu_query_vcq_info)>);
    static_assert(has_type<int(utofu_tni_id_t, size_t, unsigned long, utofu_vbg_id_t*), decltype(utofu_alloc_vbg)>);
    static_assert(has_type<int(utofu_vbg_id_t*, size_t), decltype(utofu_free_vbg)>);
    static_assert(has_type<int(utofu_vbg_setting*, size_t), decltype(utofu_set_vbg)>);
    static_assert(has_type<int(utofu_vbg_id_t, uint8_t*, utofu_tni_id_t*, utofu_bg_id_t*, uint16_t*),
                           decltype(utofu_query_vbg_info)>);
    static_assert(has_type<int(utofu_vcq_id_t, uint8_t*, utofu_path_id_t*), decltype(utofu_get_path_id)>);
    static_assert(has_type<int(utofu_vcq_id_t, utofu_path_id_t, uint8_t*), decltype(utofu_get_path_coords)>);
    static_assert(
        has_type<int(utofu_vcq_hdl_t, void*, size_t, unsigned long, utofu_stadd_t*), decltype(utofu_reg_mem)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, void*, size_t, unsigned int, unsigned long, utofu_stadd_t*),
                           decltype(utofu_reg_mem_with_stag)>);
    static_assert(has_type<int(utofu_vcq_id_t, unsigned int, utofu_stadd_t*), decltype(utofu_query_stadd)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, utofu_stadd_t, unsigned long), decltype(utofu_dereg_mem)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t, uint64_t,
                               unsigned long, void*),
                           decltype(utofu_put)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t, uint64_t,
                               unsigned long, size_t, size_t, void*),
                           decltype(utofu_put_gap)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t, size_t, size_t,
                               uint64_t, unsigned long, void*),
                           decltype(utofu_put_stride)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t, size_t, size_t,
                               uint64_t, unsigned long, size_t, size_t, void*),
                           decltype(utofu_put_stride_gap)>);
    static_assert(
        has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t, void*, utofu_stadd_t, size_t, uint64_t, unsigned long, void*),
                 decltype(utofu_put_piggyback)>);
    static_assert(
        has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t, uint64_t, utofu_stadd_t, size_t, uint64_t, unsigned long, void*),
                 decltype(utofu_put_piggyback8)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t, uint64_t,
                               unsigned long, void*),
                           decltype(utofu_get)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t, uint64_t,
                               unsigned long, size_t, size_t, void*),
                           decltype(utofu_get_gap)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t, size_t, size_t,
                               uint64_t, unsigned long, void*),
                           decltype(utofu_get_stride)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t, size_t, size_t,
                               uint64_t, unsigned long, size_t, size_t, void*),
                           decltype(utofu_get_stride_gap)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_armw_op, uint32_t, utofu_stadd_t, uint64_t,
                               unsigned long, void*),
                           decltype(utofu_armw4)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_armw_op, uint64_t, utofu_stadd_t, uint64_t,
                               unsigned long, void*),
                           decltype(utofu_armw8)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t, uint32_t, uint32_t, utofu_stadd_t, uint64_t,
                               unsigned long, void*),
                           decltype(utofu_cswap4)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t, uint64_t, uint64_t, utofu_stadd_t, uint64_t,
                               unsigned long, void*),
                           decltype(utofu_cswap8)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, unsigned long, void*), decltype(utofu_nop)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t, uint64_t,
                               unsigned long, void*, size_t*),
                           decltype(utofu_prepare_put)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t, uint64_t,
                               unsigned long, size_t, size_t, void*, size_t*),
                           decltype(utofu_prepare_put_gap)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t, size_t, size_t,
                               uint64_t, unsigned long, void*, size_t*),
                           decltype(utofu_prepare_put_stride)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t, size_t, size_t,
                               uint64_t, unsigned long, size_t, size_t, void*, size_t*),
                           decltype(utofu_prepare_put_stride_gap)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t, void*, utofu_stadd_t, size_t, uint64_t, unsigned long,
                               void*, size_t*),
                           decltype(utofu_prepare_put_piggyback)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t, uint64_t, utofu_stadd_t, size_t, uint64_t,
                               unsigned long, void*, size_t*),
                           decltype(utofu_prepare_put_piggyback8)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t, uint64_t,
                               unsigned long, void*, size_t*),
                           decltype(utofu_prepare_get)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t, uint64_t,
                               unsigned long, size_t, size_t, void*, size_t*),
                           decltype(utofu_prepare_get_gap)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t, size_t, size_t,
                               uint64_t, unsigned long, void*, size_t*),
                           decltype(utofu_prepare_get_stride)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t, utofu_stadd_t, size_t, size_t, size_t,
                               uint64_t, unsigned long, size_t, size_t, void*, size_t*),
                           decltype(utofu_prepare_get_stride_gap)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_armw_op, uint32_t, utofu_stadd_t, uint64_t,
                               unsigned long, void*, size_t*),
                           decltype(utofu_prepare_armw4)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_armw_op, uint64_t, utofu_stadd_t, uint64_t,
                               unsigned long, void*, size_t*),
                           decltype(utofu_prepare_armw8)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t, uint32_t, uint32_t, utofu_stadd_t, uint64_t,
                               unsigned long, void*, size_t*),
                           decltype(utofu_prepare_cswap4)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, utofu_vcq_id_t, uint64_t, uint64_t, utofu_stadd_t, uint64_t,
                               unsigned long, void*, size_t*),
                           decltype(utofu_prepare_cswap8)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, unsigned long, void*, size_t*), decltype(utofu_prepare_nop)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, void*, size_t, void*), decltype(utofu_post_toq)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, unsigned long, void**), decltype(utofu_poll_tcq)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, unsigned long, utofu_mrq_notice*), decltype(utofu_poll_mrq)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, size_t*), decltype(utofu_query_num_unread_tcq)>);
    static_assert(has_type<int(utofu_vcq_hdl_t, size_t*), decltype(utofu_query_num_unread_mrq)>);
    static_assert(has_type<int(utofu_vbg_id_t, unsigned long), decltype(utofu_barrier)>);
    static_assert(has_type<int(utofu_vbg_id_t, utofu_reduce_op, uint64_t*, size_t, unsigned long),
                           decltype(utofu_reduce_uint64)>);
    static_assert(
        has_type<int(utofu_vbg_id_t, utofu_reduce_op, double*, size_t, unsigned long), decltype(utofu_reduce_double)>);
    static_assert(has_type<int(utofu_vbg_id_t, unsigned long), decltype(utofu_poll_barrier)>);
    static_assert(has_type<int(utofu_vbg_id_t, unsigned long, uint64_t*), decltype(utofu_poll_reduce_uint64)>);
    static_assert(has_type<int(utofu_vbg_id_t, unsigned long, double*), decltype(utofu_poll_reduce_double)>);
    static_assert(has_type<void(int*, int*), decltype(utofu_query_tofu_version)>);
    static_assert(has_type<void(int*, int*), decltype(utofu_query_utofu_version)>);
    static_assert(has_type<int(uint8_t*), decltype(utofu_query_my_coords)>);
    static_assert(has_type<void(const char*), decltype(utofu_get_last_error)>);
}

/// What tofu_sim.h promises for version 1: names are in tests/source/exports.sh.
[[maybe_unused]] void promised()
{
    static_assert(has_type<const char*(), decltype(tofu_sim_version)>);
    static_assert(has_type<const char*(), decltype(tofu_sim_job)>);
    static_assert(has_type<int(utofu_vcq_hdl_t*, size_t, int), decltype(tofu_sim_wait)>);
    static_assert(has_type<int(), decltype(tofu_sim_wake)>);
    static_assert(has_type<int(utofu_tni_id_t, tofu_sim_tni_statistics*), decltype(tofu_sim_query_statistics)>);
    static_assert(has_type<int(unsigned), decltype(tofu_sim_give_way)>);
    static_assert(has_type<int(const void*, size_t), decltype(tofu_sim_seen)>);
    static_assert(has_type<uint64_t(), decltype(tofu_sim_time)>);
    static_assert(has_type<int(const void*, size_t), decltype(tofu_sim_moved)>);
    static_assert(sizeof(tofu_sim_tni_statistics) == 16);
    static_assert(offsetof(tofu_sim_tni_statistics, operations) == 0);
    static_assert(offsetof(tofu_sim_tni_statistics, bytes) == 8);
}

constexpr unsigned count_functions()
{
    unsigned count = 0;
#define COUNT(name)                                                                                                    \
    static_assert(std::is_same_v<decltype(utofu_##name), decltype(putofu_##name)>);                                    \
    ++count;
    UTOFU_FOR_EACH_FUNCTION(COUNT)
#undef COUNT
    return count;
}

} // namespace

int main()
{
    constexpr unsigned expected = 66; // 64 of the guide's chapter 3, and 2 beyond it
    static_assert(count_functions() == expected);
    if (utofu_abi_functions_seen_by_c() != expected) {
        std::fprintf(stderr, "C sees %u functions, C++ sees %u\n", utofu_abi_functions_seen_by_c(), expected);
        return 1;
    }
    std::printf("uTofu interface: %u functions and their twins, C and C++ agree\n", expected);
    return 0;
}
