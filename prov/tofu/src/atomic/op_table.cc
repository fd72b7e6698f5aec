// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Answers to what is supported, from the table. Called by the endpoint's and the domain's operation tables;
// calls nothing.
#include "atomic/op_table.h"

#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

namespace tofu {

int query_atomic(fi_datatype type, fi_op op, fi_atomic_attr* attr, std::uint64_t flags) noexcept
{
    constexpr std::uint64_t both = FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC;
    if (flags & ~(both | FI_TAGGED))
        return -FI_EBADFLAGS;
    if ((flags & both) == both || !attr)
        return -FI_EINVAL;
    if (flags & FI_TAGGED) // tagged receive buffers are not targets of atomics here
        return -FI_EOPNOTSUPP;
    const Family family = flags & FI_FETCH_ATOMIC     ? Family::fetch
                          : flags & FI_COMPARE_ATOMIC ? Family::compare
                                                      : Family::base;
    if (lookup(family, op, type) == Method::none)
        return -FI_EOPNOTSUPP;
    attr->count = max_count(type);
    attr->size = datatypes[type].size;
    return 0;
}

} // namespace tofu
