// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Random programs by RapidCheck, and shorter ones that fail in the same way.
#pragma once

#include <cstdint>
#include <functional>

#include "program.h"

namespace swarm {

/// The program of a seed.
Program program_of(std::uint64_t seed);
/// A program that `fails` still holds of, without what it does not need: calls go in runs and one by one, then
/// what is left
/// is made simpler, field by field.
Program shorten(Program program, const std::function<bool(const Program&)>& fails);

} // namespace swarm
