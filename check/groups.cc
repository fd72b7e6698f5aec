// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a Put takes from each core memory group (NUMA node) through each TNI: a matrix; and a line on assistant cores.
// Judges nothing (docs/fugaku.md).
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>

#include <hwloc.h>

#include "checks.h"

namespace tofu::check {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t size = std::size_t{1} << 20;

struct Destroy {
    void operator()(hwloc_topology_t topology) const noexcept { hwloc_topology_destroy(topology); }
    void operator()(hwloc_bitmap_t set) const noexcept { hwloc_bitmap_free(set); }
};
using Topology = std::unique_ptr<hwloc_topology, Destroy>;
using Set = std::unique_ptr<hwloc_bitmap_s, Destroy>;

struct Group {
    unsigned number;
    Set processors; ///< that this process may use
    int of_hardware;
};

std::string list_of(const Set& set)
{
    char* text = nullptr;
    if (hwloc_bitmap_list_asprintf(&text, set.get()) < 0)
        return "?";
    std::string list(text);
    std::free(text);
    return list;
}

/// The whole node's, also of processors that we may not use: they are counted.
Topology load()
{
    hwloc_topology_t topology = nullptr;
    if (hwloc_topology_init(&topology) != 0)
        return nullptr;
    Topology owner(topology);
    hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    return hwloc_topology_load(topology) == 0 ? std::move(owner) : nullptr;
}

std::vector<Group> groups_of(hwloc_topology_t topology, hwloc_const_bitmap_t usable)
{
    std::vector<Group> groups;
    for (hwloc_obj_t node = nullptr;
         (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
        Set own(hwloc_bitmap_dup(node->cpuset));
        const int all = hwloc_bitmap_weight(own.get());
        hwloc_bitmap_and(own.get(), own.get(), usable);
        if (all > 0)
            groups.push_back({node->os_index, std::move(own), all});
    }
    return groups;
}

/// The middle of five samples, in microseconds for each of n.
template <class Body>
double middle(unsigned n, Body&& body)
{
    double values[5];
    for (double& value : values) {
        const auto start = Clock::now();
        body();
        value = std::chrono::duration<double, std::micro>(Clock::now() - start).count() / n;
    }
    std::nth_element(values, values + 2, values + 5);
    return values[2];
}

/// From memory that this thread touches first, to the peer's.
struct Cell {
    double latency = 0, bandwidth = 0;
};
Cell measure_cell(const Link& link, utofu_tni_id_t tni)
{
    Memory memory(size);
    std::fill(memory.at(), memory.at() + size, std::uint8_t{1});
    Vcq vcq(link.side, tni);
    const utofu_stadd_t stadd = vcq.reg(memory.at(), size);
    const auto put = [&](std::size_t length) {
        vcq.post(
            [&] { return link.u.put(vcq.handle(), link.peer, stadd, link.peer_stadd, length, 1, local_mrq, nullptr); });
    };
    Cell cell;
    cell.latency = middle(100, [&] {
        for (unsigned i = 0; i < 100; i++) {
            put(8);
            (void)vcq.must_mrq();
        }
    });
    const double each = middle(16, [&] {
        for (unsigned i = 0; i < 16; i++) {
            put(size);
            if (i >= 7)
                (void)vcq.must_mrq();
        }
        for (unsigned i = 0; i < 7; i++)
            (void)vcq.must_mrq();
    });
    cell.bandwidth = static_cast<double>(size) / each / 1000;
    vcq.dereg(stadd);
    return cell;
}

std::string row_of(const std::string& name, const std::vector<double>& values)
{
    std::string line = text("  %-32s", name.c_str());
    for (const double value : values)
        line += text(" %8.3f", value);
    return line + "\n";
}

std::string assistants(const std::vector<Group>& groups)
{
    const auto most = std::max_element(groups.begin(), groups.end(),
                                       [](const Group& a, const Group& b) { return a.of_hardware < b.of_hardware; });
    std::string usable, there;
    for (const Group& group : groups)
        if (group.of_hardware * 4 <= most->of_hardware) {
            there += text("%sNUMA node %u", there.empty() ? "" : ", ", group.number);
            if (hwloc_bitmap_iszero(group.processors.get()) == 0)
                usable += text("%s%s", usable.empty() ? "" : ",", list_of(group.processors).c_str());
        }
    if (there.empty())
        return "assistant cores: hwloc shows none\n";
    const std::string said = usable.empty()
                                 ? "this process may use none; the thread of automatic progress runs elsewhere"
                                 : "processors " + usable + " may be used; the thread of automatic progress runs there";
    return text("assistant cores (%s): %s\n", there.c_str(), said.c_str());
}

} // namespace

std::string measure_groups(const Link& link)
{
    const Topology topology = load();
    if (!topology)
        return "core memory groups: hwloc cannot read the topology: is HWLOC_XMLFILE or HWLOC_SYNTHETIC set?\n";
    const bool here = hwloc_topology_is_thissystem(topology.get()) != 0;
    const Set before(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topology.get())));
    if (here)
        hwloc_get_cpubind(topology.get(), before.get(), HWLOC_CPUBIND_THREAD);
    const std::vector<Group> groups = groups_of(topology.get(), before.get());
    if (std::none_of(groups.begin(), groups.end(),
                     [](const Group& group) { return hwloc_bitmap_iszero(group.processors.get()) == 0; }))
        return "core memory groups: none of the processors " + list_of(before) +
               " is in hwloc's topology: is HWLOC_XMLFILE or HWLOC_SYNTHETIC set?\n";
    std::string latencies = "Put of 8 bytes until its notice, us: a row for each NUMA node, a column for each TNI\n";
    std::string bandwidths = "Puts of 1 MiB, 8 under way, GB/s: the same\n";
    for (const Group& group : groups) {
        if (hwloc_bitmap_iszero(group.processors.get()) != 0)
            continue;
        const bool bound = here && hwloc_set_cpubind(topology.get(), group.processors.get(), HWLOC_CPUBIND_THREAD) == 0;
        std::vector<double> latency, bandwidth;
        for (const utofu_tni_id_t tni : link.side.tnis) {
            const Cell cell = measure_cell(link, tni);
            latency.push_back(cell.latency);
            bandwidth.push_back(cell.bandwidth);
        }
        const std::string name = text("NUMA node %u, %s %.40s", group.number, bound ? "processors" : "not bound,",
                                      list_of(group.processors).c_str());
        latencies += row_of(name, latency);
        bandwidths += row_of(name, bandwidth);
    }
    if (here)
        hwloc_set_cpubind(topology.get(), before.get(), HWLOC_CPUBIND_THREAD);
    return latencies + bandwidths +
           "the provider treats all TNIs as equally near to all groups: processes get them in turn, group by group\n" +
           assistants(groups);
}

} // namespace tofu::check
