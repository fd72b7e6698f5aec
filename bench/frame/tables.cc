// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The tables and the JSON of report.h.
#include "bars.h"
#include "report.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace tofu::bench {
namespace {

constexpr const char* reference = "tofu";

std::string text_of(const char* format, double value)
{
    char text[40];
    std::snprintf(text, sizeof(text), format, value);
    return text;
}

// Three significant digits and no exponent; counts as they are.
std::string number(double value)
{
    if (value >= 100 || value == std::floor(value))
        return text_of("%.0f", value);
    return text_of(value >= 10 ? "%.1f" : value >= 1 ? "%.2f" : "%.3f", value);
}

std::string size_text(std::size_t bytes)
{
    if (bytes >= 1 << 20 && bytes % (1 << 20) == 0)
        return std::to_string(bytes >> 20) + " MiB";
    if (bytes >= 1 << 10 && bytes % (1 << 10) == 0)
        return std::to_string(bytes >> 10) + " KiB";
    return bytes == 0 ? "" : std::to_string(bytes) + " B";
}

// How many times as good the reference is.
Figure advantage(const Series& mine, const Series& theirs)
{
    return more_is_better(mine.unit) ? ratio_of(mine.samples, theirs.samples) : ratio_of(theirs.samples, mine.samples);
}

std::string cell(const Series* theirs, const Series* mine)
{
    Figure figure = theirs != nullptr ? figure_of(theirs->samples) : Figure{};
    if (!figure.valid())
        return "-";
    std::string text = number(figure.median);
    if (theirs->samples.size() > 1)
        text += " ±" + std::to_string(int(std::lround(figure.spread() * 50))) + "%";
    if (mine != nullptr && mine != theirs)
        if (Figure ratio = advantage(*mine, *theirs); ratio.valid())
            text += " (" +
                    text_of(ratio.median >= 99.5   ? "%.0f"
                            : ratio.median >= 9.95 ? "%.1f"
                                                   : "%.2f",
                            ratio.median) +
                    "x)";
    return text;
}

// Columns: limits, the library below, the provider, others.
std::size_t place_of(const std::string& transport)
{
    constexpr const char* order[] = {"memory", "memcpy", "process_vm", "utofu", "tofu"};
    return std::size_t(std::find(std::begin(order), std::end(order), transport) - std::begin(order));
}

using Rows = std::vector<std::vector<std::string>>;

void write_rows(std::FILE* file, const Rows& rows, Style style, std::size_t left)
{
    std::vector<std::size_t> widths(rows[0].size());
    auto width = [](const std::string& s) { // characters, not bytes of UTF-8
        return std::size_t(std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xc0) != 0x80; }));
    };
    for (auto& row : rows)
        for (std::size_t i = 0; i < row.size(); ++i)
            widths[i] = std::max(widths[i], width(row[i]));
    bool head = true;
    for (auto& row : rows) {
        for (std::size_t i = 0; i < row.size(); ++i) {
            std::string pad(style == Style::text ? widths[i] - width(row[i]) : 0, ' ');
            std::fprintf(file, "%s%s%s",
                         style == Style::markdown ? "| "
                         : i                      ? "  "
                                                  : "",
                         (i < left ? row[i] + pad : pad + row[i]).c_str(), style == Style::markdown ? " " : "");
        }
        std::fputs(style == Style::markdown ? "|\n" : "\n", file);
        if (head && style == Style::markdown) {
            for (std::size_t i = 0; i < row.size(); ++i)
                std::fputs(i < left ? "|---" : "|---:", file);
            std::fputs("|\n", file);
        }
        head = false;
    }
    std::fputc('\n', file);
}

void write_section(std::FILE* file, const std::vector<const Series*>& series, Style style)
{
    std::vector<std::string> transports;
    std::vector<const Series*> firsts; // one of each row
    bool sized = false, with_unit = false;
    for (const Series* s : series) {
        if (std::find(transports.begin(), transports.end(), s->transport) == transports.end())
            transports.push_back(s->transport);
        if (std::none_of(firsts.begin(), firsts.end(), [&](const Series* f) { return f->same_row(*s); }))
            firsts.push_back(s);
        sized = sized || s->bytes != 0;
        with_unit = with_unit || !s->unit.empty();
    }
    std::stable_sort(transports.begin(), transports.end(),
                     [](const std::string& a, const std::string& b) { return place_of(a) < place_of(b); });
    Rows rows(1);
    rows[0] = {series[0]->section};
    if (sized)
        rows[0].push_back("size");
    if (with_unit)
        rows[0].push_back("unit");
    rows[0].insert(rows[0].end(), transports.begin(), transports.end());
    // The same on processors that share something else.
    auto on_several = [&](const Series& row) {
        return std::any_of(firsts.begin(), firsts.end(), [&](const Series* other) {
            return other->name == row.name && other->bytes == row.bytes && other->processes == row.processes &&
                   other->sharing != row.sharing;
        });
    };
    for (const Series* first : firsts) {
        std::vector<std::string> row = {
            first->name + (first->processes > 2 ? ", " + std::to_string(first->processes) + " proc." : "") +
            (on_several(*first) ? ", sharing " + first->sharing : "")};
        if (sized)
            row.push_back(size_text(first->bytes));
        if (with_unit)
            row.push_back(first->unit);
        auto of = [&](const std::string& transport) -> const Series* {
            for (const Series* s : series)
                if (s->same_row(*first) && s->transport == transport)
                    return s;
            return nullptr;
        };
        for (const std::string& transport : transports)
            row.push_back(cell(of(transport), of(reference)));
        rows.push_back(std::move(row));
    }
    write_rows(file, rows, style, 1);
}

