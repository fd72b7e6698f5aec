// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The system's hwloc library (libhwloc.so.15), and the topology that an MPI launcher has shared with this process.
// hwloc is found by dlopen when it is first needed; the provider loads where there is none. It is not used beside
// another hwloc whose names would take the place of this one's. PMIx 5 (Open MPI 5) has the topology from the
// launcher, Open MPI 4 keeps its own. A copy takes 0.1 ms, discovery some 10 ms for 50 processors. Called by
// core/node_map; calls dlopen and libraries of the process, which it finds by name.
#pragma once

#include <hwloc.h>

namespace tofu::node {

/// The functions that are called, by hwloc's names without "hwloc_".
struct Hwloc {
    decltype(&hwloc_get_api_version) get_api_version;
    decltype(&hwloc_topology_init) topology_init;
    decltype(&hwloc_topology_set_io_types_filter) topology_set_io_types_filter;
    decltype(&hwloc_topology_set_cache_types_filter) topology_set_cache_types_filter;
    decltype(&hwloc_topology_set_components) topology_set_components;
    decltype(&hwloc_topology_set_flags) topology_set_flags;
    decltype(&hwloc_topology_load) topology_load;
    decltype(&hwloc_topology_abi_check) topology_abi_check;
    decltype(&hwloc_topology_dup) topology_dup;
    decltype(&hwloc_topology_destroy) topology_destroy;
    decltype(&hwloc_topology_is_thissystem) topology_is_thissystem;
    decltype(&hwloc_topology_get_allowed_cpuset) topology_get_allowed_cpuset;
    decltype(&hwloc_get_nbobjs_by_depth) get_nbobjs_by_depth;
    decltype(&hwloc_get_obj_by_depth) get_obj_by_depth;
    decltype(&hwloc_bitmap_next) bitmap_next;
    decltype(&hwloc_bitmap_weight) bitmap_weight;
    decltype(&hwloc_set_area_membind) set_area_membind;
};

/// Null: there is none that can be used, which a line of the log says. Any thread; loads it at the first call.
[[nodiscard]] const Hwloc* hwloc() noexcept;

/// A copy, for the caller to destroy; null: there is none, or it is another hwloc's. Any thread.
[[nodiscard]] hwloc_topology_t copy_of_launchers(const Hwloc& library) noexcept;

} // namespace tofu::node
