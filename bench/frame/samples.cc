// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See samples.h.
#include "samples.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace tofu::bench {

Figure figure_of(const std::vector<double>& samples)
{
    std::vector<double> sorted = samples;
    std::erase_if(sorted, [](double s) { return !(s >= 0); });
    if (sorted.empty())
        return {};
    std::sort(sorted.begin(), sorted.end());
    auto at = [&](double part) {
        double place = part * double(sorted.size() - 1);
        std::size_t below = std::size_t(place);
        std::size_t above = std::min(below + 1, sorted.size() - 1);
        return sorted[below] + (sorted[above] - sorted[below]) * (place - double(below));
    };
    return {at(0.5), at(0.25), at(0.75)};
}

Figure ratio_of(const std::vector<double>& a, const std::vector<double>& b)
{
    if (a.size() != b.size()) {
        Figure over = figure_of(a), under = figure_of(b);
        double ratio = over.valid() && under.median > 0 ? over.median / under.median : -1;
        return {ratio, ratio, ratio};
    }
    std::vector<double> ratios;
    for (std::size_t i = 0; i < a.size(); ++i)
        if (a[i] >= 0 && b[i] > 0)
            ratios.push_back(a[i] / b[i]);
    return figure_of(ratios);
}

void write_series(std::FILE* file, const Series& s)
{
    std::fprintf(file, "%s\t%s\t%zu\t%d\t%s\t%s\t", s.section.c_str(), s.name.c_str(), s.bytes, s.processes,
                 s.unit.c_str(), s.transport.c_str());
    for (std::size_t i = 0; i < s.samples.size(); ++i)
        std::fprintf(file, "%s%.6g", i ? "," : "", s.samples[i]);
    if (!s.sharing.empty())
        std::fprintf(file, "\t%s", s.sharing.c_str());
    std::fputc('\n', file);
}

bool read_series(const char* path, std::vector<Series>& all)
{
    std::ifstream file(path);
    if (!file) {
        std::perror(path);
        return false;
    }
    for (std::string line; std::getline(file, line);) {
        std::vector<std::string> fields(1);
        for (char c : line)
            if (c == '\t')
                fields.emplace_back();
            else
                fields.back() += c;
        if (fields.size() != 7 && fields.size() != 8)
            continue;
        Series s{
            fields[0], fields[1], std::size_t(std::atoll(fields[2].c_str())), std::atoi(fields[3].c_str()), fields[4],
            fields[5], {},        fields.size() == 8 ? fields[7] : ""};
        for (const char* at = fields[6].c_str(); *at != '\0';) {
            char* end = nullptr;
            s.samples.push_back(std::strtod(at, &end));
            if (end == at)
                break;
            at = *end == ',' ? end + 1 : end;
        }
        // A second run of the same program adds its samples.
        auto same = std::find_if(all.begin(), all.end(),
                                 [&](const Series& o) { return o.same_row(s) && o.transport == s.transport; });
        if (same == all.end())
            all.push_back(std::move(s));
        else
            same->samples.insert(same->samples.end(), s.samples.begin(), s.samples.end());
    }
    return true;
}

const Series* find(const std::vector<Series>& all, std::string_view name, std::size_t bytes, std::string_view transport,
                   int processes, const Series* other)
{
    for (const Series& s : all)
        if (s.name == name && s.bytes == bytes && s.transport == transport &&
            (other == nullptr || comparable(s, *other)) && (processes == 0 || s.processes == processes) &&
            figure_of(s.samples).valid())
            return &s;
    return nullptr;
}

} // namespace tofu::bench
