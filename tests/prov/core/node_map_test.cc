// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What is decided from the way a node is made (core/node_map, mem/bounce_pool, utofu/tni_allocator): over an A64FX, a
// machine with two sockets, and a container with two processors of 64, none of which is here. And topologies that
// cannot be read, or is refused. Run by make check; what a process decides once is decided in a child.
#include <gtest/gtest.h>

#include <dlfcn.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <rdma/providers/fi_log.h>

#include "core/node_map.h"
#include "core/params.h"
#include "lib/child.h"
#include "lib/node.h"
#include "mem/bounce_pool.h"
#include "prov/lib/fake_net.h"
#include "utofu/tni_allocator.h"

// What an MPI process has, for the provider to find by name: libpmix and Open MPI's library.
#pragma GCC visibility push(default)
extern "C" {
hwloc_topology_t opal_hwloc_topology = nullptr;

static hwloc_topology_t pmix_topology = nullptr;
static const char* pmix_version = "OpenPMIx 5.0.7";
static int pmix_loads = 0;

int PMIx_Initialized()
{
    return pmix_topology != nullptr;
}
const char* PMIx_Get_version()
{
    return pmix_version;
}
int PMIx_Load_topology(void* answer)
{
    static char source[] = "hwloc:2";
    pmix_loads++;
    static_cast<void**>(answer)[0] = source;
    static_cast<void**>(answer)[1] = pmix_topology;
    return 0;
}

/// What Linux says of the NUMA nodes that are online; null: what it says of this machine's.
static const char* online = nullptr;

FILE* fopen(const char* path, const char* mode)
{
    static const auto real = reinterpret_cast<FILE* (*)(const char*, const char*)>(dlsym(RTLD_NEXT, "fopen"));
    if (online != nullptr && std::strcmp(path, "/sys/devices/system/node/online") == 0)
        return fmemopen(const_cast<char*>(online), std::strlen(online), "r");
    return real(path, mode);
}

// libfabric's log.
static unsigned warnings = 0;

int fi_log_enabled(const fi_provider*, fi_log_level level, fi_log_subsys)
{
    return level == FI_LOG_WARN;
}
void fi_log(const fi_provider*, fi_log_level, fi_log_subsys, const char*, int, const char*, ...)
{
    warnings++;
}
}
#pragma GCC visibility pop

namespace {

using tofu::node::Map;
using tofu::node::Processors;
using tofu::node::Seat;
using tofu::test::in_child;
using tofu::test::Node;

Processors cpus(int first, int last)
{
    Processors set;
    for (int i = first; i <= last; i++)
        set.set(static_cast<std::size_t>(i));
    return set;
}

/// Binds this thread.
bool run_on(const Processors& processors)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (std::size_t i = 0; i < processors.size(); i++)
        if (processors[i])
            CPU_SET(i, &set);
    return sched_setaffinity(0, sizeof set, &set) == 0;
}

std::string text(const Processors& set)
{
    char list[512];
    tofu::node::write_list(set, list, sizeof list);
    return list;
}

/// An A64FX as one sees it with its two assistant cores: groups of 12, and two of one.
constexpr const char* with_assistants = "NUMANode:6 Core:12 PU:1";
constexpr const char* assistants_allowed = "0,12,24-71";

std::unique_ptr<Map> map_of()
{
    auto map = std::make_unique<Map>();
    EXPECT_TRUE(map->read());
    return map;
}

std::vector<Seat> seats(const Map& map, int processes, int each, int first = 0)
{
    std::vector<Seat> all;
    for (int i = 0; i < processes; i++)
        all.push_back(map.seat_of(cpus(first + i * each, first + (i + 1) * each - 1)));
    return all;
}

/// Each process has another number, below what all say there are.
void expect_a_seat_each(const std::vector<Seat>& all)
{
    std::set<unsigned> numbers;
    for (const Seat& seat : all) {
        EXPECT_EQ(seat.of, all.size());
        EXPECT_LT(seat.number, all.size());
        EXPECT_TRUE(numbers.insert(seat.number).second) << seat.number;
    }
}

TEST(NodeMap, KnowsTheGroupOfAThread)
{
    const Node node(tofu::test::a64fx);
    const auto map = map_of();
    EXPECT_EQ(map->groups(), 4u);
    EXPECT_FALSE(map->is_here());
    ASSERT_NE(map->group_of(cpus(13, 13)), nullptr);
    EXPECT_EQ(map->group_of(cpus(13, 13))->number, 1u);
    EXPECT_EQ(map->group_of(cpus(36, 47))->number, 3u);
    EXPECT_EQ(map->group_of(cpus(11, 12)), nullptr) << "two groups";
    EXPECT_EQ(map->group_of(cpus(100, 120)), nullptr) << "processors that are not there";
    EXPECT_EQ(map->group_of(cpus(0, 1023)), nullptr) << "all";
}