void write_string(std::FILE* file, const std::string& text)
{
    std::fputc('"', file);
    for (char c : text)
        if (c == '"' || c == '\\')
            std::fprintf(file, "\\%c", c);
        else if (static_cast<unsigned char>(c) < 0x20)
            std::fprintf(file, "\\u%04x", c);
        else
            std::fputc(c, file);
    std::fputc('"', file);
}

void write_field(std::FILE* file, const char* name, const std::string& text)
{
    std::fprintf(file, "\"%s\": ", name);
    write_string(file, text);
    std::fputs(", ", file);
}

} // namespace

void write_tables(std::FILE* file, const std::vector<Series>& all, Style style)
{
    std::vector<std::string> sections;
    for (const Series& s : all)
        if (std::find(sections.begin(), sections.end(), s.section) == sections.end())
            sections.push_back(s.section);
    for (const std::string& section : sections) {
        std::vector<const Series*> part;
        for (const Series& s : all)
            if (s.section == section)
                part.push_back(&s);
        write_section(file, part, style);
    }
}

void write_bars(std::FILE* file, const std::vector<Series>& all, Style style)
{
    std::vector<BarResult> results = judge_bars(all);
    if (std::none_of(results.begin(), results.end(), [](const BarResult& bar) { return bar.figure.valid(); }))
        return;
    Rows rows = {{"bar", "issue", "wanted", "measured", ""}};
    for (const BarResult& bar : results) {
        const char* sign = bar.bar->at_most ? "≤ " : "≥ ";
        std::string measured = "-";
        if (bar.figure.valid())
            measured =
                number(bar.figure.median) + " (" + number(bar.figure.low) + " to " + number(bar.figure.high) + ")";
        rows.push_back({bar.bar->text, std::to_string(bar.bar->issue),
                        sign + number(bar.bar->limit) + (*bar.bar->unit ? " " : "") + bar.bar->unit, measured,
                        !bar.figure.valid() ? "not measured"
                        : bar.met           ? "met"
                                            : "not met"});
    }
    write_rows(file, rows, style, 1);
}

void write_json(std::FILE* file, const std::vector<Series>& all)
{
    std::fputs("{\"series\": [", file);
    const char* separator = "\n";
    for (const Series& s : all) {
        Figure figure = figure_of(s.samples);
        std::fprintf(file, "%s{", separator);
        write_field(file, "section", s.section);
        write_field(file, "name", s.name);
        write_field(file, "unit", s.unit);
        write_field(file, "transport", s.transport);
        write_field(file, "sharing", s.sharing);
        std::fprintf(file, "\"bytes\": %zu, \"processes\": %d, ", s.bytes, s.processes);
        if (figure.valid())
            std::fprintf(file, "\"median\": %.6g, \"q1\": %.6g, \"q3\": %.6g, ", figure.median, figure.low,
                         figure.high);
        std::fputs("\"samples\": [", file);
        for (std::size_t i = 0; i < s.samples.size(); ++i)
            std::fprintf(file, "%s%.6g", i ? ", " : "", s.samples[i]);
        std::fputs("]}", file);
        separator = ",\n";
    }
    std::fputs("\n], \"bars\": [", file);
    separator = "\n";
    for (const BarResult& bar : judge_bars(all)) {
        std::fprintf(file, "%s{", separator);
        write_field(file, "bar", bar.bar->text);
        std::fprintf(file, "\"issue\": %d, \"at_most\": %s, \"limit\": %.6g, ", bar.bar->issue,
                     bar.bar->at_most ? "true" : "false", bar.bar->limit);
        if (bar.figure.valid())
            std::fprintf(file, "\"measured\": %.6g, \"met\": %s}", bar.figure.median, bar.met ? "true" : "false");
        else
            std::fputs("\"measured\": null, \"met\": null}", file);
        separator = ",\n";
    }
    std::fputs("\n]}\n", file);
}

} // namespace tofu::bench
