// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: the picture of a network with what its links carried. See pictures.h.
// Called by: tools/show, tools/trace, tools/page. Calls: tools/svg, tools/summary.
//
// A panel for each Z, in it a grid of units by X and Y. Few nodes: a unit shows its 12 nodes, four columns along the ring
// of A and C and three rows of B, and each direction of each cable by itself. Many: a unit is a square, coloured like the
// hottest link inside, and stands for what leaves it along an axis by the hottest of twelve cables.
#include "tools/pictures.h"

#include "tools/exports.h"
#include "tools/svg.h"
#include "topology/route.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace tofu::sim::tools {
namespace {

constexpr uint32_t most_detailed = 96; // nodes
constexpr double drawing_room = 900, side_width = 470, margin = 28, head = 76;
// What a link carries at most: 6.8 GB/s, of which headers take 7 %.
constexpr double link_bytes_per_ns = 6.8 * 0.93;

struct Point {
    double x, y;
};

// Columns of a unit: the ring (a, c) = 00, 01, 11, 10.
unsigned column_of(const Coords& c) noexcept
{
    return c[3] == 0 ? c[5] : 3u - c[5];
}

enum Group : unsigned { inside, to_x_plus, to_x_minus, to_y_plus, to_y_minus, to_z_plus, to_z_minus, groups };

Group group_of(Port port) noexcept
{
    switch (port) {
    case Port::x_plus: return to_x_plus;
    case Port::x_minus: return to_x_minus;
    case Port::y_plus: return to_y_plus;
    case Port::y_minus: return to_y_minus;
    case Port::z_plus: return to_z_plus;
    case Port::z_minus: return to_z_minus;
    case Port::a:
    case Port::b_plus:
    case Port::b_minus:
    case Port::c: return inside;
    }
    return inside;
}

std::string move_to(Point p)
{
    return "M" + number(p.x) + " " + number(p.y);
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

class Picture {
  public:
    explicit Picture(const NetworkView& view)
        : view_(view), units_(view.topology.units()), detailed_(view.topology.num_nodes() <= most_detailed),
          hottest_(hottest_links(view.loads, 10))
    {
        for (const auto& [place, load] : view.loads.by_link()) {
            bytes_count_ = bytes_count_ || load.bytes != 0;
        }
        for (const auto& [place, load] : view.loads.by_link()) {
            most_ = std::max(most_, value_of(load));
        }
        lay_out();
    }

    std::string draw()
    {
        const double height = std::max(head + drawing_height_ + margin, 620.0);
        Svg svg(margin + drawing_width_ + side_width, height, "network of job " + view_.job);
        draw_head(svg);
        if (detailed_) {
            draw_detailed(svg);
        } else {
            draw_bundles(svg);
        }
        draw_badges(svg);
        draw_side(svg, margin + drawing_width_ + 34);
        return svg.finish();
    }

  private:
    [[nodiscard]] double value_of(const LinkLoad& load) const noexcept
    {
        return static_cast<double>(bytes_count_ ? load.bytes : load.operations + load.packets);
    }
    [[nodiscard]] std::string value_text(double value) const
    {
        const auto whole = static_cast<uint64_t>(value);
        return bytes_count_ ? bytes_text(whole) : count_text(whole);
    }
    [[nodiscard]] std::string colour(double value) const { return value <= 0 ? ink::idle_link : heat(value / most_); }

    // ---- Where things are ----

    [[nodiscard]] bool wraps(unsigned axis) const noexcept { return (view_.topology.wraps() >> axis & 1) != 0; }
    [[nodiscard]] bool has_links(unsigned axis) const noexcept { return units_[axis] > 1; }
    // At the rim of a panel there is nothing to draw, unless the axis wraps.
    [[nodiscard]] double rim(unsigned axis) const noexcept
    {
        return has_links(axis) && wraps(axis) ? (axis == 0 ? gap_.x : gap_.y) : 16;
    }

    void lay_out()
    {
        const double want = drawing_room;
        if (detailed_) {
            // As large as the room allows, between what can be read and what is enough.
            for (k_ = 2.0; k_ > 1.0; k_ -= 0.1) {
                size_units();
                if (panels_width(best_columns()) <= want && panels_height(best_columns()) <= 760) {
                    break;
                }
            }
            size_units();
        } else {
            for (unit_ = {46, 46}; unit_.x > 7; unit_.x = unit_.y = unit_.x - 1) {
                gap_ = {std::max(unit_.x * 0.42, 3.0), std::max(unit_.x * 0.42, 3.0)};
                if (panels_width(best_columns()) <= want && panels_height(best_columns()) <= 960) {
                    break;
                }
            }
        }
        columns_ = best_columns();
        drawing_width_ = panels_width(columns_);
        drawing_height_ = panels_height(columns_);
    }
    void size_units()
    {
        unit_ = {44 + 3 * 66 * k_ + 38 * k_ + 34 * k_, 60 + 20 * k_ + 2 * 58 * k_ + 24 * k_ + 20};
        gap_ = {has_links(0) ? 64.0 : 16.0, has_links(1) ? 64.0 : 16.0};
    }
    [[nodiscard]] Point panel_size() const noexcept
    {
        return {axis_room() + 2 * rim(0) + units_[0] * (unit_.x + gap_.x) - gap_.x,
                26 + 2 * rim(1) + units_[1] * (unit_.y + gap_.y) - gap_.y + axis_room()};
    }
    [[nodiscard]] double axis_room() const noexcept { return detailed_ ? 0 : 18; }
    [[nodiscard]] double panels_width(unsigned columns) const noexcept
    {
        return panel_size().x * columns + (columns - 1) * 18;
    }
    [[nodiscard]] double panels_height(unsigned columns) const noexcept
    {
        return panel_size().y * std::ceil(double(units_[2]) / columns);
    }
    // Of panels, for a picture not much wider than high.
    [[nodiscard]] unsigned best_columns() const noexcept
    {
        unsigned best = 1;
        for (unsigned columns = 1; columns <= units_[2]; columns++) {
            const auto shape = [this](unsigned n) { return std::abs(std::log(panels_width(n) / panels_height(n) / 1.15)); };
            best = shape(columns) < shape(best) ? columns : best;
        }
        return best;
    }
    [[nodiscard]] Point panel_at(unsigned z) const noexcept
    {
        const Point size = panel_size();
        return {margin + (z % columns_) * (size.x + 18), head + (z / columns_) * size.y};
    }
    [[nodiscard]] Point unit_at(const Coords& c) const noexcept
    {
        const Point panel = panel_at(c[2]);
        return {panel.x + axis_room() + rim(0) + c[0] * (unit_.x + gap_.x), panel.y + 26 + rim(1) + c[1] * (unit_.y + gap_.y)};
    }
    // The middle of a node, where each is drawn.
    [[nodiscard]] Point node_at(const Coords& c) const noexcept
    {
        const Point unit = unit_at(c);
        return {unit.x + 44 + 19 * k_ + column_of(c) * 66 * k_, unit.y + 60 + 20 * k_ + 12 * k_ + c[4] * 58 * k_};
    }

    // ---- Links ----

    [[nodiscard]] bool exists(const Coords& c, Port port) const noexcept
    {
        const auto inner = [&](unsigned axis, bool up) {
            return has_links(axis) && (wraps(axis) || (up ? c[axis] + 1 < units_[axis] : c[axis] > 0));
        };
        switch (port) {
        case Port::x_plus: return inner(0, true);
        case Port::x_minus: return inner(0, false);
        case Port::y_plus: return inner(1, true);
        case Port::y_minus: return inner(1, false);
        case Port::z_plus: return inner(2, true);
        case Port::z_minus: return inner(2, false);
        case Port::a:
        case Port::b_plus:
        case Port::b_minus:
        case Port::c: return true;
        }
        return false;
    }

    struct Stroke {
        std::string d;
        double width;
        Point middle;
        bool filled;
    };

    // Right-hand traffic: a direction lies to the right of who goes along.
    [[nodiscard]] Stroke straight(Point from, Point to, double trim) const
    {
        const double length = std::hypot(to.x - from.x, to.y - from.y);
        const Point along = {(to.x - from.x) / length, (to.y - from.y) / length};
        const Point aside = {-along.y * 3 * k_, along.x * 3 * k_};
        const Point a = {from.x + along.x * trim + aside.x, from.y + along.y * trim + aside.y};
        const Point b = {to.x - along.x * (trim + 1) + aside.x, to.y - along.y * (trim + 1) + aside.y};
        return {move_to(a) + line_to(b), 3.4 * k_, {(a.x + b.x) / 2, (a.y + b.y) / 2}, false};
    }
    // Over the row, from the last column to the first and back.
    [[nodiscard]] Stroke over(Point from, Point to) const
    {
        const bool back = to.x > from.x;
        const double rise = (back ? 26 : 17) * k_, aside = (back ? -3 : 3) * k_;
        const Point a = {from.x + (back ? -6 : 6) * k_ + aside, from.y - 12 * k_};
        const Point b = {to.x + (back ? 6 : -6) * k_ + aside, to.y - 12 * k_};
        const double left = std::min(a.x, b.x), right = std::max(a.x, b.x), top = a.y - rise * 0.62;
        const Point knee_a = {a.x < b.x ? left + 12 * k_ : right - 12 * k_, top};
        const Point knee_b = {a.x < b.x ? right - 12 * k_ : left + 12 * k_, top};
        return {move_to(a) + curve_to({a.x, top}, {a.x, top}, knee_a) + line_to(knee_b) + curve_to({b.x, top}, {b.x, top}, b),
                3.4 * k_, {(left + right) / 2, top}, false};
    }
    // Beside the column, between the first row and the last.
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
                3 * k_, {x, (a.y + b.y) / 2}, false};
    }
    // One of twelve, out of a side of the unit.
    [[nodiscard]] Stroke out_of_unit(const Coords& c, Port port) const
    {
        const Point unit = unit_at(c);
        const unsigned index = (c[3] * 3u + c[4]) * 2 + c[5];
        if (port == Port::z_plus || port == Port::z_minus) {
            const double half = (unit_.x - 76) / 2, step = half / 12;
            const double x = unit.x + 32 + (port == Port::z_minus ? half + 34 : 0) + index * step;
            return {move_to({x, unit.y + 24}) + "h" + number(step * 0.72) + "v9h" + number(-step * 0.72) + "z", 0,
                    {x + step * 0.36, unit.y + 28.5}, true};
        }
        const bool sideways = port == Port::x_plus || port == Port::x_minus;
        const bool up = port == Port::x_plus || port == Port::y_plus;
        const double room = sideways ? unit_.y : unit_.x, half = room / 2 - 16, step = half / 12, thick = step * 0.7;
        const double at = (up ? 12 : room / 2 + 8) + index * step;
        const double reach = (sideways ? gap_.x : gap_.y) - 12;
        if (sideways) {
            const Point from = {up ? unit.x + unit_.x + 6 : unit.x - 6, unit.y + at};
            const double d = up ? 1 : -1;
            return {move_to(from) + "h" + number(d * (reach - 5)) + "l" + number(d * 5) + " " + number(thick / 2) + "l" +
                        number(d * -5) + " " + number(thick / 2) + "h" + number(d * -(reach - 5)) + "z",
                    0, {from.x + d * reach / 2, from.y + thick / 2}, true};
        }
        const Point from = {unit.x + at, up ? unit.y + unit_.y + 6 : unit.y - 6};
        const double d = up ? 1 : -1;
        return {move_to(from) + "v" + number(d * (reach - 5)) + "l" + number(thick / 2) + " " + number(d * 5) + "l" +
                    number(thick / 2) + " " + number(d * -5) + "v" + number(d * -(reach - 5)) + "z",
                0, {from.x + thick / 2, from.y + d * reach / 2}, true};
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
        if (port == Port::b_plus || port == Port::b_minus) {
            return std::abs(c[4] - to[4]) == 2 ? beside(from, there) : straight(from, there, 12 * k_);
        }
        return std::abs(int(column_of(c)) - int(column_of(to))) == 3 ? over(from, there) : straight(from, there, 19 * k_);
    }

