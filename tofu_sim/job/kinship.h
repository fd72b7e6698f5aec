// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Whether processes may share a number of the job: programs that one process of a launcher has started. Uses: /proc.
#pragma once

namespace tofu::sim {

/// True if the parent of this process was started with the same value of the variable: a launcher has given it to the
/// parent, or to one of its ancestors, and this process may be one of several programs there.
[[nodiscard]] bool is_inherited(const char* variable) noexcept;

/// True if one of the two processes has started the other one, directly or through others that still run.
[[nodiscard]] bool are_of_one_line(int one, int other) noexcept;

} // namespace tofu::sim
