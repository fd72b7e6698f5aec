// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: from what processes have posted to whom, by which path, to what each link of the network has carried.
// Called by: tools/show.cc. Calls: topology/route, job/layout.
#pragma once

#include "job/layout.h"
#include "topology/route.h"

#include <cstdint>
#include <map>
#include <utility>

namespace tofu::sim::tools {

struct LinkLoad {
    uint64_t operations = 0; // whose instruction passed the link
    uint64_t bytes = 0;      // payload of puts, and of gets on their way back
};

class LinkLoads {
  public:
    using Place = std::pair<uint32_t, Port>; // a direction of a cable, by the node it leaves
    using Map = std::map<Place, LinkLoad>;

    explicit LinkLoads(const Topology& topology) noexcept : topology_(topology) {}

    // What a process at `node` has posted; nothing in the table is trusted.
    void add(const FlowTable& table, uint32_t node);

    [[nodiscard]] const Map& by_link() const noexcept { return loads_; }

  private:
    Topology topology_;
    Map loads_;
};

} // namespace tofu::sim::tools