    [[nodiscard]] std::string tip_of(const LinkLoads::Place& place, const LinkLoad& load) const
    {
        std::string tip = link_name(view_.topology, place) + ": " + bytes_text(load.bytes) + ", " +
                          count_text(load.operations) + " operations";
        if (load.packets != 0) {
            tip += ", " + count_text(load.packets) + " barrier packets";
        }
        return tip;
    }

    // ---- Drawing ----

    void draw_head(Svg& svg) const
    {
        std::string torus;
        for (unsigned axis = 0; axis < 3; axis++) {
            if (wraps(axis)) {
                torus += "XYZ"[axis];
            }
        }
        svg.text(margin, 34, "Network: what the links carried", {.size = 19, .bold = true});
        svg.text(margin, 56,
                 "job " + view_.job + ", " + std::to_string(units_[0]) + " x " + std::to_string(units_[1]) + " x " +
                     std::to_string(units_[2]) + " units of 12 nodes (" + count_text(view_.topology.num_nodes()) + "), " +
                     (torus.empty() ? "a mesh along X, Y and Z" : "a torus along " + torus),
                 {.size = 13, .colour = ink::faint});
    }

    void draw_panel_names(Svg& svg) const
    {
        for (unsigned z = 0; z < units_[2] && units_[2] > 1; z++) {
            const Point at = panel_at(z);
            svg.text(at.x + axis_room() + rim(0), at.y + 16, "Z = " + std::to_string(z), {.size = 13, .bold = true});
        }
    }

