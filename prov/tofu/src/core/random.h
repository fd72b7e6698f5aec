// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Random numbers that no other process has: nonces, tokens, first sequence numbers. A test may have a source of its own.
// Calls the kernel.
#pragma once

#include <cstdint>

#include <sys/random.h>

namespace tofu {

struct Random {
    /// The source of a test; null: the kernel. Set before the first domain is opened.
    static inline std::uint64_t (*of_test)() noexcept = nullptr;

    /// `otherwise` where the kernel has none.
    static std::uint64_t number(std::uint64_t otherwise) noexcept
    {
        if (of_test != nullptr) [[unlikely]]
            return of_test();
        std::uint64_t bits = 0;
        return getrandom(&bits, sizeof bits, 0) == static_cast<ssize_t>(sizeof bits) ? bits : otherwise;
    }
};

} // namespace tofu