TEST(NodeMap, GivesEachProcessOfANodeASeatByGroupsFirst)
{
    const Node node(tofu::test::a64fx);
    const auto map = map_of();
    for (int processes : {2, 4, 8, 12, 16, 24, 48})
        expect_a_seat_each(seats(*map, processes, 48 / processes));
    const std::vector<Seat> four = seats(*map, 4, 12);
    for (unsigned i = 0; i < 4; i++)
        EXPECT_EQ(four[i].number, i);
    const std::vector<Seat> all = seats(*map, 48, 1);
    EXPECT_EQ(all[0].number, 0u);
    EXPECT_EQ(all[12].number, 1u) << "the second group has the second turn";
    EXPECT_EQ(all[1].number, 4u);
    EXPECT_EQ(map->seat_of(cpus(0, 47)).of, 0u) << "bound to all: nothing tells it from others";
    EXPECT_EQ(map->seat_of(cpus(0, 1023)).of, 0u);
    EXPECT_EQ(map->seat_of(cpus(500, 501)).of, 0u);
}

TEST(NodeMap, HasSeatsForBindingsOfAnySize)
{
    const Node node(tofu::test::a64fx);
    const auto map = map_of();
    for (int first = 0; first < 48; first++)
        for (int last = first; last < 48; last++) {
            const Seat seat = map->seat_of(cpus(first, last));
            EXPECT_LT(seat.number, std::max(seat.of, 1u)) << first << " to " << last;
            EXPECT_LE(seat.of, 48u);
        }
}

TEST(NodeMap, DoesNotCountAssistantCoresAsAGroupToComputeOn)
{
    const Node node(with_assistants, assistants_allowed);
    const auto map = map_of();
    EXPECT_EQ(map->groups(), 6u);
    const std::vector<Seat> four = seats(*map, 4, 12, 24);
    expect_a_seat_each(four);
    EXPECT_EQ(map->seat_of(cpus(0, 0)).of, 0u);
}

TEST(NodeMap, KeepsAThreadApartFromWhatIsComputedOn)
{
    {
        const Node node(with_assistants, assistants_allowed);
        EXPECT_EQ(text(map_of()->apart_from(cpus(24, 35))), "0,12") << "assistant cores first";
    }
    {
        const Node node(tofu::test::a64fx);
        const auto map = map_of();
        EXPECT_EQ(text(map->apart_from(cpus(12, 12))), "13-23") << "of the same group";
        EXPECT_EQ(text(map->apart_from(cpus(12, 23))), "0-11,24-47");
        EXPECT_EQ(text(map->apart_from(cpus(0, 47))), "");
    }
    {
        const Node node(tofu::test::two_sockets);
        EXPECT_EQ(text(map_of()->apart_from(cpus(16, 29))), "30-31");
    }
    const Node node(tofu::test::sixty_four, "5,40");
    EXPECT_EQ(text(map_of()->apart_from(cpus(5, 5))), "40");
}

TEST(NodeMap, IsOfWhatTheContainerHas)
{
    const Node node(tofu::test::sixty_four, "5,40");
    const auto map = map_of();
    EXPECT_EQ(map->groups(), 2u);
    EXPECT_EQ(map->group_of(cpus(40, 40))->number, 1u);
    EXPECT_EQ(map->seat_of(cpus(5, 5)).number, 0u);
    EXPECT_EQ(map->seat_of(cpus(40, 40)).number, 1u);
    EXPECT_EQ(map->seat_of(cpus(40, 40)).of, 2u);
}

TEST(NodeMap, IsNoneWhereTheTopologyIsBroken)
{
    const Node node = Node::of_text("<topology version='2.0'></topology>");
    EXPECT_FALSE(std::make_unique<Map>()->read());
    EXPECT_EQ(in_child([] {
                  void* const memory = mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                  tofu::place_memory(memory, 65536);
                  return Map::of_process() == nullptr && tofu::numa_node_of_thread() == -1 ? 0 : 1;
              }),
              0);
}

TEST(NodeMap, IsThisMachinesOrNoneWhereTheFileIsNoTopology)
{
    const Node node = Node::of_text("no topology at all");
    Map map; // by the kind of hwloc's reader of XML
    EXPECT_TRUE(!map.read() || map.is_here());
}

