// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// main() of the programs for one manual page each.
#include "world.h"

int main(int argc, char** argv)
{
    fabtests::Options options = fabtests::program.options;
    if (!fabtests::parse(argc, argv, options))
        return 2;
    return fabtests::run(options, fabtests::program.cases);
}
