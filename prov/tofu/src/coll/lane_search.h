// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Finds the memory of the members that this one has lanes to (docs/wire-protocol.md, "Collective groups"). Driven by
// group until all are found or lost; calls lanes, vcq.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "coll/lanes.h"
#include "mem/mr_directory.h"
#include "utofu/vcq.h"

namespace tofu::coll {

/// The key of a member of the group with this key.
inline std::uint64_t key_of(std::uint64_t group, unsigned member) noexcept { return directory::mix(group + member); }

/// All functions but open() are called under the context's lock.
class Search {
  public:
    /// `group`: its key.
    Search(TxContext& tx, Lanes& lanes, std::uint64_t group) noexcept : tx_(tx), lanes_(lanes), group_(group) {}
    /// False: no memory.
    [[nodiscard]] bool open(const Roster& roster) noexcept;
    /// True if no peer is looked for any more. A member that has left goes on looking, because it has to tell the
    /// others.
    [[nodiscard]] bool over() const noexcept { return unknown_ == 0; }
    /// Looks once for each peer that is still unknown.
    void progress() noexcept;

  private:
    /// The search for one peer: reads the line of its domain's directory, then rows of the table that the line names.
    struct Look : vcq::Waiter {
        Search* search = nullptr;
        Lane* lane = nullptr;
        bool reading = false;
        unsigned choice = 0;     ///< row of the peer's table to look at next
        std::uint64_t key = 0;   ///< of the peer's line there
        std::uint64_t due = 0;   ///< of the next look (clock_ms)
        utofu_stadd_t table = 0; ///< the peer's table; 0: not known yet
    };
    void look(Look& look) noexcept;
    void looked(Look& look, const std::byte* at) noexcept;
    void lose(Look& look, int err, int prov_errno) noexcept;
    static void on_read(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;

    TxContext& tx_;
    Lanes& lanes_;
    std::uint64_t group_;
    std::unique_ptr<Look[]> looks_;
    unsigned unknown_ = 0; ///< lanes whose peer is still looked for
};

} // namespace tofu::coll
