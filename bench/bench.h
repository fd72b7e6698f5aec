// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: the shape of a benchmark: cases, transports, and the word of memory by which the driver, the
// initiator and the target agree. Called by: every file of bench/. Calls: nothing.
//
// A transport is a pair of processes that stay up during the whole run; the driver (main.cc) makes all
// transports run the same case in turn, several rounds, so that figures compared with each other were taken
// within the same seconds.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tofu::bench {

inline constexpr std::size_t buffer_bytes = std::size_t{1} << 26; ///< of each side, 64 MiB

/// What a case measures; says how the driver prints it and which direction is better.
enum class Unit { ns, mib_per_s, mega_per_s };

/// One thing measured. Sizes are in bytes; iterations are chosen by the driver.
struct Case {
    const char* name;
    Unit unit;
    std::size_t first_size, last_size; ///< powers of 8 between them; equal for cases of one size
    std::size_t iterations;            ///< at first_size; fewer at larger sizes
};

/// The cases every transport may offer, in the order of the report.
enum CaseId : int {
    write_latency,    ///< put into memory the target polls, and back; half of the round trip
    write_bandwidth,  ///< windowed puts, last one confirmed
    read_bandwidth,   ///< windowed gets
    inject_rate,      ///< 8-byte puts without completion
    fetch_add,        ///< one fetching 64-bit add, value back
    compare_swap,     ///< one 64-bit compare and swap, value back
    fetch_min,        ///< emulated on uTofu
    message_latency,  ///< tagged ping-pong, half of the round trip
    message_rate,     ///< windowed sends of 64 bytes
    message_bandwidth,///< windowed sends
    poll_empty,       ///< reading an empty completion queue
    registration,     ///< register and deregister 64 KiB
    case_count
};

inline constexpr Case cases[case_count] = {
    {"write latency, target polls", Unit::ns, 8, 8, 20000},
    {"write bandwidth", Unit::mib_per_s, 4096, 1 << 24, 4000},
    {"read bandwidth", Unit::mib_per_s, 4096, 1 << 24, 4000},
    {"inject write rate, 8 B", Unit::mega_per_s, 8, 8, 100000},
    {"fetch add, 64 bit", Unit::ns, 8, 8, 20000},
    {"compare and swap, 64 bit", Unit::ns, 8, 8, 20000},
    {"fetch min, 64 bit", Unit::ns, 8, 8, 20000},
    {"tagged message latency", Unit::ns, 8, 1 << 21, 20000},
    {"tagged message rate, 64 B", Unit::mega_per_s, 64, 64, 100000},
    {"tagged message bandwidth", Unit::mib_per_s, 4096, 1 << 24, 4000},
    {"read of an empty queue", Unit::ns, 0, 0, 200000},
    {"register and deregister", Unit::ns, 65536, 65536, 2000},
};

/// One pair of processes and what it does now. Lies in memory shared by driver, initiator and target.
struct Control {
    std::atomic<std::uint32_t> round{0};      ///< driver adds one: run case_id
    std::atomic<std::uint32_t> done[2]{};     ///< last round each side has finished
    std::atomic<std::uint32_t> meet[2]{};     ///< rendezvous of the two sides
    std::atomic<int> ready{0};                ///< sides that have come up
    std::atomic<int> stop{0};                 ///< the target of a one-sided case may go on
    int case_id = 0;                          ///< -1: leave
    std::size_t size = 0;
    std::size_t iterations = 0;
    double result = -1;                       ///< of the initiator, in the case's unit; -1: not offered
    std::uint8_t exchange[2][256] = {};       ///< what the sides tell each other at the start
};

inline double now_ns()
{
    using namespace std::chrono;
    return double(duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count());
}

/// Both sides of a pair meet here; `side` is 0 or 1.
inline void meet(Control& control, int side)
{
    std::uint32_t mine = control.meet[side].fetch_add(1, std::memory_order_acq_rel) + 1;
    while (control.meet[1 - side].load(std::memory_order_acquire) < mine)
        asm volatile("" ::: "memory");
}

/// A transport in one process of its pair.
class Transport {
  public:
    virtual ~Transport() = default;
    /// Comes up and connects to the other side; false (with a line on stderr) where it is not available here.
    virtual bool open(Control& control, int side) = 0;
    /// Runs a case. Side 0 returns the figure in the case's unit, or -1 where the case is not offered; both
    /// sides must agree on that.
    virtual double run(Control& control, int side) = 0;
};

Transport* make_machine();                    ///< bare cache lines and memcpy: the limits
Transport* make_utofu(const char* library);   ///< raw utofu_* calls
Transport* make_fabric(const char* provider); ///< libfabric

} // namespace tofu::bench
