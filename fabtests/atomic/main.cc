// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_atomic(3), statement by statement, between processes; any provider (-p). Run by make check and by hand.
#include "atomic_checks.h"

namespace {

constexpr fabtests::Case cases[] = {
    {"queries", fabtests::check_queries},   {"every_pair", fabtests::check_every_pair},
    {"lists", fabtests::check_lists},       {"completions", fabtests::check_completions},
    {"refusals", fabtests::check_refusals}, {"inject_effect", fabtests::check_inject_effect, 2},
    {"fence", fabtests::check_fence},       {"access", fabtests::check_access},
    {"order", fabtests::check_order},       {"contention", fabtests::check_contention},
    {"random", fabtests::check_random},
};

} // namespace

const fabtests::Program fabtests::program{{}, cases};
