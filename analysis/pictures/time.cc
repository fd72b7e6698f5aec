// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Pictures of the activity of processes over time. See pictures.h.
//
// Time is cut into columns as wide as a point of the picture, and many processes into bands, so that a picture has a
// size that does not depend on the length of the trace.
#include "pictures/pictures.h"

#include "pictures/svg.h"
#include "traces/exports.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace tofu::sim::tools {
namespace {

using namespace trace;

constexpr double picture_width = 1400, left = 92;
constexpr unsigned columns = 1276; ///< of time: the width that is left, and a margin
constexpr size_t most_rows = 40;   ///< processes with a row each
constexpr size_t most_bands = 128;
constexpr size_t most_arrows = 24;
constexpr size_t most_cells = 64; ///< of the matrix, along a side

/// The thread of a process that posts and waits most: its life is shown.
std::vector<uint32_t> main_threads(const Run& run)
{
    std::vector<std::map<uint32_t, uint64_t>> weight(run.processes.size());
    for (const Transfer& transfer : run.transfers)
        weight[transfer.from][transfer.thread] += transfer.returned - transfer.posted + 1;
    for (const Wait& wait : run.waits)
        weight[wait.process][wait.thread] += wait.ended - wait.began + 1;
    std::vector<uint32_t> threads;
    for (const auto& of_process : weight) {
        const auto most = std::max_element(of_process.begin(), of_process.end(),
                                           [](const auto& a, const auto& b) { return a.second < b.second; });
        threads.push_back(most == of_process.end() ? 0 : most->first);
    }
    return threads;
}

/// How much of each column of time the processes of a row spend on what.
struct Share {
    float post = 0;
    float wait = 0;
    float alive = 0;
};

class Shares {
  public:
    Shares(const Run& run, size_t rows)
        : length_(static_cast<double>(std::max<uint64_t>(run.length, 1))), processes_(run.processes.size()),
          rows_(rows, std::vector<Share>(columns))
    {
        const auto threads = main_threads(run);
        for (uint32_t i = 0; i < run.processes.size(); i++)
            add(i, run.processes[i].began, run.processes[i].ended, &Share::alive);
        for (const Transfer& transfer : run.transfers)
            if (transfer.thread == threads[transfer.from])
                add(transfer.from, transfer.posted, transfer.returned, &Share::post);
        for (const Wait& wait : run.waits)
            if (wait.thread == threads[wait.process])
                add(wait.process, wait.began, wait.ended, &Share::wait);
    }
    [[nodiscard]] const Share& at(size_t row, unsigned column) const { return rows_[row][column]; }

  private:
    void add(uint32_t process, uint64_t began, uint64_t ended, float Share::*what)
    {
        const double from = static_cast<double>(began) / length_ * columns;
        const double to = std::min(static_cast<double>(ended) / length_ * columns, double{columns});
        std::vector<Share>& row = rows_[size_t{process} * rows_.size() / processes_];
        for (auto column = static_cast<unsigned>(from); column < columns && column < to; column++) {
            const double part = std::min(to, column + 1.0) - std::max(from, double(column));
            row[column].*what += static_cast<float>(part);
        }
    }

    double length_;
    size_t processes_;
    std::vector<std::vector<Share>> rows_;
};

class Timeline {
  public:
    explicit Timeline(const Run& run)
        : run_(run), singly_(run.processes.size() <= most_rows),
          rows_(singly_ ? run.processes.size() : std::min(run.processes.size(), most_bands)), shares_(run, rows_)
    {
        const size_t count = run.processes.size();
        row_height_ = singly_ ? std::clamp(640.0 / double(count), 15.0, 34.0) : std::max(560.0 / double(rows_), 4.0);
    }

    std::string draw()
    {
        const double height = top_ + double(rows_) * row_height_ + 66;
        Svg svg(picture_width, height, "activity of each process of job " + run_.job + " did when");
        svg.text(28, 34, "Time: activity of each process, and waits between processes", {.size = 19, .bold = true});
        singly_ ? draw_legend(svg) : draw_band_legend(svg);
        draw_axis(svg);
        singly_ ? draw_rows(svg) : draw_bands(svg);
        if (singly_)
            draw_arrows(svg);
        return svg.finish();
    }

  private:
    [[nodiscard]] double x_of(uint64_t time) const
    {
        return left + columns * static_cast<double>(time) / static_cast<double>(std::max<uint64_t>(run_.length, 1));
    }
    [[nodiscard]] double row_at(size_t row) const { return top_ + double(row) * row_height_; }

