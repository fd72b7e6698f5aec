/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Another hwloc in the program's scope, as a program has it that was linked with version 1: it must not be mixed with
 * the system's. Preloaded by plugin.sh. Any call of it is the end.
 */
#include <stdlib.h>

int hwloc_topology_init(void** topology);
int hwloc_topology_load(void* topology);
int hwloc_topology_init(void** topology)
{
    (void)topology;
    abort();
}
int hwloc_topology_load(void* topology)
{
    (void)topology;
    abort();
}
