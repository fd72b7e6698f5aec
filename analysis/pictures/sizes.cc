// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The picture of message sizes. See pictures.h.
#include "pictures/pictures.h"

#include "pictures/svg.h"

#include <algorithm>
#include <array>
#include <bit>

namespace tofu::sim::tools {
namespace {

using namespace trace;

enum Kind : unsigned { put, piggyback, get, atomic, kinds };
constexpr struct {
    const char* name;
    const char* colour;
} kind_of[kinds] = {{"put", ink::put}, {"put (piggyback)", ink::piggyback}, {"get", ink::get}, {"atomic", ink::atomic}};

/// Sizes from 2^(n-1) + 1 to 2^n stand together; 0 bytes and 1 byte have a place each.
constexpr unsigned most_places = 26;
unsigned place_of(uint32_t bytes)
{
    return bytes <= 1 ? bytes : 1 + static_cast<unsigned>(std::bit_width(bytes - 1));
}
std::string place_name(unsigned place)
{
    return place <= 1 ? std::to_string(place) : bytes_text(uint64_t{1} << (place - 1));
}

using Sums = std::array<std::array<double, kinds>, most_places>;

struct Chart {
    Svg& svg;
    double x, y, width, height;
    unsigned first, last; ///< places
    bool of_bytes;
};

void draw_chart(const Chart& chart, const Sums& sums, const char* name)
{
    Svg& svg = chart.svg;
    double most = 0;
    for (unsigned place = chart.first; place <= chart.last; place++) {
        double sum = 0;
        for (const double value : sums[place])
            sum += value;
        most = std::max(most, sum);
    }
    svg.text(chart.x, chart.y - 16, name, {.size = 15, .bold = true});
    if (most <= 0) {
        svg.text(chart.x, chart.y + 20, "none", {.size = 13, .colour = ink::faint});
        return;
    }
    const double step = chart.of_bytes ? nice_step_of_bytes(most, 5) : std::max(nice_step(most, 5), 1.0);
    for (double value = 0; value <= most * 1.0001; value += step) {
        const double y = chart.y + chart.height * (1 - value / most);
        svg.line(chart.x, y, chart.x + chart.width, y, ink::line);
        const auto whole = static_cast<uint64_t>(value);
        svg.text(chart.x - 8, y + 4, chart.of_bytes ? bytes_text(whole) : count_text(whole),
                 {.size = 12, .colour = ink::faint, .anchor = Anchor::end});
    }
    const double each = chart.width / (chart.last - chart.first + 1);
    for (unsigned place = chart.first; place <= chart.last; place++) {
        double y = chart.y + chart.height;
        const double x = chart.x + (place - chart.first) * each;
        for (unsigned kind = 0; kind < kinds; kind++) {
            const double value = sums[place][kind];
            if (value <= 0)
                continue;
            const double height = std::max(chart.height * value / most, 0.7);
            y -= height;
            const auto whole = static_cast<uint64_t>(value);
            svg.tip(std::string(kind_of[kind].name) + ", up to " + place_name(place) + (place <= 1 ? " B" : "") + ": " +
                    (chart.of_bytes ? bytes_text(whole) : count_text(whole) + " operations"));
            svg.rect(x + each * 0.12, y, each * 0.76, height, kind_of[kind].colour);
        }
        svg.text(x + each * 0.5 + 4, chart.y + chart.height + 14, place_name(place),
                 {.size = 12, .colour = ink::faint, .anchor = Anchor::end, .turned = -45});
    }
    svg.text(chart.x + chart.width / 2, chart.y + chart.height + 76, "size of the operation, up to (bytes)",
             {.size = 12, .colour = ink::faint, .anchor = Anchor::middle});
}

} // namespace

std::string draw_sizes(const Run& run)
{
    Sums operations{}, bytes{};
    std::array<double, kinds> totals{};
    unsigned first = most_places, last = 0;
    for (const Transfer& transfer : run.transfers) {
        if (transfer.op == Op::nop)
            continue;
        const bool is_atomic = transfer.op >= Op::armw4 && transfer.op <= Op::cswap8;
        const uint32_t size = transfer.op == Op::armw4 || transfer.op == Op::cswap4 ? 4
                              : is_atomic                                           ? 8
                                                                                    : transfer.bytes;
        const unsigned kind = is_atomic                          ? atomic
                              : transfer.op == Op::get           ? get
                              : transfer.op == Op::put_piggyback ? piggyback
                                                                 : put;
        const unsigned place = std::min(place_of(size), most_places - 1);
        operations[place][kind] += transfer.count;
        totals[kind] += transfer.count;
        bytes[place][kind] += static_cast<double>(size) * transfer.count;
        first = std::min(first, place);
        last = std::max(last, place);
    }
    Svg svg(1400, 470, "sizes of the operations of job " + run.job);
    svg.text(28, 34, "Messages: number and size", {.size = 19, .bold = true});
    double x = 28;
    for (unsigned kind = 0; kind < kinds; kind++) {
        const std::string name =
            std::string(kind_of[kind].name) + ": " + count_text(static_cast<uint64_t>(totals[kind]));
        svg.rect(x, 54, 14, 12, kind_of[kind].colour, 2);
        svg.text(x + 22, 64, name, {.size = 12, .colour = ink::faint});
        x += 52 + text_width(name, {.size = 12});
    }
    if (first > last) {
        svg.text(28, 110, "No operation was posted.", {.size = 13, .colour = ink::faint});
        return svg.finish();
    }
    if (last - first < 5) { // broad bars look like more than they are
        first = first >= 3 ? first - 3 : 0;
        last = std::min(last + 3, most_places - 1);
    }
    draw_chart({svg, 110, 120, 550, 250, first, last, false}, operations, "Operations");
    draw_chart({svg, 810, 120, 550, 250, first, last, true}, bytes, "Bytes");
    return svg.finish();
}

} // namespace tofu::sim::tools
