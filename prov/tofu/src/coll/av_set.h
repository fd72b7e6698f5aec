// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_av_set(3): an ordered selection of addresses of an address vector, from which a group is made. Opened through
// fi_av; read by join (collectives.cc); calls nothing.
#pragma once

#include <bit>
#include <cstdint>

#include <rdma/fi_collective.h>

#include "av/peer_table.h"
#include "core/containers.h"
#include "core/object.h"

namespace tofu::coll {

/// fi_av_set(3). A set is local to its process, and its calls are not thread-safe against each other. A group has its
/// own copy of the members.
class AvSet final : public Object<AvSet, fid_av_set, Peers> {
  public:
    explicit AvSet(Peers& peers) noexcept;
    /// 0, -FI_EINVAL, -FI_EBADFLAGS, -FI_EOPNOTSUPP (a communication key), -FI_ENOMEM.
    [[nodiscard]] int set_up(const fi_av_set_attr* attr) noexcept;

    [[nodiscard]] const Array<fi_addr_t>& members() const noexcept { return members_; }
    [[nodiscard]] Peers& peers() const noexcept { return owner(); }
    /// The result of fi_av_set_addr. It names this set and no group: the address of a group has the top bit set
    /// (Collectives::enter), and an address of memory has not.
    [[nodiscard]] fi_addr_t address() const noexcept { return std::bit_cast<std::uintptr_t>(this); }

    // --- The calls of its operation table. Each returns 0, -FI_EINVAL or -FI_ENOMEM.
    int unite(const fid_av_set* other) noexcept;
    int intersect(const fid_av_set* other) noexcept { return keep(other, true); }
    int subtract(const fid_av_set* other) noexcept { return keep(other, false); }
    int insert(fi_addr_t address) noexcept;
    int remove(fi_addr_t address) noexcept;
    int get_address(fi_addr_t* to) const noexcept;

  private:
    /// The set of a fid. Null: it is not a set of the same address vector.
    [[nodiscard]] const AvSet* compatible(const fid_av_set* other) const noexcept;
    [[nodiscard]] int keep(const fid_av_set* other, bool common) noexcept;
    [[nodiscard]] bool has(fi_addr_t address) const noexcept { return address < present_.size() && present_[address]; }
    [[nodiscard]] bool add(fi_addr_t address) noexcept;

    Array<fi_addr_t> members_;
    Array<bool> present_; ///< by AV index: it is a member
};

} // namespace tofu::coll
