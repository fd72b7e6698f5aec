// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Scenes of collective groups on barrier gates, from numbers that the generator has drawn.
#pragma once

#include <cstdint>
#include <vector>

#include "program.h"

namespace swarm {

/// What happens while all processes use a group.
enum class Trouble : std::uint8_t {
    parts,    ///< a member closes it, and joins the next one while the others still use this one
    leaves,   ///< a process closes all
    stops,    ///< a process sleeps
    dies,     ///< a process is killed
    renews,   ///< likewise, and another one gets an endpoint with the number of the former
    die,      ///< two are killed
    all_part, ///< all members close it, when some of them have called an operation
    none,     ///< nothing
    two,      ///< they use two groups
    missing,  ///< a process is killed when some have seen the end of a round, and one member calls the next operation
    half,     ///< a member closes it before its join has ended
    rest,     ///< all but one close it and join the next one, while that one still uses it
    count_
};

struct GateScene {
    std::uint32_t processes = 3;
    Trouble trouble = Trouble::none;
    std::uint32_t first = 0;  ///< the process that calls first
    std::uint32_t victim = 0; ///< the process that is in trouble
    std::uint32_t when = 0;   ///< so many have called by then
    std::uint32_t rounds = 0; ///< of operations before
    std::uint32_t pause = 0;  ///< rounds of progress between them
    std::uint32_t luck = 0, more_luck = 0;
};

std::vector<Command> calls_of(const GateScene& scene);

} // namespace swarm
