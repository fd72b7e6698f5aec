// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The uTofu library under the provider: found by dlopen at run time, held as a table of functions (Functions) with the
// library's limits and TNIs (Backend). fi_getinfo loads it once per process. Only this module calls functions of uTofu;
// others call the extras of the simulator (tofu_sim.h), where the library has them.
#pragma once

#include <cstddef>

#include <utofu.h>

namespace tofu::vcq {

/// The functions of uTofu that the provider calls: `each(name)` for every one.
// clang-format off
#define TOFU_FUNCTIONS(each) \
    each(get_onesided_tnis) \
    each(query_onesided_caps) \
    each(create_vcq) \
    each(free_vcq) \
    each(query_vcq_id) \
    each(query_vcq_info) \
    each(reg_mem) \
    each(reg_mem_with_stag) \
    each(query_stadd) \
    each(dereg_mem) \
    each(put) \
    each(put_piggyback) \
    each(get) \
    each(armw4) \
    each(armw8) \
    each(cswap4) \
    each(cswap8) \
    each(prepare_armw4) \
    each(prepare_armw8) \
    each(prepare_cswap4) \
    each(prepare_cswap8) \
    each(post_toq) \
    each(poll_tcq) \
    each(poll_mrq) \
    each(query_my_coords)
// clang-format on

/// The functions of barrier gates. They are optional: null where the library has none; collectives then work without.
// clang-format off
#define TOFU_GATE_FUNCTIONS(each) \
    each(get_barrier_tnis) \
    each(query_barrier_caps) \
    each(alloc_vbg) \
    each(free_vbg) \
    each(set_vbg) \
    each(query_vbg_info) \
    each(barrier) \
    each(poll_barrier) \
    each(reduce_uint64) \
    each(poll_reduce_uint64) \
    each(reduce_double) \
    each(poll_reduce_double)
// clang-format on

/// The table: each function with the type of its declaration in utofu.h.
struct Functions {
#define TOFU_FUNCTION(name) decltype(&::utofu_##name) name;
    TOFU_FUNCTIONS(TOFU_FUNCTION)
    TOFU_GATE_FUNCTIONS(TOFU_FUNCTION)
#undef TOFU_FUNCTION
    /// Optional extra of the simulator (tofu_sim.h); null elsewhere: sleep until a notice or a put may
    /// have come for one of `count` VCQs. The provider does without it by polling with growing pauses.
    int (*wait)(utofu_vcq_hdl_t* vcqs, std::size_t count, int timeout_ms);
    /// Optional as well: ends the sleep of this process's threads in wait().
    int (*wake)();
    /// Optional as well: a thread has polled without success, for the `times`-th time in a row; lets others run if
    /// there are more processes than processors. 0: there are not, and nothing has happened.
    int (*yield)(unsigned times);
    /// Optional as well: the name of the process's job. Only peers of the same job reach each other.
    const char* (*job)();
    /// Optional as well, and null without a virtual clock: notifies the clock that these bytes, which are polled
    /// without a notice, were found written.
    int (*seen)(const void* address, std::size_t size);
    /// Optional as well: is this memory, which the kernel shows as a shared file, private memory that the library has
    /// moved?
    int (*moved)(const void* address, std::size_t size);
};

/// What a child of fork has in place of the library for the VCQs of its parent, whose memory and registers it may not
/// reach (guide 6.1.4.1): posts and registrations fail, queues are empty, nothing is freed.
[[nodiscard]] const Functions& functions_of_child() noexcept;

/// More TNIs of a node are not used. A node of Tofu-D has 6.
inline constexpr std::size_t most_tnis = 16;

/// A loaded uTofu library and what its TNIs can do. Never unloaded: peers may still reach our memory
/// through its threads.
class Backend {
  public:
    Backend() = default;
    /// A table of the caller's own in place of a library, for unit tests.
    Backend(const Functions& functions, const utofu_onesided_caps& caps, std::size_t tni_count) noexcept
        : functions_(functions), caps_(caps), tni_count_(tni_count < most_tnis ? tni_count : most_tnis)
    {
        for (std::size_t i = 0; i < tni_count_; i++)
            tnis_[i] = static_cast<utofu_tni_id_t>(i);
    }

    /// Loads what FI_TOFU_BACKEND names (auto, utofu, sim, or a path) and checks that each needed symbol
    /// is there and that a TNI answers. Logs one line that says what to do when it fails.
    /// Returns 0, -FI_ENODATA (no such backend here), -FI_EINVAL (bad FI_TOFU_BACKEND), -FI_ENOSYS (a
    /// library without a needed symbol), -FI_ENOMEM or -FI_EMFILE (the limits of the process). Never falls back from a
    /// backend that was named to another.
    [[nodiscard]] int load();

    [[nodiscard]] const Functions& functions() const noexcept { return functions_; }
    [[nodiscard]] const utofu_onesided_caps& caps() const noexcept { return caps_; }
    [[nodiscard]] const utofu_tni_id_t* tnis() const noexcept { return tnis_; }
    [[nodiscard]] std::size_t tni_count() const noexcept { return tni_count_; }

    /// The backend of this process, loaded on first use (thread-safe). Null when load() failed; `error` has its code,
    /// and the next call tries again.
    static const Backend* get(int& error);

  private:
    Functions functions_{};
    utofu_onesided_caps caps_{}; ///< what every TNI offers
    utofu_tni_id_t tnis_[most_tnis] = {};
    std::size_t tni_count_ = 0;
    char path_[256] = {};
};

// For tests that are a network themselves: what Backend::get() returns in place of a library. Set by them before the
// first call.

inline constinit const Backend* backend_of_test = nullptr;

} // namespace tofu::vcq
