// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Atomics over libfabric.
#include "fabric.h"

#include <algorithm>

namespace tofu::bench {
namespace {

constexpr std::size_t word_at = 8192;
constexpr std::uint64_t high = std::uint64_t{1} << 62;

} // namespace

// One after the other, each waited for. MIN lowers the word each time, so that nothing is left out.
double Fabric::fetches(fi_op op, int target)
{
    const Port::Peer& to = port_->peers[target];
    auto* operand = reinterpret_cast<std::uint64_t*>(port_->memory + 4096);
    auto* result = operand + 8;
    for (std::size_t i = 0; i < iterations_; ++i) {
        *operand = op == FI_MIN ? high - i * max_sides - std::size_t(side_) - 1 : 1;
        port_->post([&] {
            return fi_fetch_atomic(port_->ep, operand, 1, fi_mr_desc(port_->mr), result, fi_mr_desc(port_->mr),
                                   to.address, to.base + word_at, to.key, FI_UINT64, op, &contexts_[0]);
        });
        settle(1);
    }
    return 0;
}

double Fabric::add()
{
    if (!port_->atomics)
        return -1;
    if (side_ != 0)
        return serving();
    operations_ = double(iterations_);
    return timed([&] { fetches(FI_SUM, 1); });
}

// The word's line comes from the target's core each time.
double Fabric::add_polled()
{
    if (!port_->atomics)
        return -1;
    if (side_ == 0)
        return add();
    bool one_sided = provider_ == "tofu"; // see put_latency
    return serve([&] {
        (void)*reinterpret_cast<const volatile std::uint64_t*>(port_->memory + word_at);
        if (!one_sided)
            idle();
    });
}

double Fabric::minimum()
{
    if (!port_->atomics)
        return -1;
    if (side_ != 0) {
        *reinterpret_cast<volatile std::uint64_t*>(port_->memory + word_at) = high;
        return serving();
    }
    operations_ = double(iterations_);
    return timed([&] { fetches(FI_MIN, 1); });
}

double Fabric::add_all()
{
    if (!port_->atomics)
        return -1;
    operations_ = double(iterations_) * sides_;
    return all_together([&] { fetches(FI_SUM, 0); });
}

double Fabric::minimum_all()
{
    if (!port_->atomics)
        return -1;
    if (side_ == 0)
        *reinterpret_cast<volatile std::uint64_t*>(port_->memory + word_at) = high;
    operations_ = double(iterations_) * sides_;
    return all_together([&] { fetches(FI_MIN, 0); });
}

double Fabric::compare()
{
    if (!port_->atomics)
        return -1;
    if (side_ != 0)
        return serving();
    auto* operand = reinterpret_cast<std::uint64_t*>(port_->memory + 4096);
    auto* result = operand + 8;
    auto* expected = operand + 16;
    operations_ = double(iterations_);
    return timed([&] {
        for (std::size_t i = 0; i < iterations_; ++i) {
            *expected = *result;
            *operand = i;
            port_->post([&] {
                return fi_compare_atomic(port_->ep, operand, 1, fi_mr_desc(port_->mr), expected, fi_mr_desc(port_->mr),
                                         result, fi_mr_desc(port_->mr), peer().address, peer().base + 2 * word_at,
                                         peer().key, FI_UINT64, FI_CSWAP, &contexts_[0]);
            });
            settle(1);
        }
    });
}

// 512 elements in one call and in a call each, with a window of calls.
template <fi_datatype type>
double Fabric::add_vectors()
{
    constexpr std::size_t count = 512;
    if (!port_->atomics)
        return -1;
    if (side_ != 0)
        return serving();
    if constexpr (type == FI_DOUBLE)
        std::fill_n(reinterpret_cast<double*>(port_->memory), count, 1.0);
    return timed([&] {
        for (; operations_ < double(iterations_); operations_ += double(count)) {
            port_->post([&] {
                return fi_atomic(port_->ep, port_->memory, count, fi_mr_desc(port_->mr), peer().address,
                                 peer().base + word_at, peer().key, type, FI_SUM, &contexts_[0]);
            });
            settle(1);
        }
    });
}

template <fi_datatype type>
double Fabric::add_singles()
{
    if (!port_->atomics)
        return -1;
    if (side_ != 0)
        return serving();
    if constexpr (type == FI_DOUBLE)
        std::fill_n(reinterpret_cast<double*>(port_->memory), window, 1.0);
    return timed([&] {
        for (; operations_ < double(iterations_); operations_ += double(window)) {
            for (std::size_t slot = 0; slot < window; ++slot)
                port_->post([&] {
                    return fi_atomic(port_->ep, port_->memory + 8 * slot, 1, fi_mr_desc(port_->mr), peer().address,
                                     peer().base + word_at + 8 * slot, peer().key, type, FI_SUM, &contexts_[slot]);
                });
            settle(window);
        }
    });
}

template double Fabric::add_vectors<FI_UINT64>();
template double Fabric::add_vectors<FI_DOUBLE>();
template double Fabric::add_singles<FI_UINT64>();
template double Fabric::add_singles<FI_DOUBLE>();

} // namespace tofu::bench
