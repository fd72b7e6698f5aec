// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The list of checks. Each stands in a source by what it looks at; main runs them one after the other, each in
// processes of its own, since a library may end or hold up a process that it does not like.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "side.h"

namespace tofu::check {

struct Check {
    const char* name;
    const char* claim;  ///< what is looked for
    const char* relies; ///< which part of the provider needs it, or why none does
    int processes;      ///< 1 or 2
    Finding (*run)(Side& side);
};

[[nodiscard]] std::span<const Check> offer_checks();  ///< what the library has, and how much of it
[[nodiscard]] std::span<const Check> memory_checks(); ///< registrations, STags, bounds
[[nodiscard]] std::span<const Check> post_checks();   ///< communications, queues, notices
[[nodiscard]] std::span<const Check> order_checks();  ///< what is seen before what
[[nodiscard]] std::span<const Check> error_checks();  ///< what is not registered, not there, or gone
[[nodiscard]] std::span<const Check> gate_checks();   ///< barrier circuits
[[nodiscard]] std::vector<Check> all_checks();

/// Lines of figures, as process 0 measures them: name, value, what Tofu-D had.
Finding measure(Side& side);
/// Lines of what Puts to the peer take from each core memory group through each TNI. Process 0 alone.
std::string measure_groups(const Link& link);

} // namespace tofu::check
