// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Asks hwloc whether it can bind, and binds: "supported 1, done 0, processors 48". With an argument hwloc is a library
// that is loaded out of sight of others. Run by node.sh.
#define _GNU_SOURCE // Linux
#include <dlfcn.h>
#include <hwloc.h>
#include <stdio.h>

#define FIND(name) __typeof__(&name) name##_found = (__typeof__(&name))dlsym(library, #name)

int main(int argc, char** argv)
{
    (void)argv;
    void* const library = dlopen("libhwloc.so.15", RTLD_NOW | (argc > 1 ? RTLD_LOCAL : RTLD_GLOBAL));
    if (library == NULL)
        return 77;
    FIND(hwloc_topology_init);
    FIND(hwloc_topology_load);
    FIND(hwloc_topology_destroy);
    FIND(hwloc_topology_get_allowed_cpuset);
    FIND(hwloc_bitmap_weight);
    FIND(hwloc_set_cpubind);
    FIND(hwloc_topology_get_support);
    __typeof__(&hwloc_topology_get_support) const in_front =
        (__typeof__(&hwloc_topology_get_support))dlsym(RTLD_DEFAULT, "hwloc_topology_get_support");
    if (in_front != NULL)
        hwloc_topology_get_support_found = in_front; // as a call by name is bound
    hwloc_topology_t topology;
    if (hwloc_topology_init_found(&topology) != 0 || hwloc_topology_load_found(topology) != 0)
        return 1;
    const hwloc_const_bitmap_t allowed = hwloc_topology_get_allowed_cpuset_found(topology);
    const struct hwloc_topology_support* const support = hwloc_topology_get_support_found(topology);
    printf("supported %d, done %d, processors %d\n", support->cpubind->set_thisproc_cpubind,
           hwloc_set_cpubind_found(topology, allowed, HWLOC_CPUBIND_PROCESS), hwloc_bitmap_weight_found(allowed));
    hwloc_topology_destroy_found(topology);
    return 0;
}
