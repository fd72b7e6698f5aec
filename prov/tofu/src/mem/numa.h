// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// On which NUMA node the provider's own memory lies: receive areas, bounce pools, internal queues. Called where such
// memory is mapped (area, mem/pages), by api/domain and api/getinfo for what they show; calls node.
#pragma once

#include <cstddef>

namespace tofu {

/// Memory that is mapped and not touched yet: its pages shall come from the NUMA node of the calling thread, which will
/// poll it, if the thread is bound to one; else they come from where they are first touched. Slow path, any thread.
void place_memory(void* base, std::size_t bytes) noexcept;

/// A number for the NUMA node that the calling thread is bound to; -1: several, or nothing is known of it.
[[nodiscard]] int numa_node_of_thread() noexcept;

/// What has been placed in this process, as text of one line without a newline.
void describe_placement(char* text, std::size_t size) noexcept;

} // namespace tofu
