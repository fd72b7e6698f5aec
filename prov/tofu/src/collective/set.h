// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_av_set(3): an ordered choice of addresses of an address vector, from which groups are made. Opened through fi_av;
// read by join (engine.cc); calls nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fi_collective.h>

#include "address/peers.h"
#include "provider/array.h"

namespace tofu::coll {

/// Local, as the page says; not thread-safe against changes of itself. A group that was joined has its own copy.
class AvSet final : public fid_av_set {
  public:
    /// fi_av_set(3); holds the vector. 0, -FI_EINVAL, -FI_EBADFLAGS, -FI_EOPNOTSUPP (a communication key), -FI_ENOMEM.
    static int open(fid_av* av, fi_av_set_attr* attr, fid_av_set** set, void* context) noexcept;
    static AvSet& of(fid_av_set* s) noexcept { return *static_cast<AvSet*>(s); }
    static const AvSet& of(const fid_av_set* s) noexcept { return *static_cast<const AvSet*>(s); }

    [[nodiscard]] const Array<fi_addr_t>& members() const noexcept { return members_; }
    [[nodiscard]] Peers& peers() const noexcept { return peers_; }
    [[nodiscard]] bool has(fi_addr_t address) const noexcept;
    /// What fi_av_set_addr tells: this set, and no group.
    [[nodiscard]] fi_addr_t address() const noexcept;

    // --- the calls of its operation table: 0, -FI_EINVAL, -FI_ENOMEM
    int unite(const AvSet& other) noexcept;
    /// Keeps what the other has, too (`common`), or what it has not.
    int keep(const AvSet& other, bool common) noexcept;
    int insert(fi_addr_t address) noexcept;
    int remove(fi_addr_t address) noexcept;
    int close() noexcept;

  private:
    explicit AvSet(Peers& peers) noexcept : peers_(peers) {}
    ~AvSet() = default;
    [[nodiscard]] int fill(const fi_av_set_attr& attr) noexcept;
    [[nodiscard]] bool add(fi_addr_t address) noexcept;
    void mark(fi_addr_t address, bool present) noexcept;

    Peers& peers_;
    Array<fi_addr_t> members_;
    Array<std::uint64_t> present_; ///< a bit for each place of the vector: is it a member?
};

} // namespace tofu::coll
