// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Collectives as scripts: the rounds of schedule/, turned into the messages that carry them.
#pragma once

#include "replay/pattern.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tofu::sim::replay {

/// The algorithms of each collective; the first one is the provider's choice.
struct AlgorithmName {
    const char* pattern;
    const char* name;
    const char* what;
    bool segments = false; ///< --segment says how long its messages are
};
inline constexpr AlgorithmName algorithm_names[] = {
    {"broadcast", "binomial", "the provider's algorithm: a binomial tree, message by message, then a barrier"},
    {"broadcast", "chain", "segments from each process to the next one", true},
    {"broadcast", "double-tree", "segments alternate between two binary trees", true},
    {"broadcast", "scatter-allgather", "slices down a binomial tree, then around a ring"},
    {"allreduce", "provider", "the provider's algorithm: doubling or ring, by size"},
    {"allreduce", "doubling", "recursive doubling of the whole vector"},
    {"allreduce", "ring", "slices pass around a ring, twice"},
    {"allgather", "bruck", "the provider's algorithm: numbers of blocks that double in each round"},
    {"allgather", "ring", "blocks pass around a ring"},
    {"alltoall", "bruck", "the provider's algorithm: each round moves half of all blocks"},
    {"alltoall", "pairwise", "one round for each distance"},
    {"alltoall", "linear", "each process starts all its messages, then waits"},
};

/// nullptr: the pattern is no collective. `options.algorithm` is empty or one of those above for it.
[[nodiscard]] std::unique_ptr<Pattern> make_collective(std::string_view name, const Placement& placement,
                                                       const PatternOptions& options);

} // namespace tofu::sim::replay
