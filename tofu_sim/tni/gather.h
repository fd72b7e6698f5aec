// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What DELAY_START holds back (guide 3.7.9.1) where it pays: ARMWs and CSWAPs on neighbouring words. And such rows as
// prepared descriptors, which utofu_post_toq starts at once.
//
// The lookups of an instruction of a row cost more than its execution: the owner of the VCQ, the address of the word,
// the sleepers. Held back, all of a row are looked up at once. Only those that leave nothing but local notices are
// held; whatever is posted next starts them first. All else that has the flag starts at once, which the guide allows.
#pragma once

#include "tni/descriptor.h"
#include "tni/vcq.h"

#include <type_traits>

namespace tofu::sim {

struct Gathered {
    static constexpr uint32_t most = 256;

    Descriptor first;
    /// What the next one must say to belong to the row, as programs say it.
    uint64_t rmt_vcq_id;
    uint64_t rmt_stadd;
    uint64_t edata;
    unsigned long flags;
    int armw_op;
    Op op;
    uint32_t size; ///< of a word
    uint32_t count;
    uint32_t room;                            ///< for as many in all; not more than the TOQ has
    alignas(16) std::byte operands[most * 8]; ///< and, once started, the old value
    alignas(16) std::byte compares[most * 8]; ///< of CSWAPs
};

/// A word, and what an instruction says besides the operand: what a CSWAP expects, which operation an ARMW is.
template <Op op>
inline constexpr bool is_cswap = op == Op::cswap4 || op == Op::cswap8;
template <Op op>
using WordOf = std::conditional_t<op == Op::armw4 || op == Op::cswap4, uint32_t, uint64_t>;
template <Op op>
using WhatOf = std::conditional_t<is_cswap<op>, WordOf<op>, int>;

/// The next of the row that `vcq` holds? Then it is held as well. The VCQ has no lock.
template <Op op>
[[nodiscard]] inline bool gather_next(Vcq& vcq, uint64_t rmt_vcq_id, WhatOf<op> what, WordOf<op> operand,
                                      uint64_t rmt_stadd, uint64_t edata, unsigned long flags) noexcept
{
    if (vcq.special != Vcq::gathering)
        return false;
    Gathered& row = *vcq.gathered;
    using Word = WordOf<op>;
    if (row.rmt_stadd != rmt_stadd || row.rmt_vcq_id != rmt_vcq_id || row.flags != flags || row.op != op ||
        row.edata != edata || row.count >= row.room) [[unlikely]]
        return false;
    if constexpr (is_cswap<op>)
        reinterpret_cast<Word*>(row.compares)[row.count] = what;
    else if (row.armw_op != what) [[unlikely]]
        return false;
    reinterpret_cast<Word*>(row.operands)[row.count++] = operand;
    row.rmt_stadd = rmt_stadd + sizeof(Word);
    return true;
}

/// Begins a row with an instruction that has DELAY_START; the TOQ has room for it, and nothing is held. False: it is
/// none that pays, and is to be posted. The caller has seen that it leaves local notices at most.
[[nodiscard]] bool gather_first(Vcq& vcq, const Descriptor& d, unsigned long flags) noexcept;

/// Carries out what is held.
void start_gathered(Vcq& vcq) noexcept;

/// Carries out `bytes` bytes of prepared descriptors that are a row; the TOQ has room for them. False: they are none,
/// and nothing has happened.
[[nodiscard]] bool start_prepared(Vcq& vcq, const std::byte* descriptors, size_t bytes) noexcept;

} // namespace tofu::sim
