// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_rma(3), statement by statement, between processes; any provider (-p). Run by make check and by hand.
#include "rma_checks.h"

namespace {

constexpr fabtests::Case cases[] = {
    {"every_call", fabtests::check_every_call}, {"segments", fabtests::check_segments},
    {"inject", fabtests::check_inject},         {"completion_rules", fabtests::check_completion_rules},
    {"order", fabtests::check_order},           {"many", fabtests::check_many},
    {"errors", fabtests::check_errors},
};

} // namespace

const fabtests::Program fabtests::program{
    {.caps = FI_RMA, .msg_order = FI_ORDER_RMA_WAW, .region_size = std::size_t{1} << 22}, cases};
