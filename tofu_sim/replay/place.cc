// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: which node a process sits on, and which path its messages take. See place.h.
// Called by: replay/pattern, replay/recorded, tools/replay. Calls: topology/.
#include "replay/place.h"

#include "topology/ids.h"

#include <numeric>
#include <random>
#include <utility>

namespace tofu::sim::replay {

std::optional<Paths> parse_paths(std::string_view text) noexcept
{
    constexpr std::pair<const char*, Paths> known[] = {{"recorded", Paths::recorded},
                                                       {"spread", Paths::spread},
                                                       {"target", Paths::target},
                                                       {"source", Paths::source}};
    for (const auto& [name, paths] : known) {
        if (text == name) {
            return paths;
        }
    }
    return std::nullopt;
}

Placement::Placement(const Topology& topology, uint32_t ppn, Paths paths, std::optional<uint64_t> seed)
    : topology_(topology), ppn_(ppn), paths_(paths)
{
    if (seed) {
        order_.resize(topology.num_nodes());
        std::iota(order_.begin(), order_.end(), 0u);
        // Not std::shuffle, whose result differs between libraries.
        std::mt19937_64 numbers(*seed);
        for (size_t i = order_.size(); i > 1; i--) {
            std::swap(order_[i - 1], order_[numbers() % i]);
        }
    }
}

uint8_t Placement::path(uint32_t from, uint32_t to) const noexcept
{
    const Coords here = topology_.coords_of(from), there = topology_.coords_of(to);
    switch (paths_) {
    case Paths::recorded:
    case Paths::spread: return encode_path(topology_.choose_path(here, there));
    case Paths::target: return encode_path({there[3], there[4], there[5]});
    case Paths::source: return encode_path({here[3], here[4], here[5]});
    }
    return 0;
}

} // namespace tofu::sim::replay