    void draw_legend(Svg& svg) const
    {
        double x = left;
        for (const auto& [colour, name] : {std::pair(ink::compute, "computing (or in other libraries)"),
                                           std::pair(ink::post, "posting"), std::pair(ink::wait, "waiting")}) {
            svg.rect(x, 54, 22, 12, colour, 2);
            svg.text(x + 30, 64, name, {.size = 12, .colour = ink::faint});
            x += 58 + text_width(name, {.size = 12});
        }
        svg.line(x, 60, x + 24, 60, ink::text, 1.4);
        svg.path("M" + number(x + 24) + " 60l-7 -3.5v7z", ink::text);
        svg.text(x + 34, 64, "one of the longest waits, since the post that ended it",
                 {.size = 12, .colour = ink::faint});
    }

    void draw_band_legend(Svg& svg) const
    {
        const size_t each = (run_.processes.size() + rows_ - 1) / rows_;
        const std::string what =
            each == 1 ? std::string("share of time that a process spends waiting")
                      : "share of time that processes spend waiting, " + std::to_string(each) + " of them to a band";
        svg.text(left, 64, what, {.size = 12, .colour = ink::faint});
        double x = left + text_width(what, {.size = 12}) + 24;
        svg.rect(x, 54, 22, 12, ink::compute, 2);
        svg.text(x + 30, 64, "none: computing, posting", {.size = 12, .colour = ink::faint});
        x += 30 + text_width("none: computing, posting", {.size = 12}) + 36;
        constexpr double width = 240;
        for (unsigned i = 0; i < 40; i++)
            svg.rect(x + width / 40 * i, 54, width / 40 + 0.5, 12, wait_colour((i + 0.5) / 40));
        svg.text(x - 8, 64, "0", {.size = 12, .colour = ink::faint, .anchor = Anchor::end});
        svg.text(x + width + 8, 64, "100 %", {.size = 12, .colour = ink::faint});
        x += width + 8 + text_width("100 %", {.size = 12}) + 24;
        svg.rect(x, 54, 22, 12, "#ffffff", 2, ink::line);
        svg.text(x + 30, 64, "not there", {.size = 12, .colour = ink::faint});
    }

    /// None is as pale as a process that does not run is white.
    static std::string wait_colour(double share) { return share < 0.005 ? std::string(ink::compute) : heat(share); }

    void draw_axis(Svg& svg) const
    {
        const double bottom = row_at(rows_);
        const double step = nice_step(static_cast<double>(run_.length), 8);
        for (double time = 0; time <= static_cast<double>(run_.length); time += step) {
            const double x = x_of(static_cast<uint64_t>(time));
            svg.line(x, top_ - 4, x, bottom + 5, ink::line);
            svg.text(x, bottom + 20, time == 0 ? "0" : time_text(static_cast<uint64_t>(time)),
                     {.size = 12, .colour = ink::faint, .anchor = Anchor::middle});
        }
        svg.text(left, bottom + 46,
                 run_.clock == ClockKind::real
                     ? "real time on this machine, since the first process joined the job"
                     : "time on Tofu-D by the virtual clock, since the first process joined the job",
                 {.size = 12, .colour = ink::faint});
    }

    /// What a column is painted as: what it has most of, computing last.
    static const char* state(const Share& share)
    {
        if (share.alive <= 0)
            return nullptr;
        const float most = std::max(share.post, share.wait);
        if (most < share.alive / 3)
            return ink::compute;
        return share.wait >= share.post ? ink::wait : ink::post;
    }

    void draw_rows(Svg& svg) const
    {
        svg.text(left - 12, top_ - 12, "rank", {.size = 12, .colour = ink::faint, .anchor = Anchor::end});
        for (size_t row = 0; row < rows_; row++) {
            const double y = row_at(row), inner = row_height_ * 0.62, gap = (row_height_ - inner) / 2;
            svg.text(left - 12, y + row_height_ / 2 + 4, process_label(run_, static_cast<uint32_t>(row)),
                     {.size = 12, .anchor = Anchor::end});
            for (unsigned column = 0; column < columns;) {
                const char* const colour = state(shares_.at(row, column));
                unsigned end = column + 1;
                while (end < columns && state(shares_.at(row, end)) == colour)
                    end++;
                if (colour != nullptr)
                    svg.rect(left + column, y + gap, end - column, inner, colour);
                column = end;
            }
            if (run_.processes[row].killed) {
                const double x = x_of(run_.processes[row].ended);
                svg.tip("killed, or still running")
                    .path("M" + number(x - 5) + " " + number(y + row_height_ / 2 - 5) + "l10 10m0 -10l-10 10", "none",
                          "#b3001b", 2.5);
            }
        }
    }

