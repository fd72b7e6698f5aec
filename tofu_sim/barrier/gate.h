// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One gate: its setting, its inputs of a round, its output (guide 2.3.1).
#pragma once

#include "barrier/state.h"

namespace tofu::sim {

/// A consistent copy of a gate's setting.
struct GateSetting {
    uint32_t epoch = 0;
    bool configured = false;
    GateRef src[2] = {null_gate, null_gate}; ///< [Input]
    GateRef dst[2] = {null_gate, null_gate};
    uint32_t path = 0; ///< ID of the path of packets to `dst`
    uint64_t src_owner[2] = {0, 0};
};

enum class Fetched : uint8_t {
    ready,
    not_yet,
    lost, ///< overwritten by a later round, or torn by one
};

enum class Fired : uint8_t {
    now,
    before,  ///< a process has completed this round, or a later one
    waiting, ///< an input is missing
    lost,    ///< an input was overwritten before it was used: this round cannot be completed any more
};

/// All gates of a job, at `area` (job_gates_offset of the job file).
class Gates {
  public:
    Gates() noexcept = default;
    Gates(std::byte* area, uint32_t num_nodes) noexcept : area_(area), num_nodes_(num_nodes) {}

    [[nodiscard]] bool valid(GateRef gate) const noexcept { return gate < num_nodes_ * gates_per_node; }
    [[nodiscard]] bool read(GateRef gate, GateSetting& setting) const noexcept;

    /// By the owner only. A new epoch begins; outputs and inputs under way are forgotten.
    void write(GateRef gate, const GateSetting& setting) const noexcept;

    /// Rounds that the gate has sent since it was set, of 24 bits: as many packets, if it sends any.
    [[nodiscard]] uint32_t rounds_sent(GateRef gate, const GateSetting& setting) const noexcept;

    /// What the start half sends in a round.
    [[nodiscard]] Fetched fetch_output(GateRef gate, Tag tag, Packet& packet) const noexcept;
    void publish_output(GateRef gate, Tag tag, const Packet& packet) const noexcept;
    /// What came in at the end half.
    [[nodiscard]] Fetched fetch_end(GateRef gate, Tag tag, Packet& packet) const noexcept;
    void publish_end(GateRef gate, Tag tag, const Packet& packet) const noexcept;

    /// The round of the source of `input` that belongs to `round` of this gate. False: the source does not
    /// send to this gate, or one of them is being set.
    [[nodiscard]] bool source_round(GateRef gate, const GateSetting& setting, Input input, uint32_t round,
                                    Tag& tag) const noexcept;
    /// The other way round: which round of this gate waits for `source_tag`.
    [[nodiscard]] bool round_for(GateRef gate, const GateSetting& setting, Input input, Tag source_tag,
                                 uint32_t& round) const noexcept;

    /// Combines the inputs of a round and publishes the output: of a relay gate, what it sends on; of a
    /// start/end gate, what came in. Any process may do so, at the same time too.
    [[nodiscard]] Fired fire(GateRef gate, const GateSetting& setting, uint32_t round) const noexcept;
    /// Whether fire() has been done for that round or a later one.
    [[nodiscard]] bool fired(GateRef gate, Tag tag) const noexcept;

  private:
    [[nodiscard]] TniGates& tni(GateRef gate) const noexcept;
    [[nodiscard]] GateState& state(GateRef gate) const noexcept;
    [[nodiscard]] OutputSlot* inward_slots(GateRef gate) const noexcept;
    [[nodiscard]] uint64_t time_here(GateRef gate, GateRef source, Input input, uint64_t sent) const noexcept;
    [[nodiscard]] bool offset_of(GateRef gate, const GateSetting& setting, Input input, GateSetting& source,
                                 uint32_t& offset) const noexcept;

    std::byte* area_ = nullptr;
    uint32_t num_nodes_ = 0;
};

} // namespace tofu::sim
