// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Reads and writes over libfabric.
#include "fabric.h"

#include <cstdlib>

namespace tofu::bench {
namespace {

constexpr std::size_t inject_bytes = 8; // what every provider takes

} // namespace

double Fabric::put_latency()
{
    std::byte* out = port_->memory + buffer_bytes / 2;
    // Ours executes at the target without its help; there the target polls nothing but memory.
    bool one_sided = provider_ == "tofu";
    std::size_t under_way = 0;
    auto put = [&](std::uint64_t value) {
        store_tail(out, size_, value);
        if (size_ <= inject_bytes) {
            port_->post([&] {
                return fi_inject_write(port_->ep, out, size_, peer().address, peer().base + place_of(value),
                                       peer().key);
            });
            return;
        }
        settle(under_way); // the buffer is used again
        port_->post([&] {
            return fi_write(port_->ep, out, size_, fi_mr_desc(port_->mr), peer().address, peer().base + place_of(value),
                            peer().key, &contexts_[0]);
        });
        under_way = 1;
    };
    double elapsed = ping_pong_by(port_->memory, put, [&] {
        if (!one_sided)
            port_->reap();
    });
    settle(under_way);
    return elapsed;
}

double Fabric::put_completion()
{
    if (side_ != 0)
        return serving();
    operations_ = double(iterations_);
    return timed([&] {
        for (std::size_t i = 0; i < iterations_; ++i) {
            write(0);
            settle(1);
        }
    });
}

double Fabric::get_latency()
{
    if (side_ != 0)
        return serving();
    operations_ = double(iterations_);
    return timed([&] {
        for (std::size_t i = 0; i < iterations_; ++i) {
            port_->post([&] {
                return fi_read(port_->ep, port_->memory, size_, fi_mr_desc(port_->mr), peer().address, peer().base,
                               peer().key, &contexts_[0]);
            });
            settle(1);
        }
    });
}

double Fabric::put_bandwidth()
{
    if (side_ != 0)
        return serving();
    std::size_t slots = slots_of(size_);
    return timed([&] {
        for (; operations_ < double(iterations_); operations_ += double(slots)) {
            for (std::size_t slot = 0; slot < slots; ++slot)
                write(slot);
            settle(slots);
        }
    });
}

double Fabric::put_both_ways()
{
    std::size_t slots = slots_of(size_);
    std::size_t rounds = (iterations_ + slots - 1) / slots;
    operations_ = 2 * double(rounds * slots);
    return all_together([&] {
        for (std::size_t round = 0; round < rounds; ++round) {
            for (std::size_t slot = 0; slot < slots; ++slot)
                write(slot);
            settle(slots);
        }
    });
}

// Memory that the target has just got from the system, filled and registered, each piece written to
// once.
double Fabric::put_once()
{
    struct Told {
        std::uint64_t key, base;
    };
    auto& told = *reinterpret_cast<Told*>(control_->side[1].exchange);
    std::size_t pieces = once_pieces(size_);
    if (side_ == 1) {
        std::byte* memory = map_bytes(pieces * size_);
        fid_mr* mr = nullptr;
        if (memory == nullptr ||
            fi_mr_reg(port_->domain, memory, pieces * size_, FI_REMOTE_WRITE, 0, 90, 0, &mr, nullptr) != 0)
            std::exit(1);
        bool virt = port_->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR;
        told = {fi_mr_key(mr), virt ? reinterpret_cast<std::uint64_t>(memory) : 0};
        double result = serving();
        fi_close(&mr->fid);
        munmap(memory, pieces * size_);
        return result;
    }
    operations_ = double(pieces);
    return timed([&] {
        for (std::size_t i = 0; i < pieces; ++i) {
            port_->post([&] {
                return fi_write(port_->ep, port_->memory, size_, fi_mr_desc(port_->mr), peer().address,
                                told.base + i * size_, told.key, &contexts_[0]);
            });
            settle(1);
        }
    });
}

double Fabric::get_bandwidth()
{
    if (side_ != 0)
        return serving();
    std::size_t slots = slots_of(size_);
    return timed([&] {
        for (; operations_ < double(iterations_); operations_ += double(slots)) {
            for (std::size_t slot = 0; slot < slots; ++slot)
                port_->post([&] {
                    return fi_read(port_->ep, port_->memory + slot * size_, size_, fi_mr_desc(port_->mr),
                                   peer().address, peer().base + slot * size_, peer().key, &contexts_[slot]);
                });
            settle(slots);
        }
    });
}

double Fabric::inject_writes()
{
    if (side_ != 0)
        return serving();
    std::uint64_t word = 1;
    operations_ = double(iterations_);
    double elapsed = timed([&] {
        for (std::size_t i = 0; i < iterations_; ++i)
            port_->post(
                [&] { return fi_inject_write(port_->ep, &word, 8, peer().address, peer().base + 8192, peer().key); });
    });
    return elapsed;
}

} // namespace tofu::bench
