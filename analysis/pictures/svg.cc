// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Pieces of an SVG picture as text. See svg.h.
#include "pictures/svg.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>

namespace tofu::sim::tools {
namespace {

struct Colour {
    double r, g, b;
};
constexpr Colour stops[] = {
    {253, 232, 160}, {247, 184, 92}, {228, 112, 72}, {172, 52, 96}, {98, 24, 104}, {34, 10, 62},
};

} // namespace

std::string heat(double share)
{
    constexpr double last = std::size(stops) - 1;
    const double at = std::clamp(std::isfinite(share) ? share : 0.0, 0.0, 1.0) * last;
    const auto low = static_cast<size_t>(std::min(at, last - 1));
    const double part = at - static_cast<double>(low);
    const auto mix = [part](double a, double b) { return static_cast<unsigned>(std::lround(a + (b - a) * part)); };
    const Colour& a = stops[low];
    const Colour& b = stops[low + 1];
    char text[8];
    std::snprintf(text, sizeof text, "#%02x%02x%02x", mix(a.r, b.r) & 0xff, mix(a.g, b.g) & 0xff, mix(a.b, b.b) & 0xff);
    return text;
}

double nice_step(double most, unsigned wanted)
{
    const double rough = std::max(most, 1e-9) / wanted;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    for (const double factor : {1.0, 2.0, 2.5, 5.0})
        if (factor * power >= rough)
            return factor * power;
    return 10 * power;
}

double nice_step_of_bytes(double most, unsigned wanted)
{
    const double unit = std::pow(1024, std::max(0.0, std::floor(std::log2(std::max(most, 1.0)) / 10)));
    const double step = nice_step(most / unit, wanted);
    return (unit == 1 ? std::max(step, 1.0) : step) * unit;
}

std::string number(double value)
{
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", value);
    std::string out = text;
    if (out.ends_with(".0"))
        out.resize(out.size() - 2);
    return out == "-0" ? "0" : out;
}

std::string escaped(std::string_view text)
{
    std::string out;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        switch (c) {
        case '<': out += "&lt;"; break;
        case '>': out += "&gt;"; break;
        case '&': out += "&amp;"; break;
        case '"': out += "&quot;"; break;
        default: out += byte < 0x20 && c != '\n' ? '?' : c;
        }
    }
    return out;
}

double text_width(std::string_view text, const TextStyle& style)
{
    size_t letters = 0;
    for (const char c : text)
        letters += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0; // of UTF-8
    const double each = style.fixed ? 0.602 : style.bold ? 0.66 : 0.59;
    return static_cast<double>(letters) * each * style.size;
}

Svg::Svg(double width, double height, std::string_view name) : width_(width), height_(height)
{
    out_ = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + number(width) + " " + number(height) +
           "\" width=\"" + number(width) + "\" height=\"" + number(height) +
           "\" role=\"img\" font-family=\"'DejaVu Sans', Verdana, sans-serif\">\n<title>" + escaped(name) +
           "</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
}

Svg& Svg::tip(std::string text)
{
    tip_ = std::move(text);
    return *this;
}

void Svg::close(std::string_view element)
{
    if (tip_.empty()) {
        out_ += "/>\n";
        return;
    }
    out_ += "><title>" + escaped(tip_) + "</title></" + std::string(element) + ">\n";
    tip_.clear();
}

namespace {

std::string attribute(std::string_view name, std::string_view value)
{
    std::string out = " ";
    out += name;
    out += "=\"";
    out += value;
    out += '"';
    return out;
}

std::string stroke_of(std::string_view stroke, double width)
{
    return stroke.empty() ? std::string() : attribute("stroke", stroke) + attribute("stroke-width", number(width));
}

} // namespace

void Svg::rect(double x, double y, double width, double height, std::string_view fill, double round,
               std::string_view stroke)
{
    out_ += "<rect" + attribute("x", number(x)) + attribute("y", number(y)) + attribute("width", number(width)) +
            attribute("height", number(height)) + attribute("fill", fill) +
            (round > 0 ? attribute("rx", number(round)) : std::string()) + stroke_of(stroke, 1);
    close("rect");
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view stroke, double width)
{
    out_ += "<line" + attribute("x1", number(x1)) + attribute("y1", number(y1)) + attribute("x2", number(x2)) +
            attribute("y2", number(y2)) + stroke_of(stroke, width);
    close("line");
}

void Svg::path(std::string_view d, std::string_view fill, std::string_view stroke, double width)
{
    out_ += "<path" + attribute("d", d) + attribute("fill", fill) + stroke_of(stroke, width);
    close("path");
}

void Svg::circle(double x, double y, double r, std::string_view fill, std::string_view stroke)
{
    out_ += "<circle" + attribute("cx", number(x)) + attribute("cy", number(y)) + attribute("r", number(r)) +
            attribute("fill", fill) + stroke_of(stroke, 1.5);
    close("circle");
}

void Svg::text(double x, double y, std::string_view text, const TextStyle& style)
{
    out_ += "<text" + attribute("x", number(x)) + attribute("y", number(y)) +
            attribute("font-size", number(style.size)) + attribute("fill", style.colour);
    if (style.anchor != Anchor::start)
        out_ += attribute("text-anchor", style.anchor == Anchor::middle ? "middle" : "end");
    if (style.bold)
        out_ += attribute("font-weight", "bold");
    if (style.fixed)
        out_ += attribute("font-family", "'DejaVu Sans Mono', monospace");
    if (style.turned != 0)
        out_ += attribute("transform", "rotate(" + number(style.turned) + " " + number(x) + " " + number(y) + ")");
    out_ += ">" + escaped(text) + "</text>\n";
}

std::string Svg::finish()
{
    return out_ + "</svg>\n";
}

} // namespace tofu::sim::tools
