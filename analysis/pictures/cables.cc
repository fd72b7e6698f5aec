// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The picture of a network with few nodes: a unit shows its 12 nodes, four columns along the ring of A and C and three
// rows of B, and each direction of each cable by itself.
#include "pictures/network.h"

#include "traces/exports.h"

#include <algorithm>
#include <cmath>

namespace tofu::sim::tools {
namespace {

/// Columns of a unit: the ring (a, c) = 00, 01, 11, 10.
unsigned column_of(const Coords& c) noexcept
{
    return c[3] == 0 ? c[5] : 3u - c[5];
}

std::string line_to(Point p)
{
    return "L" + number(p.x) + " " + number(p.y);
}
std::string curve_to(Point a, Point b, Point to)
{
    return "C" + number(a.x) + " " + number(a.y) + " " + number(b.x) + " " + number(b.y) + " " + number(to.x) + " " +
           number(to.y);
}

class Cables final : public NetworkPicture {
  public:
    explicit Cables(const NetworkView& view) : NetworkPicture(view) {}

  private:
    /// As large as the room allows, between what can be read and what is enough.
    void size() override
    {
        for (k_ = 2.0; k_ > 1.0; k_ -= 0.1) {
            size_units();
            if (fits(760))
                break;
        }
        size_units();
    }
    void size_units()
    {
        unit_ = {44 + 3 * 66 * k_ + 38 * k_ + 34 * k_, 60 + 20 * k_ + 2 * 58 * k_ + 24 * k_ + 20};
        gap_ = {has_links(0) ? 64.0 : 16.0, has_links(1) ? 64.0 : 16.0};
    }
    /// The middle of a node, where each is drawn.
    [[nodiscard]] Point node_at(const Coords& c) const noexcept
    {
        const Point unit = unit_at(c);
        return {unit.x + 44 + 19 * k_ + column_of(c) * 66 * k_, unit.y + 60 + 20 * k_ + 12 * k_ + c[4] * 58 * k_};
    }

    struct Stroke {
        std::string d;
        double width;
        Point middle;
        bool filled;
    };

