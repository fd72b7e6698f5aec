// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See hwloc.h.
#include "core/hwloc.h"

#include <dlfcn.h>

#include "core/log.h"

namespace tofu::node {
namespace {

constexpr const char* library_name = "libhwloc.so.15"; // of all versions 2

template <class Function>
bool find(void* library, const char* name, Function& function) noexcept
{
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
}

bool find_all(void* library, Hwloc& all) noexcept
{
    return find(library, "hwloc_get_api_version", all.get_api_version) &&
           find(library, "hwloc_topology_init", all.topology_init) &&
           find(library, "hwloc_topology_set_io_types_filter", all.topology_set_io_types_filter) &&
           find(library, "hwloc_topology_set_cache_types_filter", all.topology_set_cache_types_filter) &&
           find(library, "hwloc_topology_set_components", all.topology_set_components) &&
           find(library, "hwloc_topology_set_flags", all.topology_set_flags) &&
           find(library, "hwloc_topology_load", all.topology_load) &&
           find(library, "hwloc_topology_abi_check", all.topology_abi_check) &&
           find(library, "hwloc_topology_dup", all.topology_dup) &&
           find(library, "hwloc_topology_destroy", all.topology_destroy) &&
           find(library, "hwloc_topology_is_thissystem", all.topology_is_thissystem) &&
           find(library, "hwloc_topology_get_allowed_cpuset", all.topology_get_allowed_cpuset) &&
           find(library, "hwloc_get_nbobjs_by_depth", all.get_nbobjs_by_depth) &&
           find(library, "hwloc_get_obj_by_depth", all.get_obj_by_depth) &&
           find(library, "hwloc_bitmap_next", all.bitmap_next) &&
           find(library, "hwloc_bitmap_weight", all.bitmap_weight) &&
           find(library, "hwloc_set_area_membind", all.set_area_membind);
}

/// Where the program itself brings another hwloc along, calls inside of the library would reach that one.
bool is_replaced(const Hwloc& all) noexcept
{
    void* const seen = dlsym(RTLD_DEFAULT, "hwloc_topology_init");
    return seen != nullptr && seen != reinterpret_cast<void*>(all.topology_init);
}

const Hwloc* load() noexcept
{
    static Hwloc all;
    void* const library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL); // stays: it is asked again and again
    if (library == nullptr) {
        TOFU_INFO(FI_LOG_CORE, "no %s: memory, TNIs and threads are placed without; install hwloc 2\n", library_name);
        return nullptr;
    }
    if (!find_all(library, all) || all.get_api_version() >> 16 != 2 || is_replaced(all)) {
        TOFU_WARN(FI_LOG_CORE,
                  "%s cannot be used: it is not hwloc 2.1 or later, or the program brings another hwloc: memory, TNIs "
                  "and threads are placed without it\n",
                  library_name);
        dlclose(library);
        return nullptr;
    }
    return &all;
}

} // namespace

const Hwloc* hwloc() noexcept
{
    static const Hwloc* const all = load();
    return all;
}

} // namespace tofu::node
