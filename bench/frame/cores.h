// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which processors the sides of a measurement have, and what these share.
#pragma once

#include <memory>
#include <string>
#include <vector>

struct hwloc_topology;

namespace tofu::bench {

/// The nearest thing that the processors of a placement have in common; nearest first.
enum class Sharing { processor, core, l2, l3, package, machine };
const char* sharing_name(Sharing sharing);

struct Placement {
    Sharing sharing = Sharing::processor;
    std::vector<int> processors; ///< of each side, as the kernel counts them; fewer than sides: they start again
    /// "L3 (processors 0, 1)"
    [[nodiscard]] std::string text() const;
};

class Cores {
  public:
    /// The node's processors that this process may use. What hwloc's environment variables say counts.
    Cores();
    Cores(const Cores&) = delete;
    Cores& operator=(const Cores&) = delete;

    /// One for each kind of sharing that `sides` processors can have, nearest first. Where there are fewer processors
    /// than sides, the one placement has all.
    [[nodiscard]] std::vector<Placement> placements(int sides) const;
    /// Distinct cores with the nearest common cache; else what there is.
    [[nodiscard]] Placement usual(int sides) const;
    /// False: the topology is not known, not this machine's (HWLOC_XMLFILE), or has none of the processors that this
    /// process may use: processes are not pinned.
    [[nodiscard]] bool can_pin() const;
    /// The calling process gets the processor of a side; false, and no change, if that is impossible.
    bool pin(const Placement& placement, int side) const;

  private:
    struct Close {
        void operator()(hwloc_topology* topology) const;
    };
    std::unique_ptr<hwloc_topology, Close> topology_; ///< null: hwloc could not load it
};

} // namespace tofu::bench
