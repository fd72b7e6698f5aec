// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The stores of a put or get, in an order that a polling CPU may rely on (guide 2.2.10, 6.1.3.1).
#pragma once

#include "memory/copy.h"

namespace tofu::sim {

/// Each byte is stored once, words from low to high addresses; of a long transfer at least the last 256-byte line
/// comes after all others. An aligned word of 2, 4 or 8 bytes is written at once.
inline void copy_ordered(std::byte* to, const std::byte* from, size_t size) noexcept
{
    copy_bytes(to, from, size, CopyOrder::last_line);
}

} // namespace tofu::sim