TEST(NodeMap, IsReadOnceWithinItsTime)
{
    const Node node(tofu::test::a64fx);
    EXPECT_EQ(in_child([] {
                  timespec before{}, after{};
                  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
                  const Map* const map = Map::of_several_groups();
                  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
                  if (map == nullptr || map != Map::of_process())
                      return 1;
                  // Ten times the 10 ms that are allowed: sanitizers and emulators run it, too.
                  const long us = (after.tv_sec - before.tv_sec) * 1000000 + (after.tv_nsec - before.tv_nsec) / 1000;
                  return us < 100000 ? 0 : 2;
              }),
              0);
}

/// A topology of so many groups, which counts as this machine's.
hwloc_topology_t shared(const char* synthetic)
{
    hwloc_topology_t topology = nullptr;
    EXPECT_EQ(hwloc_topology_init(&topology), 0);
    EXPECT_EQ(hwloc_topology_set_synthetic(topology, synthetic), 0);
    EXPECT_EQ(hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM), 0);
    EXPECT_EQ(hwloc_topology_load(topology), 0);
    return topology;
}

TEST(NodeMap, IsTheLaunchersWhereAnMpiLibraryHasIt)
{
    opal_hwloc_topology = shared("NUMANode:3 Core:1 PU:1");
    EXPECT_EQ(map_of()->groups(), 3u) << "Open MPI's";
    pmix_topology = shared("NUMANode:5 Core:1 PU:1");
    EXPECT_EQ(map_of()->groups(), 5u) << "PMIx 5's first";
    pmix_version = "OpenPMIx 4.2.2, (PMIx Standard: 4.2)";
    pmix_loads = 0;
    EXPECT_EQ(map_of()->groups(), 3u) << "PMIx 4 would discover it once more";
    EXPECT_EQ(pmix_loads, 0);
    {
        const Node node(tofu::test::a64fx);
        EXPECT_EQ(map_of()->groups(), 4u) << "what the user says comes first";
    }
    const auto map = map_of();
    hwloc_topology_destroy(std::exchange(opal_hwloc_topology, nullptr)); // as MPI_Finalize does
    hwloc_topology_destroy(std::exchange(pmix_topology, nullptr));
    EXPECT_TRUE(map->is_here());
    void* const memory = mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)map->prefer(memory, 65536, map->group(0)); // a copy's words
    munmap(memory, 65536);
}

/// Nothing is placed where the thread's processors are none of the topology's; that has a line, and else nothing has.
TEST(NodeMap, HasALineIfItHasNoProcessorOfTheThread)
{
    const int own = sched_getcpu();
    for (const int processor : {own, own + 500}) {
        const std::string one = "NUMANode:1 Core:1 PU:1(indexes=" + std::to_string(processor) + ")";
        opal_hwloc_topology = shared(one.c_str());
        warnings = 0;
        EXPECT_EQ(map_of()->groups(), 1u);
        EXPECT_EQ(warnings, processor == own ? 0u : 1u) << processor;
        hwloc_topology_destroy(std::exchange(opal_hwloc_topology, nullptr));
    }
}

/// One group is known without hwloc, which takes milliseconds.
TEST(NodeMap, IsReadWhereLinuxHasSeveralNumaNodes)
{
    for (const auto& [nodes, several] : {std::pair{"0\n", false}, {"12\n", false}, {"0-2\n", true}, {"0,4\n", true}})
        EXPECT_EQ(in_child([nodes = nodes, several = several] {
                      online = nodes;
                      opal_hwloc_topology = shared("NUMANode:3 Core:1 PU:1");
                      return (Map::of_several_groups() != nullptr) == several ? 0 : 1;
                  }),
                  0)
            << nodes;
}

TEST(NodeMap, IsNotAskedForWhereItIsSwitchedOff)
{
    const Node node(tofu::test::a64fx);
    EXPECT_EQ(in_child([] {
                  setenv("FI_TOFU_NUMA", "off", 1);
                  tofu::define_params();
                  return Map::of_process() == nullptr && Map::of_several_groups() == nullptr ? 0 : 1;
              }),
              0);
}

// --- memory, on a machine of which we say that it has a NUMA node for each of two processors

constexpr const char* two_nodes = "NUMANode:2 Core:1 PU:1";

