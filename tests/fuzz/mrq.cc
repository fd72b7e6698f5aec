// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Fuzz target: an MRQ with invalid contents, written by a process, blocks neither the processes that write to it nor
// the owner.
#include "fuzz.h"

#include "tni/mrq.h"

namespace tofu::sim::fuzz {

void mrq(Input input)
{
    constexpr unsigned log2_capacity = 3;
    constexpr unsigned capacity = 1u << log2_capacity;
    static MrqControl control;
    static MrqSlot slots[capacity];
    static_assert(sizeof(control) == 128);
    input.fill(&control.tail.raw, sizeof control.tail.raw);
    for (MrqSlot& slot : slots)
        input.fill(&slot.state.raw, sizeof slot.state.raw);
    MrqRing ring(&control, slots, log2_capacity);
    uint64_t head = input.take<uint64_t>();
    while (!input.empty()) {
        MrqEntry entry{};
        entry.rmt_value = 0x5a5a;
        const Claimant me(input.take<uint8_t>(), 1);
        switch (input.below(4)) {
        case 0: (void)ring.push(me, entry); break;
        case 1:
            if (MrqSlot* const slot = ring.claim(me)) // and dies
                require(slot >= slots && slot < slots + capacity, "a claim is a slot of the ring");
            break;
        case 2: {
            const uint64_t before = head;
            const MrqRing::Poll found = ring.poll(head, entry);
            require(head == before + (found == MrqRing::Poll::found ? 1 : 0), "a poll takes one entry or none");
            if (found == MrqRing::Poll::claimed) {
                bool valid = false;
                const Claimant holder = ring.claimant_at(head, valid);
                ring.abort_claim(head, holder);
                require(head == before + 1, "a claim that stays unfilled is skipped");
            }
            break;
        }
        default: input.fill(&slots[input.below(capacity)].state.raw, sizeof(uint64_t)); break;
        }
    }
}

} // namespace tofu::sim::fuzz
