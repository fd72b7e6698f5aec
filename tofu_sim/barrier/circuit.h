// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A round on its way through a circuit: pushed by the process that starts it, pulled by one that waits too long.
#pragma once

#include "barrier/gate.h"

namespace tofu::sim {

/// A GateWord that cannot be read now.
inline constexpr uint64_t unknown_owner = UINT64_MAX;

/// What the walks need to know from outside; a table of functions, so that tests bring their own.
struct CircuitHost {
    void* context = nullptr;
    /// The GateWord of a gate, 0 when it is free, or unknown_owner.
    uint64_t (*owner_of)(void* context, GateRef gate) noexcept = nullptr;
    /// Whether the process that wrote this GateWord still runs, as far as is known. Slow.
    bool (*runs)(void* context, uint64_t owner) noexcept = nullptr;
    /// Counts packets that a gate of the own node has sent, for `tofu-sim show`. Null: not counted.
    void (*count_packets)(void* context, GateRef target, uint32_t path, uint64_t packets) noexcept = nullptr;
    /// Adversarial mode: true leaves a packet on its way for now; a later pull delivers it. Null: never.
    bool (*hold_packet)(void* context) noexcept = nullptr;
    /// Exact mode: a round has arrived at its end gate, where it can be found at that time of the virtual clock. Null:
    /// no thread waits for it by that clock.
    void (*ended)(void* context, GateRef gate, uint64_t time) noexcept = nullptr;
};

class Circuit {
  public:
    Circuit() noexcept = default;
    Circuit(const Gates& gates, const CircuitHost& host) noexcept : gates_(gates), host_(host) {}

    [[nodiscard]] const Gates& gates() const noexcept { return gates_; }
    [[nodiscard]] const CircuitHost& host() const noexcept { return host_; }

    /// The gate has published its output of `tag`: fires what that completes, and so on along the circuit. A loop
    /// over a bounded list; pulls do the rest.
    void push(GateRef gate, Tag tag) const noexcept;

    enum class Pulled : uint8_t {
        nothing, ///< someone has not started yet
        progress,
        broken, ///< the round cannot be completed: a participant has died, or inputs are overwritten
    };
    /// Looks from the end half of `gate` backwards for what is missing in this round: fires gates whose inputs are
    /// available (their pusher was preempted or killed). With `look_for_dead`, also checks whether processes that have
    /// not started still run.
    [[nodiscard]] Pulled pull(GateRef gate, Tag tag, bool look_for_dead) const noexcept;

  private:
    struct Node {
        GateRef gate;
        Tag tag;
    };
    class Visited;

    [[nodiscard]] Pulled visit(const Node& node, bool look_for_dead, Visited& visited) const noexcept;
    void tell_end(GateRef gate, Tag tag) const noexcept;
    [[nodiscard]] bool gone(GateRef source, uint64_t recorded_owner) const noexcept;

    Gates gates_;
    CircuitHost host_;
};

} // namespace tofu::sim
