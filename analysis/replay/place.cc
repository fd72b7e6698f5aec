// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The node of a process, and the paths of its messages. See place.h.
#include "replay/place.h"

#include "job/layout.h"
#include "topology/ids.h"

#include <charconv>
#include <numeric>
#include <random>
#include <utility>

namespace tofu::sim::replay {

std::optional<Paths> parse_paths(std::string_view text) noexcept
{
    constexpr std::pair<const char*, Paths> known[] = {
        {"recorded", Paths::recorded}, {"spread", Paths::spread}, {"target", Paths::target}, {"source", Paths::source}};
    for (const auto& [name, paths] : known)
        if (text == name)
            return paths;
    return std::nullopt;
}

namespace {

std::optional<uint64_t> number_of(std::string_view text, uint64_t most) noexcept
{
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() && value <= most ? std::optional(value)
                                                                                     : std::nullopt;
}

std::optional<Grid> parse_grid(std::string_view text) noexcept
{
    Grid grid{};
    for (unsigned axis = 0; axis < 3; axis++) {
        const size_t end = axis < 2 ? text.find('x') : text.size();
        const auto value = end != text.npos ? number_of(text.substr(0, end), max_nodes) : std::nullopt;
        if (!value || *value == 0)
            return std::nullopt;
        grid[axis] = static_cast<uint32_t>(*value);
        text = axis < 2 ? text.substr(end + 1) : std::string_view();
    }
    return grid;
}

/// Position `at` of a ring over `units` units along an axis and `inner` nodes of each: through all but node 0 of one
/// unit after the other, back and forth, and home through the nodes 0. Each is a neighbour of the one before, the first
/// of the last, whether the axis wraps around or not.
std::pair<uint32_t, uint32_t> on_ring(uint32_t units, uint32_t inner, uint32_t at) noexcept
{
    const uint32_t rest = inner - 1;
    if (at >= units * rest)
        return {units * inner - 1 - at, 0};
    const uint32_t unit = at / rest;
    return {unit, 1 + (unit % 2 == 0 ? at % rest : rest - 1 - at % rest)};
}

/// Position `at` of a line through all of them, back and forth.
std::pair<uint32_t, uint32_t> on_line(uint32_t inner, uint32_t at) noexcept
{
    const uint32_t unit = at / inner;
    return {unit, unit % 2 == 0 ? at % inner : inner - 1 - at % inner};
}

uint32_t node_at(const Topology& topology, std::pair<uint32_t, uint32_t> x, std::pair<uint32_t, uint32_t> y,
                 std::pair<uint32_t, uint32_t> z) noexcept
{
    return topology.node_of({static_cast<uint8_t>(x.first), static_cast<uint8_t>(y.first),
                             static_cast<uint8_t>(z.first), static_cast<uint8_t>(x.second),
                             static_cast<uint8_t>(y.second), static_cast<uint8_t>(z.second)});
}

} // namespace

std::optional<Order> parse_order(std::string_view text) noexcept
{
    Order order;
    if (text == "snake") {
        order.kind = Order::Kind::snake;
    } else if (text.starts_with("random:")) {
        const auto seed = number_of(text.substr(7), ~uint64_t{0});
        order = {Order::Kind::random, seed.value_or(0), {}};
        return seed ? std::optional(order) : std::nullopt;
    } else if (text.starts_with("box:")) {
        const auto grid = parse_grid(text.substr(4));
        order = {Order::Kind::box, 0, grid.value_or(Grid{})};
        return grid ? std::optional(order) : std::nullopt;
    } else if (text != "order") {
        return std::nullopt;
    }
    return order;
}

std::string check_grid(const Grid& grid)
{
    for (unsigned axis = 0; axis < 3; axis++) {
        const uint32_t inner = unit_shape[axis];
        if (grid[axis] != 1 && grid[axis] % inner != 0) {
            return std::string(1, "xyz"[axis]) + " is " + std::to_string(grid[axis]) + ", but a ring over " +
                   "XYZ"[axis] + " and " + "ABC"[axis] + " has a multiple of " + std::to_string(inner) +
                   " nodes, or 1: use " + std::to_string((grid[axis] / inner + 1) * inner);
        }
    }
    return {};
}

std::array<uint32_t, 3> units_of(const Grid& grid) noexcept
{
    std::array<uint32_t, 3> units{};
    for (unsigned axis = 0; axis < 3; axis++)
        units[axis] = (grid[axis] + unit_shape[axis] - 1) / unit_shape[axis];
    return units;
}

Placement::Placement(const Topology& topology, uint32_t ppn, Paths paths, const Order& order)
    : topology_(topology), ppn_(ppn), paths_(paths)
{
    switch (order.kind) {
    case Order::Kind::number: break;
    case Order::Kind::random: shuffle(order.seed); break;
    case Order::Kind::snake: wind(); break;
    case Order::Kind::box: fold(order.grid); break;
    }
}

void Placement::shuffle(uint64_t seed)
{
    order_.resize(topology_.num_nodes());
    std::iota(order_.begin(), order_.end(), 0u);
    // Not std::shuffle, whose result differs between libraries.
    std::mt19937_64 numbers(seed);
    for (size_t i = order_.size(); i > 1; i--)
        std::swap(order_[i - 1], order_[numbers() % i]);
}

/// A line through the plane of Y, B and Z, C, times a line along X and A, which has an even number of nodes: back and
/// forth over all of the plane but its first node, and home along that.
void Placement::wind()
{
    const auto units = topology_.units();
    const uint32_t along = units[0] * unit_shape[0];
    const uint32_t width = units[2] * unit_shape[2];
    const uint32_t plane = units[1] * unit_shape[1] * width;
    const auto node = [&](uint32_t x, uint32_t in_plane) {
        const uint32_t row = in_plane / width;
        const uint32_t column = row % 2 == 0 ? in_plane % width : width - 1 - in_plane % width;
        return node_at(topology_, on_line(unit_shape[0], x), on_line(unit_shape[1], row),
                       on_line(unit_shape[2], column));
    };
    order_.reserve(topology_.num_nodes());
    for (uint32_t x = 0; x < along; x++)
        for (uint32_t i = 1; i < plane; i++)
            order_.push_back(node(x, x % 2 == 0 ? i : plane - i));
    for (uint32_t x = along; x-- > 0;)
        order_.push_back(node(x, 0));
}

void Placement::fold(const Grid& grid)
{
    grid_ = grid;
    const auto units = units_of(grid);
    const auto place = [&](unsigned axis, uint32_t at) {
        return grid[axis] == 1 ? std::pair{0u, 0u} : on_ring(units[axis], unit_shape[axis], at);
    };
    order_.reserve(size_t{grid[0]} * grid[1] * grid[2]);
    for (uint32_t z = 0; z < grid[2]; z++) {
        for (uint32_t y = 0; y < grid[1]; y++)
            for (uint32_t x = 0; x < grid[0]; x++)
                order_.push_back(node_at(topology_, place(0, x), place(1, y), place(2, z)));
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
