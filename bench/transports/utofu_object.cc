// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Queues and registration over raw uTofu.
#include "utofu.h"

#include <cstdlib>
#include <vector>

namespace tofu::bench {

double Utofu::poll_empty()
{
    if (side_ != 0)
        return serving();
    operations_ = double(iterations_);
    return timed([&] {
        for (std::size_t i = 0; i < iterations_; ++i) {
            void* data;
            utofu_mrq_notice notice;
            if (u_.poll_tcq(vcq_, 0, &data) != UTOFU_ERR_NOT_FOUND ||
                u_.poll_mrq(vcq_, 0, &notice) != UTOFU_ERR_NOT_FOUND)
                std::exit(1);
        }
    });
}

double Utofu::poll_full()
{
    constexpr std::size_t filled = 128;
    if (side_ != 0)
        return serving();
    double reading = 0;
    timed([&] {
        for (; operations_ < double(iterations_); operations_ += double(filled)) {
            for (std::size_t i = 0; i < filled; ++i)
                check(u_.put_piggyback8(vcq_, peer().id, i, peer().stadd, 8, 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE,
                                        nullptr),
                      "put_piggyback8");
            double start = now_ns();
            wait_mrq(filled);
            reading += now_ns() - start;
        }
    });
    return reading;
}

double Utofu::registrations()
{
    if (side_ != 0)
        return serving();
    operations_ = double(iterations_);
    return timed([&] {
        for (std::size_t i = 0; i < iterations_; ++i) {
            utofu_stadd_t stadd;
            check(u_.reg_mem(vcq_, memory_ + 65536, size_, 0, &stadd), "reg_mem");
            check(u_.dereg_mem(vcq_, stadd, 0), "dereg_mem");
        }
    });
}

// Memory that is registered already, and still is.
double Utofu::register_again()
{
    if (side_ != 0)
        return serving();
    double registering = 0;
    std::vector<utofu_stadd_t> regions(128);
    timed([&] {
        for (; operations_ < double(iterations_); operations_ += double(regions.size())) {
            double start = now_ns();
            for (utofu_stadd_t& stadd : regions)
                check(u_.reg_mem(vcq_, memory_ + 65536, size_, 0, &stadd), "reg_mem");
            registering += now_ns() - start;
            for (utofu_stadd_t stadd : regions)
                check(u_.dereg_mem(vcq_, stadd, 0), "dereg_mem");
        }
    });
    return registering;
}

double Utofu::register_new()
{
    if (side_ != 0)
        return serving();
    operations_ = double(iterations_);
    return timed([&] {
        for (std::size_t i = 0; i < iterations_; ++i) {
            std::byte* memory = map_bytes(size_);
            utofu_stadd_t stadd;
            check(u_.reg_mem(vcq_, memory, size_, 0, &stadd), "reg_mem");
            check(u_.dereg_mem(vcq_, stadd, 0), "dereg_mem");
            munmap(memory, size_);
        }
    });
}

} // namespace tofu::bench
