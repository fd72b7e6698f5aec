// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The topology of the node (Map): its NUMA nodes (core memory groups of an A64FX) with their processors, and the
// placement of memory, TNIs and threads of this process. hwloc is queried once and without devices, at first use. It is
// not queried on a node with one NUMA node, or with FI_TOFU_NUMA=off. Other sources: an MPI launcher's library, the
// kernel.
#pragma once

#include <bitset>
#include <cstddef>

#include <sched.h>

namespace tofu::node {

/// Processors as the kernel numbers them.
using Processors = std::bitset<CPU_SETSIZE>;

/// The turn of a process among the processes of its node, if all are bound to as many processors: 0 to `of` - 1, first
/// over the groups, then within them. `of` is 0 where nothing is known.
struct Seat {
    unsigned number = 0;
    unsigned of = 0;
};

class Map {
  public:
    static constexpr unsigned most_groups = 64;
    /// A NUMA node with processors that are allowed.
    struct Group {
        unsigned number;       ///< as the kernel counts them
        Processors processors; ///< allowed ones
        unsigned of_hardware;  ///< its processors, with those that are not allowed
        const void* nodeset;   ///< hwloc's
    };

    Map() = default;
    Map(const Map&) = delete;
    Map& operator=(const Map&) = delete;
    ~Map();

    /// Of this process; null where nothing is known. Any thread. The first call takes some milliseconds.
    [[nodiscard]] static const Map* of_process() noexcept;
    /// The same, but null also where there is one group, which costs a look at a file.
    [[nodiscard]] static const Map* of_several_groups() noexcept;
    /// Reads a topology; false: hwloc has none.
    [[nodiscard]] bool read() noexcept;

    [[nodiscard]] bool is_here() const noexcept { return here_; }
    [[nodiscard]] const Processors& allowed() const noexcept { return allowed_; }
    [[nodiscard]] unsigned groups() const noexcept { return count_; }
    [[nodiscard]] const Group& group(unsigned i) const noexcept { return groups_[i]; }
    /// The group that all these processors lie in; null: several, or none. Assistant cores are a group, too.
    [[nodiscard]] const Group* group_of(const Processors& processors) const noexcept;
    /// Of a process that is bound to these processors.
    [[nodiscard]] Seat seat_of(const Processors& processors) const noexcept;
    /// Where a thread disturbs no computing on these processors: allowed assistant cores; else others of the group;
    /// else all others. Empty: there are none.
    [[nodiscard]] Processors apart_from(const Processors& processors) const noexcept;
    /// Prefers a group for pages that are not there yet. 0, or what the kernel says.
    [[nodiscard]] int prefer(void* base, std::size_t bytes, const Group& group) const noexcept;
    /// Takes that back.
    void prefer_none(void* base, std::size_t bytes) const noexcept;

  private:
    [[nodiscard]] bool is_assistant(const Group& group) const noexcept;
    [[nodiscard]] bool load(void*& topology) const noexcept;
    void compare_with_thread() const noexcept;

    void* topology_ = nullptr;
    bool here_ = false;
    unsigned count_ = 0;
    Processors allowed_{};
    Group groups_[most_groups];
};

/// What a thread may run on; 0: the calling thread. Empty: unknown.
[[nodiscard]] Processors processors_of_thread(pid_t thread = 0) noexcept;
/// What the threads of this process are bound to that are bound to fewer than all of `allowed`.
[[nodiscard]] Processors bound_of_process(const Processors& allowed) noexcept;

/// "12-23,48" into text, whole or up to its size.
void write_list(const Processors& processors, char* text, std::size_t size) noexcept;

} // namespace tofu::node