    void draw_bands(Svg& svg) const
    {
        const size_t count = run_.processes.size();
        constexpr unsigned wide = 4; // points of a cell
        for (size_t band = 0; band < rows_; band++) {
            std::string before;
            unsigned began = 0;
            for (unsigned column = 0; column <= columns; column += wide) {
                std::string colour;
                if (column + wide <= columns) {
                    float waiting = 0, alive = 0;
                    for (unsigned c = column; c < column + wide; c++) {
                        waiting += shares_.at(band, c).wait;
                        alive += shares_.at(band, c).alive;
                    }
                    // Tenths, so that neighbours are often the same and the picture small.
                    colour = alive <= 0 ? "" : wait_colour(std::round(20.0 * double(waiting / alive)) / 20);
                }
                if (colour != before || column + wide > columns) {
                    if (!before.empty())
                        svg.rect(left + began, row_at(band), column - began, row_height_ + 0.3, before);
                    before = colour;
                    began = column;
                }
            }
        }
        const auto step = static_cast<size_t>(std::max(nice_step(static_cast<double>(count), 8), 1.0));
        svg.text(left - 12, top_ - 12, "rank", {.size = 12, .colour = ink::faint, .anchor = Anchor::end});
        for (size_t process = 0; process < count; process += step) {
            const double y = row_at(0) + double(rows_) * row_height_ * double(process) / double(count);
            svg.line(left - 6, y, left, y, ink::faint);
            svg.text(left - 12, y + 4 + (process == 0 ? 4 : 0), process_label(run_, static_cast<uint32_t>(process)),
                     {.size = 12, .anchor = Anchor::end});
        }
    }

    void draw_arrows(Svg& svg) const
    {
        std::vector<const Wait*> longest;
        for (const Wait& wait : run_.waits)
            if (wait.transfer != no_index && wait.awaited != wait.process && x_of(wait.ended) - x_of(wait.began) > 5)
                longest.push_back(&wait);
        std::stable_sort(longest.begin(), longest.end(),
                         [](const Wait* a, const Wait* b) { return a->ended - a->began > b->ended - b->began; });
        std::vector<double> taken;
        for (const Wait* wait : longest) {
            if (taken.size() == most_arrows)
                break;
            const Transfer& cause = run_.transfers[wait->transfer];
            const double x2 = x_of(wait->ended), x1 = std::min(x_of(cause.posted), x2);
            const bool crowded =
                std::any_of(taken.begin(), taken.end(), [&](double x) { return std::abs(x - x2) < 9; });
            if (crowded)
                continue;
            taken.push_back(x2);
            const bool down = wait->process > cause.from;
            const double y1 = row_at(cause.from) + row_height_ / 2;
            const double y2 = row_at(wait->process) + row_height_ / 2 + (down ? -1 : 1) * row_height_ * 0.33;
            const std::string tip = "rank " + process_label(run_, wait->process) + " waited " +
                                    time_text(wait->ended - wait->began) + " for rank " +
                                    process_label(run_, cause.from);
            svg.tip(tip).line(x1, y1, x2, y2, ink::text, 1.2);
            const double angle = std::atan2(y2 - y1, x2 - x1), size = 7;
            const auto corner = [&](double turn) {
                return number(x2 - size * std::cos(angle + turn)) + " " + number(y2 - size * std::sin(angle + turn));
            };
            svg.path("M" + number(x2) + " " + number(y2) + "L" + corner(0.42) + "L" + corner(-0.42) + "z", ink::text);
            svg.circle(x1, y1, 2.4, ink::text);
        }
    }

