// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What TOFU_SIM_CHAOS asks for: a seed, and which relaxations of order and delivery the adversarial mode uses (man
// tofu_sim.7).
#pragma once

#include <cstdint>
#include <optional>

namespace tofu::sim {

/// Beyond late and out of order, which it always is.
enum Relaxation : uint32_t {
    chaos_drop = 1,     ///< what is under way when its VCQ is freed, or its process ends, may be lost
    chaos_raw = 2,      ///< reading before the writing of what was posted earlier, with strong order too
    chaos_poll = 4,     ///< utofu_poll_* miss an entry
    chaos_torn = 8,     ///< a line comes word by word: more than guide 2.2.10 permits
    chaos_padding = 16, ///< a put with the padding flag writes anything into the rest of its lines (2.2.11)
    chaos_tags = 32,    ///< a freed STag is given again at once, the lowest first, as the machine's driver does
};

struct Chaos {
    uint64_t seed = 0;
    uint32_t relaxations = chaos_drop | chaos_raw | chaos_poll | chaos_padding | chaos_tags; ///< what the guide leaves
                                                                                             ///< open
};

/// "7", "7:drop,raw"; nothing if it is something else.
[[nodiscard]] std::optional<Chaos> parse_chaos(const char* text) noexcept;
inline constexpr const char* chaos_expected =
    "use a seed, 0 to 18446744073709551615, optionally followed by a colon and a list out of late, drop, raw, poll, "
    "torn, padding and tags, separated by commas";

} // namespace tofu::sim
