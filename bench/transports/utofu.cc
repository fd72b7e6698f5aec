// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Raw uTofu as a transport: coming up, what cases are made of, and the list of cases it offers.
#include "utofu.h"

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <type_traits>
#include <unistd.h>

namespace tofu::bench {
namespace {

// One transfer carries 16 MiB - 1 at most: 16 MiB are two.
constexpr std::size_t part_of(std::size_t size)
{
    return size < (std::size_t{1} << 24) ? size : size / 2;
}

} // namespace

bool UtofuCalls::load(const char* library)
{
    void* lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    bool all = lib != nullptr;
#define TOFU_BENCH_FIND(name)                                                                                          \
    if (all) {                                                                                                         \
        name = reinterpret_cast<decltype(name)>(dlsym(lib, "utofu_" #name));                                           \
        all = name != nullptr;                                                                                         \
    }
    TOFU_BENCH_CALLS(TOFU_BENCH_FIND)
#undef TOFU_BENCH_FIND
    if (!all)
        std::fprintf(stderr, "bench: %s\n", dlerror());
    return all;
}

bool Utofu::open()
{
    if (!u_.load(library_.c_str()) || u_.create_vcq(0, 0, &vcq_) != UTOFU_SUCCESS)
        return false;
    memory_ = map_buffer(side_);
    auto* mine = reinterpret_cast<Peer*>(control_->side[side_].exchange);
    if (memory_ == nullptr || u_.query_vcq_id(vcq_, &mine->id) != UTOFU_SUCCESS ||
        u_.reg_mem(vcq_, memory_, bytes_of_side(side_), 0, &mine->stadd) != UTOFU_SUCCESS)
        return false;
    local_ = mine->stadd;
    meet([] { usleep(100); });
    for (int i = 0; i < sides_; ++i)
        peers_[i] = *reinterpret_cast<Peer*>(control_->side[i].exchange);
    return true;
}

void Utofu::check(int code, const char* what)
{
    if (code != UTOFU_SUCCESS) {
        std::fprintf(stderr, "bench: utofu: %s: %d\n", what, code);
        std::exit(1);
    }
}

double Utofu::serving()
{
    return serve([this] { relax(); });
}

void Utofu::put(std::size_t slot, unsigned long flags, int side)
{
    const Peer& to = peers_[side < 0 ? 1 - side_ : side];
    std::size_t at = slot * size_, part = part_of(size_);
    if (part < size_) { // in order, so that the second one's notice confirms both (guide 2.2.10)
        flags |= UTOFU_ONESIDED_FLAG_STRONG_ORDER;
        check(u_.put(vcq_, to.id, local_ + at, to.stadd + at, part, 0, UTOFU_ONESIDED_FLAG_STRONG_ORDER, nullptr),
              "put");
    }
    at += size_ - part;
    check(u_.put(vcq_, to.id, local_ + at, to.stadd + at, part, 0, flags, nullptr), "put");
}

void Utofu::get(std::size_t slot)
{
    std::size_t at = slot * size_, part = part_of(size_);
    if (part < size_)
        check(
            u_.get(vcq_, peer().id, local_ + at, peer().stadd + at, part, 0, UTOFU_ONESIDED_FLAG_STRONG_ORDER, nullptr),
            "get");
    at += size_ - part;
    check(u_.get(vcq_, peer().id, local_ + at, peer().stadd + at, part, 0,
                 UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE | (part < size_ ? UTOFU_ONESIDED_FLAG_STRONG_ORDER : 0), nullptr),
          "get");
}

void Utofu::wait_tcq(std::size_t count)
{
    while (count > 0) {
        void* data;
        int code = u_.poll_tcq(vcq_, 0, &data);
        if (code == UTOFU_ERR_NOT_FOUND)
            continue;
        check(code, "poll_tcq");
        --count;
    }
}

std::uint64_t Utofu::wait_mrq(std::size_t count)
{
    utofu_mrq_notice notice{};
    while (count > 0) {
        int code = u_.poll_mrq(vcq_, 0, &notice);
        if (code == UTOFU_ERR_NOT_FOUND) {
            relax();
            continue;
        }
        check(code, "poll_mrq");
        --count;
    }
    make_room();
    return notice.rmt_value;
}

// Without it the TOQ fills up, whether or not TCQ notices were asked for (guide 3.7).
void Utofu::make_room()
{
    void* data;
    while (u_.poll_tcq(vcq_, 0, &data) != UTOFU_ERR_NOT_FOUND) {
    }
}

double Utofu::run_case(CaseId id)
{
    static constexpr Offer<Utofu> offers[] = {
        {write_latency, &Utofu::ping_pong},
        {write_completion, &Utofu::put_completion},
        {read_latency, &Utofu::get_latency},
        {write_bandwidth, &Utofu::put_bandwidth},
        {write_bidirectional, &Utofu::put_both_ways},
        {write_once, &Utofu::put_once},
        {read_bandwidth, &Utofu::get_bandwidth},
        {inject_rate, &Utofu::put_rate},
        {write_rate, &Utofu::put_rate},
        {fetch_add, &Utofu::add},
        {fetch_add_polled, &Utofu::add_polled},
        {compare_swap, &Utofu::swap},
        {fetch_min, &Utofu::swap}, // its best case: one compare and swap
        {fetch_add_contended, &Utofu::add_all},
        {fetch_min_contended, &Utofu::swap_all},
        {atomic_single, &Utofu::add_singles},
        {atomic_vector, &Utofu::add_singles},
        // What a message costs at least: its bytes put where the receiver looks.
        {tagged_latency, &Utofu::ping_pong},
        {tagged_latency_used, &Utofu::ping_pong_used},
        {tagged_bandwidth, &Utofu::put_bandwidth},
        {message_latency, &Utofu::ping_pong},
        {message_bandwidth, &Utofu::put_bandwidth},
        {message_rate, &Utofu::put_rate},
        {message_rate_small, &Utofu::put_rate},
        {queue_empty, &Utofu::poll_empty},
        {queue_full, &Utofu::poll_full},
        {registration, &Utofu::registrations},
        {registration_again, &Utofu::register_again},
        {registration_new, &Utofu::register_new},
        {many_to_one_write, &Utofu::put_storm},
        {all_to_all, &Utofu::exchange},
    };
    return run_offer(*this, id, offers);
}

Transport* make_utofu(const char* library)
{
    return new Utofu(library);
}

} // namespace tofu::bench
