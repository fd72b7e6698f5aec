// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What people and machines see: tables as text and Markdown, JSON, and one page of curves.
#pragma once

#include "samples.h"

#include <cstdio>
#include <vector>

namespace tofu::bench {

enum class Style { text, markdown };

/// One table for each section, in the order of appearance. In each cell the median, half the
/// distance of the quartiles in percent, and how many times as good "tofu" is in the same moment.
void write_tables(std::FILE* file, const std::vector<Series>& all, Style style);
/// The bars that issues of the project name, and whether they are met.
void write_bars(std::FILE* file, const std::vector<Series>& all, Style style);
/// Everything with its samples, and the bars.
void write_json(std::FILE* file, const std::vector<Series>& all);
/// Latency and bandwidth over size. Readable on light and on dark ground.
void write_plot(std::FILE* file, const std::vector<Series>& all);

} // namespace tofu::bench
