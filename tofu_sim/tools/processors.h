// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The processors that a job may use on this machine, and which of them each simulated node gets. Uses: hwloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

struct hwloc_topology;
struct hwloc_bitmap_s;

namespace tofu::sim::tools {

struct FreeBitmap {
    void operator()(hwloc_bitmap_s* set) const noexcept;
};
using Cpuset = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

class Processors {
  public:
    /// What hwloc allows, as far as this process is bound to it; by the kernel's mask if hwloc cannot read this
    /// machine's topology, after a line on stderr. `quota`: of the cgroup, 0 for none. `here` is false in tests: a
    /// topology of another machine counts as if it were this one.
    explicit Processors(uint32_t quota, bool here = true);
    ~Processors();
    Processors(const Processors&) = delete;
    Processors& operator=(const Processors&) = delete;

    /// The kernel's numbers, near ones beside each other.
    [[nodiscard]] const std::vector<int>& allowed() const noexcept { return allowed_; }
    /// How many processes can run at the same time: allowed, or what the quota leaves of them.
    [[nodiscard]] size_t at_a_time() const noexcept;
    /// "2", "64, with time for 2 (cpu.max)"
    [[nodiscard]] std::string text() const;

    /// For processes of each of the nodes a set of whole cores, more for more processes; neighbours where hwloc sees
    /// such. None where a process would have no core of its own, where there is one node, or if processes cannot be
    /// bound.
    [[nodiscard]] std::vector<Cpuset> shares(std::span<const uint32_t> processes_of_node) const;
    /// Binds the calling process; false: the kernel refuses.
    [[nodiscard]] bool bind(const hwloc_bitmap_s* set) const noexcept;

  private:
    void take_mask();

    hwloc_topology* topology_ = nullptr; ///< null: not known, or not this machine's
    std::vector<int> allowed_;
    uint32_t quota_;
};

/// "0-3,8"
[[nodiscard]] std::string text_of(const hwloc_bitmap_s* set);

} // namespace tofu::sim::tools
