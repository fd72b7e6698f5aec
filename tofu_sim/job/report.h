// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Messages to the user: a line on stderr that says what to do.
#pragma once

namespace tofu::sim {

/// Prints "tofu_sim: <text>\n" with a single write.
__attribute__((format(printf, 1, 2))) void report(const char* format, ...) noexcept;

} // namespace tofu::sim
