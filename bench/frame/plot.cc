// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The page of curves: latency and bandwidth over size as SVG.
#include "report.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace tofu::bench {
namespace {

// Colours that stand out on white and on black; text and lines in a middle grey.
struct Line {
    const char* transport;
    const char* colour;
    const char* dash;
};
constexpr Line lines[] = {
    {"tofu", "#e0522d", ""},        {"utofu", "#3f8fd2", ""},     {"shm", "#2f9e62", ""},
    {"tcp;ofi_rxm", "#a66fd0", ""}, {"memory", "#8a8a8a", "2 3"}, {"process_vm", "#b08d2e", "6 3"},
};
constexpr const char* grey = "#808080";

struct Panel {
    const char* name; ///< of the case
    const char* title;
    bool latency;
};
constexpr Panel panels[] = {
    {"write, seen by the polling target", "Write, seen by the polling target: time", true},
    {"write bandwidth", "Write: bandwidth", false},
    {"read", "Read: time", true},
    {"read bandwidth", "Read: bandwidth", false},
    {"tagged ping-pong", "Tagged message, half of a ping-pong: time", true},
    {"tagged bandwidth", "Tagged messages: bandwidth", false},
};

constexpr double panel_width = 470, panel_height = 250, left = 62, top = 34, right = 14, bottom = 30;

std::string size_label(double bytes)
{
    if (bytes >= 1048576)
        return std::to_string(int(bytes / 1048576)) + "M";
    return bytes >= 1024 ? std::to_string(int(bytes / 1024)) + "K" : std::to_string(int(bytes));
}

std::string value_label(double value, bool latency)
{
    char text[32];
    if (latency)
        std::snprintf(text, sizeof(text),
                      value >= 1e6   ? "%g ms"
                      : value >= 1e3 ? "%g µs"
                                     : "%g ns",
                      value >= 1e6   ? value / 1e6
                      : value >= 1e3 ? value / 1e3
                                     : value);
    else
        std::snprintf(text, sizeof(text), value >= 1000 ? "%g GB/s" : "%g MB/s", value >= 1000 ? value / 1000 : value);
    return text;
}

class Axes {
  public:
    Axes(double x, double y, double least, double most, double first, double last)
        : x_(x), y_(y), least_(std::floor(std::log10(least))), most_(std::ceil(std::log10(most))),
          first_(std::log2(first)), last_(std::log2(last))
    {
        if (most_ <= least_)
            most_ = least_ + 1;
        if (last_ <= first_)
            last_ = first_ + 1;
    }
    [[nodiscard]] double x(double bytes) const
    {
        return x_ + left + (std::log2(bytes) - first_) / (last_ - first_) * (panel_width - left - right);
    }
    [[nodiscard]] double y(double value) const
    {
        double part = (std::log10(value) - least_) / (most_ - least_);
        return y_ + panel_height - bottom - part * (panel_height - top - bottom);
    }
    void draw(std::FILE* f, const Panel& panel) const
    {
        std::fprintf(f, "<text x='%.0f' y='%.0f' class='title'>%s</text>\n", x_ + left, y_ + 20, panel.title);
        for (double decade = least_; decade <= most_; ++decade) {
            double at = y(std::pow(10, decade));
            std::fprintf(f, "<line x1='%.1f' x2='%.1f' y1='%.1f' y2='%.1f' class='grid'/>\n", x_ + left,
                         x_ + panel_width - right, at, at);
            std::fprintf(f, "<text x='%.1f' y='%.1f' class='end'>%s</text>\n", x_ + left - 6, at + 4,
                         value_label(std::pow(10, decade), panel.latency).c_str());
        }
        for (double power = first_; power <= last_ + 0.01; power += 4) {
            double at = x(std::exp2(power));
            std::fprintf(f, "<line x1='%.1f' x2='%.1f' y1='%.1f' y2='%.1f' class='grid'/>\n", at, at, y_ + top,
                         y_ + panel_height - bottom);
            std::fprintf(f, "<text x='%.1f' y='%.1f' class='mid'>%s</text>\n", at, y_ + panel_height - bottom + 16,
                         size_label(std::exp2(power)).c_str());
        }
    }

