// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The state of barrier gates in the job file, shared by all processes of the job. Data only.
//
// A gate's output of each round is written once, but perhaps by several processes: each that finds both
// inputs of a round can compute the output, all compute the same, and every word carries the tag of its round,
// which only grows. So there are no claims and no waits between processes, and a process that is killed in the middle
// of forwarding leaves a state that the next one can complete.
#pragma once

#include "barrier/reduce.h"
#include "job/layout.h"

#include <optional>

namespace tofu::sim {

/// A gate by number: node * gates_per_node + tni * gates_per_tni + gate.
using GateRef = uint32_t;
inline constexpr GateRef null_gate = 0xffffffff;

/// When: the epoch of a gate (8 bits; new with every setting of the gate) and the round in it (24 bits).
struct Tag {
    uint32_t value = 0;

    [[nodiscard]] static constexpr Tag of(uint32_t epoch, uint32_t round) noexcept
    {
        return {(epoch & 0xff) << 24 | (round & 0xffffff)};
    }
    [[nodiscard]] constexpr uint32_t epoch() const noexcept { return value >> 24; }
    [[nodiscard]] constexpr uint32_t round() const noexcept { return value & 0xffffff; }
    friend bool operator==(const Tag&, const Tag&) = default;
};

/// Both wrap: what is less than half a turn ahead is later.
[[nodiscard]] constexpr bool later_round(uint32_t a, uint32_t b) noexcept
{
    return static_cast<int32_t>((a - b) << 8) > 0;
}
[[nodiscard]] constexpr bool later(Tag a, Tag b) noexcept
{
    return a.epoch() == b.epoch() ? later_round(a.round(), b.round()) : static_cast<int8_t>(a.epoch() - b.epoch()) > 0;
}
static_assert(later_round(0, 0xffffff) && !later_round(0xffffff, 0) && !later_round(7, 7));
static_assert(later(Tag::of(0, 1), Tag::of(255, 9)) && later(Tag::of(3, 0), Tag::of(3, 0xffffff)));

/// An output. Bits 63-32 of a word: Tag; bits 31-0: payload. Payload of the head, which is written last: operation
/// (bits 0-3), elements (4-6), mismatch (7), timed (8). Half words: data words low half first, then the status of
/// BFPSUM, then the time of a timed one.
inline constexpr unsigned slot_status_at = 2 * max_packet_words;
inline constexpr unsigned slot_time_at = slot_status_at + 1;
struct alignas(apart) OutputSlot {
    SharedWord<uint64_t> head;
    SharedWord<uint64_t> half[31];
};
static_assert(sizeof(OutputSlot) == 256 && slot_time_at + 1 < 31);

[[nodiscard]] constexpr Tag tag_of(uint64_t word) noexcept
{
    return {static_cast<uint32_t>(word >> 32)};
}

/// Round r is in slot r & 1. A circuit that is a barrier never needs a third: a process that starts round r + 2 has
/// finished r + 1, which all have started, so all have finished r.
inline constexpr unsigned slots_per_output = 2;

/// The last round in the slots of an output; 0: none yet in this epoch.
[[nodiscard]] inline uint32_t last_round(const OutputSlot* slots, uint32_t epoch) noexcept
{
    std::optional<uint32_t> last; // of the two, never against 0: half a turn on, 0 is later
    for (unsigned i = 0; i < slots_per_output; i++) {
        const Tag tag = tag_of(slots[i].head.load_acquire());
        if (tag.epoch() == epoch && (!last || later_round(tag.round(), *last)))
            last = tag.round();
    }
    return last.value_or(0);
}

/// The two inputs of a gate.
enum class Input : uint8_t { packet = 0, signal = 1 };

/// Written by the owner, between two steps of `version`; read by all processes.
struct alignas(apart) GateState {
    SharedWord<uint64_t> version; ///< odd: being written. Bits 8-1: the epoch
    SharedWord<uint32_t> configured;
    SharedWord<uint32_t> src[2]; ///< [Input]
    SharedWord<uint32_t> dst[2];
    SharedWord<uint32_t> path;         ///< ID of the path of packets to `dst`
    SharedWord<uint64_t> src_owner[2]; ///< the GateWord of the source when it was set, 0: unknown

    /// What round of the source belongs to a round of this gate: own epoch (63-56), source's epoch (55-48),
    /// (source's round - own round) in 24 bits. A source with another epoch has been set again since.
    alignas(apart) SharedWord<uint64_t> edge[2];

    OutputSlot out[slots_per_output];
};
static_assert(sizeof(GateState) == 640 && offsetof(GateState, out) == 128);

[[nodiscard]] constexpr uint32_t epoch_of_version(uint64_t version) noexcept
{
    return version >> 1 & 0xff;
}

struct TniGates {
    GateState gates[gates_per_tni];
    /// What comes in at the end half of the start/end gates.
    OutputSlot ends[start_gates_per_tni][slots_per_output];
};
static_assert(sizeof(TniGates) <= tni_gates_bytes && tni_gates_bytes % layout_unit == 0);

[[nodiscard]] constexpr GateRef gate_ref(uint32_t node, unsigned tni, unsigned gate) noexcept
{
    return (node * tnis_per_node + tni) * gates_per_tni + gate;
}
[[nodiscard]] constexpr uint32_t node_of_gate(GateRef gate) noexcept
{
    return gate / gates_per_node;
}
[[nodiscard]] constexpr unsigned gate_on_node(GateRef gate) noexcept
{
    return gate % gates_per_node;
}
[[nodiscard]] constexpr unsigned number_on_tni(GateRef gate) noexcept
{
    return gate % gates_per_tni;
}
[[nodiscard]] constexpr bool is_start_gate(GateRef gate) noexcept
{
    return number_on_tni(gate) < start_gates_per_tni;
}

} // namespace tofu::sim
