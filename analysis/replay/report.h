// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The load of the links of a replayed network: the hottest ones, and the bisection.
#pragma once

#include "replay/traffic.h"

#include <cstdio>

namespace tofu::sim::tools {

void print_network(const Topology& topology, const replay::Traffic& traffic, Picoseconds length, std::FILE* to);

} // namespace tofu::sim::tools
