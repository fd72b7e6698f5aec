// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Common parts of both pictures of a network: panels of units, names, the ten hottest links, the scale.
//
// A panel for each Z, in it a grid of units by X and Y. Few nodes: picture_cables. Many: picture_bundles.
#pragma once

#include "pictures/pictures.h"
#include "pictures/svg.h"
#include "topology/route.h"
#include "traces/summary.h"

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace tofu::sim::tools {

struct Point {
    double x, y;
};
[[nodiscard]] std::string move_to(Point p);

class NetworkPicture {
  public:
    virtual ~NetworkPicture() = default;
    NetworkPicture(const NetworkPicture&) = delete;
    NetworkPicture& operator=(const NetworkPicture&) = delete;

    [[nodiscard]] std::string draw();

  protected:
    explicit NetworkPicture(const NetworkView& view);

    /// Sizes of units and gaps, so that the panels fit.
    virtual void size() = 0;
    /// Where a link is drawn, for the number of a hot one.
    [[nodiscard]] virtual Point middle_of(const LinkLoads::Place& place) const = 0;
    virtual void draw_units(Svg& svg) const = 0;
    [[nodiscard]] virtual std::vector<std::string> hints() const = 0;
    [[nodiscard]] virtual double axis_room() const noexcept { return 0; } ///< for numbers beside the panels

    [[nodiscard]] double value_of(const LinkLoad& load) const noexcept
    {
        return static_cast<double>(bytes_count_ ? load.bytes : load.operations + load.packets);
    }
    [[nodiscard]] std::string colour(double value) const { return value <= 0 ? ink::idle_link : heat(value / most_); }
    [[nodiscard]] std::string tip_of(const LinkLoads::Place& place, const LinkLoad& load) const;

    [[nodiscard]] bool wraps(unsigned axis) const noexcept { return (view_.topology.wraps() >> axis & 1) != 0; }
    [[nodiscard]] bool has_links(unsigned axis) const noexcept { return units_[axis] > 1; }
    [[nodiscard]] bool exists(const Coords& c, Port port) const noexcept;
    /// At the rim of a panel there is nothing to draw, unless the axis wraps.
    [[nodiscard]] double rim(unsigned axis) const noexcept
    {
        return has_links(axis) && wraps(axis) ? (axis == 0 ? gap_.x : gap_.y) : 16;
    }
    /// Whether the panels, in as many columns as look best, take no more than that.
    [[nodiscard]] bool fits(double height) const noexcept;
    [[nodiscard]] Point unit_at(const Coords& c) const noexcept;

    const NetworkView& view_;
    std::array<uint8_t, 3> units_;
    Point unit_{}, gap_{};

  private:
    [[nodiscard]] Point panel_size() const noexcept;
    [[nodiscard]] double panels_width(unsigned columns) const noexcept;
    [[nodiscard]] double panels_height(unsigned columns) const noexcept;
    [[nodiscard]] unsigned best_columns() const noexcept;
    [[nodiscard]] Point panel_at(unsigned z) const noexcept;
    [[nodiscard]] std::string value_text(double value) const;
    void draw_head(Svg& svg) const;
    void draw_panel_names(Svg& svg) const;
    void draw_badges(Svg& svg) const;
    void draw_side(Svg& svg, double x) const;
    void draw_scale(Svg& svg, double x, double y) const;
    void draw_hints(Svg& svg, double x, double y) const;

    std::vector<HotLink> hottest_;
    bool bytes_count_ = false; ///< else operations do
    double most_ = 0;
    unsigned columns_ = 1;
};

[[nodiscard]] std::unique_ptr<NetworkPicture> picture_of_cables(const NetworkView& view);
[[nodiscard]] std::unique_ptr<NetworkPicture> picture_of_bundles(const NetworkView& view);

} // namespace tofu::sim::tools
