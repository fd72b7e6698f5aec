// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The message receive queue of a VCQ: many processes write, its owner reads, any writer may be killed.
//
// A position counts entries since the segment was created; its slot is position mod capacity, its lap
// position / capacity. The state word of a slot says what it is in which lap:
//
//     EMPTY(lap) --claim--> CLAIMED(lap, claimant) --publish--> FULL(lap) --consume--> EMPTY(lap + 1)
//                                   |------- abort: claimant is dead ------------------------^
//
// All four changes but consume are compare-and-swap, so each happens once. Memory of zeros is an empty
// ring. Writers find the first free position through `tail`, which may lag and which anyone moves on.
//
// A writer at position t = tail, slot state s:
//   W1  s == EMPTY(lap t)             claim it. On success the position is ours; move tail; fill; publish.
//   W2  s == CLAIMED/FULL(lap t)      someone has it and has not moved tail (yet, or was killed): move it, retry.
//   W3  s has a later lap             consumed already, tail lags: as W2.
//   W4  s has an earlier lap          the reader is a whole lap behind: full, unless tail has moved meanwhile.
//   W5  four rings of W2 to W4        impossible by chance: a peer wrote invalid data into the ring. Treated as full.
// The reader at position h (its own), slot state s:
//   R1  s == FULL(lap h)              take it, make the slot EMPTY(lap h + 1), go on.
//   R2  s == EMPTY(lap h)             nothing there, and nothing behind it: positions are claimed in order.
//   R3  s == CLAIMED(lap h, p)        being written. If p is dead: abort by CAS to EMPTY(lap h + 1), go on.
//   R4  anything else                 a peer wrote nonsense: the slot is reset like R3 and skipped.
// A writer killed before its claim leaves nothing; after its claim, before tail: W2 and R3; before publish: R3.
// A writer whose claim was aborted while it was dying fails to publish (its CAS finds another state).
#pragma once

#include "job/layout.h"

#include <cstdint>
#include <utility>

namespace tofu::sim {

struct MrqEntry {
    uint64_t vcq_id; ///< of the peer
    uint8_t type;    ///< enum utofu_mrq_notice_type
    uint8_t edata;   ///< max_edata_size is 1
    int16_t result;  ///< UTOFU_SUCCESS or UTOFU_ERR_MRQ_*
    uint32_t reserved;
    uint64_t rmt_value;
    uint64_t lcl_stadd;
    uint64_t rmt_stadd;
};
static_assert(sizeof(MrqEntry) == 40);

/// What goes along with a notice where an instrument watches (job/instruments.h); zeros elsewhere.
struct Stamp {
    uint64_t time;   ///< when it is there, by the virtual clock: picoseconds
    uint64_t origin; ///< its post, by the trace
};

struct alignas(apart) MrqSlot {
    SharedWord<uint64_t> state;
    MrqEntry entry;
    Stamp stamp;
};
static_assert(sizeof(MrqSlot) == mrq_entry_bytes);

struct MrqControl {
    alignas(apart) SharedWord<uint64_t> tail;
    alignas(apart) SharedWord<uint32_t> overflow; ///< set by the writer that found the ring full
    SharedWord<uint64_t> head_hint;               ///< the reader's position, for counts
};

/// The claimant: process slot (12 bits) and its incarnation (14 bits), as one word.
class Claimant {
  public:
    constexpr Claimant(uint32_t process, uint32_t incarnation) noexcept
        : bits_((process & 0xfff) | (incarnation & 0x3fff) << 12)
    {
    }
    constexpr explicit Claimant(uint32_t bits) noexcept : bits_(bits & 0x3ffffff) {}
    [[nodiscard]] constexpr uint32_t process() const noexcept { return bits_ & 0xfff; }
    [[nodiscard]] constexpr uint32_t incarnation() const noexcept { return bits_ >> 12; }
    [[nodiscard]] constexpr uint32_t bits() const noexcept { return bits_; }

  private:
    uint32_t bits_;
};

/// State word: lap (36 bits) | claimant (26) | phase (2).
struct MrqState {
    enum Phase : uint64_t { empty = 0, claimed = 1, full = 2 };
    static constexpr uint64_t make(uint64_t lap, Phase phase, uint32_t claimant = 0) noexcept
    {
        return lap << 28 | uint64_t{claimant} << 2 | phase;
    }
    static constexpr uint64_t lap(uint64_t state) noexcept { return state >> 28; }
    static constexpr Phase phase(uint64_t state) noexcept { return static_cast<Phase>(state & 3); }
    static constexpr Claimant claimant(uint64_t state) noexcept { return Claimant(static_cast<uint32_t>(state >> 2)); }
};

/// A handle on a ring in someone's segment; capacity is a power of two given by 2^log2.
class MrqRing {
  public:
    MrqRing() noexcept = default;
    MrqRing(MrqControl* control, MrqSlot* slots, unsigned log2_capacity) noexcept
        : control_(control), slots_(slots), log2_(log2_capacity)
    {
    }