    /// Right-hand traffic: a direction is drawn to the right of its way.
    [[nodiscard]] Stroke straight(Point from, Point to, double trim) const
    {
        const double length = std::hypot(to.x - from.x, to.y - from.y);
        const Point along = {(to.x - from.x) / length, (to.y - from.y) / length};
        const Point aside = {-along.y * 3 * k_, along.x * 3 * k_};
        const Point a = {from.x + along.x * trim + aside.x, from.y + along.y * trim + aside.y};
        const Point b = {to.x - along.x * (trim + 1) + aside.x, to.y - along.y * (trim + 1) + aside.y};
        return {move_to(a) + line_to(b), 3.4 * k_, {(a.x + b.x) / 2, (a.y + b.y) / 2}, false};
    }
    /// Over the row, from the last column to the first and back.
    [[nodiscard]] Stroke over(Point from, Point to) const
    {
        const bool back = to.x > from.x;
        const double rise = (back ? 26 : 17) * k_, aside = (back ? -3 : 3) * k_;
        const Point a = {from.x + (back ? -6 : 6) * k_ + aside, from.y - 12 * k_};
        const Point b = {to.x + (back ? 6 : -6) * k_ + aside, to.y - 12 * k_};
        const double left = std::min(a.x, b.x), right = std::max(a.x, b.x), top = a.y - rise * 0.62;
        const Point knee_a = {a.x < b.x ? left + 12 * k_ : right - 12 * k_, top};
        const Point knee_b = {a.x < b.x ? right - 12 * k_ : left + 12 * k_, top};
        return {move_to(a) + curve_to({a.x, top}, {a.x, top}, knee_a) + line_to(knee_b) +
                    curve_to({b.x, top}, {b.x, top}, b),
                3.4 * k_,
                {(left + right) / 2, top},
                false};
    }
    /// Beside the column, between the first row and the last.
    [[nodiscard]] Stroke beside(Point from, Point to) const
    {
        const bool down = to.y > from.y;
        const double reach = (down ? 17 : 11) * k_;
        const double side = 19 * k_;
        const Point a = {from.x + side, from.y + (down ? -5 : 0) * k_};
        const Point b = {to.x + side, to.y + (down ? 5 : 0) * k_};
        const double x = from.x + side + reach * 0.62;
        const double bend = (a.y < b.y ? 12 : -12) * k_;
        return {move_to(a) + curve_to({x, a.y}, {x, a.y}, {x, a.y + bend}) + line_to({x, b.y - bend}) +
                    curve_to({x, b.y}, {x, b.y}, b),
                3 * k_,
                {x, (a.y + b.y) / 2},
                false};
    }
    /// One of twelve, out of a side of the unit.
    [[nodiscard]] Stroke out_of_unit(const Coords& c, Port port) const
    {
        const Point unit = unit_at(c);
        const unsigned index = (c[3] * 3u + c[4]) * 2 + c[5];
        if (port == Port::z_plus || port == Port::z_minus) {
            const double half = (unit_.x - 76) / 2, step = half / 12;
            const double x = unit.x + 32 + (port == Port::z_minus ? half + 34 : 0) + index * step;
            return {move_to({x, unit.y + 24}) + "h" + number(step * 0.72) + "v9h" + number(-step * 0.72) + "z",
                    0,
                    {x + step * 0.36, unit.y + 28.5},
                    true};
        }
        const bool sideways = port == Port::x_plus || port == Port::x_minus;
        const bool up = port == Port::x_plus || port == Port::y_plus;
        const double room = sideways ? unit_.y : unit_.x, half = room / 2 - 16, step = half / 12, thick = step * 0.7;
        const double at = (up ? 12 : room / 2 + 8) + index * step;
        const double reach = (sideways ? gap_.x : gap_.y) - 12;
        if (sideways) {
            const Point from = {up ? unit.x + unit_.x + 6 : unit.x - 6, unit.y + at};
            const double d = up ? 1 : -1;
            return {move_to(from) + "h" + number(d * (reach - 5)) + "l" + number(d * 5) + " " + number(thick / 2) +
                        "l" + number(d * -5) + " " + number(thick / 2) + "h" + number(d * -(reach - 5)) + "z",
                    0,
                    {from.x + d * reach / 2, from.y + thick / 2},
                    true};
        }
        const Point from = {unit.x + at, up ? unit.y + unit_.y + 6 : unit.y - 6};
        const double d = up ? 1 : -1;
        return {move_to(from) + "v" + number(d * (reach - 5)) + "l" + number(thick / 2) + " " + number(d * 5) + "l" +
                    number(thick / 2) + " " + number(d * -5) + "v" + number(d * -(reach - 5)) + "z",
                0,
                {from.x + thick / 2, from.y + d * reach / 2},
                true};
    }

    [[nodiscard]] Stroke stroke_of(uint32_t node, Port port) const
    {
        const Coords c = view_.topology.coords_of(node);
        Coords to = c;
        switch (port) {
        case Port::a: to[3] = 1 - c[3]; break;
        case Port::c: to[5] = 1 - c[5]; break;
        case Port::b_plus: to[4] = (c[4] + 1) % 3; break;
        case Port::b_minus: to[4] = (c[4] + 2) % 3; break;
        default: return out_of_unit(c, port);
        }
        const Point from = node_at(c), there = node_at(to);
        if (port == Port::b_plus || port == Port::b_minus)
            return std::abs(c[4] - to[4]) == 2 ? beside(from, there) : straight(from, there, 12 * k_);
        return std::abs(int(column_of(c)) - int(column_of(to))) == 3 ? over(from, there)
                                                                     : straight(from, there, 19 * k_);
    }

    [[nodiscard]] Point middle_of(const LinkLoads::Place& place) const override
    {
        return stroke_of(place.first, place.second).middle;
    }

