// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: the limits of the machine: a cache line handed between two cores, memcpy between warm mappings.
// Called by: main.cc. Calls: the kernel.
#include "bench.h"

#include <cstdlib>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

namespace tofu::bench {
namespace {

class Machine final : public Transport {
  public:
    bool open(Control& control, int side) override
    {
        // The pages both sides map were made before the fork, by make_machine().
        std::memset(local_, 1, buffer_bytes);
        meet(control, side);
        return true;
    }

    double run(Control& control, int side) override
    {
        switch (CaseId(control.case_id)) {
        case write_latency:
            return ping_pong(control, side);
        case write_bandwidth:
            return side == 0 ? copy(control) : 0;
        case fetch_add:
            return side == 0 ? remote_add(control) : serve(control);
        default:
            return -1;
        }
    }

    std::byte* shared = nullptr;

  private:
    double ping_pong(Control& control, int side)
    {
        auto* words = reinterpret_cast<std::atomic<std::uint64_t>*>(shared);
        auto& mine = words[side * 64];
        auto& theirs = words[(1 - side) * 64];
        std::uint64_t base = mine.load();
        meet(control, side);
        double start = now_ns();
        for (std::uint64_t i = 1; i <= control.iterations; ++i) {
            if (side == 0)
                theirs.store(base + i, std::memory_order_release);
            while (mine.load(std::memory_order_acquire) != base + i) {
            }
            if (side == 1)
                theirs.store(base + i, std::memory_order_release);
        }
        return (now_ns() - start) / double(control.iterations) / 2;
    }

    // memcpy into a mapping shared with the peer
    double copy(Control& control)
    {
        double start = now_ns();
        for (std::size_t i = 0; i < control.iterations; ++i) {
            std::memcpy(shared, local_, control.size);
            asm volatile("" ::: "memory");
        }
        return double(control.size * control.iterations) / (now_ns() - start) * 1e9 / 1048576;
    }

    // an atomic on a line that nobody else touches meanwhile
    double remote_add(Control& control)
    {
        auto* word = reinterpret_cast<std::atomic<std::uint64_t>*>(shared + 8192);
        meet(control, 0);
        double start = now_ns();
        for (std::size_t i = 0; i < control.iterations; ++i)
            word->fetch_add(1);
        double result = (now_ns() - start) / double(control.iterations);
        control.stop.store(1, std::memory_order_release);
        return result;
    }
    double serve(Control& control)
    {
        meet(control, 1);
        while (!control.stop.load(std::memory_order_acquire)) {
        }
        return 0;
    }

    std::byte* local_ = static_cast<std::byte*>(std::aligned_alloc(4096, buffer_bytes));
};

} // namespace

Transport* make_machine()
{
    auto* machine = new Machine;
    machine->shared = static_cast<std::byte*>(mmap(nullptr, buffer_bytes, PROT_READ | PROT_WRITE,
                                                   MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
    return machine->shared == MAP_FAILED ? nullptr : machine;
}

} // namespace tofu::bench
