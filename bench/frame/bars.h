// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The goals of the project's issues, and whether they are met.
#pragma once

#include "samples.h"

#include <vector>

namespace tofu::bench {

/// A figure, or the ratio of two, and its limit.
struct Bar {
    struct Operand {
        const char* name = nullptr; ///< of the case; null: none
        std::size_t bytes = 0;
        const char* transport = "";
        double factor = 1; ///< what the figure is multiplied by
        int processes = 0; ///< 0: any
    };
    int issue;
    const char* text;
    Operand over, under;
    bool at_most; ///< else at least
    double limit;
    const char* unit = "";
};

struct BarResult {
    const Bar* bar;
    Figure figure; ///< invalid: not measured in this run
    bool met;
};

std::vector<BarResult> judge_bars(const std::vector<Series>& all);

} // namespace tofu::bench
