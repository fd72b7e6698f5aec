// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_atomic(3), statement by statement, between processes; any provider (-p). Run by make check and by hand.
// Calls libfabric; the expected values come from tests/prov_atomic_oracle.h.
#include "atomic_checks.h"

int main(int argc, char** argv)
{
    fabtests::Options options;
    if (!fabtests::parse(argc, argv, options))
        return 2;
    return fabtests::run(options, [](fabtests::World& world) {
        fabtests::check_queries(world);
        fabtests::check_every_pair(world);
        fabtests::check_lists(world);
        fabtests::check_completions(world);
        fabtests::check_refusals(world);
        fabtests::check_fence(world);
        fabtests::check_access(world);
        fabtests::check_order(world);
        fabtests::check_contention(world);
        fabtests::check_random(world);
    });
}
