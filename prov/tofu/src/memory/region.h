// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The regions of a domain: how peers reach each, and what they did to it. Called by the domain (home notices) and object/mr.cc; calls vcq.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include <rdma/fi_domain.h>

#include "local/local_memory.h"
#include "local/mr.h"
#include "memory/annexes.h"
#include "memory/directory.h"
#include "memory/event_counters.h"
#include "memory/own_directory.h"
#include "provider/array.h"
#include "provider/lock.h"
#include "provider/spare_node.h"
#include "vcq/vcq.h"

namespace tofu {

class DomainBase;

/// The regions of one domain. Locks itself by the domain's home lock (slow path all of it).
class RegionTable {
  public:
    explicit RegionTable(DomainBase& domain) noexcept;
    ~RegionTable();
    /// Puts the directory under its STag; the home VCQ is open. 0 or -FI_E*.
    [[nodiscard]] int open() noexcept;
    /// Before the home VCQ is closed. All regions are closed by then.
    void close() noexcept;

    /// A notice of the home VCQ (`home` 0) that is not of a message area, or of an annex: counts the remote events of
    /// the region (and of endpoints) that it hit. Under the home lock.
    void remote_event(unsigned home, const vcq::RemoteNotice& notice) noexcept;

    /// The further VCQs of the domain; under the home lock.
    [[nodiscard]] Annexes& annexes() noexcept { return annexes_; }

    /// What peers read of the domain; under the home lock.
    [[nodiscard]] OwnDirectory& directory() noexcept { return directory_; }

    /// Every LocalMemory of the domain whose registrations end with a region's (fi_close of a region).
    /// 0 or -FI_ENOMEM.
    [[nodiscard]] int attach(LocalMemory& memory, Lock& lock) noexcept;
    void detach(LocalMemory& memory) noexcept;

    // --- regions (object/mr.cc)
    /// Gives a new one what `attr` asks for. 0 or -FI_E*.
    [[nodiscard]] int add(MemoryRegion& region, const fi_mr_attr& attr) noexcept;
    /// From now on nobody reaches it, and no LocalMemory knows of it.
    void remove(MemoryRegion& region) noexcept;
    /// The region counts events of these rights here. 0, or -FI_EINVAL: one of them is counted elsewhere.
    [[nodiscard]] int bind(MemoryRegion& region, Counter& counter, std::uint64_t rights) noexcept;
    /// The events of the region are counted by this endpoint alone.
    void bind(MemoryRegion& region, unsigned endpoint, const RxCounters& counters) noexcept;

    /// Endpoints that count what peers do.
    [[nodiscard]] EventCounters& events() noexcept { return events_; }

  private:
    struct User {
        LocalMemory* memory;
        Lock* lock;

        friend bool operator==(const User& a, const User& b) noexcept { return a.memory == b.memory; }
    };
    [[nodiscard]] int reach(MemoryRegion& region) noexcept;
    [[nodiscard]] int register_alone(MemoryRegion& region) noexcept;
    [[nodiscard]] bool shares_tag(const MemoryRegion& region) const noexcept;
    [[nodiscard]] int give_key(MemoryRegion& region) noexcept;
    void part(const MemoryRegion& region) noexcept;
    [[nodiscard]] std::uint64_t bias_of(const MemoryRegion& region) const noexcept;

    /// An STADD and the number of the home it is one of.
    using Place = std::pair<unsigned, utofu_stadd_t>;

    DomainBase& domain_;
    OwnDirectory directory_;
    Annexes annexes_;
    SpareNodeMap<std::map, std::uint64_t, MemoryRegion*> by_key_; ///< keys of the user
    SpareNodeMap<std::multimap, Place, MemoryRegion*> by_place_;  ///< those that peers may reach
    std::size_t longest_ = 0; ///< bytes of a region, ever: none that begins further before an address reaches it
    EventCounters events_;
    Array<User> users_;
    Lock users_lock_;
    std::uint64_t next_serial_ = 1;
    std::uint64_t next_listed_ = directory::listed_bit; ///< keys of the provider's choice that are no bias
};

} // namespace tofu
