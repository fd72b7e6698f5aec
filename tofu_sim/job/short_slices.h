// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Short time slices of the kernel for this thread, and those that it starts from now on.
#pragma once

namespace tofu::sim {

/// A thread that wakes up often gets a processor sooner beside others. Kernels before 6.12 accept it without effect.
void ask_for_short_slices() noexcept;

} // namespace tofu::sim
