// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The statistics of a domain, as a program reads them (rdma/fi_ext_tofu.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_ext_tofu.h>

namespace tofu::test {

inline fi_tofu_ops_statistics* statistics_of(fid_domain* domain)
{
    void* ops = nullptr;
    EXPECT_EQ(fi_open_ops(&domain->fid, FI_TOFU_STATISTICS, 0, &ops, nullptr), 0);
    return static_cast<fi_tofu_ops_statistics*>(ops);
}

using Numbers = std::map<std::string, std::uint64_t>;

/// All of them by their names, which differ; without old names, which have the value of a new one.
inline Numbers read_statistics(fid_domain* domain)
{
    fi_tofu_ops_statistics* const ops = statistics_of(domain);
    std::size_t count = 0;
    EXPECT_EQ(ops->read(&domain->fid, nullptr, &count), 0);
    std::vector<fi_tofu_statistic> list(count);
    EXPECT_EQ(ops->read(&domain->fid, list.data(), &count), 0);
    Numbers numbers;
    for (const fi_tofu_statistic& one : list) {
        if (std::string(one.meaning).rfind("old name of ", 0) == 0)
            continue;
        EXPECT_TRUE(numbers.emplace(one.name, one.value).second) << one.name << " is there twice";
    }
    return numbers;
}

inline std::uint64_t counted(fid_domain* domain, const std::string& name)
{
    const Numbers numbers = read_statistics(domain);
    const auto found = numbers.find(name);
    if (found != numbers.end())
        return found->second;
    ADD_FAILURE() << "nothing is called " << name;
    return 0;
}

} // namespace tofu::test
