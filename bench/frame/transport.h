// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a transport is, and the memory by which the driver and the processes of a transport agree.
//
// A transport is a team of processes that stays up during the whole run; the driver makes all teams
// run the same case in turn, several rounds, so that figures compared with each other were taken
// within the same second.
#pragma once

#include "case.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <sched.h>

namespace tofu::bench {

/// Lies in memory shared by the driver and the team. Words of one writer each, lines apart.
struct Control {
    struct alignas(256) Side {
        std::atomic<std::uint32_t> done{0}; ///< last round this side has finished; read by the driver
        std::atomic<std::uint32_t> meet{0}; ///< meetings this side has come to; read by the others
        std::uint8_t exchange[256] = {};    ///< what it sends to the others at its start
    };
    Side side[max_sides];
    alignas(256) std::atomic<std::uint32_t> round{0}; ///< the driver adds one: run case_id
    std::atomic<int> ready{0};                        ///< sides that have come up
    std::atomic<int> stop{0};                         ///< serving processes may continue
    int case_id = 0;                                  ///< -1: leave
    int sides = 0;
    std::size_t size = 0;
    std::size_t iterations = 0;
    // Of side 0: nanoseconds, -1: not offered; and how many operations that were, of all sides.
    double elapsed = -1;
    double operations = 0;
};

inline double now_ns()
{
    using namespace std::chrono;
    return double(duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count());
}

/// The last bytes of a transfer, up to 8 of them, carry a number by which the target knows that it
/// came.
inline void store_tail(std::byte* memory, std::size_t size, std::uint64_t value)
{
    if (size >= 8)
        std::atomic_ref(*reinterpret_cast<std::uint64_t*>(memory + (size - 8) / 8 * 8))
            .store(value, std::memory_order_release);
    else
        std::atomic_ref(*reinterpret_cast<std::uint8_t*>(memory)).store(std::uint8_t(value), std::memory_order_release);
}
inline bool tail_is(const std::byte* memory, std::size_t size, std::uint64_t value)
{
    if (size >= 8)
        return *reinterpret_cast<const volatile std::uint64_t*>(memory + (size - 8) / 8 * 8) == value;
    return *reinterpret_cast<const volatile std::uint8_t*>(memory) == std::uint8_t(value);
}

/// One process of a team.
class Transport {
  public:
    Transport() = default;
    Transport(const Transport&) = delete;
    Transport& operator=(const Transport&) = delete;
    virtual ~Transport() = default;

    /// Comes up and connects to the others; false (with a line on stderr) where it is not available
    /// here.
    virtual bool open() = 0;

    void join(Control& control, int side)
    {
        control_ = &control;
        side_ = side;
        sides_ = control.sides;
    }
    /// Runs the case that the control names, if this side takes part.
    void run()
    {
        sides_ = control_->sides;
        size_ = control_->size;
        iterations_ = control_->iterations;
        operations_ = 0;
        bytes_matter_ = false;
        double elapsed = side_ < sides_ ? run_case(CaseId(control_->case_id)) : 0;
        if (side_ == 0) {
            control_->elapsed = elapsed;
            control_->operations = operations_;
        }
    }

  protected:
    /// A case is a function that all sides run: side 0 returns the nanoseconds and leaves in
    /// operations_ how many operations that were; -1 if it cannot be done after all (all sides
    /// must agree on that).
    template <class T>
    struct Offer {
        CaseId id;
        double (T::*run)();
    };
    virtual double run_case(CaseId id) = 0;
    template <class T, std::size_t n>
    static double run_offer(T& transport, CaseId id, const Offer<T> (&offers)[n])
    {
        for (const Offer<T>& offer : offers)
            if (offer.id == id)
                return (transport.*offer.run)();
        return -1;
    }

    /// All sides of the case meet here; `idle` is called while waiting, for transports that need
    /// progress.
    template <class F>
    void meet(F&& idle)
    {
        // Partner: the same store by every other side, after all that it did before.
        std::uint32_t mine = control_->side[side_].meet.load(std::memory_order_relaxed) + 1;
        control_->side[side_].meet.store(mine, std::memory_order_release);
        for (int i = 0; i < sides_; ++i)
            while (std::int32_t(control_->side[i].meet.load(std::memory_order_acquire) - mine) < 0)
                idle();
    }
    void meet()
    {
        meet([this] { relax(); });
    }
    /// In a loop that polls: gives up the processor where there are more sides than processors.
    void relax() const
    {
        if (sides_ > 2)
            sched_yield();
    }
    /// Side 0's part of a case in which the others only serve(): meets them, runs f, ends them.
    template <class F>
    double timed(F&& f)
    {
        meet();
        double start = now_ns();
        f();
        double elapsed = now_ns() - start;
        control_->stop.store(1, std::memory_order_release); // partner: serve()
        return elapsed;
    }
    /// The other sides' part.
    template <class F>
    double serve(F&& idle)
    {
        meet();
        while (!control_->stop.load(std::memory_order_acquire))
            idle();
        return 0;
    }

    /// Where round i of a ping-pong puts its bytes: in turn on several lines and pages while they
    /// are small, since the way between two cores is not as long for every line.
    [[nodiscard]] std::size_t place_of(std::uint64_t i) const { return size_ <= 64 ? i % 16 * (4096 + 64) : 0; }
    /// In cases in which the bytes matter: writes all of them before they are sent, reads all that
    /// came.
    void make_bytes(std::byte* memory, std::uint64_t i) const
    {
        if (bytes_matter_)
            std::memset(memory, int(i), size_);
    }
    void use_bytes(const std::byte* memory)
    {
        std::uint64_t word;
        for (std::size_t at = 0; bytes_matter_ && at + 8 <= size_; at += 8) {
            std::memcpy(&word, memory + at, 8);
            used_ += word;
        }
        asm volatile("" : : "r"(used_) : "memory");
    }
    /// Ping-pong through memory: `put` sends size_ bytes to place_of(i), whose tail is i; `idle` is
    /// called while polling `in`.
    template <class Put, class Idle>
    double ping_pong_by(std::byte* in, Put&& put, Idle&& idle)
    {
        for (std::uint64_t i = 0; i < 16; ++i)
            store_tail(in + place_of(i), size_, 0);
        meet(idle);
        double start = now_ns();
        for (std::uint64_t i = 1; i <= iterations_; ++i) {
            if (side_ == 0)
                put(i);
            while (!tail_is(in + place_of(i), size_, i))
                idle();
            use_bytes(in + place_of(i));
            if (side_ == 1)
                put(i);
        }
        double elapsed = now_ns() - start;
        operations_ = 2 * double(iterations_);
        meet(idle);
        return elapsed;
    }

    Control* control_ = nullptr;
    int side_ = 0, sides_ = 2;
    std::size_t size_ = 0, iterations_ = 0;
    double operations_ = 0;
    bool bytes_matter_ = false; ///< a case sets it
    std::uint64_t used_ = 0;
};

Transport* make_memory();                     ///< limits: cache lines, memcpy, the processor's atomics
Transport* make_process_vm();                 ///< limits: the kernel's copies between processes
Transport* make_utofu(const char* library);   ///< raw utofu_* calls
Transport* make_fabric(const char* provider); ///< libfabric

} // namespace tofu::bench
