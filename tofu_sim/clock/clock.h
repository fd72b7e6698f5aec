// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: the virtual clock of this process (TOFU_SIM_CLOCK, docs/time-model.md).
// Called by: tni/watch, barrier/, api/, job/process (start). Calls: clock/network, job/.
//
// One for all threads: what they spend adds up. It moves by what calls cost, by what the process waits for and by what
// its threads compute between calls; waiting itself moves nothing. All of it is asked only where `instruments` has the
// clock.
#pragma once

#include "clock/network.h"
#include "job/instruments.h"

namespace tofu::sim {

class Process;

// While the process joins its job. `cpu_permille`: TOFU_SIM_CPU; `buffer`: TOFU_SIM_CHANNEL_BUFFER.
void start_clock(Process& process, uint32_t cpu_permille, uint32_t buffer) noexcept;
void reset_clock_in_child() noexcept;

[[nodiscard]] inline bool has_clock() noexcept
{
    return (instruments & instrument_clock) != 0;
}
[[nodiscard]] Picoseconds clock_now() noexcept;
[[nodiscard]] Network& clock_network() noexcept;

// A call of uTofu by this thread, while it lasts. At its beginning the clock moves by what the thread has computed since
// its last one. Not if that looked in vain: then the thread waits, except where it takes very long over it.
class ClockedCall {
  public:
    enum class Memory { seen, as_told };
    // `seen`: what has arrived in memory without a notice counts as seen now, unless the program tells that itself.
    explicit ClockedCall(Memory memory = Memory::seen) noexcept;
    ~ClockedCall();
    ClockedCall(const ClockedCall&) = delete;
    ClockedCall& operator=(const ClockedCall&) = delete;

    // Returns what time it is afterwards.
    Picoseconds spend(Picoseconds cost) noexcept;
    void wait_until(Picoseconds when) noexcept;
    void found_nothing() noexcept { in_vain_ = true; }

  private:
    bool in_vain_ = false;
};

// The program has found bytes written there (include/tofu_sim.h).
void clock_seen(const void* address, size_t length) noexcept;

// What registering memory costs, or its end.
void clock_registration(size_t bytes) noexcept;

} // namespace tofu::sim
