// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_rma(3), statement by statement, between processes; any provider (-p). Run by make check and by hand.
// Calls libfabric.
#include "rma_checks.h"

int main(int argc, char** argv)
{
    fabtests::Options options;
    options.caps = FI_RMA;
    options.msg_order = FI_ORDER_RMA_WAW;
    options.region_size = std::size_t{1} << 22;
    if (!fabtests::parse(argc, argv, options))
        return 2;
    return fabtests::run(options, [](fabtests::World& world) {
        fabtests::check_every_call(world);
        fabtests::check_segments(world);
        fabtests::check_inject(world);
        fabtests::check_completion_rules(world);
        fabtests::check_order(world);
        fabtests::check_many(world);
        fabtests::check_errors(world);
    });
}
