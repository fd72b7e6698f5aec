// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: what DELAY_START holds back (guide 3.7.9.1) where it pays: ARMWs on neighbouring words.
// Called by: api/onesided (hold), tni/engine and tni/vcq (start). Calls: tni/engine.
//
// An instruction of a row costs more to be looked at than to be carried out: who owns the VCQ, where the word is, who
// sleeps there. Held back, all of a row are looked at once. Only ARMWs that leave no notice are held, so that nothing
// but the words themselves can tell; whatever is posted next starts them first. All else that has the flag starts at
// once, which the guide allows.
#pragma once

#include "tni/descriptor.h"
#include "tni/vcq.h"

namespace tofu::sim {

struct Gathered {
    static constexpr uint32_t most = 128;

    Descriptor first;
    // What the next one must say to belong to the row, as programs say it.
    uint64_t rmt_vcq_id;
    uint64_t rmt_stadd;
    uint64_t edata;
    unsigned long flags;
    int armw_op;
    uint32_t size; // of a word
    uint32_t count;
    uint32_t room; // for as many in all; not more than the TOQ has
    alignas(16) std::byte operands[most * 8];
};

// The next of the row that `vcq` holds? Then it is held as well. The VCQ has no lock.
template <typename Word>
[[nodiscard]] inline bool gather_next(Vcq& vcq, uint64_t rmt_vcq_id, int armw_op, Word operand,
                                      uint64_t rmt_stadd, uint64_t edata, unsigned long flags) noexcept
{
    if (vcq.special != Vcq::gathering) {
        return false;
    }
    Gathered& row = *vcq.gathered;
    if (row.rmt_stadd != rmt_stadd || row.rmt_vcq_id != rmt_vcq_id || row.flags != flags ||
        row.armw_op != armw_op || row.edata != edata || row.size != sizeof(Word) || row.count >= row.room)
        [[unlikely]] {
        return false;
    }
    reinterpret_cast<Word*>(row.operands)[row.count++] = operand;
    row.rmt_stadd = rmt_stadd + sizeof(Word);
    return true;
}

// Begins a row with an ARMW that has DELAY_START; the TOQ has room for it, and nothing is held. False: it is none that
// pays, and is to be posted.
[[nodiscard]] bool gather_first(Vcq& vcq, const Descriptor& d, unsigned long flags) noexcept;

// Carries out what is held.
void start_gathered(Vcq& vcq) noexcept;

} // namespace tofu::sim
