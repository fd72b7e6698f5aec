// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What tofu-sim run decides from the node it runs on (tools/processors), and the node it shows (tools/node_model).
#include "lib/node.h"
#include "tools/node_model.h"
#include "tools/processors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace tofu::sim::test {
namespace {

using tofu::test::Node;
using tools::Processors;

std::string shares(const Processors& processors, const std::vector<uint32_t>& processes_of_node)
{
    std::string text;
    for (const tools::Cpuset& share : processors.shares(processes_of_node))
        text += (text.empty() ? "" : " | ") + tools::text_of(share.get());
    return text;
}

TEST(SimProcessors, OfEachSimulatedNodeAreNeighbours)
{
    const Node node(tofu::test::a64fx);
    const Processors all(0, false);
    EXPECT_EQ(all.at_a_time(), 48u);
    EXPECT_EQ(shares(all, {1, 1, 1, 1}), "0-11 | 12-23 | 24-35 | 36-47");
    EXPECT_EQ(shares(all, {12, 12}), "0-23 | 24-47");
    EXPECT_EQ(shares(all, {36, 12}), "0-35 | 36-47") << "more for more processes";
    EXPECT_EQ(shares(all, std::vector<uint32_t>(5, 1)), "0-8 | 9-18 | 19-27 | 28-37 | 38-47");
}

TEST(SimProcessors, OfACoreStayTogether)
{
    const Node node(tofu::test::two_sockets);
    const Processors all(0, false);
    EXPECT_EQ(all.at_a_time(), 32u);
    EXPECT_EQ(shares(all, {1, 1, 1}), "0-9 | 10-19 | 20-31");
    EXPECT_EQ(shares(all, std::vector<uint32_t>(17, 1)), "") << "a core for each process, or no process is bound";
}

TEST(SimProcessors, AreThoseThatTheContainerHas)
{
    const Node node(tofu::test::sixty_four, "5,40");
    const Processors two(0, false);
    EXPECT_EQ(two.allowed(), (std::vector<int>{5, 40}));
    EXPECT_EQ(two.text(), "2");
    EXPECT_EQ(shares(two, {1, 1}), "5 | 40");
    EXPECT_EQ(shares(two, {2, 1}), "") << "not enough";
    EXPECT_EQ(shares(two, {2}), "") << "one node shares no processor";
}

TEST(SimProcessors, HaveTheTimeThatTheQuotaLeaves)
{
    const Node node(tofu::test::sixty_four);
    const Processors slow(2, false);
    EXPECT_EQ(slow.at_a_time(), 2u);
    EXPECT_EQ(slow.text(), "64, with time for 2 by cpu.max");
    EXPECT_EQ(shares(slow, {1, 1, 1}), "");
    EXPECT_EQ(shares(slow, {1, 1}), "0-31 | 32-63");
    EXPECT_EQ(Processors(100, false).text(), "64") << "a quota that limits nothing";
}

TEST(SimProcessors, AreTheKernelsWhereTheTopologyIsAnotherMachines)
{
    const Node node(tofu::test::a64fx);
    const Processors here(0);
    EXPECT_EQ(here.at_a_time(), static_cast<size_t>(::sysconf(_SC_NPROCESSORS_ONLN)));
    EXPECT_EQ(shares(here, {1, 1}), "");
}

TEST(SimProcessors, AreTheKernelsWhereTheTopologyIsBroken)
{
    const auto processors = static_cast<size_t>(::sysconf(_SC_NPROCESSORS_ONLN));
    for (const char* text : {"<topology version='2.0'></topology>", "no topology", ""}) {
        const Node node = Node::of_text(text);
        testing::internal::CaptureStderr();
        const Processors here(0);
        const std::string said = testing::internal::GetCapturedStderr();
        EXPECT_NE(said.find("tofu-sim: "), std::string::npos) << "a line that names the file: " << text;
        EXPECT_NE(said.find("HWLOC_XMLFILE"), std::string::npos);
        EXPECT_EQ(here.at_a_time(), processors);
    }
}

TEST(SimProcessors, AreTheKernelsWhereNoProcessorIsAllowed)
{
    const auto processors = static_cast<size_t>(::sysconf(_SC_NPROCESSORS_ONLN));
    for (const char* synthetic : {"Core:2 PU:1(indexes=1000,1001)", "NUMANode:2 Core:1 PU:1(indexes=1000,1001)"}) {
        const Node node(synthetic);
        ::setenv("HWLOC_THISSYSTEM", "1", 1);
        testing::internal::CaptureStderr();
        const Processors here(0);
        const std::string said = testing::internal::GetCapturedStderr();
        ::unsetenv("HWLOC_THISSYSTEM");
        EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
        EXPECT_NE(said.find("HWLOC_XMLFILE"), std::string::npos) << "what to do: " << said;
        EXPECT_EQ(here.at_a_time(), processors);
        EXPECT_EQ(shares(here, {1, 1}), "") << "no process is bound to a missing processor";
    }
}

TEST(SimNodeModel, IsANodeOfFugaku)
{
    const tools::NodeModel* const model = tools::find_node_model("a64fx");
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(tools::find_node_model("a64"), nullptr);
    const Node node = Node::of_text(tools::topology_xml(*model));
    hwloc_topology_t topology = nullptr;
    hwloc_topology_init(&topology);
    ASSERT_EQ(hwloc_topology_load(topology), 0);
    EXPECT_EQ(hwloc_topology_is_thissystem(topology), 0)
        << "else programs would be bound to processors that are not there";
    EXPECT_EQ(tools::text_of(hwloc_topology_get_allowed_cpuset(topology)), "12-59");
    ASSERT_EQ(hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE), 4);
    for (unsigned group = 0; group < 4; group++) {
        const hwloc_obj_t memory = hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, group);
        EXPECT_EQ(memory->os_index, 4 + group);
        EXPECT_EQ(hwloc_bitmap_weight(memory->cpuset), 12);
        EXPECT_EQ(memory->attr->numanode.local_memory, uint64_t{8} << 30);
        EXPECT_EQ(memory->attr->numanode.page_types[0].size, 65536u);
        const hwloc_obj_t cache = hwloc_get_obj_by_type(topology, HWLOC_OBJ_L2CACHE, group);
        ASSERT_NE(cache, nullptr);
        EXPECT_EQ(cache->attr->cache.size, uint64_t{8} << 20);
        EXPECT_EQ(cache->attr->cache.linesize, 256u);
        EXPECT_NE(hwloc_bitmap_isequal(cache->cpuset, memory->cpuset), 0);
    }
    hwloc_topology_destroy(topology);
}

} // namespace
} // namespace tofu::sim::test
