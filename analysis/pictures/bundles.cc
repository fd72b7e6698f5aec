// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The picture of a network with many nodes: a unit is a square, coloured like the hottest link inside, and stands for
// what leaves it along an axis by the hottest of twelve cables.
#include "pictures/network.h"

#include <algorithm>
#include <map>

namespace tofu::sim::tools {
namespace {

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

class Bundles final : public NetworkPicture {
  public:
    explicit Bundles(const NetworkView& view) : NetworkPicture(view) {}

  private:
    void size() override
    {
        for (unit_ = {46, 46}; unit_.x > 7; unit_.x = unit_.y = unit_.x - 1) {
            gap_ = {std::max(unit_.x * 0.42, 3.0), std::max(unit_.x * 0.42, 3.0)};
            if (fits(960))
                break;
        }
    }
    [[nodiscard]] double axis_room() const noexcept override { return 18; }

    [[nodiscard]] Point middle_of(const LinkLoads::Place& place) const override
    {
        return bundle_at(view_.topology.coords_of(place.first), group_of(place.second));
    }

    void draw_units(Svg& svg) const override
    {
        std::map<std::pair<uint32_t, unsigned>, std::pair<double, LinkLoads::Place>> hottest; // by unit and group
        for (const auto& [place, load] : view_.loads.by_link()) {
            auto& best = hottest[{place.first / nodes_per_unit, group_of(place.second)}];
            if (value_of(load) > best.first)
                best = {value_of(load), place};
        }
        for (uint32_t unit = 0; unit < view_.topology.num_nodes() / nodes_per_unit; unit++) {
            const Coords c = view_.topology.coords_of(unit * nodes_per_unit);
            for (unsigned group = 0; group < groups; group++) {
                const auto found = hottest.find({unit, group});
                const bool busy = found != hottest.end() && found->second.first > 0;
                if (!busy && group != inside && !bundle_exists(c, group))
                    continue;
                if (busy) {
                    const LinkLoads::Place& place = found->second.second;
                    svg.tip("hottest of this bundle: " + tip_of(place, view_.loads.by_link().at(place)));
                }
                draw_bundle(svg, c, group, colour(busy ? found->second.first : 0));
            }
        }
        draw_axes(svg);
    }

    [[nodiscard]] bool bundle_exists(const Coords& c, unsigned group) const noexcept
    {
        static constexpr Port ports[] = {Port::a,       Port::x_plus, Port::x_minus, Port::y_plus,
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
                svg.text(at.x - rim(0) - 4, at.y + y * pitch + unit_.y / 2 + 4,
                         (y == 0 ? "Y " : "") + std::to_string(y),
                         {.size = 11, .colour = ink::faint, .anchor = Anchor::end});
            }
        }
    }

    [[nodiscard]] std::vector<std::string> hints() const override
    {
        return {"A square is a unit of 12 nodes. It has the colour of its",
                "hottest link (A, B, C). A bar between units stands for the",
                "12 cables of one direction, and triangles for those to the",
                "next (up) and previous (down) Z, by their hottest cable."};
    }
};

} // namespace

std::unique_ptr<NetworkPicture> picture_of_bundles(const NetworkView& view)
{
    return std::make_unique<Bundles>(view);
}

} // namespace tofu::sim::tools
