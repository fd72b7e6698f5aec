// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: a library that runs out of memory: stands between it and malloc, operator new, mmap and pthread_create, and has
// the one of its allocations fail that is asked for. One for the process. Called by: the nomem tests. Calls: the C
// library.
#pragma once

#include <climits>
#include <cstdint>

namespace tofu::test::starving {

/// What the library makes of std::bad_alloc: it has no exceptions, so that a call of the throwing operator new is an
/// error of its own, or it catches them.
enum class Exceptions { none, caught };
/// To be called once the library is loaded. False: it is not.
[[nodiscard]] bool find(const char* library, Exceptions exceptions) noexcept;
inline constexpr long never = LONG_MAX;
/// Counts allocations from now on; number `number` fails, and with `lasting` all behind it, until heal().
void begin(long number, bool lasting) noexcept;
/// How many there were.
long end() noexcept;
/// There is memory again.
void heal() noexcept;
[[nodiscard]] bool is_lasting() noexcept;
/// Calls that could only have answered by an exception, and where in the library the first of them was.
struct Throwing {
    long calls;
    std::uintptr_t first;
};
[[nodiscard]] Throwing throwing_calls() noexcept;

} // namespace tofu::test::starving
