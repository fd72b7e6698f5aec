// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The processors that a job may use on this machine, and which of them each simulated node gets. Uses: hwloc.
#include "tools/processors.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <hwloc.h>
#include <numeric>
#include <sched.h>

namespace tofu::sim::tools {

void FreeBitmap::operator()(hwloc_bitmap_s* set) const noexcept
{
    hwloc_bitmap_free(set);
}

std::string text_of(const hwloc_bitmap_s* set)
{
    char* text = nullptr;
    if (hwloc_bitmap_list_asprintf(&text, set) < 0)
        return {};
    std::string result(text);
    std::free(text);
    return result;
}

Processors::Processors(uint32_t quota, bool here) : quota_(quota)
{
    if (hwloc_topology_init(&topology_) != 0) {
        topology_ = nullptr;
    } else {
        (void)hwloc_topology_set_io_types_filter(topology_, HWLOC_TYPE_FILTER_KEEP_NONE);
        if (hwloc_topology_load(topology_) != 0) {
            std::fputs("tofu-sim: hwloc cannot read the topology: processes are not bound to processors "
                       "(unset HWLOC_XMLFILE and HWLOC_SYNTHETIC, or correct them)\n",
                       stderr);
            hwloc_topology_destroy(topology_);
            topology_ = nullptr;
        }
    }
    if (topology_ != nullptr && here && hwloc_topology_is_thissystem(topology_) == 0) {
        hwloc_topology_destroy(topology_); // another machine's topology does not describe this one
        topology_ = nullptr;
    }
    if (topology_ == nullptr) {
        take_mask();
        return;
    }
    if (const char* const file = std::getenv("HWLOC_XMLFILE");
        file != nullptr && *file != '\0' && here && std::getenv("HWLOC_THISSYSTEM") == nullptr) {
        std::fprintf(stderr,
                     "tofu-sim: HWLOC_XMLFILE=%.200s: hwloc cannot read this file and uses the topology of this "
                     "machine: correct or unset the variable\n",
                     file);
    }
    const Cpuset bound(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topology_)));
    if (const Cpuset own(hwloc_bitmap_alloc()); hwloc_topology_is_thissystem(topology_) != 0 &&
                                                hwloc_get_cpubind(topology_, own.get(), HWLOC_CPUBIND_PROCESS) == 0)
        hwloc_bitmap_and(bound.get(), bound.get(), own.get());
    hwloc_obj_t pu = nullptr;
    while ((pu = hwloc_get_next_obj_inside_cpuset_by_type(topology_, bound.get(), HWLOC_OBJ_PU, pu)) != nullptr)
        allowed_.push_back(static_cast<int>(pu->os_index));
    if (allowed_.empty()) {
        std::fputs("tofu-sim: hwloc allows none of the processors to which this command is bound: the kernel's mask is "
                   "used, and processes are not bound (unset HWLOC_XMLFILE, HWLOC_SYNTHETIC and HWLOC_THISSYSTEM)\n",
                   stderr);
        hwloc_topology_destroy(topology_);
        topology_ = nullptr;
        take_mask();
    }
}

Processors::~Processors()
{
    if (topology_ != nullptr)
        hwloc_topology_destroy(topology_);
}

void Processors::take_mask()
{
    cpu_set_t own;
    if (::sched_getaffinity(0, sizeof own, &own) != 0)
        return;
    for (int processor = 0; processor < CPU_SETSIZE; processor++)
        if (CPU_ISSET(processor, &own))
            allowed_.push_back(processor);
}

size_t Processors::at_a_time() const noexcept
{
    return quota_ != 0 ? std::min<size_t>(allowed_.size(), quota_) : allowed_.size();
}

std::string Processors::text() const
{
    std::string text = std::to_string(allowed_.size());
    if (at_a_time() < allowed_.size())
        text += ", with time for " + std::to_string(at_a_time()) + " by cpu.max";
    return text;
}

std::vector<Cpuset> Processors::shares(std::span<const uint32_t> processes_of_node) const
{
    const size_t processes = std::accumulate(processes_of_node.begin(), processes_of_node.end(), size_t{0});
    if (topology_ == nullptr || processes_of_node.size() < 2 || at_a_time() < processes)
        return {};
    std::vector<Cpuset> cores; // what is allowed of each, or each processor where there are no cores
    hwloc_obj_t last = nullptr;
    for (const int processor : allowed_) {
        hwloc_obj_t const pu = hwloc_get_pu_obj_by_os_index(topology_, static_cast<unsigned>(processor));
        hwloc_obj_t const core =
            pu != nullptr ? hwloc_get_ancestor_obj_by_type(topology_, HWLOC_OBJ_CORE, pu) : nullptr;
        if (cores.empty() || core == nullptr || core != last)
            cores.emplace_back(hwloc_bitmap_alloc());
        hwloc_bitmap_set(cores.back().get(), static_cast<unsigned>(processor));
        last = core;
    }
    if (cores.size() < processes)
        return {};
    std::vector<Cpuset> shares;
    size_t before = 0;
    for (const uint32_t count : processes_of_node) {
        Cpuset share(hwloc_bitmap_alloc());
        for (size_t i = cores.size() * before / processes; i < cores.size() * (before + count) / processes; i++)
            hwloc_bitmap_or(share.get(), share.get(), cores[i].get());
        before += count;
        shares.push_back(std::move(share));
    }
    return shares;
}

bool Processors::bind(const hwloc_bitmap_s* set) const noexcept
{
    return topology_ != nullptr && hwloc_set_cpubind(topology_, set, HWLOC_CPUBIND_PROCESS) == 0;
}

} // namespace tofu::sim::tools