    const Run& run_;
    bool singly_;
    size_t rows_;
    Shares shares_;
    double row_height_;
    static constexpr double top_ = 106;
};

/// The scale of colours, from 0 to the longest sum.
void draw_scale(Svg& svg, double x, double y, double most)
{
    constexpr double width = 260;
    for (unsigned i = 0; i < 52; i++)
        svg.rect(x + width / 52 * i, y, width / 52 + 0.5, 12, heat((i + 0.5) / 52));
    svg.text(x, y + 30, "0", {.size = 12, .colour = ink::faint});
    svg.text(x + width, y + 30, time_text(static_cast<uint64_t>(most)),
             {.size = 12, .colour = ink::faint, .anchor = Anchor::middle});
}

using Pair = std::pair<uint32_t, uint32_t>; ///< the process that waits, and the awaited one

/// A table of the pairs with the longest waits, at `table`.
void draw_longest(Svg& svg, const Run& run, const std::map<Pair, uint64_t>& pairs, double table)
{
    std::vector<std::pair<uint64_t, Pair>> longest;
    for (const auto& [pair, length] : pairs)
        longest.push_back({length, pair});
    std::stable_sort(longest.begin(), longest.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    svg.text(table, 84, "The longest", {.size = 15, .bold = true});
    const TextStyle end = {.size = 12, .colour = ink::faint, .anchor = Anchor::end};
    svg.text(table + 70, 106, "rank", end);
    svg.text(table + 160, 106, "for rank", end);
    svg.text(table + 260, 106, "waited", end);
    svg.text(table + 390, 106, "share of its time", end);
    double y = 130;
    for (size_t i = 0; i < std::min<size_t>(longest.size(), 15); i++, y += 24) {
        const auto& [length, pair] = longest[i];
        const Process& who = run.processes[pair.first];
        const TextStyle cell = {.size = 13, .anchor = Anchor::end};
        svg.text(table + 70, y, process_label(run, pair.first), cell);
        svg.text(table + 160, y, process_label(run, pair.second), cell);
        svg.text(table + 260, y, time_text(length), cell);
        const double share =
            100 * static_cast<double>(length) / static_cast<double>(std::max<uint64_t>(who.ended - who.began, 1));
        char text[16];
        std::snprintf(text, sizeof text, "%.1f %%", share);
        svg.text(table + 390, y, text, cell);
    }
    if (longest.empty())
        svg.text(table, y, "No process waited for another one.", {.size = 13, .colour = ink::faint});
}

} // namespace

std::string draw_timeline(const Run& run)
{
    return Timeline(run).draw();
}

std::string draw_waits(const Run& run)
{
    const size_t count = run.processes.size();
    const size_t cells = std::min(count, most_cells);
    const auto cell_of = [&](uint32_t process) { return size_t{process} * cells / count; };
    std::vector<double> sums(cells * cells);
    std::map<Pair, uint64_t> pairs;
    uint64_t total = 0, unknown = 0;
    for (const Wait& wait : run.waits) {
        const uint64_t length = wait.ended - wait.began;
        total += length;
        if (wait.awaited == no_index) {
            unknown += length;
            continue;
        }
        sums[cell_of(wait.process) * cells + cell_of(wait.awaited)] += static_cast<double>(length);
        pairs[{wait.process, wait.awaited}] += length;
    }
    const double most = *std::max_element(sums.begin(), sums.end());
    constexpr double side = 560, x0 = 110, y0 = 112;
    const double each = std::min(side / double(cells), 44.0), size = each * double(cells);
    const double table = x0 + std::max(size, 300.0) + 80;
    Svg svg(std::max(table + 440, 1000.0), std::max(y0 + size + 90, 560.0),
            "waits between the processes of job " + run.job);
    svg.text(28, 34, "Waiting: time that a rank waited for another", {.size = 19, .bold = true});
    svg.text(28, 56,
             time_text(total) + " in all" +
                 (unknown == 0 ? std::string() : "; of " + time_text(unknown) + " the awaited rank is not known") +
                 (cells == count
                      ? std::string()
                      : "; a square stands for " + std::to_string((count + cells - 1) / cells) + " ranks either way"),
             {.size = 13, .colour = ink::faint});
    svg.rect(x0, y0, size, size, ink::ground, 0, ink::line);
    for (size_t row = 0; row < cells; row++) {
        for (size_t column = 0; column < cells; column++) {
            if (const double sum = sums[row * cells + column]; sum > 0) {
                if (cells == count) {
                    svg.tip("rank " + process_label(run, static_cast<uint32_t>(row)) + " waited " +
                            time_text(static_cast<uint64_t>(sum)) + " for rank " +
                            process_label(run, static_cast<uint32_t>(column)));
                }
                svg.rect(x0 + double(column) * each, y0 + double(row) * each, each, each, heat(sum / most), 0,
                         each > 8 ? "#ffffff" : "");
            }
        }
    }
    svg.text(x0 + size / 2, y0 - 32, "for rank", {.size = 13, .colour = ink::faint, .anchor = Anchor::middle});
    svg.text(44, y0 + size / 2, "rank that waited",
             {.size = 13, .colour = ink::faint, .anchor = Anchor::middle, .turned = -90});
    const auto step = std::max<size_t>(static_cast<size_t>(nice_step(double(count), each >= 24 ? 40 : 8)), 1);
    for (size_t process = 0; process < count; process += step) {
        const double at = (double(process) + (cells == count ? 0.5 : 0)) * size / double(count);
        const std::string label = process_label(run, static_cast<uint32_t>(process));
        svg.text(x0 + at, y0 - 10, label, {.size = 12, .anchor = Anchor::middle});
        svg.text(x0 - 10, y0 + at + 4, label, {.size = 12, .anchor = Anchor::end});
    }
    if (most > 0)
        draw_scale(svg, x0, y0 + size + 26, most);
    draw_longest(svg, run, pairs, table);
    return svg.finish();
}

} // namespace tofu::sim::tools
