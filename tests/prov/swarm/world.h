// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Carries out a program on a platform, and the model beside it; another one may follow in the same process if the
// platform is repeatable.
#pragma once

#include "platform.h"
#include "program.h"

namespace swarm {

struct Options {
    bool verbose = false;       ///< print each call and each entry
    bool knows_closing = false; ///< Model::knows_closing
};

struct Numbers {
    unsigned long long steps = 0, calls = 0;
    unsigned long long digest = 0; ///< of the calls of uTofu, their order and their times
};

/// Returns if all was as it must be; ends the process by contradict() otherwise.
Numbers run_program(const Program& program, const Options& options, Platform& platform);

} // namespace swarm
