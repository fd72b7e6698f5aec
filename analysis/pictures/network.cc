// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The picture of a network with the traffic of its links. See network.h, pictures.h.
#include "pictures/network.h"

#include "traces/exports.h"

#include <algorithm>
#include <cmath>

namespace tofu::sim::tools {
namespace {

constexpr uint32_t most_detailed = 96; ///< nodes
constexpr double drawing_room = 900, side_width = 470, margin = 28, head = 76;
/// What a link carries at most: 6.8 GB/s, of which headers take 7 %.
constexpr double link_bytes_per_ns = 6.8 * 0.93;

void draw_badge(Svg& svg, Point at, size_t label)
{
    svg.circle(at.x, at.y, 9, "#ffffff", ink::text);
    svg.text(at.x, at.y + 4, std::to_string(label), {.size = 11, .anchor = Anchor::middle, .bold = true});
}

} // namespace

std::string move_to(Point p)
{
    return "M" + number(p.x) + " " + number(p.y);
}

NetworkPicture::NetworkPicture(const NetworkView& view)
    : view_(view), units_(view.topology.units()), hottest_(hottest_links(view.loads, 10))
{
    for (const auto& [place, load] : view.loads.by_link())
        bytes_count_ = bytes_count_ || load.bytes != 0;
    for (const auto& [place, load] : view.loads.by_link())
        most_ = std::max(most_, value_of(load));
}

std::string NetworkPicture::draw()
{
    size();
    columns_ = best_columns();
    const double width = panels_width(columns_);
    const double height = std::max(head + panels_height(columns_) + margin, 620.0);
    Svg svg(margin + width + side_width, height, "network of job " + view_.job);
    draw_head(svg);
    draw_panel_names(svg);
    draw_units(svg);
    draw_badges(svg);
    draw_side(svg, margin + width + 34);
    return svg.finish();
}

std::string NetworkPicture::value_text(double value) const
{
    const auto whole = static_cast<uint64_t>(value);
    return bytes_count_ ? bytes_text(whole) : count_text(whole);
}

bool NetworkPicture::fits(double height) const noexcept
{
    return panels_width(best_columns()) <= drawing_room && panels_height(best_columns()) <= height;
}

Point NetworkPicture::panel_size() const noexcept
{
    return {axis_room() + 2 * rim(0) + units_[0] * (unit_.x + gap_.x) - gap_.x,
            26 + 2 * rim(1) + units_[1] * (unit_.y + gap_.y) - gap_.y + axis_room()};
}

double NetworkPicture::panels_width(unsigned columns) const noexcept
{
    return panel_size().x * columns + (columns - 1) * 18;
}

double NetworkPicture::panels_height(unsigned columns) const noexcept
{
    return panel_size().y * std::ceil(double(units_[2]) / columns);
}

/// Of panels, for a picture not much wider than high.
unsigned NetworkPicture::best_columns() const noexcept
{
    unsigned best = 1;
    for (unsigned columns = 1; columns <= units_[2]; columns++) {
        const auto shape = [this](unsigned n) { return std::abs(std::log(panels_width(n) / panels_height(n) / 1.15)); };
        best = shape(columns) < shape(best) ? columns : best;
    }
    return best;
}

Point NetworkPicture::panel_at(unsigned z) const noexcept
{
    const Point size = panel_size();
    return {margin + (z % columns_) * (size.x + 18), head + (z / columns_) * size.y};
}

Point NetworkPicture::unit_at(const Coords& c) const noexcept
{
    const Point panel = panel_at(c[2]);
    return {panel.x + axis_room() + rim(0) + c[0] * (unit_.x + gap_.x),
            panel.y + 26 + rim(1) + c[1] * (unit_.y + gap_.y)};
}

bool NetworkPicture::exists(const Coords& c, Port port) const noexcept
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

std::string NetworkPicture::tip_of(const LinkLoads::Place& place, const LinkLoad& load) const
{
    std::string tip = link_name(view_.topology, place) + ": " + bytes_text(load.bytes) + ", " +
                      count_text(load.operations) + " operations";
    if (load.packets != 0)
        tip += ", " + count_text(load.packets) + " barrier packets";
    return tip;
}

void NetworkPicture::draw_head(Svg& svg) const
{
    std::string torus;
    for (unsigned axis = 0; axis < 3; axis++)
        if (wraps(axis))
            torus += "XYZ"[axis];
    svg.text(margin, 34, "Network: traffic of the links", {.size = 19, .bold = true});
    svg.text(margin, 56,
             "job " + view_.job + ", " + std::to_string(units_[0]) + " x " + std::to_string(units_[1]) + " x " +
                 std::to_string(units_[2]) + " units of 12 nodes (" + count_text(view_.topology.num_nodes()) + "), " +
                 (torus.empty() ? "a mesh along X, Y and Z" : "a torus along " + torus),
             {.size = 13, .colour = ink::faint});
}

void NetworkPicture::draw_panel_names(Svg& svg) const
{
    for (unsigned z = 0; z < units_[2] && units_[2] > 1; z++) {
        const Point at = panel_at(z);
        svg.text(at.x + axis_room() + rim(0), at.y + 16, "Z = " + std::to_string(z), {.size = 13, .bold = true});
    }
}

/// Numbers of the hottest, none over another.
void NetworkPicture::draw_badges(Svg& svg) const
{
    std::vector<Point> taken;
    for (size_t i = 0; i < hottest_.size(); i++) {
        const Point want = middle_of(hottest_[i].place);
        Point at = want;
        for (unsigned attempt = 0; attempt < 400; attempt++) {
            const double angle = attempt * 2.4, r = 3.2 * std::sqrt(double(attempt));
            at = {want.x + r * std::cos(angle), want.y + r * std::sin(angle)};
            const bool free = std::none_of(taken.begin(), taken.end(), [&](Point other) {
                return std::hypot(other.x - at.x, other.y - at.y) < 19;
            });
            if (free)
                break;
        }
        taken.push_back(at);
        if (std::hypot(at.x - want.x, at.y - want.y) > 9)
            svg.line(want.x, want.y, at.x, at.y, ink::text, 1);
        draw_badge(svg, at, i + 1);
    }
}

void NetworkPicture::draw_side(Svg& svg, double x) const
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
        svg.text(x, y, "No link carried anything: all traffic stayed within nodes.",
                 {.size = 12, .colour = ink::faint});
        y += 24;
    }
    draw_scale(svg, x, y + 18);
    draw_hints(svg, x, y + 112);
}

