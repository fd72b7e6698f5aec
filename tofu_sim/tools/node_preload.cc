// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Binding on a node that this machine is not: hwloc says that it can be done, and does nothing. Programs that tofu-sim
// run --node starts have it (LD_PRELOAD), Open MPI's mpirun above all. Uses: their hwloc.
//
// For a topology of another machine hwloc's functions that bind succeed and change nothing, but hwloc reports them as
// not supported. mpirun asks for that report and refuses --bind-to. With this library the report says "supported".
#include <dlfcn.h>
#include <hwloc.h>

namespace {

using GetSupport = const hwloc_topology_support* (*)(hwloc_topology_t);
using IsThisSystem = int (*)(hwloc_topology_t);

/// The program's own hwloc: after this library, or among what was loaded out of sight of others (dlopen of Python's
/// modules).
template <class Function>
Function find(const char* name) noexcept
{
    void* found = ::dlsym(RTLD_NEXT, name);
    if (found == nullptr) {
        void* const library = ::dlopen("libhwloc.so.15", RTLD_LAZY | RTLD_NOLOAD);
        found = library != nullptr ? ::dlsym(library, name) : nullptr; // the reference stays, as the pointer does
    }
    return reinterpret_cast<Function>(found);
}

/// One for all foreign topologies: processes of --node see one file.
const hwloc_topology_support* pretend(const hwloc_topology_support& real) noexcept
{
    static hwloc_topology_cpubind_support processors = *real.cpubind;
    static hwloc_topology_membind_support memory = *real.membind;
    static hwloc_topology_discovery_support discovery = *real.discovery;
    static const hwloc_topology_support support = [&real] {
        processors.set_thisproc_cpubind = processors.get_thisproc_cpubind = 1;
        processors.set_proc_cpubind = processors.get_proc_cpubind = 1;
        processors.set_thisthread_cpubind = processors.get_thisthread_cpubind = 1;
        memory.set_thisproc_membind = memory.get_thisproc_membind = 1;
        memory.set_thisthread_membind = memory.get_thisthread_membind = 1;
        memory.set_area_membind = memory.get_area_membind = 1;
        memory.alloc_membind = memory.bind_membind = memory.firsttouch_membind = 1;
        hwloc_topology_support made = real;
        made.discovery = &discovery;
        made.cpubind = &processors;
        made.membind = &memory;
        return made;
    }();
    return &support;
}

} // namespace

extern "C" __attribute__((visibility("default"))) const hwloc_topology_support*
hwloc_topology_get_support(hwloc_topology_t topology)
{
    static const auto real = find<GetSupport>("hwloc_topology_get_support");
    static const auto is_this_system = find<IsThisSystem>("hwloc_topology_is_thissystem");
    if (real == nullptr || is_this_system == nullptr) {
        static hwloc_topology_discovery_support discovery{};
        static hwloc_topology_cpubind_support processors{};
        static hwloc_topology_membind_support memory{};
        static hwloc_topology_support none{};
        none.discovery = &discovery;
        none.cpubind = &processors;
        none.membind = &memory;
        return &none;
    }
    const hwloc_topology_support* const support = real(topology);
    return support == nullptr || is_this_system(topology) != 0 ? support : pretend(*support);
}
