// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Keeps moves of pages and copies through the kernel into them apart.
#include "memory/announce.h"

#include "memory/service.h"

#include <ctime>

namespace tofu::sim {
namespace {

constexpr timespec look_pause{0, 20'000}; ///< a copy takes 0.1 ms at most, unless its process is off the CPU
constexpr int looks_at_process = 16;      ///< interval, in polls, of the check whether it is alive

/// A slot that is claimed and not yet posted has not checked for a move, and will see this one. A slot that changes
/// hands between the loads was left by the awaited copy, and its new holder will see the move.
bool is_copied_to(const CopySlot& slot, uint64_t start, uint64_t end) noexcept
{
    // Acquire: the range, and the copies of a process that has left (partners: AnnouncedCopy, take_back).
    return phase_of(slot.state.load_acquire()) == SlotPhase::posted && slot.start.load_acquire() < end &&
           slot.end.load_acquire() > start;
}

void free_if_left(CopySlot& slot) noexcept
{
    uint64_t found = slot.state.load_acquire();
    if (phase_of(found) != SlotPhase::free && claimant_is_gone(found))
        (void)slot.state.compare_exchange(found, with_phase(found, SlotPhase::free));
}

} // namespace

AnnouncedCopy::AnnouncedCopy(ServiceArea& area, uint64_t there, size_t bytes) noexcept
{
    const auto first = uint32_t(claimant_pid(claim_by_this_process(0))); // usually of no other process
    for (uint32_t i = 0; i < 2 * copy_slots && slot_ == nullptr; ++i) {
        CopySlot& slot = area.copies[(first + i) % copy_slots];
        if (i >= copy_slots)
            free_if_left(slot);
        uint64_t found = slot.state.load_acquire();
        state_ = claim_by_this_process(found);
        if (phase_of(found) == SlotPhase::free && slot.state.compare_exchange(found, state_))
            slot_ = &slot;
    }
    if (slot_ == nullptr)
        return;
    slot_->start.store_relaxed(there);
    slot_->end.store_relaxed(there + bytes);
    // Release: the range (partner: is_copied_to).
    const uint64_t posted = with_phase(state_, SlotPhase::posted);
    if (!slot_->state.compare_exchange(state_, posted)) {
        slot_ = nullptr; // taken for dead meanwhile
        return;
    }
    state_ = posted;
    // Sequentially consistent, between our announcement and our look (partner: AnnouncedMove). Where the two words are
    // of different moves, the one that we have to see has ended, and of the others the owner waits for us.
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (area.move_start.load_acquire() < there + bytes && area.move_end.load_acquire() > there)
        take_back();
}

void AnnouncedCopy::take_back() noexcept
{
    // Release: what was copied (partner: is_copied_to).
    if (slot_ != nullptr)
        (void)slot_->state.compare_exchange(state_, with_phase(state_, SlotPhase::free));
    slot_ = nullptr;
}

AnnouncedMove::AnnouncedMove(ServiceArea& area, uint64_t start, uint64_t end, int* tries) noexcept : area_(area)
{
    area.move_start.store_release(start);
    area.move_end.store_release(end);
    // Sequentially consistent, between our announcement and our look (partner: AnnouncedCopy).
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    for (CopySlot& slot : area.copies)
        while (may_begin_ && is_copied_to(slot, start, end)) {
            if (*tries % looks_at_process == 0)
                free_if_left(slot);
            (void)::nanosleep(&look_pause, nullptr);
            may_begin_ = --*tries > 0;
        }
}

} // namespace tofu::sim