    void draw_detailed(Svg& svg)
    {
        draw_panel_names(svg);
        const uint32_t nodes = view_.topology.num_nodes();
        for (uint32_t node = 0; node < nodes; node += nodes_per_unit) {
            draw_unit(svg, view_.topology.coords_of(node));
        }
        std::vector<std::pair<double, LinkLoads::Place>> links;
        for (uint32_t node = 0; node < nodes; node++) {
            for (unsigned port = 0; port < ports_per_node; port++) {
                if (exists(view_.topology.coords_of(node), Port(port))) {
                    const auto found = view_.loads.by_link().find({node, Port(port)});
                    links.push_back({found == view_.loads.by_link().end() ? 0 : value_of(found->second), {node, Port(port)}});
                }
            }
        }
        std::stable_sort(links.begin(), links.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
        for (const auto& [value, place] : links) {
            const Stroke stroke = stroke_of(place.first, place.second);
            if (value > 0) {
                svg.tip(tip_of(place, view_.loads.by_link().at(place)));
            }
            stroke.filled ? svg.path(stroke.d, colour(value))
                          : svg.path(stroke.d, "none", colour(value), value > 0 ? stroke.width : stroke.width * 0.7);
        }
        for (uint32_t node = 0; node < nodes; node++) {
            draw_node(svg, node);
        }
        for (const HotLink& link : hottest_) {
            anchors_.push_back(stroke_of(link.place.first, link.place.second).middle);
        }
    }

    void draw_unit(Svg& svg, const Coords& c) const
    {
        const Point at = unit_at(c);
        const TextStyle small = {.size = 11, .colour = ink::faint};
        svg.rect(at.x, at.y, unit_.x, unit_.y, ink::ground, 8, ink::line);
        svg.text(at.x + 10, at.y + 16,
                 "unit X " + std::to_string(c[0]) + "  Y " + std::to_string(c[1]) + "  Z " + std::to_string(c[2]), small);
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
        if (exists(c, Port::x_plus)) {
            svg.text(at.x + unit_.x + gap_.x / 2, at.y - 4, "X+", middle);
        }
        if (exists(c, Port::x_minus)) {
            svg.text(at.x - gap_.x / 2, at.y + unit_.y + 12, "X-", middle);
        }
        if (exists(c, Port::y_plus)) {
            svg.text(at.x - 5, at.y + unit_.y + gap_.y / 2 + 4, "Y+", middle);
        }
        if (exists(c, Port::y_minus)) {
            svg.text(at.x + unit_.x + 5, at.y - gap_.y / 2 + 4, "Y-", middle);
        }
    }

    void draw_node(Svg& svg, uint32_t node) const
    {
        const Point at = node_at(view_.topology.coords_of(node));
        const auto& ranks = view_.ranks[node];
        const bool used = !ranks.empty();
        std::string tip = "node " + node_label(view_.topology, node) + (used ? ": rank" : "");
        for (const std::string& rank : ranks) {
            tip += " " + rank;
        }
        svg.tip(tip).rect(at.x - 19 * k_, at.y - 12 * k_, 38 * k_, 24 * k_, used ? "#ffffff" : ink::ground, 4 * k_,
                          used ? ink::text : ink::line);
        std::string label = used ? ranks.front() : "";
        if (ranks.size() > 1) {
            const std::string both = ranks.front() + ".." + ranks.back();
            label = text_width(both, {.size = 12}) < 36 * k_ ? both : ranks.front() + "+";
        }
        svg.text(at.x, at.y + 4.5, label, {.size = 13, .anchor = Anchor::middle, .bold = true});
    }

    void draw_bundles(Svg& svg)
    {
        draw_panel_names(svg);
        std::map<std::pair<uint32_t, unsigned>, std::pair<double, LinkLoads::Place>> hottest; // by unit and group
        for (const auto& [place, load] : view_.loads.by_link()) {
            auto& best = hottest[{place.first / nodes_per_unit, group_of(place.second)}];
            if (value_of(load) > best.first) {
                best = {value_of(load), place};
            }
        }
        for (uint32_t unit = 0; unit < view_.topology.num_nodes() / nodes_per_unit; unit++) {
            const Coords c = view_.topology.coords_of(unit * nodes_per_unit);
            for (unsigned group = 0; group < groups; group++) {
                const auto found = hottest.find({unit, group});
                const bool busy = found != hottest.end() && found->second.first > 0;
                if (!busy && group != inside && !bundle_exists(c, group)) {
                    continue;
                }
                if (busy) {
                    const LinkLoads::Place& place = found->second.second;
                    svg.tip("hottest of this bundle: " + tip_of(place, view_.loads.by_link().at(place)));
                }
                draw_bundle(svg, c, group, colour(busy ? found->second.first : 0));
            }
        }
        draw_axes(svg);
        for (const HotLink& link : hottest_) {
            anchors_.push_back(bundle_at(view_.topology.coords_of(link.place.first), group_of(link.place.second)));
        }
    }

    [[nodiscard]] bool bundle_exists(const Coords& c, unsigned group) const noexcept
    {
        static constexpr Port ports[] = {Port::a,      Port::x_plus, Port::x_minus, Port::y_plus,
                                         Port::y_minus, Port::z_plus, Port::z_minus};
        return exists(c, ports[group]);
    }

    [[nodiscard]] Point bundle_at(const Coords& c, unsigned group) const noexcept
    {
        const Point u = unit_at(c);
        const double w = unit_.x, g = gap_.x;
        switch (group) {
        case to_x_plus: return {u.x + w + g / 2, u.y + w * 0.3};
        case to_x_minus: return {u.x - g / 2, u.y + w * 0.7};
        case to_y_plus: return {u.x + w * 0.3, u.y + w + g / 2};
        case to_y_minus: return {u.x + w * 0.7, u.y - g / 2};
        case to_z_plus: return {u.x + w * 0.8, u.y + w * 0.2};
        case to_z_minus: return {u.x + w * 0.8, u.y + w * 0.8};
        default: return {u.x + w * 0.35, u.y + w * 0.5};
        }
    }

    void draw_bundle(Svg& svg, const Coords& c, unsigned group, const std::string& colour) const
    {
        const Point u = unit_at(c);
        const double w = unit_.x, g = gap_.x, thick = w * 0.3;
        const auto triangle = [&](double y, double d) {
            svg.path(move_to({u.x + w * 0.62, y}) + "h" + number(w * 0.32) + "l" + number(-w * 0.16) + " " +
                         number(d * w * 0.3) + "z",
                     colour, "#ffffff", std::max(w * 0.03, 0.5));
        };
        switch (group) {
        case inside: svg.rect(u.x, u.y, w, w, colour, w * 0.08, ink::line); break;
        case to_x_plus: svg.rect(u.x + w + 1, u.y + w * 0.15, g - 2, thick, colour); break;
        case to_x_minus: svg.rect(u.x - g + 1, u.y + w * 0.55, g - 2, thick, colour); break;
        case to_y_plus: svg.rect(u.x + w * 0.15, u.y + w + 1, thick, g - 2, colour); break;
        case to_y_minus: svg.rect(u.x + w * 0.55, u.y - g + 1, thick, g - 2, colour); break;
        case to_z_plus: triangle(u.y + w * 0.38, -1); break;
        case to_z_minus: triangle(u.y + w * 0.62, 1); break;
        default: break;
        }
    }

    void draw_axes(Svg& svg) const
    {
        const double pitch = unit_.x + gap_.x;
        const unsigned step = pitch >= 22 ? 1 : pitch >= 11 ? 2 : 4;
        for (unsigned z = 0; z < units_[2]; z++) {
            const Coords first = {0, 0, static_cast<uint8_t>(z), 0, 0, 0};
            const Point at = unit_at(first);
            const double bottom = at.y + units_[1] * pitch - gap_.y + rim(1) + 10;
            for (unsigned x = 0; x < units_[0]; x += step) {
                svg.text(at.x + x * pitch + unit_.x / 2, bottom, (x == 0 ? "X " : "") + std::to_string(x),
                         {.size = 11, .colour = ink::faint, .anchor = Anchor::middle});
            }
            for (unsigned y = 0; y < units_[1]; y += step) {
                svg.text(at.x - rim(0) - 4, at.y + y * pitch + unit_.y / 2 + 4, (y == 0 ? "Y " : "") + std::to_string(y),
                         {.size = 11, .colour = ink::faint, .anchor = Anchor::end});
            }
        }
    }

    // Numbers of the hottest, none over another.
    void draw_badges(Svg& svg) const
    {
        std::vector<Point> taken;
        for (size_t i = 0; i < hottest_.size(); i++) {
            const Point want = anchors_[i];
            Point at = want;
            for (unsigned attempt = 0; attempt < 400; attempt++) {
                const double angle = attempt * 2.4, r = 3.2 * std::sqrt(double(attempt));
                at = {want.x + r * std::cos(angle), want.y + r * std::sin(angle)};
                const bool free = std::none_of(taken.begin(), taken.end(), [&](Point other) {
                    return std::hypot(other.x - at.x, other.y - at.y) < 19;
                });
                if (free) {
                    break;
                }
            }
            taken.push_back(at);
            if (std::hypot(at.x - want.x, at.y - want.y) > 9) {
                svg.line(want.x, want.y, at.x, at.y, ink::text, 1);
            }
            draw_badge(svg, at, i + 1);
        }
    }
    static void draw_badge(Svg& svg, Point at, size_t label)
    {
        svg.circle(at.x, at.y, 9, "#ffffff", ink::text);
        svg.text(at.x, at.y + 4, std::to_string(label), {.size = 11, .anchor = Anchor::middle, .bold = true});
    }

    void draw_side(Svg& svg, double x) const
    {
        svg.text(x, 34, "The hottest links", {.size = 15, .bold = true});
        const TextStyle faint = {.size = 11, .colour = ink::faint, .anchor = Anchor::end};
        svg.text(x + 24, 56, "leaves node (x,y,z,a,b,c) by", {.size = 11, .colour = ink::faint});
        svg.text(x + 262, 56, "bytes", faint);
        svg.text(x + 338, 56, "operations", faint);
        svg.text(x + 412, 56, "busy*", faint);
        double y = 78;
        for (size_t i = 0; i < hottest_.size(); i++, y += 24) {
            const HotLink& link = hottest_[i];
            draw_badge(svg, {x + 10, y - 4}, i + 1);
            svg.text(x + 26, y, link_name(view_.topology, link.place), {.size = 12, .fixed = true});
            const TextStyle right = {.size = 12, .anchor = Anchor::end};
            svg.text(x + 262, y, bytes_text(link.load.bytes), right);
            svg.text(x + 338, y, count_text(link.load.operations + link.load.packets), right);
            svg.text(x + 412, y, time_text(static_cast<uint64_t>(double(link.load.bytes) / link_bytes_per_ns)), right);
        }
        if (hottest_.empty()) {
            svg.text(x, y, "No link has carried anything: all stayed within nodes.", {.size = 12, .colour = ink::faint});
            y += 24;
        }
        draw_scale(svg, x, y + 18);
        draw_hints(svg, x, y + 112);
    }

    void draw_scale(Svg& svg, double x, double y) const
    {
        svg.text(x, y, bytes_count_ ? "Bytes over a link" : "Operations and barrier packets over a link", {.size = 13, .bold = true});
        constexpr double width = 396;
        constexpr unsigned pieces = 66;
        for (unsigned i = 0; i < pieces; i++) {
            svg.rect(x + width / pieces * i, y + 10, width / pieces + 0.5, 14, heat((i + 0.5) / pieces));
        }
        if (most_ <= 0) {
            return;
        }
        const double step = bytes_count_ ? nice_step_of_bytes(most_, 4) : nice_step(most_, 4);
        for (double value = 0; value <= most_ * 1.0001; value += step) {
            const double at = x + width * value / most_;
            svg.line(at, y + 24, at, y + 28, ink::faint);
            svg.text(at, y + 41, value_text(value), {.size = 11, .colour = ink::faint, .anchor = value == 0 ? Anchor::start : Anchor::middle});
        }
        svg.rect(x, y + 52, 18, 8, ink::idle_link);
        svg.text(x + 26, y + 60, "nothing", {.size = 11, .colour = ink::faint});
    }

    void draw_hints(Svg& svg, double x, double y) const
    {
        std::vector<std::string> lines;
        if (detailed_) {
            lines = {"A box with a number is a node with the rank of its process;", "grey ones have none. Lines are cables, a line for each",
                     "direction: one drives on the right. b0 and b2 are neighbours,", "and so are the first and the last column."};
            if (has_links(0) || has_links(1)) {
                lines.insert(lines.end(), {"Arrows between units: 12 cables, one of each node, in the", "order a, b, c."});
            }
            if (has_links(2)) {
                lines.emplace_back("Small squares on top: the same along Z.");
            }
        } else {
            lines = {"A square is a unit of 12 nodes. Its colour is that of the", "hottest link inside (A, B, C). A bar between units stands",
                     "for 12 cables of one direction, triangles for those to the", "next (up) and the previous (down) Z: the hottest counts."};
        }
        lines.insert(lines.end(), {"", "* how long a link of Tofu-D (6.8 GB/s, 93 %) is busy with", "that many bytes."});
        for (const std::string& line : lines) {
            if (!line.empty()) {
                svg.text(x, y, line, {.size = 12, .colour = ink::faint});
            }
            y += line.empty() ? 8 : 17;
        }
    }

    const NetworkView& view_;
    std::array<uint8_t, 3> units_;
    bool detailed_;
    std::vector<HotLink> hottest_;
    std::vector<Point> anchors_; // of the hottest
    bool bytes_count_ = false; // else operations do
    double most_ = 0;
    double k_ = 1; // size of the things in a unit
    Point unit_{}, gap_{};
    unsigned columns_ = 1;
    double drawing_width_ = 0, drawing_height_ = 0;
};

} // namespace

NetworkView network_of(const trace::Run& run)
{
    NetworkView view{.job = run.job,
                     .topology = run.topology,
                     .loads = loads_of(run),
                     .ranks = std::vector<std::vector<std::string>>(run.topology.num_nodes()),
                     .length = run.length,
                     .clock = run.clock};
    for (uint32_t i = 0; i < run.processes.size(); i++) {
        view.ranks[run.processes[i].node].push_back(process_label(run, i));
    }
    return view;
}

std::string draw_network(const NetworkView& view)
{
    return Picture(view).draw();
}

} // namespace tofu::sim::tools
