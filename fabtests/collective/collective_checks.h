// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the checks of fi_collective(3) have in common: an endpoint with an event queue, sets, groups, entries. Used by
// this folder; calls station.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include <rdma/fi_collective.h>

#include "../common/station.h"

namespace fabtests {

/// The station of a check, and what it joined, which it closes.
class Party {
  public:
    explicit Party(World& w, bool selective = false);
    Party(const Party&) = delete;
    ~Party();

    fid_ep* ep() { return station_.ep(); }
    Station& station() { return station_; }
    /// A set of these addresses of the vector; all ranks without any.
    fid_av_set* set(const std::vector<fi_addr_t>& members);
    std::vector<fi_addr_t> all() const;
    /// Of the set's members, or within the group `parent`.
    fid_mc* join(fid_av_set* set, fi_addr_t parent = FI_ADDR_NOTAVAIL, void* context = nullptr);
    fid_mc* join(const std::vector<fi_addr_t>& members);
    /// The next event: FI_JOIN_COMPLETE of this group.
    bool joined(const fid_mc* mc);
    void leave(fid_mc* mc);
    /// The entry of the operation comes, a success.
    bool ends(const void* context);
    /// No rank has an entry or an event.
    bool quiet() { return station_.quiet(station_.tx()); }
    /// A call, repeated while it is refused for a while, and its end.
    template <class F>
    bool done(F call, const void* context = nullptr)
    {
        return station_.post(call) == 0 && ends(context);
    }

  private:
    World& w_;
    Station station_;
    std::vector<fid_mc*> groups_;
};

/// Values in the order of the lists of the page's pictures.
using Words = std::vector<std::int32_t>;

// groups.cc
void check_sets(World& w);
void check_join(World& w);
void check_subgroups(World& w);
void check_query(World& w);
// data.cc
void check_pictures(World& w);
void check_barrier(World& w);
void check_reductions(World& w);
void check_sizes(World& w);
void check_completions(World& w);
void check_refusals(World& w);

} // namespace fabtests
