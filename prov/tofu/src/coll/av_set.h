// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_av_set(3): an ordered selection of addresses of an address vector, from which a group is made. Opened through
// fi_av; read by join (collectives.cc); calls nothing.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include <rdma/fi_collective.h>

#include "av/peer_table.h"
#include "core/containers.h"
#include "core/object.h"

namespace tofu::coll {

/// Local, as the page says; not thread-safe against its own changes. A group that was joined has its own copy.
class AvSet final : public Object<AvSet, fid_av_set, Peers> {
  public:
    explicit AvSet(Peers& peers) noexcept;
    /// 0, -FI_EINVAL, -FI_EBADFLAGS, -FI_EOPNOTSUPP (a communication key), -FI_ENOMEM.
    [[nodiscard]] int set_up(const fi_av_set_attr* attr) noexcept;

    [[nodiscard]] const Array<fi_addr_t>& members() const noexcept { return members_; }
    [[nodiscard]] Peers& peers() const noexcept { return owner(); }
    /// The address that fi_av_set_addr gives. It names this set and no group: groups have the top bit set
    /// (Collectives::enter), addresses of memory do not.
    [[nodiscard]] fi_addr_t address() const noexcept { return std::bit_cast<std::uintptr_t>(this); }

    // --- the calls of its operation table: 0, -FI_EINVAL, -FI_ENOMEM
    int unite(const fid_av_set* other) noexcept;
    int intersect(const fid_av_set* other) noexcept { return keep(other, true); }
    int subtract(const fid_av_set* other) noexcept { return keep(other, false); }
    int insert(fi_addr_t address) noexcept;
    int remove(fi_addr_t address) noexcept;
    int tell(fi_addr_t* to) const noexcept;

  private:
    /// The set behind a fid; null: it is no set of the same vector.
    [[nodiscard]] const AvSet* mate(const fid_av_set* other) const noexcept;
    [[nodiscard]] int keep(const fid_av_set* other, bool common) noexcept;
    [[nodiscard]] bool has(fi_addr_t address) const noexcept;
    [[nodiscard]] bool add(fi_addr_t address) noexcept;
    void mark(fi_addr_t address, bool present) noexcept;

    Array<fi_addr_t> members_;
    Array<std::uint64_t> present_; ///< a bit for each place of the vector: set if it is a member
};

} // namespace tofu::coll
