// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which collective works on which datatype with which operation (fi_query_collective), as the kernels of atomics say.
// Used by the calls and by the domain; calls the tables of kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fi_collective.h>

namespace tofu::coll {

inline constexpr std::size_t max_members = std::size_t{1} << 20;
inline constexpr std::size_t max_bytes = std::size_t{1} << 40; ///< of the largest buffer of one member

/// True if the collective reduces, and so has an operation.
constexpr bool reduces(fi_collective_op coll) noexcept
{
    return coll == FI_ALLREDUCE || coll == FI_REDUCE || coll == FI_REDUCE_SCATTER;
}
/// 0, or -FI_EOPNOTSUPP.
[[nodiscard]] int check_support(fi_collective_op coll, fi_datatype type, fi_op op) noexcept;
/// fi_query_collective(3). 0, -FI_EOPNOTSUPP, -FI_EINVAL (no attr), -FI_EBADFLAGS. Reads only op and datatype of
/// `attr`, and writes to it only on success.
int query(fid_domain* domain, fi_collective_op coll, fi_collective_attr* attr, std::uint64_t flags) noexcept;

} // namespace tofu::coll
