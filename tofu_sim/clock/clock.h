// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The virtual clock of this process (TOFU_SIM_CLOCK, docs/time-model.md).
//
// One for all threads: what they spend adds up. It moves by what calls cost, by what the process waits for and by what
// its threads compute between calls; waiting itself moves nothing. All of it is asked only where `instruments` has the
// clock.
#pragma once

#include "clock/network.h"
#include "clock/schedule.h"
#include "job/instruments.h"

namespace tofu::sim {

class Process;

/// While the process joins its job, by its environment. UTOFU_SUCCESS or why not.
[[nodiscard]] int start_clock(Process& process) noexcept;
void reset_clock_in_child() noexcept;

[[nodiscard]] inline bool has_clock() noexcept
{
    return (instruments & instrument_clock) != 0;
}
[[nodiscard]] inline bool is_exact() noexcept
{
    return (instruments & instrument_exact) != 0;
}
[[nodiscard]] Picoseconds clock_now() noexcept;
[[nodiscard]] Network& clock_network() noexcept;

/// A call of uTofu by this thread, while it lasts. At its beginning the clock moves by what the thread has computed
/// since its last one. Not after a poll without success: then the thread waits, except if it computes very long.
class ClockedCall {
  public:
    enum class Memory { seen, as_told };
    /// `seen`: bytes that have arrived in memory without a notice count as seen now, unless the program reports that
    /// itself.
    explicit ClockedCall(Memory memory = Memory::seen) noexcept;
    ~ClockedCall();
    ClockedCall(const ClockedCall&) = delete;
    ClockedCall& operator=(const ClockedCall&) = delete;

    /// Returns what time it is afterwards.
    Picoseconds spend(Picoseconds cost) noexcept;
    void wait_until(Picoseconds when) noexcept;
    void found_nothing() noexcept { in_vain_ = true; }

  private:
    bool in_vain_ = false;
};

/// In exact mode each call of uTofu that does or sees something is one of these, and elsewhere nothing happens here: it
/// begins when it is this process's turn, with all done that was due by then.
class TurnedCall {
  public:
    using Kind = CallKind;
    explicit TurnedCall(Kind kind) noexcept;
    ~TurnedCall();
    TurnedCall(const TurnedCall&) = delete;
    TurnedCall& operator=(const TurnedCall&) = delete;

    /// A second thread: the call is to fail with UTOFU_ERR_NOT_AVAILABLE.
    [[nodiscard]] bool is_refused() const noexcept { return turn_ == Turn::refused; }
    /// A poll may see what has arrived; else it finds nothing.
    [[nodiscard]] bool may_look() const noexcept { return turn_ == Turn::ours; }

    /// It has found nothing in one of the places that the process looks at; `seen` belongs to that place. The first
    /// time since something happened: false, there may be other places. From then on the call waits, and returns true
    /// if it should look once more. `known`: it will find something then.
    [[nodiscard]] bool wait(uint64_t& seen, Picoseconds known = never) noexcept;
    /// Until something happens, or `until`: false if that came first.
    [[nodiscard]] bool wait_until(Picoseconds until) noexcept;
    /// Something was found or done: each place is worth a look again.
    void found() noexcept;
    /// The adversary has hidden what may be there (tni/chaos): likewise, and the next waits are short, since nothing
    /// that happens would end them.
    void hid() noexcept;

  private:
    [[nodiscard]] bool visit(uint64_t& seen) noexcept;

    Turn turn_ = Turn::ours;
};

/// The program has found bytes written there (include/tofu_sim.h).
void clock_seen(const void* address, size_t length) noexcept;

/// What registering memory costs, or its end.
void clock_registration(size_t bytes) noexcept;

} // namespace tofu::sim
