// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A library that runs out of memory: stands between it and malloc, operator new, mmap and pthread_create, and has the
// one of its allocations fail that is asked for. One for the process.
#pragma once

#include <climits>

namespace tofu::test::starving {

/// To be called once the library, which catches std::bad_alloc, is loaded. False: it is not.
[[nodiscard]] bool find(const char* library) noexcept;
inline constexpr long never = LONG_MAX;
/// Counts allocations from now on; number `number` fails, and with `lasting` all behind it, until heal().
void begin(long number, bool lasting) noexcept;
/// How many there were.
long end() noexcept;
/// There is memory again.
void heal() noexcept;
[[nodiscard]] bool is_lasting() noexcept;

} // namespace tofu::test::starving
