// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What libcounted.so reports to the measuring program: the posts of each side, and their times it would have ended by a
// logical clock.
#pragma once

#include <cstdint>

namespace tofu::bench {

inline constexpr int wire_sides = 2;

/// Of one side. Clocks go on as things happen that wait for each other: a Put reaches the other
/// side one hop after it was posted, a local MRQ notice comes back after two.
struct WireCounts {
    std::uint64_t puts, gets, armws, registrations;
    std::uint64_t injected;   ///< Puts whose lines go into the cache of a polling reader: all of them, or padded to one
    std::uint64_t bytes_out;  ///< Puts, operands of ARMWs
    std::uint64_t bytes_back; ///< Gets, values of ARMWs
    std::uint64_t hops;       ///< clock in one-way trips
    double ns;                ///< clock in nanoseconds of Tofu-D between neighbours
    std::int64_t registered;  ///< bytes, at present
};

/// What libcounted.so exports as "counted_wire".
struct Wire {
    WireCounts side[wire_sides];
    int creating; ///< side to which VCQs created now belong; set by the program
};

} // namespace tofu::bench