    /// Any process. False: the ring is full (cases W1-W5 above).
    [[nodiscard]] bool push(Claimant me, const MrqEntry& entry) noexcept
    {
        MrqSlot* const slot = claim(me);
        if (slot == nullptr) [[unlikely]]
            return false;
        slot->entry = entry;
        publish(*slot, me);
        return true;
    }
    [[nodiscard]] bool push(Claimant me, const MrqEntry& entry, const Stamp& stamp) noexcept
    {
        MrqSlot* const slot = claim(me);
        if (slot == nullptr)
            return false;
        slot->entry = entry;
        slot->stamp = stamp;
        publish(*slot, me);
        return true;
    }

    /// The two halves of push, apart for tests that stop between them.
    [[nodiscard]] MrqSlot* claim(Claimant me) noexcept
    {
        uint64_t tail = control_->tail.load_acquire();
        for (uint64_t attempts = 4 * capacity(); attempts != 0; attempts--) {
            MrqSlot& slot = slots_[tail & mask()];
            const uint64_t lap = tail >> log2_;
            uint64_t state = slot.state.load_acquire();
            if (state == MrqState::make(lap, MrqState::empty) &&
                slot.state.compare_exchange(state, MrqState::make(lap, MrqState::claimed, me.bits()))) {
                move_tail(tail);
                return &slot;
            }
            if (MrqState::lap(state) < lap) { // W4
                const uint64_t now = control_->tail.load_acquire();
                if (now == tail)
                    return nullptr;
                tail = now;
                continue;
            }
            tail = move_tail(tail); // W2, W3
        }
        return nullptr; // W5
    }
    /// Publishes by CAS: a claim that was aborted stays aborted. Release: the entry, and all that the poster
    /// stored before (data of its put), is visible to the reader that finds FULL (partner: poll).
    void publish(MrqSlot& slot, Claimant me) noexcept
    {
        uint64_t state = slot.state.load_relaxed();
        if (MrqState::phase(state) == MrqState::claimed && MrqState::claimant(state).bits() == me.bits())
            (void)slot.state.compare_exchange(state, MrqState::make(MrqState::lap(state), MrqState::full));
    }

    enum class Poll { found, nothing, claimed };

    /// The owner only. `head` is its position. On `claimed` the entry at head is being written by
    /// claimant_at(head); the caller decides when to ask whether that process is alive, and aborts.
    /// `stamp`, unless null, takes the entry's out, so that a push without one does not leave that of a lap ago.
    [[nodiscard, gnu::always_inline]] Poll poll(uint64_t& head, MrqEntry& entry, Stamp* stamp = nullptr) noexcept
    {
        MrqSlot& slot = slots_[head & mask()];
        const uint64_t lap = head >> log2_;
        const uint64_t state = slot.state.load_acquire();
        if (state == MrqState::make(lap, MrqState::empty)) // R2
            return Poll::nothing;
        if (state != MrqState::make(lap, MrqState::full)) // R3, R4
            return Poll::claimed;
        entry = slot.entry;
        if (stamp != nullptr)
            *stamp = std::exchange(slot.stamp, Stamp{});
        head++;
        control_->head_hint.store_relaxed(head);
        // Release: the copy is done before a writer may claim the slot (partner: claim's load).
        slot.state.store_release(MrqState::make(lap + 1, MrqState::empty));
        return Poll::found;
    }

    /// The holder of the claim at head; undefined if the state is not a claim of this lap (R4: `valid` false).
    [[nodiscard]] Claimant claimant_at(uint64_t head, bool& valid) const noexcept
    {
        const uint64_t state = slots_[head & mask()].state.load_acquire();
        valid = MrqState::lap(state) == head >> log2_ && MrqState::phase(state) == MrqState::claimed;
        return MrqState::claimant(state);
    }

    /// The owner only: skip the claim at head, whose claimant is dead (R3) or never was (R4).
    void abort_claim(uint64_t& head, Claimant dead) noexcept
    {
        MrqSlot& slot = slots_[head & mask()];
        const uint64_t lap = head >> log2_;
        uint64_t state = slot.state.load_acquire();
        if (state == MrqState::make(lap, MrqState::full) || state == MrqState::make(lap, MrqState::empty))
            return;
        bool valid = false;
        const Claimant holder = claimant_at(head, valid);
        if (valid && holder.bits() != dead.bits())
            return;
        if (slot.state.compare_exchange(state, MrqState::make(lap + 1, MrqState::empty))) {
            (void)move_tail(head); // its writer may have been killed before that, and no other since
            head++;
            control_->head_hint.store_relaxed(head);
        }
    }

    [[nodiscard]] MrqControl& control() const noexcept { return *control_; }
    [[nodiscard]] uint64_t capacity() const noexcept { return uint64_t{1} << log2_; }

  private:
    [[nodiscard]] uint64_t mask() const noexcept { return (uint64_t{1} << log2_) - 1; }
    uint64_t move_tail(uint64_t from) noexcept
    {
        uint64_t seen = from;
        return control_->tail.compare_exchange(seen, from + 1) ? from + 1 : seen;
    }

    MrqControl* control_ = nullptr;
    MrqSlot* slots_ = nullptr;
    unsigned log2_ = 0;
};

} // namespace tofu::sim
