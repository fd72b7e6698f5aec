// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What each operation does to its elements: the pseudo-code of fi_atomic(3) as functions. Used by the CSWAP
// loops and the wide operations; calls nothing.
#pragma once

#include <cstddef>

#include <rdma/fi_domain.h>

namespace tofu {

/// Applies an operation to the `n` elements at `target`, one behind the other. The pointers need no alignment. `operand`
/// is buf (unused by FI_ATOMIC_READ), `compare` is compare (used by the compare family only). Integers wrap; a condition
/// that does not hold leaves all bits of the target, padding of long double included.
using Kernel = void (*)(void* target, const void* operand, const void* compare, std::size_t n) noexcept;

/// The function for a pair, or null where the page gives it no meaning.
[[nodiscard]] Kernel kernel_of(fi_op op, fi_datatype type) noexcept;

} // namespace tofu
