// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The first page of a VCQ's region in the owner's segment, and the shared TOQ of session mode. Data only.
#pragma once

#include "tni/mrq.h"

namespace tofu::sim {

inline constexpr uint32_t toq_entries = 2048; ///< descriptors whose TCQ entry has not been read

/// See tni/session.h.
struct SessionControl {
    alignas(apart) SharedWord<uint32_t> runner;  ///< 0, or 1 << 31 | claimant that runs descriptors
    alignas(apart) SharedWord<uint64_t> posted;  ///< written by the owner
    alignas(apart) SharedWord<uint64_t> arrived; ///< added to by all posters
    alignas(apart) SharedWord<uint64_t> done;    ///< written by the runner
    SharedWord<uint64_t> progress;               ///< number * 8 + SessionPhase of the one that runs
    SharedWord<uint64_t> arrived_at;             ///< when the last put arrived that starts descriptors (clock/)
    SharedWord<uint64_t> begun;                  ///< exact mode: number of started descriptors, `done` comes later
    SharedWord<uint64_t> sent_at;                ///< exact mode: of the last TCQ entry
};

struct VcqControl {
    MrqControl mrq;
    SessionControl session;
};
static_assert(sizeof(VcqControl) <= vcq_control_bytes);

struct alignas(apart) SessionSlot {
    std::byte descriptor[64]; ///< as of encode_descriptor; read with decode_descriptor only
    int32_t result;           ///< of the TCQ entry, when done
    uint32_t reserved0;
    uint64_t posted_at; ///< by the virtual clock
    Stamp done;         ///< of the TCQ entry
    uint8_t reserved[32];
};
static_assert(sizeof(SessionSlot) * toq_entries <= vcq_queue_bytes);

[[nodiscard]] inline VcqControl& vcq_control(std::byte* region) noexcept
{
    return *reinterpret_cast<VcqControl*>(region);
}
[[nodiscard]] inline SessionSlot* session_slots(std::byte* region) noexcept
{
    return reinterpret_cast<SessionSlot*>(region + vcq_queue_offset);
}

} // namespace tofu::sim
