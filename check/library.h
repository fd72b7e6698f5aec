// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The uTofu library that is looked at: opened by dlopen, so that the program starts wherever there is none.
#pragma once

#include <string>

#include <utofu.h>

namespace tofu::check {

/// Those that the provider calls (prov/tofu/src/utofu/library.h): without one of them it does not start.
#define TOFU_CHECK_FUNCTIONS(X)                                                                                        \
    X(get_onesided_tnis)                                                                                               \
    X(query_onesided_caps)                                                                                             \
    X(create_vcq)                                                                                                      \
    X(free_vcq)                                                                                                        \
    X(query_vcq_id)                                                                                                    \
    X(query_vcq_info)                                                                                                  \
    X(reg_mem)                                                                                                         \
    X(reg_mem_with_stag)                                                                                               \
    X(query_stadd)                                                                                                     \
    X(dereg_mem)                                                                                                       \
    X(put)                                                                                                             \
    X(put_piggyback)                                                                                                   \
    X(get)                                                                                                             \
    X(armw4)                                                                                                           \
    X(armw8)                                                                                                           \
    X(cswap4)                                                                                                          \
    X(cswap8)                                                                                                          \
    X(prepare_armw4)                                                                                                   \
    X(prepare_armw8)                                                                                                   \
    X(prepare_cswap4)                                                                                                  \
    X(prepare_cswap8)                                                                                                  \
    X(post_toq)                                                                                                        \
    X(poll_tcq)                                                                                                        \
    X(poll_mrq)                                                                                                        \
    X(query_my_coords)

/// Those of barrier gates, without which collectives work by Puts. Null where the library has none.
#define TOFU_CHECK_GATE_FUNCTIONS(X)                                                                                   \
    X(get_barrier_tnis)                                                                                                \
    X(alloc_vbg)                                                                                                       \
    X(free_vbg)                                                                                                        \
    X(set_vbg)                                                                                                         \
    X(query_vbg_info)                                                                                                  \
    X(barrier)                                                                                                         \
    X(poll_barrier)                                                                                                    \
    X(reduce_uint64)                                                                                                   \
    X(poll_reduce_uint64)                                                                                              \
    X(reduce_double)                                                                                                   \
    X(poll_reduce_double)

struct Library {
#define X(name) decltype(&::utofu_##name) name = nullptr;
    TOFU_CHECK_FUNCTIONS(X)
    TOFU_CHECK_GATE_FUNCTIONS(X)
#undef X
    /// Not called by the provider; for the head of the report. May be null.
    void (*query_utofu_version)(int*, int*) = nullptr;
    void (*query_tofu_version)(int*, int*) = nullptr;
    const char* (*simulator_version)() = nullptr; ///< null: a library of the machine
    std::string missing;                          ///< functions of the list that it does not export

    /// False: there is no such library, and `why` says so. One without some of the functions is loaded all the same.
    [[nodiscard]] bool load(const char* path, std::string& why);
};

} // namespace tofu::check