  private:
    double x_, y_, least_, most_, first_, last_;
};

struct Point {
    double bytes;
    Figure figure;
};

std::vector<Point> curve(const std::vector<Series>& all, const Panel& panel, const char* transport)
{
    std::vector<Point> points;
    for (const Series& s : all)
        if (s.name == panel.name && s.transport == transport && s.bytes > 0)
            if (Figure figure = figure_of(s.samples); figure.median > 0) {
                if (!panel.latency) { // MiB/s to MB/s
                    figure.median *= 1.048576;
                    figure.low *= 1.048576;
                    figure.high *= 1.048576;
                }
                points.push_back({double(s.bytes), figure});
            }
    std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.bytes < b.bytes; });
    return points;
}

void draw_panel(std::FILE* f, const std::vector<Series>& all, const Panel& panel, double x, double y)
{
    double least = 1e300, most = 0, first = 1e300, last = 0;
    for (const Line& line : lines)
        for (const Point& p : curve(all, panel, line.transport)) {
            least = std::min(least, p.figure.median);
            most = std::max(most, p.figure.median);
            first = std::min(first, p.bytes);
            last = std::max(last, p.bytes);
        }
    if (most <= 0) {
        std::fprintf(f, "<text x='%.0f' y='%.0f' class='title'>%s: not measured</text>\n", x + left, y + 20,
                     panel.title);
        return;
    }
    Axes axes(x, y, least, most, first, last);
    axes.draw(f, panel);
    for (const Line& line : lines) {
        std::vector<Point> points = curve(all, panel, line.transport);
        if (points.empty())
            continue;
        // The band between the quartiles, then the medians.
        std::fprintf(f, "<polygon fill='%s' fill-opacity='0.18' points='", line.colour);
        for (const Point& p : points)
            std::fprintf(f, "%.1f,%.1f ", axes.x(p.bytes), axes.y(p.figure.high));
        for (auto p = points.rbegin(); p != points.rend(); ++p)
            std::fprintf(f, "%.1f,%.1f ", axes.x(p->bytes), axes.y(std::max(p->figure.low, 1e-9)));
        std::fprintf(f,
                     "'/>\n<polyline fill='none' stroke='%s' stroke-width='1.8' "
                     "stroke-dasharray='%s' points='",
                     line.colour, line.dash);
        for (const Point& p : points)
            std::fprintf(f, "%.1f,%.1f ", axes.x(p.bytes), axes.y(p.figure.median));
        std::fputs("'/>\n", f);
        if (*line.dash == '\0')
            for (const Point& p : points)
                std::fprintf(f, "<circle cx='%.1f' cy='%.1f' r='2.2' fill='%s'/>\n", axes.x(p.bytes),
                             axes.y(p.figure.median), line.colour);
    }
}

} // namespace

void write_plot(std::FILE* f, const std::vector<Series>& all)
{
    constexpr double head = 40, rows = (std::size(panels) + 1) / 2;
    double width = 2 * panel_width, height = head + rows * panel_height + 8;
    std::fprintf(f,
                 "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %.0f %.0f' width='%.0f' "
                 "height='%.0f' "
                 "font-family='sans-serif' "
                 "font-size='11'>\n<style>text{fill:%s}.title{font-size:13px;font-weight:bold}"
                 ".end{text-anchor:end}.mid{text-anchor:middle}.grid{stroke:%s;stroke-opacity:.28}<"
                 "/style>\n",
                 width, height, width, height, grey, grey);
    double x = left;
    for (const Line& line : lines) {
        std::fprintf(f,
                     "<line x1='%.0f' x2='%.0f' y1='22' y2='22' stroke='%s' stroke-width='3' "
                     "stroke-dasharray='%s'/>\n",
                     x, x + 26, line.colour, line.dash);
        std::fprintf(f, "<text x='%.0f' y='26' font-size='13'>%s</text>\n", x + 32, line.transport);
        x += 60 + 8.0 * double(std::string(line.transport).size());
    }
    for (std::size_t i = 0; i < std::size(panels); ++i)
        draw_panel(f, all, panels[i], double(i % 2) * panel_width, head + double(i / 2) * panel_height);
    std::fputs("</svg>\n", f);
}

} // namespace tofu::bench
