// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: a provider that runs out of memory: stands between it and malloc, operator new, mmap and pthread_create, and has
// the one of its allocations fail that is asked for. One for the process. Called by: nomem_test. Calls: the C library.
#pragma once

#include <climits>
#include <cstdint>

namespace tofu::test::starving {

/// To be called once the provider is loaded. False: it is not.
[[nodiscard]] bool find_provider() noexcept;
inline constexpr long never = LONG_MAX;
/// Counts allocations from now on; number `number` fails, and with `lasting` all behind it, until heal().
void begin(long number, bool lasting) noexcept;
/// How many there were.
long end() noexcept;
/// There is memory again.
void heal() noexcept;
[[nodiscard]] bool is_lasting() noexcept;
/// Calls that could only have answered by an exception, and where in the provider the first of them was.
struct Throwing {
    long calls;
    std::uintptr_t first;
};
[[nodiscard]] Throwing throwing_calls() noexcept;

} // namespace tofu::test::starving
