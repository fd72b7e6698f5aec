// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a cgroup's limit of processor time means in processors (job/quota).
#include "job/quota.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

namespace tofu::sim::test {
namespace {

class SimQuota : public testing::Test {
  protected:
    SimQuota() : root_(testing::TempDir() + "/tofu-quota-" + std::to_string(::getpid()))
    {
        std::filesystem::create_directories(root_);
    }
    ~SimQuota() override { std::filesystem::remove_all(root_); }
    void put(const std::string& path, const std::string& text) const
    {
        std::filesystem::create_directories((root_ + path).substr(0, (root_ + path).rfind('/')));
        std::ofstream(root_ + path) << text << '\n';
    }
    [[nodiscard]] uint32_t processors() const { return quota_processors(root_.c_str()); }

  private:
    std::string root_;
};

TEST_F(SimQuota, IsWholeProcessorsOfTheGroupAndThoseAboveIt)
{
    put("/proc/self/cgroup", "0::/pod/box");
    EXPECT_EQ(processors(), 0u) << "no file, no limit";
    put("/sys/fs/cgroup/pod/box/cpu.max", "max 100000");
    EXPECT_EQ(processors(), 0u);
    put("/sys/fs/cgroup/pod/box/cpu.max", "400000 100000");
    EXPECT_EQ(processors(), 4u);
    put("/sys/fs/cgroup/pod/cpu.max", "250000 100000");
    EXPECT_EQ(processors(), 2u) << "half a processor is not one that a process has for itself";
    put("/sys/fs/cgroup/cpu.max", "10000 100000");
    EXPECT_EQ(processors(), 1u) << "one that is slow";
}

TEST_F(SimQuota, IsReadAtTheMountWhereTheContainerSeesNothingElse)
{
    put("/sys/fs/cgroup/cpu.max", "300000 100000");
    for (const char* group : {"0::/", "0::/of/the/host", "0::/../.."}) {
        put("/proc/self/cgroup", group);
        EXPECT_EQ(processors(), 3u) << group;
    }
}

TEST_F(SimQuota, OfTheFirstVersionIsReadToo)
{
    put("/proc/self/cgroup", "5:memory:/box\n4:cpu,cpuacct:/box\n3:cpuset:/box");
    put("/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "-1");
    put("/sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000");
    EXPECT_EQ(processors(), 0u);
    put("/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "500000");
    EXPECT_EQ(processors(), 5u);
}

TEST_F(SimQuota, IsNoneWhereNothingSensibleStands)
{
    EXPECT_EQ(processors(), 0u) << "no /proc";
    for (const char* group : {"", "0", "0:", "::::", "0::"}) {
        put("/proc/self/cgroup", group);
        for (const char* limit : {"", "max", "100000", "100000 0", "-5 100000", "many few"}) {
            put("/sys/fs/cgroup/cpu.max", limit);
            EXPECT_EQ(processors(), 0u) << group << " and " << limit;
        }
    }
    put("/proc/self/cgroup", "0::/" + std::string(5000, 'x'));
    EXPECT_EQ(processors(), 0u);
}

} // namespace
} // namespace tofu::sim::test
