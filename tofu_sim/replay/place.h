// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: which node a process sits on, and which path its messages take.
// Called by: replay/pattern, replay/recorded, tools/replay. Calls: topology/.
#pragma once

#include "topology/topology.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tofu::sim::replay {

enum class Paths : uint8_t {
    recorded, // as in the trace; the same as `spread` where there is none, or it was another network
    spread,   // as the simulator chooses for a VCQ ID: pairs of nodes by different corners
    target,   // the target's A, B and C first
    source,   // last
};
[[nodiscard]] std::optional<Paths> parse_paths(std::string_view text) noexcept;

class Placement {
  public:
    // Processes in the order of nodes, `ppn` of each; where there is a `seed`, nodes in a random order of its.
    Placement(const Topology& topology, uint32_t ppn, Paths paths, std::optional<uint64_t> seed);

    [[nodiscard]] const Topology& topology() const noexcept { return topology_; }
    [[nodiscard]] uint32_t ppn() const noexcept { return ppn_; }
    [[nodiscard]] uint32_t node_of(uint32_t process) const noexcept { return at(process / ppn_); }
    [[nodiscard]] uint32_t at(uint32_t node) const noexcept { return order_.empty() ? node : order_[node]; }
    [[nodiscard]] uint8_t path(uint32_t from, uint32_t to) const noexcept; // its ID, between nodes

  private:
    Topology topology_;
    uint32_t ppn_;
    Paths paths_;
    std::vector<uint32_t> order_;
};

} // namespace tofu::sim::replay
