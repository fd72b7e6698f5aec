// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What each operation does to one element: the pseudo-code of fi_atomic(3) as functions. Used by the CSWAP
// loop and the wide operations; calls nothing.
#pragma once

#include <rdma/fi_domain.h>

namespace tofu {

/// Applies an operation to the element at `target`. The pointers need no alignment. `operand` is buf[i]
/// (unused by FI_ATOMIC_READ), `compare` is compare[i] (used by the compare family only). Integers wrap;
/// a condition that does not hold leaves all bits of the target, padding of long double included.
using Kernel = void (*)(void* target, const void* operand, const void* compare) noexcept;

/// The function for a pair, or null where the page gives it no meaning.
[[nodiscard]] Kernel kernel_of(fi_op op, fi_datatype type) noexcept;

} // namespace tofu
