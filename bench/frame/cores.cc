// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See cores.h.
#include "cores.h"

#include <algorithm>
#include <hwloc.h>
#include <iterator>
#include <set>

namespace tofu::bench {
namespace {

struct Free {
    void operator()(hwloc_bitmap_t set) const { hwloc_bitmap_free(set); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, Free>;

constexpr struct {
    Sharing sharing;
    const char* name;
    hwloc_obj_type_t type;
} kinds[] = {
    {Sharing::processor, "a processor", HWLOC_OBJ_PU},
    {Sharing::core, "a core", HWLOC_OBJ_CORE},
    {Sharing::l2, "L2", HWLOC_OBJ_L2CACHE},
    {Sharing::l3, "L3", HWLOC_OBJ_L3CACHE},
    {Sharing::package, "a package", HWLOC_OBJ_PACKAGE},
    {Sharing::machine, "the machine", HWLOC_OBJ_MACHINE},
};

/// What hwloc knows of the processors that this process may use.
Bitmap usable(hwloc_topology_t topology)
{
    Bitmap set(hwloc_bitmap_dup(hwloc_topology_get_topology_cpuset(topology)));
    Bitmap bound(hwloc_bitmap_alloc());
    if (hwloc_topology_is_thissystem(topology) &&
        hwloc_get_cpubind(topology, bound.get(), HWLOC_CPUBIND_PROCESS) == 0 &&
        hwloc_bitmap_intersects(set.get(), bound.get()))
        hwloc_bitmap_and(set.get(), set.get(), bound.get());
    return set;
}

int processor_of(hwloc_obj_t pu)
{
    return int(pu->os_index);
}

/// Is `inner` the same as, or part of, `outer`?
bool within(hwloc_obj_t inner, hwloc_obj_t outer)
{
    return hwloc_bitmap_isincluded(inner->cpuset, outer->cpuset) != 0;
}

/// Object of the type above a PU; null where there is none (no such cache).
hwloc_obj_t above(hwloc_obj_t pu, hwloc_obj_type_t type)
{
    for (hwloc_obj_t at = pu; at != nullptr; at = at->parent)
        if (at->type == type)
            return at;
    return nullptr;
}

/// The nearest kind of object that all of them lie in.
Sharing shared_by(const std::vector<hwloc_obj_t>& pus)
{
    for (auto& kind : kinds) {
        hwloc_obj_t object = above(pus[0], kind.type);
        if (object != nullptr &&
            std::all_of(pus.begin(), pus.end(), [&](hwloc_obj_t pu) { return within(pu, object); }))
            return kind.sharing;
    }
    return Sharing::machine;
}

/// `sides` processors in `outer`, no two of them in one object of the type `apart`; none where there are too few.
std::vector<hwloc_obj_t> spread_in(const std::vector<hwloc_obj_t>& pus, hwloc_obj_t outer, hwloc_obj_type_t apart,
                                   std::size_t sides)
{
    std::vector<hwloc_obj_t> chosen;
    std::set<hwloc_obj_t> used;
    for (hwloc_obj_t pu : pus) {
        hwloc_obj_t object = above(pu, apart);
        if (within(pu, outer) && chosen.size() < sides && used.insert(object != nullptr ? object : pu).second)
            chosen.push_back(pu);
    }
    return chosen.size() == sides ? chosen : std::vector<hwloc_obj_t>{};
}

} // namespace

const char* sharing_name(Sharing sharing)
{
    return kinds[int(sharing)].name;
}

std::string Placement::text() const
{
    std::string all;
    for (int processor : processors)
        all += (all.empty() ? "" : ", ") + std::to_string(processor);
    return std::string(sharing_name(sharing)) + " (processors " + (all.empty() ? "not known" : all) + ")";
}

void Cores::Close::operator()(hwloc_topology* topology) const
{
    hwloc_topology_destroy(topology);
}

Cores::Cores()
{
    hwloc_topology_t topology = nullptr;
    if (hwloc_topology_init(&topology) != 0)
        return;
    topology_.reset(topology);
    hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    if (hwloc_topology_load(topology) != 0)
        topology_.reset();
}

std::vector<Placement> Cores::placements(int sides) const
{
    if (topology_ == nullptr)
        return {Placement{}};
    const Bitmap set = usable(topology_.get());
    std::vector<hwloc_obj_t> pus;
    for (hwloc_obj_t pu = nullptr;
         (pu = hwloc_get_next_obj_inside_cpuset_by_type(topology_.get(), set.get(), HWLOC_OBJ_PU, pu)) != nullptr;)
        pus.push_back(pu);
    std::vector<Placement> found;
    const auto add = [&](const std::vector<hwloc_obj_t>& chosen) {
        if (chosen.empty())
            return;
        Placement placement;
        placement.sharing = shared_by(chosen);
        std::transform(chosen.begin(), chosen.end(), std::back_inserter(placement.processors), processor_of);
        const auto same = [&](const Placement& other) { return other.sharing == placement.sharing; };
        if (std::none_of(found.begin(), found.end(), same))
            found.push_back(std::move(placement));
    };
    // In the nearest object of a kind that has room, as far from each other as that object lets them be.
    for (auto& outer : kinds)
        for (hwloc_obj_t object = nullptr;
             (object = hwloc_get_next_obj_by_type(topology_.get(), outer.type, object)) != nullptr;)
            for (int apart = int(outer.sharing) - 1; apart >= 0; --apart)
                add(spread_in(pus, object, kinds[apart].type, std::size_t(sides)));
    if (found.empty()) { // more sides than processors
        Placement all;
        std::transform(pus.begin(), pus.end(), std::back_inserter(all.processors), processor_of);
        found.push_back(std::move(all));
    }
    std::sort(found.begin(), found.end(), [](auto& a, auto& b) { return a.sharing < b.sharing; });
    return found;
}

Placement Cores::usual(int sides) const
{
    const std::vector<Placement> all = placements(sides);
    const auto apart = std::find_if(all.begin(), all.end(), [](auto& p) { return p.sharing > Sharing::core; });
    return apart != all.end() ? *apart : all.front();
}

bool Cores::can_pin() const
{
    if (topology_ == nullptr || !hwloc_topology_is_thissystem(topology_.get()))
        return false;
    const Bitmap bound(hwloc_bitmap_alloc());
    return hwloc_get_cpubind(topology_.get(), bound.get(), HWLOC_CPUBIND_PROCESS) == 0 &&
           hwloc_bitmap_intersects(hwloc_topology_get_topology_cpuset(topology_.get()), bound.get());
}

bool Cores::pin(const Placement& placement, int side) const
{
    if (!can_pin() || placement.processors.empty())
        return false;
    const Bitmap one(hwloc_bitmap_alloc());
    hwloc_bitmap_only(one.get(), unsigned(placement.processors[std::size_t(side) % placement.processors.size()]));
    return hwloc_set_cpubind(topology_.get(), one.get(), HWLOC_CPUBIND_PROCESS) == 0;
}

} // namespace tofu::bench
