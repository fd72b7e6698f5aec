// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What TOFU_SIM_CHAOS asks for: a seed, and which relaxations of order and delivery the adversarial mode uses (man
// tofu_sim.7).
#include "job/relaxations.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string_view>
#include <utility>

namespace tofu::sim {
namespace {

/// The names after the seed's colon, separated by commas. False: one of them is invalid.
bool read_relaxations(std::string_view names, uint32_t& relaxations) noexcept
{
    static constexpr std::pair<std::string_view, uint32_t> known[] = {
        {"late", 0},          {"drop", chaos_drop},       {"raw", chaos_raw},   {"poll", chaos_poll},
        {"torn", chaos_torn}, {"padding", chaos_padding}, {"tags", chaos_tags},
    };
    relaxations = 0;
    for (bool more = true; more;) {
        const size_t comma = names.find(',');
        more = comma != names.npos;
        const std::string_view name = names.substr(0, comma);
        const auto* const found = std::find_if(std::begin(known), std::end(known),
                                               [&](const auto& relaxation) { return relaxation.first == name; });
        if (found == std::end(known))
            return false;
        relaxations |= found->second;
        names.remove_prefix(more ? comma + 1 : names.size());
    }
    return true;
}

} // namespace

std::optional<Chaos> parse_chaos(const char* text) noexcept
{
    const std::string_view whole = text;
    const size_t colon = whole.find(':');
    const std::string_view seed = whole.substr(0, colon);
    Chaos chaos;
    const auto [end, error] = std::from_chars(seed.data(), seed.data() + seed.size(), chaos.seed);
    if (error != std::errc{} || end != seed.data() + seed.size() ||
        (colon != whole.npos && !read_relaxations(whole.substr(colon + 1), chaos.relaxations)))
        return std::nullopt;
    return chaos;
}

} // namespace tofu::sim
