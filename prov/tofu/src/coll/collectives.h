// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_collective(3): the groups of a context, and the calls on them. The application calls them through collective_ops
// and fi_join; the endpoint's progress drives them.
#pragma once

#include <cstdint>

#include <rdma/fi_collective.h>

#include "coll/group.h"
#include "core/containers.h"
#include "core/object.h"
#include "core/pool.h"
#include "tx/tx_context.h"

namespace tofu {
class EventQueue;
}

namespace tofu::coll {

/// The operation table of endpoints that support collectives.
extern fi_ops_collective collective_ops;

/// Its users (core/object.h) are the open groups: the endpoint cannot be closed before them.
class Collectives final : public tofu::Engine, public RefCounted {
  public:
    static Collectives& of(TxContext& tx) noexcept { return static_cast<Collectives&>(*tx.engines()[collectives]); }
    explicit Collectives(TxContext& tx) noexcept;
    ~Collectives();

    // --- Called without the context's lock, since they acquire the target lock.
    /// fi_join_collective(3). 0, -FI_EINVAL (no set, a set without this endpoint, or with an endpoint twice),
    /// -FI_EBADFLAGS, -FI_ENOSPC, -FI_ENOMEM. A later failure is reported to `events`.
    int join(EventQueue& events, const void* address, std::uint64_t flags, fid_mc** mc, void* context) noexcept;
    int close_group(Group& group) noexcept;
    /// Releases the memory and gates of all groups. Called after the VCQ has been freed.
    void destroy_all() noexcept;

    // --- Called under the context's lock.
    struct Call {
        Shape shape;
        const void* in = nullptr;
        void* out = nullptr;
        fi_addr_t group = FI_ADDR_NOTAVAIL;
        std::uint64_t flags = 0;
        void* context = nullptr;
    };
    /// Accepts a collective. 0, or an error code without any effect.
    [[nodiscard]] ssize_t submit(const Call& call) noexcept;
    void progress() noexcept
    {
        if (busy_ != nullptr) [[unlikely]]
            work();
    }
    /// Adds the group to those that progress() runs.
    void wake(Group& group) noexcept;
    /// Reports the completion or the failure of an operation of a group.
    void end(CollectiveOp& op) noexcept;

    [[nodiscard]] bool idle_towards(const Peer&) const noexcept override { return all_has_left(); }
    [[nodiscard]] bool all_has_left() const noexcept override;
    /// True if no peer writes to the memory of any group any more.
    [[nodiscard]] bool all_quiescent() const noexcept;
    [[nodiscard]] bool needs_polls() const noexcept override { return busy_ != nullptr; }

  private:
    void work() noexcept;
    [[nodiscard]] Group* find(fi_addr_t address) const noexcept;
    [[nodiscard]] int collect(const fi_collective_addr& address, Roster& roster, std::uint64_t& list) const noexcept;
    [[nodiscard]] int enter(Group& group) noexcept;
    void destroy_left() noexcept;

    TxContext& tx_;
    Pool<CollectiveOp> ops_;
    Array<Group*> groups_;  ///< all, including closed ones that are not released yet
    Group* busy_ = nullptr; ///< list of the groups that progress() runs
    /// The number of joins of each list of members, by its hash. It distinguishes the groups of the list.
    Map<std::uint64_t, std::uint64_t> joins_;
    Array<Group*> by_number_; ///< open groups, by the low bits of their address; null: free
};

} // namespace tofu::coll
