// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See numa.h.
#include "mem/numa.h"

#include <atomic>
#include <cstdio>
#include <cstring>

#include "core/log.h"
#include "core/node_map.h"

namespace tofu {
namespace {

// Of this process. Only for show: relaxed.
constinit std::atomic<std::size_t> placed_bytes{0};
constinit std::atomic<int> placed_on{-1}; ///< the last one
constinit std::atomic<bool> refused{false};

const node::Map::Group* group_of_thread() noexcept
{
    const node::Map* const map = node::Map::of_several_groups();
    return map != nullptr ? map->group_of(node::processors_of_thread()) : nullptr;
}

} // namespace

void place_memory(void* base, std::size_t bytes) noexcept
{
    const node::Map::Group* const group = group_of_thread();
    if (group == nullptr) {
        // Mappings that are used again keep what they were bound to.
        if (placed_bytes.load(std::memory_order_relaxed) != 0)
            node::Map::of_process()->prefer_none(base, bytes);
        return;
    }
    const node::Map& map = *node::Map::of_process();
    if (!map.is_here()) // another machine's, to look at: decided, and not done
        return placed_on.store(static_cast<int>(group->number), std::memory_order_relaxed);
    if (const int error = map.prefer(base, bytes, *group); error != 0) {
        if (!refused.exchange(true, std::memory_order_relaxed))
            TOFU_WARN(FI_LOG_CORE, "memory is not bound to NUMA node %u (%s): it lies where it is first touched; "
                                   "FI_TOFU_NUMA=off asks for no more\n",
                      group->number, std::strerror(error));
        return;
    }
    placed_on.store(static_cast<int>(group->number), std::memory_order_relaxed);
    placed_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

int numa_node_of_thread() noexcept
{
    const node::Map::Group* const group = group_of_thread();
    return group != nullptr ? static_cast<int>(group->number) : -1;
}

void describe_placement(char* text, std::size_t size) noexcept
{
    char threads[32], memory[96], cpus[256];
    if (const int node = numa_node_of_thread(); node >= 0)
        std::snprintf(threads, sizeof threads, "NUMA node %d", node);
    else
        std::snprintf(threads, sizeof threads, "no one NUMA node");
    const int on = placed_on.load(std::memory_order_relaxed);
    if (const std::size_t bytes = placed_bytes.load(std::memory_order_relaxed); bytes != 0)
        std::snprintf(memory, sizeof memory, "%zu KiB bound to NUMA node %d", bytes / 1024, on);
    else
        std::snprintf(memory, sizeof memory, "where it is first touched");
    node::write_list(node::processors_of_thread(), cpus, sizeof cpus);
    std::snprintf(text, size, "memory: %s; thread: %s, processors %s", memory, threads, cpus);
}

} // namespace tofu
