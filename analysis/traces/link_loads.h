// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Computes the traffic of each link of the network from the posts of processes, by target and path.
#pragma once

#include "barrier/state.h"
#include "clock/network.h"
#include "job/layout.h"
#include "topology/route.h"

#include <array>
#include <cstdint>
#include <map>
#include <utility>

namespace tofu::sim::tools {

struct LinkLoad {
    uint64_t operations = 0;   ///< whose instruction passed the link
    uint64_t bytes = 0;        ///< payload of puts, and of gets on their way back
    uint64_t packets = 0;      ///< of barriers
    uint64_t data_packets = 0; ///< of operations and their answers
    std::array<Picoseconds, virtual_channels> without_credit{};
};

/// What went from one node to another by a path, and back.
struct Flow {
    uint64_t operations = 0;
    uint64_t bytes_out = 0;
    uint64_t bytes_back = 0;
    uint64_t barrier_packets = 0;
    uint64_t packets_out = 0;
    uint64_t packets_back = 0;
};

/// The least number of packets for `bytes` bytes.
inline constexpr uint64_t packet_bytes = 1920;
[[nodiscard]] constexpr uint64_t packets_of(uint64_t bytes) noexcept
{
    return (bytes + packet_bytes - 1) / packet_bytes;
}

class LinkLoads {
  public:
    using Place = std::pair<uint32_t, Port>; ///< a direction of a cable, by the node it leaves
    using Map = std::map<Place, LinkLoad>;

    explicit LinkLoads(const Topology& topology) noexcept : topology_(topology) {}

    /// What one node has sent another by a path; nothing is added for places that do not exist.
    void add(uint32_t from, uint32_t to, unsigned path, const Flow& sum);
    /// What a process at `node` has posted; nothing in the table is trusted.
    void add(const FlowTable& table, uint32_t node);
    /// What the gates of a TNI (node * tnis_per_node + TNI) have sent since they were set; trusted as little.
    void add(const TniGates& gates, uint32_t tni);

    /// How long the ports of a node were without credit, by the virtual clock.
    void add(const NodeCalendars& calendars, uint32_t node);
    /// Whether it was counted.
    void know_credit() noexcept { knows_credit_ = true; }
    [[nodiscard]] bool knows_credit() const noexcept { return knows_credit_; }

    [[nodiscard]] const Map& by_link() const noexcept { return loads_; }

  private:
    Topology topology_;
    Map loads_;
    bool knows_credit_ = false;
};

} // namespace tofu::sim::tools
