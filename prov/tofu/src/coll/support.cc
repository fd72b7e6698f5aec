// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See support.h.
#include "coll/support.h"

#include <rdma/fi_errno.h>

#include "atomic/kernel.h"
#include "atomic/op_table.h"

namespace tofu::coll {

int check_support(fi_collective_op coll, fi_datatype type, fi_op op) noexcept
{
    if (coll == FI_BARRIER)
        return 0; // which has neither
    if (static_cast<unsigned>(coll) > FI_GATHER || static_cast<unsigned>(type) >= datatype_count)
        return -FI_EOPNOTSUPP;
    if (!reduces(coll))
        return 0;
    // Of reading and writing, which the page lists too, no result could be the same for everybody.
    return static_cast<unsigned>(op) <= FI_BXOR && kernel_of(op, type) != nullptr ? 0 : -FI_EOPNOTSUPP;
}

int query(fid_domain*, fi_collective_op coll, fi_collective_attr* attr, std::uint64_t flags) noexcept
{
    if (attr == nullptr)
        return -FI_EINVAL;
    // The page's one flag: attributes of the reduce-scatter.
    if (flags != 0 && (flags != FI_SCATTER || (coll != FI_REDUCE && coll != FI_REDUCE_SCATTER)))
        return -FI_EBADFLAGS;
    if (flags != 0)
        coll = FI_REDUCE_SCATTER;
    if (int ret = check_support(coll, attr->datatype, attr->op); ret != 0)
        return ret;
    attr->datatype_attr = {};
    if (coll != FI_BARRIER) {
        attr->datatype_attr.size = datatypes[attr->datatype].size;
        attr->datatype_attr.count = max_bytes / attr->datatype_attr.size;
    }
    attr->max_members = max_members;
    attr->mode = 0;
    return 0;
}

} // namespace tofu::coll
