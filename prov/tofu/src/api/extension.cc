// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The operations of a domain beyond libfabric's interfaces (rdma/fi_ext_tofu.h). Called through the table of domain.cc;
// calls statistics.
#include <algorithm>
#include <cstring>

#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext_tofu.h>

#include "api/domain.h"

namespace tofu {
namespace {

int read_statistics(struct fid* domain, struct fi_tofu_statistic* list, std::size_t* count) noexcept
{
    if (domain == nullptr || domain->fclass != FI_CLASS_DOMAIN || count == nullptr || (list == nullptr && *count != 0))
        return -FI_EINVAL;
    const auto sums = DomainBase::of(domain).statistics().sums();
    const auto& rows = StatisticsBook::rows();
    for (std::size_t i = 0; i < std::min(*count, stats); i++)
        list[i] = {rows[i].name, rows[i].meaning, sums[i]};
    *count = stats;
    return 0;
}

fi_tofu_ops_statistics statistics_ops = {sizeof(fi_tofu_ops_statistics), read_statistics};

} // namespace

int open_extension(struct fid*, const char* name, std::uint64_t flags, void** ops, void*) noexcept
{
    if (name == nullptr || ops == nullptr)
        return -FI_EINVAL;
    if (std::strcmp(name, FI_TOFU_STATISTICS) != 0)
        return -FI_ENOSYS;
    if (flags != 0)
        return -FI_EBADFLAGS;
    *ops = &statistics_ops;
    return 0;
}

} // namespace tofu
