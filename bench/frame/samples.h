// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What was measured, by whatever program: series of samples, their medians and ratios, and the plain text by which
// programs hand them to the report.
//
// The text has one line a series, fields between tabs:
//   section, name, bytes, processes, unit, transport, samples between commas,
// and an eighth field where the program chose processors: what those of the processes share.
// The n-th samples of two series of one program were taken next to each other, so that their ratio
// means something; -1 stands for a sample that failed.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace tofu::bench {

struct Series {
    std::string section, name;
    std::size_t bytes = 0;
    int processes = 0;
    std::string unit; ///< ends in "/s" where more is better
    std::string transport;
    std::vector<double> samples;
    std::string sharing; ///< what the processors of the processes share; empty: not chosen
    /// Of the same row of a table: all but transport and samples are equal.
    [[nodiscard]] bool same_row(const Series& other) const
    {
        return section == other.section && name == other.name && bytes == other.bytes && processes == other.processes &&
               sharing == other.sharing;
    }
};

/// Figures taken on processors that share different things are not compared.
inline bool comparable(const Series& a, const Series& b)
{
    return a.sharing.empty() || b.sharing.empty() || a.sharing == b.sharing;
}

struct Figure {
    double median = -1, low = -1, high = -1; ///< with the quartiles
    [[nodiscard]] bool valid() const { return median >= 0; }
    /// Distance of the quartiles from each other, in parts of the median.
    [[nodiscard]] double spread() const { return median > 0 ? (high - low) / median : 0; }
};

Figure figure_of(const std::vector<double>& samples);
/// Of a[i] / b[i]: pairwise where both have as many samples, else the ratio of the medians.
Figure ratio_of(const std::vector<double>& a, const std::vector<double>& b);

inline bool more_is_better(std::string_view unit)
{
    return unit.ends_with("/s");
}

void write_series(std::FILE* file, const Series& series);
/// Appends the series of a file; false with a line on stderr if it cannot be read. Lines that are
/// no series are ignored, so that a program's other output may stand between them.
bool read_series(const char* path, std::vector<Series>& all);

/// The first that fits, and that can be compared with `other`, which may be null; null if there is none. 0 processes:
/// any number.
const Series* find(const std::vector<Series>& all, std::string_view name, std::size_t bytes, std::string_view transport,
                   int processes = 0, const Series* other = nullptr);

} // namespace tofu::bench
