// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The cases over raw utofu_* calls, as a uTofu program of one's own would do them: what the provider above is measured
// against.
#pragma once

#include "pattern.h"
#include "transport.h"

#include <string>
#include <utofu.h>

namespace tofu::bench {

/// The functions that the cases call. To use another: a line here.
struct UtofuCalls {
#define TOFU_BENCH_CALLS(call)                                                                                         \
    call(create_vcq) call(query_vcq_id) call(reg_mem) call(dereg_mem) call(put) call(put_piggyback8) call(get)         \
        call(armw8) call(cswap8) call(poll_tcq) call(poll_mrq)
#define TOFU_BENCH_POINTER(name) decltype(&::utofu_##name) name = nullptr;
    TOFU_BENCH_CALLS(TOFU_BENCH_POINTER)
#undef TOFU_BENCH_POINTER
    bool load(const char* library); ///< false with a line on stderr
};

class Utofu final : public Transport {
  public:
    explicit Utofu(const char* library) : library_(library) {}
    bool open() override;

  private:
    double run_case(CaseId id) override;

    static void check(int code, const char* what); ///< ends the process at an error
    double serving();
    void put(std::size_t slot, unsigned long flags, int side = -1);
    void get(std::size_t slot);
    void wait_tcq(std::size_t count);
    std::uint64_t wait_mrq(std::size_t count); ///< returns the value in the last notice
    void make_room();
    template <class F>
    double all_together(F&& f); ///< all sides run f; time until the last is through
    template <class F>
    double windows(F&& f); ///< f(slot) posts, local notices are awaited a window at a time

    // utofu_onesided.cc
    double ping_pong();
    double ping_pong_used();
    double put_completion();
    double get_latency();
    double put_bandwidth();
    double put_both_ways();
    double put_once();
    double get_bandwidth();
    double put_rate();
    double add();
    double add_polled();
    double swap();
    double add_all();
    double swap_all();
    double add_singles();
    double put_storm();
    double exchange();
    void adds(int target);
    void lower(int target);
    // utofu_object.cc
    double poll_empty();
    double poll_full();
    double registrations();
    double register_again();
    double register_new();

    struct Peer {
        utofu_vcq_id_t id = 0;
        utofu_stadd_t stadd = 0;
    };
    const Peer& peer() const { return peers_[1 - side_]; }

    std::string library_;
    UtofuCalls u_;
    std::byte* memory_ = nullptr;
    utofu_vcq_hdl_t vcq_ = 0;
    utofu_stadd_t local_ = 0;
    Peer peers_[max_sides];
};

template <class F>
double Utofu::all_together(F&& f)
{
    meet();
    double start = now_ns();
    f();
    meet();
    return now_ns() - start;
}

template <class F>
double Utofu::windows(F&& f)
{
    std::size_t slots = slots_of(size_);
    for (double done = 0; done < double(iterations_); done += double(slots)) {
        for (std::size_t slot = 0; slot < slots; ++slot)
            f(slot);
        wait_mrq(slots);
        operations_ += double(slots);
    }
    return 0;
}

} // namespace tofu::bench
