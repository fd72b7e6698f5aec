// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Nodes that hwloc can show to programs instead of this machine. Uses: hwloc.
#include "tools/node_model.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <hwloc.h>
#include <iterator>
#include <memory>
#include <optional>

namespace tofu::sim::tools {
namespace {

/// A node of Fugaku, as a job sees it: the kernel counts the compute cores from 12 on and their NUMA nodes from 4 on,
/// for the assistant cores come first, which no job may use.
constexpr NodeModel models[] = {
    {"a64fx",
     "Package:1 NUMANode:4(memory=8GiB indexes=4,5,6,7) L2:1(size=8MiB) L1d:12(size=64KiB) Core:1 "
     "PU:1(indexes=12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,"
     "36,37,38,39,40,41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59)",
     256, 65536, "Fujitsu A64FX"},
};

struct Destroy {
    void operator()(hwloc_topology_t topology) const noexcept { hwloc_topology_destroy(topology); }
};

/// While it lives HWLOC_THISSYSTEM is not set: with it, the topology would claim that one can bind to its processors.
class NotThisSystem {
  public:
    NotThisSystem()
    {
        if (const char* const value = std::getenv(name); value != nullptr) {
            before_ = value;
            ::unsetenv(name);
        }
    }
    ~NotThisSystem()
    {
        if (before_)
            ::setenv(name, before_->c_str(), 1);
    }
    NotThisSystem(const NotThisSystem&) = delete;
    NotThisSystem& operator=(const NotThisSystem&) = delete;

  private:
    static constexpr const char* name = "HWLOC_THISSYSTEM";
    std::optional<std::string> before_;
};

/// What the synthetic description has no words for.
void refine(hwloc_topology_t topology, const NodeModel& model)
{
    for (int depth = 0; depth < hwloc_topology_get_depth(topology); depth++) {
        hwloc_obj_t object = nullptr;
        while ((object = hwloc_get_next_obj_by_depth(topology, depth, object)) != nullptr)
            if (hwloc_obj_type_is_cache(object->type) != 0)
                object->attr->cache.linesize = model.line_bytes;
    }
    hwloc_obj_t node = nullptr;
    while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr) {
        auto& memory = node->attr->numanode;
        if (memory.page_types_len != 0)
            memory.page_types[0] = {model.page_bytes, memory.local_memory / model.page_bytes};
    }
    (void)hwloc_obj_add_info(hwloc_get_root_obj(topology), "CPUModel", model.processor);
}

} // namespace

const NodeModel* find_node_model(std::string_view name)
{
    const auto* const found = std::find_if(std::begin(models), std::end(models),
                                           [name](const NodeModel& model) { return model.name == name; });
    return found != std::end(models) ? found : nullptr;
}

std::string topology_xml(const NodeModel& model)
{
    const NotThisSystem setting;
    hwloc_topology_t made = nullptr;
    const bool began = hwloc_topology_init(&made) == 0;
    const std::unique_ptr<hwloc_topology, Destroy> topology(began ? made : nullptr);
    char* text = nullptr;
    int length = 0;
    if (!began || hwloc_topology_set_synthetic(made, model.synthetic) != 0 || hwloc_topology_load(made) != 0 ||
        (refine(made, model), hwloc_topology_export_xmlbuffer(made, &text, &length, 0)) != 0) {
        std::fprintf(stderr, "tofu-sim: hwloc cannot build a topology from %s\n", model.name);
        return {};
    }
    std::string result(text); // its end counts as a letter in the length
    hwloc_free_xmlbuffer(made, text);
    return result;
}

} // namespace tofu::sim::tools