    void draw_units(Svg& svg) const override
    {
        const uint32_t nodes = view_.topology.num_nodes();
        for (uint32_t node = 0; node < nodes; node += nodes_per_unit)
            draw_unit(svg, view_.topology.coords_of(node));
        std::vector<std::pair<double, LinkLoads::Place>> links;
        for (uint32_t node = 0; node < nodes; node++) {
            for (unsigned port = 0; port < ports_per_node; port++) {
                if (exists(view_.topology.coords_of(node), Port(port))) {
                    const auto found = view_.loads.by_link().find({node, Port(port)});
                    links.push_back(
                        {found == view_.loads.by_link().end() ? 0 : value_of(found->second), {node, Port(port)}});
                }
            }
        }
        std::stable_sort(links.begin(), links.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
        for (const auto& [value, place] : links) {
            const Stroke stroke = stroke_of(place.first, place.second);
            if (value > 0)
                svg.tip(tip_of(place, view_.loads.by_link().at(place)));
            stroke.filled ? svg.path(stroke.d, colour(value))
                          : svg.path(stroke.d, "none", colour(value), value > 0 ? stroke.width : stroke.width * 0.7);
        }
        for (uint32_t node = 0; node < nodes; node++)
            draw_node(svg, node);
    }

    void draw_unit(Svg& svg, const Coords& c) const
    {
        const Point at = unit_at(c);
        const TextStyle small = {.size = 11, .colour = ink::faint};
        svg.rect(at.x, at.y, unit_.x, unit_.y, ink::ground, 8, ink::line);
        svg.text(at.x + 10, at.y + 16,
                 "unit X " + std::to_string(c[0]) + "  Y " + std::to_string(c[1]) + "  Z " + std::to_string(c[2]),
                 small);
        if (has_links(2)) {
            svg.text(at.x + 8, at.y + 33, "Z+", small);
            svg.text(at.x + 32 + (unit_.x - 76) / 2 + 10, at.y + 33, "Z-", small);
        }
        static constexpr const char* names[] = {"a0 c0", "a0 c1", "a1 c1", "a1 c0"};
        for (unsigned column = 0; column < 4; column++) {
            const double x = at.x + 44 + 19 * k_ + column * 66 * k_;
            svg.text(x, at.y + 51, names[column], {.size = 11, .colour = ink::faint, .anchor = Anchor::middle});
        }
        for (unsigned row = 0; row < 3; row++) {
            const double y = at.y + 60 + 20 * k_ + 12 * k_ + row * 58 * k_;
            svg.text(at.x + 10, y + 4, "b" + std::to_string(row), small);
        }
        const TextStyle middle = {.size = 11, .colour = ink::faint, .anchor = Anchor::middle};
        if (exists(c, Port::x_plus))
            svg.text(at.x + unit_.x + gap_.x / 2, at.y - 4, "X+", middle);
        if (exists(c, Port::x_minus))
            svg.text(at.x - gap_.x / 2, at.y + unit_.y + 12, "X-", middle);
        if (exists(c, Port::y_plus))
            svg.text(at.x - 5, at.y + unit_.y + gap_.y / 2 + 4, "Y+", middle);
        if (exists(c, Port::y_minus))
            svg.text(at.x + unit_.x + 5, at.y - gap_.y / 2 + 4, "Y-", middle);
    }

    void draw_node(Svg& svg, uint32_t node) const
    {
        const Point at = node_at(view_.topology.coords_of(node));
        const auto& ranks = view_.ranks[node];
        const bool used = !ranks.empty();
        std::string tip = "node " + node_label(view_.topology, node) + (used ? ": rank" : "");
        for (const std::string& rank : ranks)
            tip += " " + rank;
        svg.tip(tip).rect(at.x - 19 * k_, at.y - 12 * k_, 38 * k_, 24 * k_, used ? "#ffffff" : ink::ground, 4 * k_,
                          used ? ink::text : ink::line);
        std::string label = used ? ranks.front() : "";
        if (ranks.size() > 1) {
            const std::string both = ranks.front() + ".." + ranks.back();
            label = text_width(both, {.size = 12}) < 36 * k_ ? both : ranks.front() + "+";
        }
        svg.text(at.x, at.y + 4.5, label, {.size = 13, .anchor = Anchor::middle, .bold = true});
    }

    [[nodiscard]] std::vector<std::string> hints() const override
    {
        std::vector<std::string> lines = {"A box with a number is a node, with the rank of its process;",
                                          "grey boxes have none. Lines are cables, one line for each",
                                          "direction: traffic keeps right. b0 and b2 are neighbours,",
                                          "and so are the first and the last column."};
        if (has_links(0) || has_links(1))
            lines.insert(lines.end(), {"Arrows between units: 12 cables, one of each node, in the", "order a, b, c."});
        if (has_links(2))
            lines.emplace_back("Small squares on top: the same along Z.");
        return lines;
    }

    double k_ = 1; ///< size of the things in a unit
};

} // namespace

std::unique_ptr<NetworkPicture> picture_of_cables(const NetworkView& view)
{
    return std::make_unique<Cables>(view);
}

} // namespace tofu::sim::tools
