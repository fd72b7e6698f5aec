// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What both ends of the mailbox share: slot states, futex calls, and the arithmetic of ARMW. Uses: futex.
#pragma once

#include "memory/copy.h"
#include "memory/memory.h"

#include <ctime>

namespace tofu::sim {

/// futex(2) on a word that processes share; any thread, no lock. Neither reports an error: the caller looks at the word
/// again. wake: at most `count` sleepers. wait: while the word has this value, `timeout` (null: no bound) at most.
void futex_wake(SharedWord<uint32_t>& word, int count) noexcept;
void futex_wait(SharedWord<uint32_t>& word, uint32_t value, const timespec* timeout) noexcept;
void ring_service(ServiceArea& area) noexcept; ///< wakes the owner's service thread

/// A slot's state: phase in bits 0-2, low bits of the claimant's start time 3-17, claims so far 18-39,
/// claimant's pid 40-63.
[[nodiscard]] constexpr SlotPhase phase_of(uint64_t state) noexcept
{
    return SlotPhase(state & 7);
}
[[nodiscard]] constexpr uint64_t with_phase(uint64_t state, SlotPhase phase) noexcept
{
    return (state & ~uint64_t{7}) | uint64_t(phase);
}
[[nodiscard]] constexpr int claimant_pid(uint64_t state) noexcept
{
    return int(state >> 40);
}
[[nodiscard]] constexpr uint64_t claimant_start(uint64_t state) noexcept
{
    return state >> 3 & 0x7fff;
}
[[nodiscard]] constexpr uint64_t claim_of(uint64_t old, int pid, uint64_t start_time) noexcept
{
    const uint64_t count = ((old >> 18) + 1) & 0x3fffff;
    return uint64_t(uint32_t(pid)) << 40 | count << 18 | (start_time & 0x7fff) << 3 | uint64_t(SlotPhase::claimed);
}

/// Claims are made and judged by the process table. A start time of 0 is that of a claimant that could not read it.
[[nodiscard]] uint64_t claim_by_this_process(uint64_t old) noexcept;
void forget_this_process() noexcept; ///< in a child of fork
[[nodiscard]] bool claimant_is_gone(uint64_t state) noexcept;

/// The operation of guide 2.2.5 on an aligned word, atomic against all CPU atomics; returns the old value.
template <typename Word>
[[nodiscard]] TOFU_SIM_AS_DEVICE inline Word armw_word(void* address, ArmwOp op, Word operand, Word compare) noexcept
{
    auto* word = static_cast<Word*>(address);
    switch (op) {
    case ArmwOp::cswap:
        __atomic_compare_exchange_n(word, &compare, operand, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
        return compare; // what was found, equal or not
    case ArmwOp::swap: return __atomic_exchange_n(word, operand, __ATOMIC_SEQ_CST);
    case ArmwOp::add: return __atomic_fetch_add(word, operand, __ATOMIC_SEQ_CST);
    case ArmwOp::bit_xor: return __atomic_fetch_xor(word, operand, __ATOMIC_SEQ_CST);
    case ArmwOp::bit_and: return __atomic_fetch_and(word, operand, __ATOMIC_SEQ_CST);
    case ArmwOp::bit_or: return __atomic_fetch_or(word, operand, __ATOMIC_SEQ_CST);
    }
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

[[nodiscard]] TOFU_SIM_AS_DEVICE inline uint64_t armw_on(void* address, unsigned size, ArmwOp op, uint64_t operand,
                                                         uint64_t compare) noexcept
{
    return size == 4 ? armw_word<uint32_t>(address, op, uint32_t(operand), uint32_t(compare))
                     : armw_word<uint64_t>(address, op, operand, compare);
}

} // namespace tofu::sim