/// MPOL_PREFERRED with node 0, or the default: as get_mempolicy(2) tells of an address.
int policy_of(void* address)
{
    int mode = -1;
    return syscall(SYS_get_mempolicy, &mode, nullptr, 0UL, address, 2UL /* MPOL_F_ADDR */) == 0 ? mode : -1;
}

bool claim_this_system()
{
    setenv("HWLOC_THISSYSTEM", "1", 1);
    return run_on(cpus(0, 0));
}

void* new_memory()
{
    return mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

TEST(NodeMemory, LiesOnTheNodeThatItsThreadIsBoundTo)
{
    const Node node(two_nodes);
    const int result = in_child([] {
        if (!claim_this_system())
            return 77;
        void* const memory = new_memory();
        if (policy_of(memory) != 0)
            return 77; // a kernel or a filter without these calls
        tofu::place_memory(memory, 65536);
        if (tofu::numa_node_of_thread() != 0)
            return 1;
        if (policy_of(memory) == 0)
            return 2;
        char said[512];
        tofu::describe_placement(said, sizeof said);
        constexpr const char* wanted = "memory: 64 KiB bound to NUMA node 0; thread: NUMA node 0, processors 0";
        return std::string(said).starts_with(wanted) ? 0 : 3;
    });
    if (result == 77)
        GTEST_SKIP() << "processor 0 is not ours, or the kernel has no memory policies";
    EXPECT_EQ(result, 0);
}

TEST(NodeMemory, OfABoundThreadIsNotBoundForALaterOneThatIsNot)
{
    const Processors before = tofu::node::processors_of_thread();
    if (!before[0] || !before[1])
        GTEST_SKIP() << "processors 0 and 1 are not ours";
    const Node node(two_nodes);
    EXPECT_EQ(in_child([&] {
                  void* const memory = new_memory();
                  if (!claim_this_system() || policy_of(memory) != 0)
                      return 0; // no policies here
                  tofu::place_memory(memory, 65536);
                  if (policy_of(memory) == 0)
                      return 1;
                  if (!run_on(before))
                      return 2;
                  tofu::place_memory(memory, 65536); // an area that is used again
                  return policy_of(memory) == 0 ? 0 : 3;
              }),
              0);
}

/// Refuses mbind(2), as a container's filter does.
bool refuse_binding()
{
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mbind, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    sock_fprog filter{4, program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(NodeMemory, IsUsedAllTheSameWhereTheKernelRefuses)
{
    const Node node(two_nodes);
    const int result = in_child([] {
        if (!claim_this_system() || !refuse_binding())
            return 77;
        auto* const memory = static_cast<volatile char*>(new_memory());
        tofu::place_memory(const_cast<char*>(memory), 65536);
        memory[0] = 1;
        char said[512];
        tofu::describe_placement(said, sizeof said);
        return std::string(said).starts_with("memory: placed at first use; ") ? 0 : 1;
    });
    if (result == 77)
        GTEST_SKIP() << "processor 0 is not ours, or no filter of system calls here";
    EXPECT_EQ(result, 0);
}

// --- TNIs

const tofu::vcq::Backend& backend()
{
    // A job of this test's own: other programs of the user take slots at the same time.
    static tofu::vcq::Functions functions = fake::functions();
    functions.job = [] { return "node-units"; };
    static const tofu::vcq::Backend one{functions, {}, 6};
    return one;
}

/// The TNI slots of a process that is bound to this processor, as two digits each.
int slots_on(int processor)
{
    using namespace tofu::vcq::tni_allocator;
    if (!run_on(cpus(processor, processor)))
        return -1;
    int all = 0;
    TniSlot held[3];
    for (TniSlot& slot : held) {
        slot = acquire(backend(), Traffic::in);
        all = all * 100 + static_cast<int>(slot.number);
    }
    for (const TniSlot& slot : held)
        release(slot);
    return all;
}

TEST(NodePlaces, AreTheSameWhicheverProcessComesFirst)
{
    const Node node(two_nodes);
    // Numbers of slots go beyond what an exit status holds.
    auto* const found =
        static_cast<int*>(mmap(nullptr, 2 * sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    for (const int processor : {1, 0, 1})
        ASSERT_EQ(in_child([=] {
                      found[processor] = slots_on(processor);
                      return 0;
                  }),
                  0);
    const int first = found[0], second = found[1];
    munmap(found, 2 * sizeof(int));
    if (first < 0 || second < 0)
        GTEST_SKIP() << "two processors are needed";
    // Each five further: on another of six TNIs, and never a slot of the other one.
    EXPECT_EQ(first, 510);
    EXPECT_EQ(second, 10611);
}

} // namespace
