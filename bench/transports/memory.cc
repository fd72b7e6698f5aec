// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The limits of the machine that no transport can beat: a cache line from one core to the other, memcpy between
// mappings, the processor's own atomics; and the kernel's copies between processes (process_vm_*).
#include "pattern.h"
#include "transport.h"

#include <cstring>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

namespace tofu::bench {
namespace {

class Memory final : public Transport {
  public:
    // The pages that all sides map are made before the fork.
    Memory()
        : shared_(static_cast<std::byte*>(
              mmap(nullptr, 2 * buffer_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)))
    {
    }
    ~Memory() override { munmap(shared_, 2 * buffer_bytes); }

    bool open() override
    {
        if (shared_ == MAP_FAILED)
            return false;
        local_ = map_buffer(side_);
        std::memset(shared_ + std::size_t(side_ & 1) * buffer_bytes, 1, buffer_bytes);
        meet([] { usleep(100); });
        return local_ != nullptr;
    }

  private:
    // What side `side` owns, as all see it.
    std::byte* of(int side) { return shared_ + std::size_t(side) * buffer_bytes; }
    std::atomic<std::uint64_t>& word() { return *reinterpret_cast<std::atomic<std::uint64_t>*>(shared_ + 8192); }

    double ping_pong()
    {
        auto put = [&](std::uint64_t value) {
            std::byte* to = of(1 - side_) + place_of(value);
            make_bytes(local_, value);
            if (size_ > 8)
                std::memcpy(to, local_, size_ - 8);
            store_tail(to, size_, value);
        };
        return ping_pong_by(of(side_), put, [] {});
    }
    double ping_pong_used()
    {
        bytes_matter_ = true;
        return ping_pong();
    }
    double copy_out()
    {
        return copies([&](std::size_t at) { std::memcpy(of(1) + at, local_ + at, size_); });
    }
    double copy_in()
    {
        return copies([&](std::size_t at) { std::memcpy(local_ + at, of(1) + at, size_); });
    }
    template <class F>
    double copies(F&& copy)
    {
        if (side_ != 0)
            return serve([] {});
        std::size_t slots = slots_of(size_);
        return timed([&] {
            for (; operations_ < double(iterations_); operations_ += double(slots))
                for (std::size_t slot = 0; slot < slots; ++slot) {
                    copy(slot * size_);
                    asm volatile("" ::: "memory");
                }
        });
    }
    double add()
    {
        return atomics([&](std::uint64_t) { word().fetch_add(1); });
    }
    double add_polled()
    {
        if (side_ != 0)
            return serve([this] { word().load(std::memory_order_relaxed); });
        return add();
    }
    double swap()
    {
        return atomics([&](std::uint64_t i) {
            std::uint64_t seen = word().load(std::memory_order_relaxed);
            word().compare_exchange_strong(seen, i);
        });
    }
    template <class F>
    double atomics(F&& f)
    {
        if (side_ != 0)
            return serve([] {});
        operations_ = double(iterations_);
        return timed([&] {
            for (std::size_t i = 0; i < iterations_; ++i)
                f(i);
        });
    }
    double add_contended()
    {
        return all_together([&] {
            for (std::size_t i = 0; i < iterations_; ++i)
                word().fetch_add(1);
        });
    }
    template <class F>
    double all_together(F&& f)
    {
        meet();
        double start = now_ns();
        f();
        meet();
        operations_ = double(iterations_) * sides_;
        return now_ns() - start;
    }

    double run_case(CaseId id) override
    {
        // clang-format off
        static constexpr Offer<Memory> offers[] = {
            {write_latency, &Memory::ping_pong},
            {tagged_latency, &Memory::ping_pong},
            {tagged_latency_used, &Memory::ping_pong_used},
            {message_latency, &Memory::ping_pong},
            {write_bandwidth, &Memory::copy_out},
            {read_bandwidth, &Memory::copy_in},
            {tagged_bandwidth, &Memory::copy_out},
            {message_bandwidth, &Memory::copy_out},
            {fetch_add, &Memory::add},
            {fetch_add_polled, &Memory::add_polled},
            {compare_swap, &Memory::swap},
            {fetch_add_contended, &Memory::add_contended},
        };
        // clang-format on
        return run_offer(*this, id, offers);
    }

    std::byte* shared_;
    std::byte* local_ = nullptr;
};

class ProcessVm final : public Transport {
  public:
    bool open() override
    {
        struct Mine {
            pid_t pid;
            std::byte* memory;
        };
        local_ = map_buffer(side_);
        if (local_ == nullptr)
            return false;
        auto* mine = reinterpret_cast<Mine*>(control_->side[side_].exchange);
        *mine = {getpid(), local_};
        meet([] { usleep(100); });
        auto* theirs = reinterpret_cast<Mine*>(control_->side[side_ ^ 1].exchange);
        peer_ = theirs->pid;
        remote_ = theirs->memory;
        std::uint64_t word = 1; // refused here (ptrace scope, seccomp): not offered
        return move(process_vm_writev, &word, remote_, 8);
    }

  private:
    using Call = ssize_t(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);
    bool move(Call* call, void* here, void* there, std::size_t bytes)
    {
        iovec local{here, bytes}, remote{there, bytes};
        return call(peer_, &local, 1, &remote, 1, 0) == ssize_t(bytes);
    }
    double ping_pong()
    {
        auto put = [&](std::uint64_t value) {
            store_tail(local_ + buffer_bytes / 2, size_, value);
            move(process_vm_writev, local_ + buffer_bytes / 2, remote_ + place_of(value), size_);
        };
        return ping_pong_by(local_, put, [] {});
    }
    double write() { return moves(process_vm_writev); }
    double read() { return moves(process_vm_readv); }
    double moves(Call* call)
    {
        if (side_ != 0)
            return serve([] {});
        std::size_t slots = slots_of(size_);
        return timed([&] {
            for (; operations_ < double(iterations_); operations_ += double(slots))
                for (std::size_t slot = 0; slot < slots; ++slot)
                    move(call, local_ + slot * size_, remote_ + slot * size_, size_);
        });
    }
    // Memory that the target has just got from the system and filled, each piece written to once.
    double write_new()
    {
        auto& told = *reinterpret_cast<std::byte**>(control_->side[1].exchange);
        std::size_t pieces = once_pieces(size_);
        if (side_ == 1) {
            std::byte* memory = map_bytes(pieces * size_);
            told = memory;
            double result = serve([] {});
            munmap(memory, pieces * size_);
            return result;
        }
        operations_ = double(pieces);
        return timed([&] {
            for (std::size_t i = 0; i < pieces; ++i)
                move(process_vm_writev, local_, told + i * size_, size_);
        });
    }

    double run_case(CaseId id) override
    {
        // clang-format off
        static constexpr Offer<ProcessVm> offers[] = {
            {write_latency, &ProcessVm::ping_pong},
            {write_completion, &ProcessVm::write},
            {read_latency, &ProcessVm::read},
            {write_bandwidth, &ProcessVm::write},
            {write_once, &ProcessVm::write_new},
            {read_bandwidth, &ProcessVm::read},
            {write_rate, &ProcessVm::write},
            {tagged_bandwidth, &ProcessVm::write},
            {message_bandwidth, &ProcessVm::write},
        };
        // clang-format on
        return run_offer(*this, id, offers);
    }

    pid_t peer_ = 0;
    std::byte *local_ = nullptr, *remote_ = nullptr;
};

} // namespace

Transport* make_memory()
{
    return new Memory;
}

Transport* make_process_vm()
{
    return new ProcessVm;
}

} // namespace tofu::bench
