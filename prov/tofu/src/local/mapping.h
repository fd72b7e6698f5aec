// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What is mapped at an address of this process. Called by memory_hooks; calls the kernel.
#pragma once

#include <cstdint>

namespace tofu {

/// Is all of [begin, end) private memory of no file, without a hole? Takes a microsecond if the kernel can be asked
/// about one mapping (Linux 6.11); else 0.2 us for each mapping below it. False also if the kernel does not tell.
[[nodiscard]] bool private_anonymous(std::uint64_t begin, std::uint64_t end) noexcept;

} // namespace tofu