void NetworkPicture::draw_scale(Svg& svg, double x, double y) const
{
    svg.text(x, y, bytes_count_ ? "Bytes over a link" : "Operations and barrier packets over a link",
             {.size = 13, .bold = true});
    constexpr double width = 396;
    constexpr unsigned pieces = 66;
    for (unsigned i = 0; i < pieces; i++)
        svg.rect(x + width / pieces * i, y + 10, width / pieces + 0.5, 14, heat((i + 0.5) / pieces));
    if (most_ <= 0)
        return;
    const double step = bytes_count_ ? nice_step_of_bytes(most_, 4) : nice_step(most_, 4);
    for (double value = 0; value <= most_ * 1.0001; value += step) {
        const double at = x + width * value / most_;
        svg.line(at, y + 24, at, y + 28, ink::faint);
        svg.text(at, y + 41, value_text(value),
                 {.size = 11, .colour = ink::faint, .anchor = value == 0 ? Anchor::start : Anchor::middle});
    }
    svg.rect(x, y + 52, 18, 8, ink::idle_link);
    svg.text(x + 26, y + 60, "nothing", {.size = 11, .colour = ink::faint});
}

void NetworkPicture::draw_hints(Svg& svg, double x, double y) const
{
    std::vector<std::string> lines = hints();
    lines.insert(lines.end(),
                 {"", "* time for which a link of Tofu-D (6.8 GB/s, 93 %) is", "busy with that many bytes."});
    for (const std::string& line : lines) {
        if (!line.empty())
            svg.text(x, y, line, {.size = 12, .colour = ink::faint});
        y += line.empty() ? 8 : 17;
    }
}

NetworkView network_of(const trace::Run& run)
{
    NetworkView view{.job = run.job,
                     .topology = run.topology,
                     .loads = loads_of(run),
                     .ranks = std::vector<std::vector<std::string>>(run.topology.num_nodes()),
                     .length = run.length,
                     .clock = run.clock};
    for (uint32_t i = 0; i < run.processes.size(); i++)
        view.ranks[run.processes[i].node].push_back(process_label(run, i));
    return view;
}

std::string draw_network(const NetworkView& view)
{
    return (view.topology.num_nodes() <= most_detailed ? picture_of_cables(view) : picture_of_bundles(view))->draw();
}

} // namespace tofu::sim::tools
